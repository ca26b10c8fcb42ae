-- Decides one charge to a limit with fixed windows. The end of a window discards a debt, so a debt has no other bound
-- than that of doubles.
--
-- KEYS[1]  the counter: two doubles: the index of the window, the units in it
-- ARGV[1]  little endian:
--            double   time in us since the epoch, or -1 for the server's clock
--            double   time in ms for which the counter is kept after it is unused
--            u8       mode: 0 asks, 1 takes units if they fit, 2 takes them in any case, 3 and 4 give units back
--            doubles  units; limit in units; window in us
-- Returns  integers: the time in us, then the counter after the decision: the index of its window, the units in it. If
--          the charge does not fit, its first number x is returned as -1 - x.
local PEEK, RECORD, REFUND, UNDO = 0, 2, 3, 5
local GRANT_ID = nil -- the grant to undo: only batch.lua undoes grants
local call, pack, unpack_from = redis.call, struct.pack, struct.unpack
local NOW, GRACE_MS, mode, units, limit, window = unpack_from('<ddBddd', ARGV[1])
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
local text = call('MGET', key)[1] -- GET would be an error for a list

local fits = true
local index, count = nil, nil -- in batch.lua an equal charge may have set them
local stored_unused_from, unused_from, new_index, new_count
-- BEGIN kernel
local now_index = (NOW - NOW % window) / window
if not index then
  if text and #text == 16 then
    index, count = unpack_from('<dd', text)
  end
  if index and index >= now_index and index * window < 2^53 and index % 1 == 0
    and count >= 0 and count < 2^53 and count % 1 == 0 then
    stored_unused_from = (index + 1) * window
  else
    index, count = now_index, 0
  end
end
if count == 0 and index > now_index then -- an unused window equals a missing counter, even if it is in the future
  index = now_index
end
if mode < REFUND then
  local after = count + units
  fits = after <= limit
  if fits and mode ~= PEEK then
    unused_from, new_index, new_count = (index + 1) * window, index, after
  elseif mode == RECORD then
    unused_from, new_index, new_count = (index + 1) * window, index, after < 2^53 and after or 2^53 - 1
  end
elseif mode ~= UNDO or index == GRANT_ID then -- GRANT_ID is the window of the grant, which may have ended
  if count > units then
    unused_from, new_index, new_count = (index + 1) * window, index, count - units
  else
    unused_from, new_index, new_count = NOW, now_index, 0
  end
end
-- END kernel

if unused_from then
  local new_text = unused_from > NOW and pack('<dd', new_index, new_count)
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
  index, count = new_index, new_count
end
return { NOW, fits and index or -1 - index, count }
