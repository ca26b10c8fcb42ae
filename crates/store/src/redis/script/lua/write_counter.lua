-- A piece of plain.lua and batch.lua: writes a counter that has changed and is stored as text.
--   key, text           its key, and the stored text or false
--   stored_unused_from  the time in us from which the stored counter is unused, or nil
--   unused_from         the same time of the new counter
--   NEW_TEXT            the new text
local expires = unused_from + -unused_from % EXPIRY_STEP
if unused_from <= NOW then -- a refund has emptied the counter: it leaves no key
  if text then
    call('DEL', key)
  end
elseif stored_unused_from and stored_unused_from <= expires and stored_unused_from > expires - EXPIRY_STEP then
  -- The stored time is rounded up to the same second, so the key keeps its expiry.
  call('SETRANGE', key, '0', NEW_TEXT)
else
  local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS -- rounded up to whole ms
  -- '%d' is twice as fast as '%.0f', and exact where a C long has 64 bits; a C long has at least 32 bits.
  ttl_ms = string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms)
  call('PSETEX', key, ttl_ms, NEW_TEXT)
end
