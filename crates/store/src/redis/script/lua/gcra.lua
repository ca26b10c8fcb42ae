-- Decides one charge to a GCRA, token bucket or leaky bucket whose emission interval has a part of a microsecond. It is
-- the time in which one unit drains.
--
-- KEYS[1]  the counter: two doubles: the theoretical arrival time (TAT) in us, its fraction in 1/denominator us
-- ARGV[1]  little endian:
--            double   time in us since the epoch, or -1 for the server's clock
--            double   time in ms for which the counter is kept after it is unused
--            u8       mode: 0 asks, 1 takes units if they fit, 2 takes them in any case, 3 and 4 give units back
--            doubles  cost, cost_part: time in us in which the units drain, and its fraction; burst, burst_part: the
--                     same for a full burst; denominator of the fractions
-- Returns  integers: the time in us, then the counter after the decision: its TAT in us, the fraction. If the charge
--          does not fit, its first number x is returned as -1 - x.
local PEEK, TAKE, REFUND, UNDO = 0, 1, 3, 5
local GRANT_ID = nil -- the grant to undo: only batch.lua undoes grants
local call, pack, unpack_from = redis.call, struct.pack, struct.unpack
local NOW, GRACE_MS, mode, cost, cost_part, burst, burst_part, denominator = unpack_from('<ddBddddd', ARGV[1])
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
local text = call('MGET', key)[1] -- GET would be an error for a list

local fits = true
local arrival, part = nil, nil -- in batch.lua an equal charge may have set them
local stored_unused_from, unused_from, new_arrival, new_part
-- BEGIN kernel
if not arrival then
  if text and #text == 16 then
    arrival, part = unpack_from('<dd', text)
  end
  if arrival and arrival >= 0 and arrival < 2^53 and arrival % 1 == 0
    and part >= 0 and part < denominator and part % 1 == 0 then
    stored_unused_from = part > 0 and arrival + 1 or arrival
  elseif text then
    -- The limit may have had another number. Without a fraction the text is shorter, so SETRANGE must not write over
    -- it; a fraction of a larger denominator counts as the next us. A denominator is below 2^32.
    local is_whole = #text == 8
    if is_whole then
      arrival, part = unpack_from('<d', text), 0
    end
    if arrival and arrival >= 0 and arrival < 2^53 and arrival % 1 == 0
      and part >= 0 and part < 2^32 and part % 1 == 0 then
      if part > 0 then
        arrival, part = arrival + 1, 0
      end
      stored_unused_from = not is_whole and arrival or nil
    else
      arrival, part = 0, 0
    end
  else
    arrival, part = 0, 0
  end
end
local after, after_part
if mode >= REFUND then
  if mode == UNDO and NOW > GRANT_ID then -- see gcra_whole.lua
    cost = cost - (NOW - GRANT_ID)
  end
  if cost > 0 or cost == 0 and cost_part > 0 then
    after, after_part = arrival - cost, part - cost_part
    if after_part < 0 then
      after, after_part = after - 1, after_part + denominator
    end
    if after < NOW then
      after, after_part = NOW, 0
    end
  end
else
  local base, base_part = arrival, part
  if base < NOW then
    base, base_part = NOW, 0
  end
  after, after_part = base + cost, base_part + cost_part
  if after_part >= denominator then
    after, after_part = after + 1, after_part - denominator
  end
  local full = NOW + burst
  fits = after < full or after == full and after_part <= burst_part
  if mode == PEEK or not fits and mode == TAKE then
    after = nil
  elseif not fits then
    -- Postpaid units may exceed the burst by one more burst.
    local latest, latest_part = full + burst, 2 * burst_part
    if latest_part >= denominator then
      latest, latest_part = latest + 1, latest_part - denominator
    end
    if after > latest or after == latest and after_part > latest_part then
      after, after_part = latest, latest_part
      if after < base or after == base and after_part < base_part then
        after, after_part = base, base_part
      end
    end
  end
end
if after then
  unused_from, new_arrival, new_part = after_part > 0 and after + 1 or after, after, after_part
end
-- END kernel

if unused_from then
  local new_text = unused_from > NOW and pack('<dd', new_arrival, new_part)
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
  arrival, part = new_arrival, new_part
end
return { NOW, fits and arrival or -1 - arrival, part }
