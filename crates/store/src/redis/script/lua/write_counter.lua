-- A piece of plain.lua, batch.lua and same_shape.lua: writes a counter that has changed and is stored as text.
--   KEY, STORED_TEXT    its key, and the stored text or false
--   stored_unused_from  the time in us from which the stored counter is unused, or nil
--   unused_from         the same time of the new counter
--   NEW_STATE           the format of the new text, and its numbers
local expires = unused_from + -unused_from % EXPIRY_STEP
if unused_from <= NOW then -- a refund has emptied the counter: it leaves no key
  if STORED_TEXT then
    call('DEL', KEY)
  end
elseif stored_unused_from and stored_unused_from <= expires and stored_unused_from > expires - EXPIRY_STEP then
  -- The stored time is rounded up to the same second, so the key keeps its expiry.
  call('SETRANGE', KEY, '0', pack(NEW_STATE))
else
  local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS -- rounded up to whole ms
  -- '%d' is twice as fast as '%.0f', and exact where a C long has 64 bits; a C long has at least 32 bits.
  ttl_ms = string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms)
  call('PSETEX', KEY, ttl_ms, pack(NEW_STATE))
end
