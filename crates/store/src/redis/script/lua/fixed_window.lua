-- Fixed window: a kernel, see plain.lua.
-- Numbers  index of the window, units in it. The end of the window discards a debt, so a debt has no other bound than
--          that of doubles
-- units, limit in units; window in us
local now_index = (NOW - NOW % window) / window
if not index then
  if text and #text == 16 then
    index, count = unpack_from('<dd', text)
  end
  if index and index >= now_index and index * window < EXACT and index % 1 == 0
    and count >= 0 and count < EXACT and count % 1 == 0 then
    stored_unused_from = (index + 1) * window
  else
    index, count = now_index, 0
  end
end
if count == 0 and index > now_index then -- an unused window equals a missing counter, even if it is in the future
  index = now_index
end
if mode < REFUND then
  local after = count + units
  fits = after <= limit
  if fits and mode ~= PEEK then
    unused_from, new_index, new_count = (index + 1) * window, index, after
  elseif mode == RECORD then
    unused_from, new_index, new_count = (index + 1) * window, index, after < EXACT and after or EXACT - 1
  end
elseif mode ~= UNDO or index == GRANT_ID then -- GRANT_ID is the window of the grant, which may have ended
  if count > units then
    unused_from, new_index, new_count = (index + 1) * window, index, count - units
  else
    unused_from, new_index, new_count = NOW, now_index, 0
  end
end
