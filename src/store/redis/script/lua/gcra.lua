-- GCRA. A = whole us of the theoretical arrival time, B = its fraction in units of 1/denominator us; kept as
-- digits, or as two doubles where the interval has a fraction. `cost` is the time that the units take to drain and `burst` the time that a
-- full burst takes, both worked out by the caller.
local gcra_whole, gcra

-- Where the emission interval is a whole number of us there are no fractions.
if USES % 16 >= 8 then
  function gcra_whole(place, mode, cost, burst)
    local arrival = A[place]
    if not arrival then
      local text = TEXT[place]
      arrival = text and tonumber(text) or 0
      if arrival > 0 and arrival < EXACT and arrival % 1 == 0 then
        WAS_FRESH_AT[place] = arrival
      else
        arrival = 0
      end
      A[place] = arrival
    end
    if mode == UNDO then -- RECEIPT = the time of the grant; idle time since may have drained its cost
      cost = NOW > RECEIPT and cost - (NOW - RECEIPT) or cost
      if cost <= 0 then
        return true
      end
    end
    if mode >= RETURN then
      local after = arrival - cost
      after = after > NOW and after or NOW
      return true, after, after
    end
    local base = arrival > NOW and arrival or NOW
    local after = base + cost
    local fits = after <= NOW + burst
    if mode == PEEK or not fits and mode == TAKE then
      return fits
    end
    -- Booked units may owe one further burst.
    local deepest = NOW + 2 * burst
    if after > deepest then
      after = deepest > base and deepest or base
    end
    return fits, after, after
  end
end

if USES % 32 >= 16 then
  local function gcra_at(place, denominator)
    local whole, fraction
    local text = TEXT[place]
    if text and #text == 16 then
      whole, fraction = unpack_from('<dd', text)
    end
    if whole and whole >= 0 and whole < EXACT and whole % 1 == 0
      and fraction >= 0 and fraction < denominator and fraction % 1 == 0 then
      WAS_FRESH_AT[place] = fraction > 0 and whole + 1 or whole
    else
      whole, fraction = 0, 0
    end
    A[place], B[place] = whole, fraction
  end

  function gcra(place, mode, cost, cost_part, burst, burst_part, denominator)
    if not A[place] then
      gcra_at(place, denominator)
    end
    local whole, part = A[place], B[place]
    if mode == UNDO then
      cost = NOW > RECEIPT and cost - (NOW - RECEIPT) or cost
      if cost < 0 then
        return true
      end
    end
    if mode >= RETURN then
      whole, part = whole - cost, part - cost_part
      if part < 0 then
        whole, part = whole - 1, part + denominator
      end
      if whole < NOW then
        whole, part = NOW, 0
      end
      return true, part > 0 and whole + 1 or whole, whole, part
    end
    if whole < NOW then
      whole, part = NOW, 0
    end
    local after, after_part = whole + cost, part + cost_part
    if after_part >= denominator then
      after, after_part = after + 1, after_part - denominator
    end
    local full = NOW + burst
    local fits = after < full or after == full and after_part <= burst_part
    if mode == PEEK or not fits and mode == TAKE then
      return fits
    end
    local deepest, deepest_part = NOW + 2 * burst, 2 * burst_part
    if deepest_part >= denominator then
      deepest, deepest_part = deepest + 1, deepest_part - denominator
    end
    if after > deepest or after == deepest and after_part > deepest_part then
      after, after_part = deepest, deepest_part
      if after < whole or after == whole and after_part < part then
        after, after_part = whole, part
      end
    end
    return fits, after_part > 0 and after + 1 or after, after, after_part
  end
end
