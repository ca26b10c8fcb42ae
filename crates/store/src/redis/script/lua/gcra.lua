-- GCRA with emission intervals that have a fraction: a kernel, see plain.lua.
-- Numbers  us of the theoretical arrival time, its fraction in units of 1/denominator us
-- cost     time in us in which the units drain; cost_part its fraction
-- burst    time in us in which a full burst drains; burst_part its fraction
if not arrival then
  if text and #text == 16 then
    arrival, part = unpack_from('<dd', text)
  end
  if arrival and arrival >= 0 and arrival < EXACT and arrival % 1 == 0
    and part >= 0 and part < denominator and part % 1 == 0 then
    stored_unused_from = part > 0 and arrival + 1 or arrival
  elseif text then
    -- The limit may have had another number. Without a fraction the text is shorter, so SETRANGE must not write over
    -- it; a fraction of a larger denominator counts as the next us. A denominator is below 2^32.
    local is_whole = #text == 8
    if is_whole then
      arrival, part = unpack_from('<d', text), 0
    end
    if arrival and arrival >= 0 and arrival < EXACT and arrival % 1 == 0
      and part >= 0 and part < 4294967296 and part % 1 == 0 then
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
