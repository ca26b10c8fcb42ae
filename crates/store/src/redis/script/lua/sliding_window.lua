-- Decides one charge to a limit with a sliding window, which weighs the units of the window before.
--
-- KEYS[1]  the counter: three doubles: the index of the window, the units in it, the units in the window before
-- ARGV[1]  little endian:
--            double   time in us since the epoch, or -1 for the server's clock
--            double   time in ms for which the counter is kept after it is unused
--            u8       mode: 0 asks, 1 takes units if they fit, 2 takes them in any case, 3 and 4 give units back
--            doubles  units; limit in units; window in us
-- Returns  integers: the time in us, then the counter after the decision: the index of its window, the units in it, the
--          units in the window before. If the charge does not fit, its first number x is returned as -1 - x.
local PEEK, TAKE, REFUND, UNDO = 0, 1, 3, 5
local GRANT_ID = nil -- the grant to undo: only batch.lua undoes grants
local call, pack, unpack_from = redis.call, struct.pack, struct.unpack
local NOW, GRACE_MS, mode, units, limit, window = unpack_from('<ddBddd', ARGV[1])
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
local text = call('MGET', key)[1] -- GET would be an error for a list

local fits = true
local index, current, previous = nil, nil, nil -- in batch.lua an equal charge may have set them
local stored_unused_from, unused_from, new_index, new_current, new_previous
-- BEGIN kernel
local now_index = (NOW - NOW % window) / window
if not index then
  if text and #text == 24 then
    index, current, previous = unpack_from('<ddd', text)
  end
  if index and index >= now_index - 1 and index * window < 2^53 and index % 1 == 0
    and current >= 0 and current < 2^48 and current % 1 == 0 -- 2^48: twice the largest limit is less
    and previous >= 0 and previous < 2^48 and previous % 1 == 0 then
    stored_unused_from = (index + (current > 0 and 2 or previous > 0 and 1 or 0)) * window
    if index < now_index then
      index, current, previous = now_index, 0, current
    end
  else
    index, current, previous = now_index, 0, 0
  end
end
if current == 0 and previous == 0 and index > now_index then
  index = now_index -- unused windows equal a missing counter, even if they are in the future
end
local after, after_previous = nil, previous
if mode == UNDO and index ~= GRANT_ID then -- GRANT_ID is the window of the grant, which has ended
  if index - 1 == GRANT_ID then -- it is the window before
    after, after_previous = current, previous > units and previous - units or 0
  end
elseif mode >= REFUND then
  after = current > units and current - units or 0
else
  after = current + units
  local remaining = (index + 1) * window - NOW
  if remaining > window then -- the clock was set back: decide as at the start of the window
    remaining = window
  end
  local uncovered, room = previous * remaining, (limit - after) * window
  fits = after <= limit and uncovered <= room
  -- Rounding never reverses the order of two numbers, so exact products are needed only if both round to the same one.
  if fits and uncovered == room and room >= 2^53 then
    -- BEGIN at_most
    -- The product of two numbers below 2^48 as a multiple of 2^48 and the rest.
    local function product(x, y)
      local x_low, y_low = x % 2^24, y % 2^24
      local x_high, y_high = (x - x_low) / 2^24, (y - y_low) / 2^24
      local middle = x_high * y_low + x_low * y_high
      local middle_low = middle % 2^24
      local low = x_low * y_low + middle_low * 2^24
      local rest = low % 2^48
      return x_high * y_high + (middle - middle_low) / 2^24 + (low - rest) / 2^48, rest
    end

    -- Whether x * y <= u * v.
    local function at_most(x, y, u, v)
      local left, right = x * y, u * v
      if left ~= right or left < 2^53 then
        return left <= right
      end
      local left_high, left_low = product(x, y)
      local right_high, right_low = product(u, v)
      return left_high < right_high or left_high == right_high and left_low <= right_low
    end
    -- END at_most
    fits = at_most(previous, remaining, limit - after, window)
  end
  if mode == PEEK or not fits and mode == TAKE then
    after = nil
  elseif after > 2 * limit then
    after = current > 2 * limit and current or 2 * limit -- the limit may have been larger
  end
end
if after then
  new_index, new_current, new_previous = index, after, after_previous
  if after == 0 and after_previous == 0 then
    new_index = now_index
  end
  unused_from = (new_index + (after > 0 and 2 or after_previous > 0 and 1 or 0)) * window
end
-- END kernel

if unused_from then
  local new_text = unused_from > NOW and pack('<ddd', new_index, new_current, new_previous)
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
  index, current, previous = new_index, new_current, new_previous
end
return { NOW, fits and index or -1 - index, current, previous }
