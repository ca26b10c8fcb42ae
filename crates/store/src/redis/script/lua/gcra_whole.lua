-- Decides one charge to a GCRA, token bucket or leaky bucket whose emission interval is whole microseconds. It is the
-- time in which one unit drains. gcra.lua decides the others.
--
-- KEYS[1]  the counter: one double: the theoretical arrival time (TAT) in us
-- ARGV[1]  little endian:
--            double   time in us since the epoch, or -1 for the server's clock
--            double   time in ms for which the counter is kept after it is unused
--            u8       mode: 0 asks, 1 takes units if they fit, 2 takes them in any case, 3 and 4 give units back
--            doubles  cost: time in us in which the units drain; burst: time in us in which a full burst drains
-- Returns  integers: the time in us, then the counter after the decision: its TAT in us. If the charge does not fit,
--          its first number x is returned as -1 - x.
--
-- README.md explains the modes, and BEGIN, END and COPY.
local PEEK, RECORD, REFUND, UNDO = 0, 2, 3, 5
local GRANT_ID = nil -- the grant to undo: only batch.lua undoes grants
local call, pack, unpack_from = redis.call, struct.pack, struct.unpack
local NOW, GRACE_MS, mode, cost, burst = unpack_from('<ddBdd', ARGV[1])
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
local text = call('MGET', key)[1] -- GET would be an error for a list

local fits = true
local arrival = nil -- in batch.lua an equal charge may have set it
local stored_unused_from, unused_from, new_arrival
-- BEGIN kernel
if not arrival then
  arrival = 0
  if text and #text == 8 then
    arrival = unpack_from('<d', text)
    if arrival > 0 and arrival < 2^53 and arrival % 1 == 0 then
      stored_unused_from = arrival
    else
      arrival = 0
    end
  elseif text and #text == 16 then -- the limit had another number: a fraction counts as the next us, see gcra.lua
    local part
    arrival, part = unpack_from('<dd', text)
    if arrival >= 0 and arrival < 2^53 and arrival % 1 == 0
      and part >= 0 and part < 2^32 and part % 1 == 0 then
      arrival = part > 0 and arrival + 1 or arrival
    else
      arrival = 0
    end
  end
end
if mode < REFUND then
  local base = arrival > NOW and arrival or NOW
  local after = base + cost
  if after <= NOW + burst then
    if mode ~= PEEK then
      unused_from, new_arrival = after, after
    end
  else
    fits = false
    if mode == RECORD then
      -- Postpaid units may exceed the burst by one more burst.
      local latest = NOW + 2 * burst
      if after > latest then
        after = latest > base and latest or base
      end
      unused_from, new_arrival = after, after
    end
  end
else
  if mode == UNDO and NOW > GRANT_ID then
    -- GRANT_ID is the arrival time before the grant. Without the grant the bucket may have been full from then on.
    cost = cost - (NOW - GRANT_ID)
  end
  if cost > 0 then
    new_arrival = arrival - cost
    if new_arrival < NOW then
      new_arrival = NOW
    end
    unused_from = new_arrival
  end
end
-- END kernel

if unused_from then
  local new_text = unused_from > NOW and pack('<d', new_arrival)
  -- BEGIN write
  -- Expiry times are rounded up to whole seconds. The expiry of a counter in use then seldom changes, and SETRANGE
  -- costs Redis a third less than PSETEX.
  local expires = unused_from + -unused_from % 1000000
  if not new_text then -- a refund has emptied the counter: it leaves no key
    if text then
      call('DEL', key)
    end
  elseif stored_unused_from and stored_unused_from <= expires and stored_unused_from > expires - 1000000 then
    -- The stored time is rounded up to the same second, so the key keeps its expiry.
    call('SETRANGE', key, '0', new_text)
  else
    local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS -- rounded up to whole ms
    -- '%d' is twice as fast as '%.0f', and exact where a C long has 64 bits; a C long has at least 32 bits.
    ttl_ms = string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms)
    call('PSETEX', key, ttl_ms, new_text)
  end
  -- END write
  arrival = new_arrival
end
return { NOW, fits and arrival or -1 - arrival }
