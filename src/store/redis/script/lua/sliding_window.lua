-- Sliding window. A = index of the current window, B = units in it, C = units in the one before; kept as
-- three doubles.
local sliding_window
if USES % 4 >= 2 then
  -- The product of two numbers below 2^48, as units of 2^48 and the rest. One of them is below 2^35.
  local function product(x, y)
    local x_low, y_low = x % 16777216, y % 16777216 -- 2^24
    local x_high, y_high = (x - x_low) / 16777216, (y - y_low) / 16777216
    local middle = x_high * y_low + x_low * y_high
    local middle_low = middle % 16777216
    local low = x_low * y_low + middle_low * 16777216
    local rest = low % 281474976710656 -- 2^48
    return x_high * y_high + (middle - middle_low) / 16777216 + (low - rest) / 281474976710656, rest
  end

  -- Whether x * y <= u * v. Rounding never turns the order of two numbers round, so only products that round to the same
  -- number need the exact look.
  local function at_most(x, y, u, v)
    local left, right = x * y, u * v
    if left ~= right or left < EXACT then
      return left <= right
    end
    local left_high, left_low = product(x, y)
    local right_high, right_low = product(u, v)
    return left_high < right_high or left_high == right_high and left_low <= right_low
  end

  local function used_until(index, current, previous, window)
    return (index + (current > 0 and 2 or previous > 0 and 1 or 0)) * window
  end

  local function sliding_window_at(place, now_index, limit, window)
    local index, current, previous
    local text = TEXT[place]
    if text and #text == 24 then
      index, current, previous = unpack_from('<ddd', text)
    end
    if index and index >= now_index - 1 and index * window < EXACT and index % 1 == 0
      and current >= 0 and current <= 2 * limit and current % 1 == 0
      and previous >= 0 and previous <= 2 * limit and previous % 1 == 0 then
      WAS_FRESH_AT[place] = used_until(index, current, previous, window)
      if index < now_index then
        index, current, previous = now_index, 0, current
      end
    else
      index, current, previous = now_index, 0, 0
    end
    A[place], B[place], C[place] = index, current, previous
  end

  function sliding_window(place, mode, units, limit, window)
    local now_index = floor(NOW / window)
    if not A[place] then
      sliding_window_at(place, now_index, limit, window)
    end
    local index, current, previous = A[place], B[place], C[place]
    if current == 0 and previous == 0 and index > now_index then
      index = now_index -- windows that were not used are as good as none, even later ones
      A[place] = index
    end
    if mode == UNDO and index ~= RECEIPT then -- RECEIPT = the window of the grant
      return true
    end
    local fits, after = true, nil
    if mode >= RETURN then
      after = current > units and current - units or 0
      if after == 0 and previous == 0 then
        index = now_index
      end
    else
      after = current + units
      local uncovered = (index + 1) * window - NOW
      if uncovered > window then -- the clock went back: it stands at the start of the window
        uncovered = window
      end
      fits = after <= limit and at_most(previous, uncovered, limit - after, window)
      if mode == PEEK or not fits and mode == TAKE then
        return fits
      end
      if after > 2 * limit then
        after = 2 * limit
      end
    end
    return fits, used_until(index, after, previous, window), index, after, previous
  end
end
