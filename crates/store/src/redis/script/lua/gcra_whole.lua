-- GCRA with emission intervals of whole us.
-- State    A us of the theoretical arrival time; stored as one double
-- cost     time in us in which the units drain
-- burst    time in us in which a full burst drains
-- Returns  what counters.lua says about kernels
local gcra_whole, gcra_whole_room
if NEEDS_GCRA_WHOLE then
  -- alike.lua has a shorter form of this function for a prepaid charge.
  function gcra_whole(counter, mode, cost, burst)
    local arrival = A[counter]
    if not arrival then
      LOAD_ARRIVAL
    end
    if mode >= REFUND then
      if mode == UNDO then
        -- GRANT_ID is the arrival time before the grant. Without the grant the bucket may have been full from then on.
        cost = NOW > GRANT_ID and cost - (NOW - GRANT_ID) or cost
        if cost <= 0 then
          return true
        end
      end
      local after = arrival - cost
      after = after > NOW and after or NOW
      return true, after, after
    end
    local base = arrival > NOW and arrival or NOW
    local after = base + cost
    if after <= NOW + burst then
      if mode == PEEK then
        return true
      end
      return true, after, after
    elseif mode ~= RECORD then
      return false
    end
    -- Postpaid units may exceed the burst by one more burst.
    local latest = NOW + 2 * burst
    if after > latest then
      after = latest > base and latest or base
    end
    return false, after, after
  end

  if NEEDS_EQUAL then
    -- equal.lua says what the room of a counter is.
    function gcra_whole_room(counter, cost, burst)
      local backlog = A[counter] - NOW
      return floor((burst - backlog) / cost), floor((2 * burst - backlog) / cost)
    end
  end
end
