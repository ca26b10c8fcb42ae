-- GCRA with emission intervals that have a fraction.
-- State    A us of the theoretical arrival time, B its fraction in units of 1/denominator us; stored as two doubles
-- cost     time in us in which the units drain; cost_part its fraction
-- burst    time in us in which a full burst drains; burst_part its fraction
-- Returns  what counters.lua says about kernels
local gcra, gcra_room
if NEEDS_GCRA then
  local function load_gcra(counter, denominator)
    local whole, fraction
    local text = TEXT[counter]
    if text and #text == 16 then
      whole, fraction = unpack_from('<dd', text)
    end
    if whole and whole >= 0 and whole < EXACT and whole % 1 == 0
      and fraction >= 0 and fraction < denominator and fraction % 1 == 0 then
      STORED_UNUSED_FROM[counter] = fraction > 0 and whole + 1 or whole
    else
      whole, fraction = 0, 0
    end
    A[counter], B[counter] = whole, fraction
  end

  function gcra(counter, mode, cost, cost_part, burst, burst_part, denominator)
    if not A[counter] then
      load_gcra(counter, denominator)
    end
    local whole, part = A[counter], B[counter]
    if mode == UNDO then
      cost = NOW > GRANT_ID and cost - (NOW - GRANT_ID) or cost
      if cost < 0 then
        return true
      end
    end
    if mode >= REFUND then
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
    local latest, latest_part = NOW + 2 * burst, 2 * burst_part
    if latest_part >= denominator then
      latest, latest_part = latest + 1, latest_part - denominator
    end
    if after > latest or after == latest and after_part > latest_part then
      after, after_part = latest, latest_part
      if after < whole or after == whole and after_part < part then
        after, after_part = whole, part
      end
    end
    return fits, after_part > 0 and after + 1 or after, after, after_part
  end

  if NEEDS_EQUAL then
    -- The largest number of costs, up to `most`, that fit between one time and another. Rounding makes the first
    -- estimate wrong by at most one, so it is corrected.
    local function costs_between(whole, part, last, last_part, most, cost, cost_part, denominator)
      local function is_within(number)
        local parts = part + number * cost_part
        local after_part = parts % denominator
        local after = whole + number * cost + (parts - after_part) / denominator
        return after < last or after == last and after_part <= last_part
      end
      local number = floor((last - whole + (last_part - part) / denominator) / (cost + cost_part / denominator))
      number = number < 0 and 0 or number > most and most or number
      while number > 0 and not is_within(number) do
        number = number - 1
      end
      while number < most and is_within(number + 1) do
        number = number + 1
      end
      return number
    end

    -- equal.lua says what the room of a counter is. At most 65,535 charges are equal, so the fractions add up to less
    -- than 2^49.
    function gcra_room(counter, cost, cost_part, burst, burst_part, denominator)
      local whole, part = A[counter], B[counter]
      local latest, latest_part = NOW + 2 * burst, 2 * burst_part
      if latest_part >= denominator then
        latest, latest_part = latest + 1, latest_part - denominator
      end
      return costs_between(whole, part, NOW + burst, burst_part, 65535, cost, cost_part, denominator),
        costs_between(whole, part, latest, latest_part, 65535, cost, cost_part, denominator)
    end
  end
end
