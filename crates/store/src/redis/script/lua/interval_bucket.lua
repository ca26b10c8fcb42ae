-- Token bucket that is refilled once per interval.
-- State    A time of the last refill in us, B tokens after it (negative after postpaid units); stored as two doubles
-- units, capacity, refill in tokens; interval in us
-- Returns  what counters.lua says about kernels
local interval_bucket, interval_bucket_room
if NEEDS_INTERVAL_BUCKET then
  local function ceil_div(a, b)
    return floor((a + b - 1) / b)
  end

  local function load_bucket(counter, capacity, refill, interval)
    local tokens, last
    local text = TEXT[counter]
    if text and #text == 16 then
      last, tokens = unpack_from('<dd', text)
    end
    if last and last >= 0 and last < EXACT and last % 1 == 0
      and tokens >= -capacity and tokens <= capacity and tokens % 1 == 0 then
      STORED_UNUSED_FROM[counter] = last + ceil_div(capacity - tokens, refill) * interval
    else
      tokens, last = capacity, NOW
    end
    local time = NOW > last and NOW or last
    local refills = floor((time - last) / interval)
    -- The refills are compared before they are multiplied: after a long idle time the product would exceed 2^53.
    if refills >= ceil_div(capacity - tokens, refill) then
      tokens, last = capacity, NOW
    else
      tokens, last = tokens + refills * refill, last + refills * interval
    end
    A[counter], B[counter] = last, tokens
  end

  function interval_bucket(counter, mode, units, capacity, refill, interval)
    if not A[counter] then
      load_bucket(counter, capacity, refill, interval)
    end
    local last, tokens = A[counter], B[counter]
    if tokens == capacity then
      last = NOW -- intervals of a full bucket start at the next grant (an earlier request may have filled it)
    end
    if mode == UNDO then -- GRANT_ID is the time of the last refill before the grant
      local refills = last > GRANT_ID and ceil_div(last - GRANT_ID, interval) or 0
      if refills >= ceil_div(units, refill) then
        return true
      end
      units = units - refills * refill
    end
    local fits, after = true, nil
    if mode >= REFUND then
      after = tokens + units
      if after > capacity then
        after = capacity
      end
    else
      fits = units <= tokens
      if mode == PEEK or not fits and mode == TAKE then
        return fits
      end
      after = tokens - units
      if after < -capacity then
        after = -capacity
      end
    end
    local unused_from = after < capacity and last + ceil_div(capacity - after, refill) * interval or NOW
    return fits, unused_from, last, after
  end

  if NEEDS_EQUAL then
    -- equal.lua says what the room of a counter is.
    function interval_bucket_room(counter, units, capacity)
      local tokens = B[counter]
      return floor(tokens / units), floor((tokens + capacity) / units)
    end
  end
end
