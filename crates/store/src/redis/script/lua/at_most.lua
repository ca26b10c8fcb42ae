-- A piece of sliding_window.lua and room.lua: defines a function that compares two products exactly.

-- The product of two numbers below 2^48 as a multiple of 2^48 and the rest.
local function product(x, y)
  local x_low, y_low = x % 16777216, y % 16777216 -- 2^24
  local x_high, y_high = (x - x_low) / 16777216, (y - y_low) / 16777216
  local middle = x_high * y_low + x_low * y_high
  local middle_low = middle % 16777216
  local low = x_low * y_low + middle_low * 16777216
  local rest = low % 281474976710656 -- 2^48
  return x_high * y_high + (middle - middle_low) / 16777216 + (low - rest) / 281474976710656, rest
end

-- Whether x * y <= u * v.
local function at_most(x, y, u, v)
  local left, right = x * y, u * v
  if left ~= right or left < EXACT then
    return left <= right
  end
  local left_high, left_low = product(x, y)
  local right_high, right_low = product(u, v)
  return left_high < right_high or left_high == right_high and left_low <= right_low
end
