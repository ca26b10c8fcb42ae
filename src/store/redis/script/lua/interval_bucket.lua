-- Token bucket that refills whole intervals at a time. A = when the last whole interval was, B = tokens then
-- (negative when booked units are owed); kept as two doubles.
local interval_bucket
if USES % 64 >= 32 then
  local function ceil_div(a, b)
    return floor((a + b - 1) / b)
  end

  local function interval_bucket_at(place, capacity, refill, interval)
    local tokens, last
    local text = TEXT[place]
    if text and #text == 16 then
      last, tokens = unpack_from('<dd', text)
    end
    if last and last >= 0 and last < EXACT and last % 1 == 0
      and tokens >= -capacity and tokens <= capacity and tokens % 1 == 0 then
      WAS_FRESH_AT[place] = last + ceil_div(capacity - tokens, refill) * interval
    else
      tokens, last = capacity, NOW
    end
    local time = NOW > last and NOW or last
    local ticks = floor((time - last) / interval)
    -- Ticks are compared before they are multiplied: a long idle time would leave the exact range.
    if ticks >= ceil_div(capacity - tokens, refill) then
      tokens, last = capacity, NOW
    else
      tokens, last = tokens + ticks * refill, last + ticks * interval
    end
    A[place], B[place] = last, tokens
  end

  function interval_bucket(place, mode, units, capacity, refill, interval)
    if not A[place] then
      interval_bucket_at(place, capacity, refill, interval)
    end
    local last, tokens = A[place], B[place]
    if tokens == capacity then
      last = NOW -- a full bucket has no anchor; another request of the batch may have filled it
    end
    if mode == UNDO then -- RECEIPT = the last whole interval as of the grant
      local ticks = last > RECEIPT and ceil_div(last - RECEIPT, interval) or 0
      if ticks >= ceil_div(units, refill) then
        return true
      end
      units = units - ticks * refill
    end
    local fits, after = true, nil
    if mode >= RETURN then
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
    return fits, last + ceil_div(capacity - after, refill) * interval, last, after
  end
end
