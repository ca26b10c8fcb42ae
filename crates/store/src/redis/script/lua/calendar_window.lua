-- Decides one charge to a limit with windows of a calendar, which may differ in length.
--
-- KEYS[1]  the counter: two doubles: the start of the window in us, the units in it
-- ARGV[1]  little endian:
--            double   time in us since the epoch, or -1 for the server's clock
--            double   time in ms for which the counter is kept after it is unused
--            u8       mode: 0 asks, 1 takes units if they fit, 2 takes them in any case, 3 and 4 give units back
--            doubles  units; limit in units; first, middle, last: boundaries between windows in us, rising
-- Returns  integers: the time in us, then the counter after the decision: the start of its window in us, the units in
--          it. If the charge does not fit, its first number x is returned as -1 - x.
local PEEK, TAKE, REFUND, UNDO = 0, 1, 3, 5
local GRANT_ID = nil -- the grant to undo: only batch.lua undoes grants
local call, pack, unpack_from = redis.call, struct.pack, struct.unpack
local NOW, GRACE_MS, mode, units, limit, first, middle, last = unpack_from('<ddBddddd', ARGV[1])
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
local text = call('MGET', key)[1] -- GET would be an error for a list

local fits = true
local start, count = nil, nil -- in batch.lua an equal charge may have set them
local stored_unused_from, unused_from, new_start, new_count
-- BEGIN kernel
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
  if start and start >= earliest and start + last - middle < 2^53 and start % 1 == 0
    and count >= 0 and count < 2^53 and count % 1 == 0 then
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
  elseif after >= 2^53 then
    after = 2^53 - 1
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
-- END kernel

if unused_from then
  local new_text = unused_from > NOW and pack('<dd', new_start, new_count)
  -- COPY gcra_whole.lua write
  local expires = unused_from + -unused_from % 1000000
  if not new_text then
    if text then
      call('DEL', key)
    end
  elseif stored_unused_from and stored_unused_from <= expires and stored_unused_from > expires - 1000000 then
    call('SETRANGE', key, '0', new_text)
  else
    local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS
    ttl_ms = string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms)
    call('PSETEX', key, ttl_ms, new_text)
  end
  -- END write
  start, count = new_start, new_count
end
return { NOW, fits and start or -1 - start, count }
