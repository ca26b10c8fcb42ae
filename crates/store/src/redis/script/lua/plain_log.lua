-- Decides a request of one charge to a sliding log. plain.lua says what it gets and returns.
local call, pack, unpack_from = redis.call, struct.pack, struct.unpack
local key = KEYS[1]
local NOW, GRACE_MS, mode, units, limit, window = unpack_from(PLAIN_FORMAT, ARGV[1])
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
DEFINE_SLIDING_LOG
local log = open_log(key, limit, window)
local fits = mode >= REFUND or log.total - log.base + units <= limit
if mode ~= PEEK and (fits or mode == RECORD) then
  record_log(key, log, mode, units, limit, window)
  local unused_from = log.unused_from
  EXPIRE_LOG
end
local used, newest, next_one, same_cost = log_facts(key, log, units, limit)
return { NOW, fits and used or -1 - used, newest, next_one, same_cost }
