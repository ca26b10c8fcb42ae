-- Fixed window: a kernel, see plain.lua.
-- Numbers  index of the window, units in it. More than twice the limit counts as twice the limit; the exact number
--          tells how many units of the last charge were over the limit
-- units, limit in units; window in us
local now_index = (NOW - NOW % window) / window
if not index then
  if text and #text == 16 then
    index, count = unpack_from('<dd', text)
  end
  if index and index >= now_index and index * window < EXACT and index % 1 == 0
    and count >= 0 and count <= 2 * limit + 4294967296 and count % 1 == 0 then
    stored_unused_from = (index + 1) * window
  else
    index, count = now_index, 0
  end
end
if count == 0 and index > now_index then -- an unused window equals a missing counter, even if it is in the future
  index = now_index
end
local used = count > 2 * limit and 2 * limit or count
if mode < REFUND then
  local after = used + units
  fits = after <= limit
  if fits and mode ~= PEEK or mode == RECORD then
    unused_from, new_index, new_count = (index + 1) * window, index, after
  end
elseif mode ~= UNDO or index == GRANT_ID then -- GRANT_ID is the window of the grant, which may have ended
  if used > units then
    unused_from, new_index, new_count = (index + 1) * window, index, used - units
  else
    unused_from, new_index, new_count = NOW, now_index, 0
  end
end
