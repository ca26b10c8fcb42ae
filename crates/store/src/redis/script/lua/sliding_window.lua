-- Sliding window: a kernel, see plain.lua.
-- Numbers  index of the current window, units in it, units in the window before
-- units, limit in units; window in us
local now_index = (NOW - NOW % window) / window
if not index then
  if text and #text == 24 then
    index, current, previous = unpack_from('<ddd', text)
  end
  if index and index >= now_index - 1 and index * window < EXACT and index % 1 == 0
    and current >= 0 and current < 281474976710656 and current % 1 == 0 -- 2^48: twice the largest limit is less
    and previous >= 0 and previous < 281474976710656 and previous % 1 == 0 then
    stored_unused_from = (index + (current > 0 and 2 or previous > 0 and 1 or 0)) * window
    if index < now_index then
      index, current, previous = now_index, 0, current
    end
  else
    index, current, previous = now_index, 0, 0
  end
end
if current == 0 and previous == 0 and index > now_index then
  index = now_index -- unused windows equal a missing counter, even if they are in the future
end
local after, after_previous = nil, previous
if mode == UNDO and index ~= GRANT_ID then -- GRANT_ID is the window of the grant, which has ended
  if index - 1 == GRANT_ID then -- it is the window before
    after, after_previous = current, previous > units and previous - units or 0
  end
elseif mode >= REFUND then
  after = current > units and current - units or 0
else
  after = current + units
  local remaining = (index + 1) * window - NOW
  if remaining > window then -- the clock was set back: decide as at the start of the window
    remaining = window
  end
  local uncovered, room = previous * remaining, (limit - after) * window
  fits = after <= limit and uncovered <= room
  -- Rounding never reverses the order of two numbers, so exact products are needed only if both round to the same one.
  if fits and uncovered == room and room >= EXACT then
    DEFINE_AT_MOST
    fits = at_most(previous, remaining, limit - after, window)
  end
  if mode == PEEK or not fits and mode == TAKE then
    after = nil
  elseif after > 2 * limit then
    after = current > 2 * limit and current or 2 * limit -- the limit may have been larger
  end
end
if after then
  new_index, new_current, new_previous = index, after, after_previous
  if after == 0 and after_previous == 0 then
    new_index = now_index
  end
  unused_from = (new_index + (after > 0 and 2 or after_previous > 0 and 1 or 0)) * window
end
