-- Decides one charge to a concurrency limit: requests hold slots until they release them.
--
-- KEYS[1]  the counter: a sorted set with the id of each slot, and as its score the time in us at which the slot ends.
--          Ended slots stay until the next take
-- ARGV[1]  little endian:
--            double   time in us since the epoch, or -1 for the server's clock
--            double   time in ms for which the counter is kept after it is unused
--            u8       mode: 0 asks, 1 takes the slot if it fits, 2 takes it in any case, 3 to 5 release it
--            doubles  slots that must be free, 0 or 1; limit in slots; longest time in us for which a slot is held; id
-- Returns  integers: the time in us, then the counter after the decision: open slots; times in us, or 0: the end of the
--          slot after which one more fits, and the last end; and how many slots the change removed: the ended ones, or
--          1 if the released slot was open. If the charge does not fit, its first number x is returned as -1 - x.
local PEEK, RECORD, REFUND = 0, 2, 3
local call, unpack_from = redis.call, struct.unpack
local NOW, GRACE_MS, mode, units, limit, hold, id = unpack_from('<ddBdddd', ARGV[1])
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
local key = KEYS[1]

-- BEGIN read
local live = string.format('(%.0f', NOW)
local ends = redis.pcall('ZSCORE', key, id)
-- Only a value of another type is foreign. Any other error, such as a missing permission, fails the call.
local is_foreign = type(ends) == 'table'
if is_foreign and not string.find(ends.err, '^WRONGTYPE') then
  error(ends)
end
local open = is_foreign and 0 or call('ZCOUNT', key, live, '+inf')
ends = not is_foreign and tonumber(ends or 0) or 0
-- END read
local fits = mode >= REFUND or ends > NOW or open + units <= limit
local is_recorded = mode ~= PEEK and (fits or mode == RECORD)
-- BEGIN record
local removed, frees, last = 0, 0, 0
if is_recorded and mode >= REFUND then
  removed = ends > NOW and 1 or 0
  open = open - removed
  if open == 0 and not is_foreign then
    call('DEL', key) -- ended slots must not open again if the clock steps back
  elseif ends > 0 then
    call('ZREM', key, id)
  end
elseif is_recorded then
  if is_foreign then
    call('DEL', key)
  end
  removed = call('ZREMRANGEBYSCORE', key, '-inf', NOW)
  open = ends > NOW and open or open + 1
  call('ZADD', key, ends > NOW + hold and ends or NOW + hold, id)
end
if open > 0 then
  last = tonumber(call('ZREVRANGE', key, '0', '0', 'WITHSCORES')[2])
  local above = open > limit and open - limit or 0
  frees = last
  if open > 1 then
    frees = tonumber(call('ZRANGEBYSCORE', key, live, '+inf', 'WITHSCORES', 'LIMIT', above, '1')[2])
  end
  if is_recorded and mode < REFUND then
    call('PEXPIRE', key, string.format('%.0f', math.ceil((last - NOW) / 1000) + GRACE_MS))
  end
end
-- END record
return { NOW, fits and open or -1 - open, frees, last, removed }
