-- Decides one charge to a token bucket that is refilled once per interval.
--
-- KEYS[1]  the counter: two doubles: the time of the last refill in us, the tokens after it (negative after postpaid
--          units)
-- ARGV[1]  little endian:
--            double   time in us since the epoch, or -1 for the server's clock
--            double   time in ms for which the counter is kept after it is unused
--            u8       mode: 0 asks, 1 takes units if they fit, 2 takes them in any case, 3 and 4 give units back
--            doubles  units, capacity, refill in tokens; interval in us
-- Returns  integers: the time in us, then the counter after the decision: the time of its last refill in us, its
--          tokens. If the charge does not fit, its first number x is returned as -1 - x.
local TAKE, RECORD, REFUND, UNDO = 1, 2, 3, 5
local GRANT_ID = nil -- the grant to undo: only batch.lua undoes grants
local call, pack, unpack_from = redis.call, struct.pack, struct.unpack
local NOW, GRACE_MS, mode, units, capacity, refill, interval = unpack_from('<ddBdddd', ARGV[1])
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
local text = call('MGET', key)[1] -- GET would be an error for a list

local fits = true
local last, tokens = nil, nil -- in batch.lua an equal charge may have set them
local stored_unused_from, unused_from, new_last, new_tokens
-- BEGIN kernel
if not last then
  if text and #text == 16 then
    last, tokens = unpack_from('<dd', text)
  end
  if last and last >= 0 and last < 2^53 and last % 1 == 0
    and tokens >= -capacity and tokens <= capacity and tokens % 1 == 0 then
    stored_unused_from = last + math.floor((capacity - tokens + refill - 1) / refill) * interval
  else
    tokens, last = capacity, NOW
  end
  local refills = NOW > last and math.floor((NOW - last) / interval) or 0
  -- The refills are compared before they are multiplied: after a long idle time the product would exceed 2^53.
  if refills >= math.floor((capacity - tokens + refill - 1) / refill) then
    tokens, last = capacity, NOW
  else
    tokens, last = tokens + refills * refill, last + refills * interval
  end
end
-- Intervals of a full bucket start at the next grant. A refund earlier in the call may have filled it.
local start = tokens == capacity and NOW or last
local after
if mode >= REFUND then
  if mode == UNDO and start > GRANT_ID then -- GRANT_ID is the time of the last refill before the grant
    units = units - math.floor((start - GRANT_ID + interval - 1) / interval) * refill
  end
  if units > 0 then
    after = tokens + units
    if after > capacity then
      after = capacity
    end
  end
else
  fits = units <= tokens
  if mode == RECORD or fits and mode == TAKE then
    after = tokens - units
    if after < -capacity then
      after = -capacity
    end
  end
end
if after then
  new_last, new_tokens = start, after
  unused_from = NOW
  if after < capacity then
    unused_from = start + math.floor((capacity - after + refill - 1) / refill) * interval
  end
end
-- END kernel

if unused_from then
  local new_text = unused_from > NOW and pack('<dd', new_last, new_tokens)
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
  last, tokens = new_last, new_tokens
end
return { NOW, fits and last or -1 - last, tokens }
