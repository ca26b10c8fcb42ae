-- A piece of batch.lua: records a charge to a log that has waited for the verdict on its request.
local key, log, mode = KEYS[WAITING[first + 1]], WAITING[first + 2], WAITING[first + 3]
local units, limit, window = WAITING[first + 5], WAITING[first + 6], WAITING[first + 7]
record_log(key, log, mode, units, limit, window)
STORE_LOG
REPLY[n + 1], REPLY[n + 2], REPLY[n + 3], REPLY[n + 4] = log_facts(key, log, units, limit)
