-- A piece of equal.lua: sets `fitting` and `counted` to the room of the counter after a recorded charge: how many more
-- equal charges fit, if that charge did, and how many more RECORD counts in full. Each may be negative, or exceed the
-- number of charges that are left. Rounding makes an estimate wrong by at most one, so the estimates are corrected.
if kernel == GCRA_WHOLE then
  local cost, burst, backlog = one, two, a - NOW
  fitting, counted = math.floor((burst - backlog) / cost), math.floor((2 * burst - backlog) / cost)
elseif kernel == FIXED_WINDOW or kernel == CALENDAR_WINDOW then
  local units, limit = one, two
  fitting, counted = math.floor((limit - b) / units), math.floor((EXACT - 1 - b) / units)
elseif kernel == INTERVAL_BUCKET then
  local units, capacity = one, two
  fitting, counted = math.floor(b / units), math.floor((b + capacity) / units)
elseif kernel == GCRA then
  local cost, cost_part, burst, burst_part, denominator = one, two, three, four, five
  -- The largest number of costs that fit before a time. It is at most 65,535, because no more charges are sent as
  -- equal ones. So the fractions add up to less than 2^49.
  local function costs_before(last, last_part)
    local function is_before(number)
      local parts = b + number * cost_part
      local after_part = parts % denominator
      local after = a + number * cost + (parts - after_part) / denominator
      return after < last or after == last and after_part <= last_part
    end
    local number = math.floor((last - a + (last_part - b) / denominator) / (cost + cost_part / denominator))
    number = number < 0 and 0 or number > 65535 and 65535 or number
    while number > 0 and not is_before(number) do
      number = number - 1
    end
    while number < 65535 and is_before(number + 1) do
      number = number + 1
    end
    return number
  end
  local latest, latest_part = NOW + 2 * burst, 2 * burst_part
  if latest_part >= denominator then
    latest, latest_part = latest + 1, latest_part - denominator
  end
  fitting, counted = costs_before(NOW + burst, burst_part), costs_before(latest, latest_part)
elseif kernel == SLIDING_WINDOW then
  DEFINE_AT_MOST
  local units, limit, window = one, two, three
  local remaining = (a + 1) * window - NOW
  if remaining > window then
    remaining = window
  end
  local room = limit - b
  fitting, counted = math.floor((room - c * remaining / window) / units), math.floor((2 * limit - b) / units)
  while fitting > 0 and not at_most(c, remaining, room - fitting * units, window) do
    fitting = fitting - 1
  end
  while (fitting + 1) * units <= room and at_most(c, remaining, room - (fitting + 1) * units, window) do
    fitting = fitting + 1
  end
else
  error('no room for kernel ' .. kernel)
end
