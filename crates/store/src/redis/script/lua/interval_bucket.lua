-- Token bucket that is refilled once per interval: a kernel, see plain.lua.
-- Numbers  time of the last refill in us, tokens after it (negative after postpaid units)
-- units, capacity, refill in tokens; interval in us
if not last then
  if text and #text == 16 then
    last, tokens = unpack_from('<dd', text)
  end
  if last and last >= 0 and last < EXACT and last % 1 == 0
    and tokens >= -capacity and tokens <= capacity and tokens % 1 == 0 then
    stored_unused_from = last + math.floor((capacity - tokens + refill - 1) / refill) * interval
  else
    tokens, last = capacity, NOW
  end
  local refills = NOW > last and math.floor((NOW - last) / interval) or 0
  -- The refills are compared before they are multiplied: after a long idle time the product would exceed 2^53.
  if refills >= math.floor((capacity - tokens + refill - 1) / refill) then
    tokens, last = capacity, NOW
  else
    tokens, last = tokens + refills * refill, last + refills * interval
  end
end
-- Intervals of a full bucket start at the next grant. A refund earlier in the call may have filled it.
local start = tokens == capacity and NOW or last
local after
if mode >= REFUND then
  if mode == UNDO and start > GRANT_ID then -- GRANT_ID is the time of the last refill before the grant
    units = units - math.floor((start - GRANT_ID + interval - 1) / interval) * refill
  end
  if units > 0 then
    after = tokens + units
    if after > capacity then
      after = capacity
    end
  end
else
  fits = units <= tokens
  if mode == RECORD or fits and mode == TAKE then
    after = tokens - units
    if after < -capacity then
      after = -capacity
    end
  end
end
if after then
  new_last, new_tokens = start, after
  unused_from = after < capacity and start + math.floor((capacity - after + refill - 1) / refill) * interval or NOW
end
