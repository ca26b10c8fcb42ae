-- Takes the requests in order, then writes the counters. Decides equal charges and alike requests itself.
--
-- Equal charges: several requests each make the same charge to one counter, with mode PEEK, TAKE or RECORD. A charge
-- that is recorded adds the same to the counter as the one before it, up to a bound: for TAKE the limit, for RECORD the
-- most that the kernel records. So equal charges are up to three runs: those that fit, those that do not fit and are
-- counted in full, and those that all leave the counter alike. The reply has for each run the number of its charges,
-- negative if they leave the counter alike, and then what a single charge in place of the first one returns. The room
-- of a counter, after a charge was recorded, is two numbers: how many more charges fit, if that one did, and how many
-- more are counted in full by RECORD. Each may be negative, or exceed the charges that are left.
--
-- Alike requests: their charges are on counters that no other charge of the call uses. So their order makes no
-- difference: each charge is decided for all requests before the next charge, and then written for all.
local at, length = FIRST_REQUEST, #REQUESTS
while at <= length do
  local mark, requests, keys, width = byte(REQUESTS, at), nil, 1, nil
  local charges, groups, head = 1, 0, 2
  if mark == ALIKE then
    requests, keys, width, at = unpack_from('<I2I2I2', REQUESTS, at + 1)
    if byte(REQUESTS, at) == SEVERAL then
      charges, groups, at = unpack_from('<I2I2', REQUESTS, at + 1)
      head = 4
    end
  elseif mark == EQUAL then
    requests, at = unpack_from('<I2', REQUESTS, at + 1)
  else
    at, charges = decide_some(at), 0
  end
  local first_charge, first_counter, first_n = at, KEYS_USED + 1, REPLY_SIZE + 1
  -- By counter: the time from which it is unused, if a charge of alike requests changes it. By request, if it has
  -- several charges: whether it is denied, and the number of its quota groups that are over; by request and group:
  -- whether the group is over.
  local unused_froms = mark == ALIKE and { false }
  local is_denied, is_any_denied, groups_over, is_group_over
  -- The charges of alike requests twice: first they are decided, then written.
  for step = 1, mark == EQUAL and 1 or 2 * charges do
    if step == charges + 1 then
      at, first_counter, first_n = first_charge, KEYS_USED + 1, REPLY_SIZE + 1
    end
    local kernel, mode, role, role_high = byte(REQUESTS, at, at + head - 1)
    at = at + head
    local decide, room, parameters, size, own_width, state
    if kernel == GCRA_WHOLE then
      decide, room, parameters, size, own_width, state = gcra_whole, gcra_whole_room, '<dd', 16, 1, '<d'
    elseif kernel == FIXED_WINDOW then
      decide, room, parameters, size, own_width, state = fixed_window, fixed_window_room, '<ddd', 24, 2, '<dd'
    elseif kernel == GCRA then
      decide, room, parameters, size, own_width, state = gcra, gcra_room, '<ddddd', 40, 2, '<dd'
    elseif kernel == SLIDING_WINDOW then
      decide, room, parameters, size, own_width, state = sliding_window, sliding_window_room, '<ddd', 24, 3, '<ddd'
    elseif kernel == INTERVAL_BUCKET then
      decide, room, parameters, size, own_width, state = interval_bucket, interval_bucket_room, '<dddd', 32, 2, '<dd'
    elseif kernel == BLOCKED then
      parameters, size, own_width = '', 0, 1
    else
      error('no kernel ' .. kernel)
    end
    local one, two, three, four, five = unpack_from(parameters, REQUESTS, at)
    at = at + size
    if mark == EQUAL then
      KEYS_USED = KEYS_USED + 1
      local counter = KEYS_REPEAT and first_position(KEYS_USED) or KEYS_USED
      local left, is_at_most = requests, false -- whether RECORD counts no more charges in full
      repeat
        -- A run: its first charge, then those after it that change the counter in the same way.
        local fits, unused_from, a, b, c = decide(counter, mode, one, two, three, four, five)
        local run = -left
        if a then
          FORMAT_OF[counter], UNUSED_FROM[counter], A[counter], B[counter], C[counter] = state, unused_from, a, b, c
          if not is_at_most then
            local fitting, counted = room(counter, one, two, three, four, five)
            if mode == TAKE then
              counted = fitting
            end
            local more = fits and fitting or counted
            more = more < 0 and 0 or more >= left and left - 1 or more
            run, is_at_most = 1 + more, counted <= more
          end
        end
        local n, first = REPLY_SIZE + 1, A[counter]
        REPLY[n], REPLY[n + 1], REPLY[n + 2], REPLY[n + 3] = run, fits and first or -1 - first, B[counter], C[counter]
        REPLY_SIZE = n + own_width
        if run > 1 then
          -- Their cost is the first parameter, and for GCRA with fractions also the second.
          local cost, part, _ = (run - 1) * one, two, nil
          if kernel == GCRA then
            local parts = (run - 1) * two
            part = parts % five
            cost = cost + (parts - part) / five
          end
          _, UNUSED_FROM[counter], A[counter], B[counter], C[counter] =
            decide(counter, mode, cost, part, three, four, five)
        end
        left = run > 0 and left - run or 0
      until left == 0
    elseif step <= charges then
      role = role and role + 256 * role_high
      -- The most common charge. The code of gcra_whole for it is repeated below, because calling the function costs a
      -- tenth more: keep both the same.
      local takes_time = kernel == GCRA_WHOLE and mode == TAKE
      local latest = takes_time and NOW + two
      local counter, n = first_counter, first_n
      for request = 1, requests do
        -- Replies as if no request were denied; the second pass corrects this.
        local fits, unused_from, a, b, c
        if takes_time then
          local text = TEXT[counter]
          local arrival = text and #text == 8 and unpack_from('<d', text) or 0
          if arrival > 0 and arrival < EXACT and arrival % 1 == 0 then
            STORED_UNUSED_FROM[counter] = arrival
          else
            arrival = 0
          end
          A[counter] = arrival
          local after = (arrival > NOW and arrival or NOW) + one
          if after <= latest then
            fits, unused_from, a = true, after, after
          end
        elseif kernel ~= BLOCKED then
          fits, unused_from, a, b, c = decide(counter, mode, one, two, three, four, five)
        else
          fits = mode >= REFUND
        end
        if a then
          unused_froms[counter] = unused_from
        else
          a = A[counter]
          if own_width > 1 then
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
          is_denied[request], is_any_denied = true, true
        elseif role >= QUOTA then
          groups_over, is_group_over = groups_over or {}, is_group_over or {}
          if not is_group_over[request * 65536 + role] then
            local over = (groups_over[request] or 0) + 1
            is_group_over[request * 65536 + role], groups_over[request] = true, over
            if over == groups then
              is_denied = is_denied or {}
              is_denied[request], is_any_denied = true, true
            end
          end
        end
        counter, n = counter + keys, n + width
      end
      first_counter, first_n = first_counter + (kernel == BLOCKED and 0 or 1), first_n + own_width
    else
      local waits = is_any_denied and (mode == TAKE or mode == REFUND)
      local counter, n = first_counter, first_n
      for request = 1, kernel == BLOCKED and 0 or requests do
        local unused_from = unused_froms[counter]
        if not unused_from then -- the charge does not change the counter
        elseif waits and is_denied[request] then
          REPLY[n] = A[counter]
          if own_width > 1 then
            REPLY[n + 1] = B[counter]
            if own_width > 2 then
              REPLY[n + 2] = C[counter]
            end
          end
        else
          local a, b, c = REPLY[n], nil, nil
          if a < 0 then
            a = -1 - a
          end
          if own_width > 1 then
            b, c = REPLY[n + 1], own_width > 2 and REPLY[n + 2] or nil
          end
          -- The end of this file says why.
          local stored, expires = STORED_UNUSED_FROM[counter], unused_from + -unused_from % EXPIRY_STEP
          if unused_from <= NOW then
            if TEXT[counter] then
              call('DEL', KEYS[counter])
            end
          elseif stored and stored <= expires and stored > expires - EXPIRY_STEP then
            call('SETRANGE', KEYS[counter], '0', pack(state, a, b, c))
          else
            local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS
            ttl_ms = string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms)
            call('PSETEX', KEYS[counter], ttl_ms, pack(state, a, b, c))
          end
        end
        counter, n = counter + keys, n + width
      end
      first_counter, first_n = first_counter + (kernel == BLOCKED and 0 or 1), first_n + own_width
    end
  end
  if mark == ALIKE then
    KEYS_USED, REPLY_SIZE = KEYS_USED + requests * keys, REPLY_SIZE + requests * width
  end
end

for counter = 1, #KEYS do
  local unused_from = UNUSED_FROM[counter]
  if unused_from then
    local key, stored, state = KEYS[counter], STORED_UNUSED_FROM[counter], FORMAT_OF[counter]
    local expires = unused_from + -unused_from % EXPIRY_STEP
    -- Whether the stored time is rounded up to the same second.
    local keeps_expiry = stored and stored <= expires and stored > expires - EXPIRY_STEP
    if state and unused_from <= NOW then -- a refund has emptied the counter: it leaves no key
      if TEXT[counter] then
        call('DEL', key)
      end
    elseif not keeps_expiry then
      local left = expires > NOW and expires - NOW or 0
      local ttl_ms = (left + -left % 1000) / 1000 + GRACE_MS -- rounded up to whole ms
      -- '%d' is twice as fast as '%.0f', and exact where a C long has 64 bits; it has at least 32.
      ttl_ms = string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms)
      if state then
        call('PSETEX', key, ttl_ms, pack(state, A[counter], B[counter], C[counter]))
      elseif A[counter].stored then
        call('PEXPIRE', key, ttl_ms)
      end
    elseif state then
      call('SETRANGE', key, '0', pack(state, A[counter], B[counter], C[counter]))
    end
  end
end
return REPLY
