-- Sliding window.
-- State    A index of the current window, B units in it, C units in the window before; stored as three doubles
-- units, limit in units; window in us
-- Returns  what counters.lua says about kernels
local sliding_window, sliding_window_room
if NEEDS_SLIDING_WINDOW then
  -- The product of two numbers below 2^48, one of them below 2^35, as a multiple of 2^48 and the rest.
  local function product(x, y)
    local x_low, y_low = x % 16777216, y % 16777216 -- 2^24
    local x_high, y_high = (x - x_low) / 16777216, (y - y_low) / 16777216
    local middle = x_high * y_low + x_low * y_high
    local middle_low = middle % 16777216
    local low = x_low * y_low + middle_low * 16777216
    local rest = low % 281474976710656 -- 2^48
    return x_high * y_high + (middle - middle_low) / 16777216 + (low - rest) / 281474976710656, rest
  end

  -- Whether x * y <= u * v. Rounding never reverses the order of two numbers, so an exact product is needed only if
  -- both round to the same number.
  local function at_most(x, y, u, v)
    local left, right = x * y, u * v
    if left ~= right or left < EXACT then
      return left <= right
    end
    local left_high, left_low = product(x, y)
    local right_high, right_low = product(u, v)
    return left_high < right_high or left_high == right_high and left_low <= right_low
  end

  local function end_of_use(index, current, previous, window)
    return (index + (current > 0 and 2 or previous > 0 and 1 or 0)) * window
  end

  local function load_window(counter, now_index, limit, window)
    local index, current, previous
    local text = TEXT[counter]
    if text and #text == 24 then
      index, current, previous = unpack_from('<ddd', text)
    end
    if index and index >= now_index - 1 and index * window < EXACT and index % 1 == 0
      and current >= 0 and current <= 2 * limit and current % 1 == 0
      and previous >= 0 and previous <= 2 * limit and previous % 1 == 0 then
      STORED_UNUSED_FROM[counter] = end_of_use(index, current, previous, window)
      if index < now_index then
        index, current, previous = now_index, 0, current
      end
    else
      index, current, previous = now_index, 0, 0
    end
    A[counter], B[counter], C[counter] = index, current, previous
  end

  function sliding_window(counter, mode, units, limit, window)
    local now_index = floor(NOW / window)
    if not A[counter] then
      load_window(counter, now_index, limit, window)
    end
    local index, current, previous = A[counter], B[counter], C[counter]
    if current == 0 and previous == 0 and index > now_index then
      index = now_index -- unused windows equal a missing counter, even if they are in the future
      A[counter] = index
    end
    if mode == UNDO and index ~= GRANT_ID then -- GRANT_ID is the window of the grant
      return true
    end
    local fits, after = true, nil
    if mode >= REFUND then
      after = current > units and current - units or 0
      if after == 0 and previous == 0 then
        index = now_index
      end
    else
      after = current + units
      local remaining = (index + 1) * window - NOW
      if remaining > window then -- the clock was set back: decide as at the start of the window
        remaining = window
      end
      fits = after <= limit and at_most(previous, remaining, limit - after, window)
      if mode == PEEK or not fits and mode == TAKE then
        return fits
      end
      if after > 2 * limit then
        after = 2 * limit
      end
    end
    return fits, end_of_use(index, after, previous, window), index, after, previous
  end

  if NEEDS_EQUAL then
    -- equal.lua says what the room of a counter is. Rounding makes the first estimate wrong by at most one, so it is
    -- corrected.
    function sliding_window_room(counter, units, limit, window)
      local index, current, previous = A[counter], B[counter], C[counter]
      local remaining = (index + 1) * window - NOW
      if remaining > window then
        remaining = window
      end
      local room = limit - current
      local fitting = floor((room - previous * remaining / window) / units)
      while fitting > 0 and not at_most(previous, remaining, room - fitting * units, window) do
        fitting = fitting - 1
      end
      while (fitting + 1) * units <= room and at_most(previous, remaining, room - (fitting + 1) * units, window) do
        fitting = fitting + 1
      end
      return fitting, floor((2 * limit - current) / units)
    end
  end
end
