-- A piece of plain_log.lua and batch.lua: sets the expiry of a changed log to `unused_from`, the time from which it is
-- unused, unless its key expires in that second already.
local stored, expires = log.stored_unused_from, unused_from + -unused_from % EXPIRY_STEP
if log.stored and not (stored and stored <= expires and stored > expires - EXPIRY_STEP) then
  local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS
  call('PEXPIRE', key, string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms))
end
