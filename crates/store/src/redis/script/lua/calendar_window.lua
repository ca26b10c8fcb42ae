-- Window of a calendar: a kernel, see plain.lua.
-- Numbers  start of the window in us, units in it
-- units, limit in units; first, middle, last: boundaries between windows in us, rising
local now_start = NOW < middle and first or middle
local earliest = now_start -- a stored window that has begun earlier is over
if NOW >= last then -- this clock is ahead by more than half a window: windows as long as the later one follow
  now_start = NOW - (NOW - last) % (last - middle)
  earliest = math.max(last, NOW - (last - middle) + 1)
elseif NOW < first then -- the process is ahead by more than half a window: windows as long as the earlier one before it
  now_start = math.max(NOW - (NOW - first) % (middle - first), 0)
  earliest = NOW - (middle - first) + 1
end
if not start then
  if text and #text == 16 then
    start, count = unpack_from('<dd', text)
  end
  if start and start >= earliest and start + last - middle < EXACT and start % 1 == 0
    and count >= 0 and count < EXACT and count % 1 == 0 then
    stored_unused_from = start < first and start + middle - first or start < middle and middle
      or start < last and last or start + last - middle
  else
    start, count = now_start, 0
  end
end
if count == 0 then -- an unused window equals a missing counter, even if it is in the future
  start = now_start
end
local after
if mode < REFUND then
  after = count + units
  fits = after <= limit
  if mode == PEEK or not fits and mode == TAKE then
    after = nil
  elseif after >= EXACT then
    after = EXACT - 1
  end
elseif mode ~= UNDO or start == GRANT_ID then -- GRANT_ID is the start of the window of the grant, which may have ended
  after = count > units and count - units or 0
end
if after then
  new_start, new_count = start, after
  unused_from = start < first and start + middle - first or start < middle and middle
    or start < last and last or start + last - middle
  if after == 0 then
    unused_from, new_start = NOW, now_start
  end
end
