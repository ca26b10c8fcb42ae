-- A piece of batch.lua: requests of the same shape, which make the same charges to different counters. No other charge
-- of the call uses these counters, so the order of the requests makes no difference. Each charge is decided for all
-- requests before the next charge. When all charges are decided, each is written for all requests. Until then the reply
-- keeps the new numbers of the counters.
local requests, keys, reply_width
requests, keys, reply_width, at = unpack_from('<I2I2I2', REQUESTS, at + 1)
local charges, groups, head = 1, 0, 2
if byte(REQUESTS, at) == SEVERAL then
  charges, groups, at = unpack_from('<I2I2', REQUESTS, at + 1)
  head = 4
end
local first_charge = at
-- By counter: the time from which the counter is unused, if its charge changes it.
local unused_froms = { false }
-- By request, if requests have several charges: whether it is denied, and how many of its quota groups are over. By
-- request and group: whether the group is over.
local is_denied, groups_over, is_group_over

-- Decides the charges. `first_counter` is the counter of the first request, and `first_n` its place in the reply.
local first_counter, first_n = KEYS_USED + 1, REPLY_SIZE + 1
for _ = 1, charges do
  local kernel, mode, role, role_high = byte(REQUESTS, at, at + head - 1)
  role = role and role + 256 * role_high
  SET_KERNEL_FACTS
  local one, two, three, four, five = unpack_from(parameters, REQUESTS, at + head)
  at = at + head + size
  local cost, burst = one, two
  local counter, n = first_counter, first_n
  for request = 1, requests do
    -- This reply is right if the request is not denied. The reply to a denied request is corrected below.
    local fits, unused_from, a, b, c
    if kernel == GCRA_WHOLE then -- the most common kernel has no function here: its call would cost a tenth more
      local text, arrival, new_arrival = TEXT[counter], nil, nil
      fits = true
      DECIDE_GCRA_WHOLE
      A[counter], a = arrival, new_arrival
    elseif kernel ~= BLOCKED then
      fits, unused_from, a, b, c = decide(counter, mode, one, two, three, four, five)
    else
      fits = mode >= REFUND
    end
    if a then
      unused_froms[counter] = unused_from
    else
      a = A[counter]
      if width > 1 then
        b, c = B[counter], C[counter]
      elseif kernel == BLOCKED then
        a = 0
      end
    end
    REPLY[n] = fits and a or -1 - a
    if b then
      REPLY[n + 1] = b
      if c then
        REPLY[n + 2] = c
      end
    end
    if fits or not role then -- nothing follows from the charge
    elseif role == ENFORCE then
      is_denied = is_denied or {}
      is_denied[request] = true
    elseif role >= QUOTA then
      groups_over, is_group_over = groups_over or {}, is_group_over or {}
      if not is_group_over[request * 65536 + role] then
        local over = (groups_over[request] or 0) + 1
        is_group_over[request * 65536 + role], groups_over[request] = true, over
        if over == groups then
          is_denied = is_denied or {}
          is_denied[request] = true
        end
      end
    end
    counter, n = counter + keys, n + reply_width
  end
  first_counter, first_n = first_counter + (kernel == BLOCKED and 0 or 1), first_n + width
end

-- Writes the counters. A denied request does not change the counters of charges that wait for its verdict.
at, first_counter, first_n = first_charge, KEYS_USED + 1, REPLY_SIZE + 1
for _ = 1, charges do
  local kernel, mode = byte(REQUESTS, at, at + 1)
  SET_KERNEL_FACTS
  at = at + head + size
  local waits = is_denied and (mode == TAKE or mode == REFUND)
  local counter, n = first_counter, first_n
  for request = 1, kernel == BLOCKED and 0 or requests do
    local unused_from = unused_froms[counter]
    if not unused_from then -- the charge does not change the counter
    elseif waits and is_denied[request] then
      REPLY[n] = A[counter]
      if width > 1 then
        REPLY[n + 1] = B[counter]
        if width > 2 then
          REPLY[n + 2] = C[counter]
        end
      end
    else
      local a, b, c = REPLY[n], nil, nil
      if a < 0 then
        a = -1 - a
      end
      if width > 1 then
        b, c = REPLY[n + 1], width > 2 and REPLY[n + 2] or nil
      end
      local stored_unused_from = STORED_UNUSED_FROM[counter]
      WRITE_COUNTER
    end
    counter, n = counter + keys, n + reply_width
  end
  first_counter, first_n = first_counter + (kernel == BLOCKED and 0 or 1), first_n + width
end
KEYS_USED, REPLY_SIZE = KEYS_USED + requests * keys, REPLY_SIZE + requests * reply_width
