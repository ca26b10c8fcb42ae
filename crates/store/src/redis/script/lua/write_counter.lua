-- A piece of batch.lua and alike.lua: writes a counter that has changed and is stored as text.
--   counter      its index
--   unused_from  the time in us from which it is unused
--   state        the format of its text
--   a, b, c      its numbers
local stored, expires = STORED_UNUSED_FROM[counter], unused_from + -unused_from % EXPIRY_STEP
if unused_from <= NOW then -- a refund has emptied the counter: it leaves no key
  if TEXT[counter] then
    call('DEL', KEYS[counter])
  end
elseif stored and stored <= expires and stored > expires - EXPIRY_STEP then
  -- The stored time is rounded up to the same second, so the key keeps its expiry.
  call('SETRANGE', KEYS[counter], '0', pack(state, a, b, c))
else
  local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS -- rounded up to whole ms
  -- '%d' is twice as fast as '%.0f', and exact where a C long has 64 bits; a C long has at least 32 bits.
  ttl_ms = string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms)
  call('PSETEX', KEYS[counter], ttl_ms, pack(state, a, b, c))
end
