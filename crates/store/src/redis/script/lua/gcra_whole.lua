-- GCRA with emission intervals of whole us: a kernel, see plain.lua.
-- Numbers  us of the theoretical arrival time
-- cost     time in us in which the units drain
-- burst    time in us in which a full burst drains
if not arrival then
  arrival = 0
  if text and #text == 8 then
    arrival = unpack_from('<d', text)
    if arrival > 0 and arrival < EXACT and arrival % 1 == 0 then
      stored_unused_from = arrival
    else
      arrival = 0
    end
  elseif text and #text == 16 then -- the limit had another number: a fraction counts as the next us, see gcra.lua
    local part
    arrival, part = unpack_from('<dd', text)
    if arrival >= 0 and arrival < EXACT and arrival % 1 == 0
      and part >= 0 and part < 4294967296 and part % 1 == 0 then
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
