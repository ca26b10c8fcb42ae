-- Takes the requests in order, then writes the counters.
local KEYS_WRITTEN = 0 -- number of keys whose counters are written already: those of alike requests

local at, length = 1, #REQUESTS
while at <= length do
  local kernel, mode = byte(REQUESTS, at, at + 1)
  if kernel == SEVERAL then
    at = decide_several(at + 1)
  elseif kernel < RESET then
    -- A single charge: no other charge can deny it. This is by far the most common request, so the code of
    -- decide_several is repeated here in a shorter form.
    at = at + 2
    local counter = 0
    if kernel ~= BLOCKED then
      KEYS_USED = KEYS_USED + 1
      counter = KEYS_REPEAT and first_position(KEYS_USED) or KEYS_USED
    end
    local fits, unused_from, a, b, c = KERNELS[kernel](counter, mode, unpack_from(FORMATS[kernel], REQUESTS, at))
    if not a then -- nothing to record, or a log
      local n = REPLY_SIZE + 1
      REPLY_SIZE = REPLY_SIZE + WIDTHS[kernel]
      reply_unchanged(n, counter, kernel, mode, at, fits, unused_from)
    else
      KERNEL_OF[counter], UNUSED_FROM[counter], A[counter] = kernel, unused_from, a
      REPLY_SIZE = REPLY_SIZE + 1
      REPLY[REPLY_SIZE] = fits and a or -1 - a
      if b then
        B[counter] = b
        REPLY_SIZE = REPLY_SIZE + 1
        REPLY[REPLY_SIZE] = b
        if c then
          C[counter] = c
          REPLY_SIZE = REPLY_SIZE + 1
          REPLY[REPLY_SIZE] = c
        end
      end
    end
    at = at + SIZES[kernel]
  elseif kernel == RESET then
    reset()
    at = at + 1
  elseif kernel == GRANT then
    GRANT_ID = unpack_from('<d', REQUESTS, at + 1)
    at = at + 9
  elseif kernel == EQUAL then
    at = decide_equal(at + 1)
  else -- ALIKE
    -- The charges of these requests are on counters that no other charge of the call uses, and that are no logs. So
    -- their order makes no difference: each charge is decided for all requests before the next charge, and then written
    -- for all. To define a function for this would cost each call as much as a decision.
    local requests, keys, width, first = unpack_from('<I2I2I2B', REQUESTS, at + 1)
    local charges, groups, head = 1, 0, 2
    at = at + 7
    if first == SEVERAL then
      charges, groups = unpack_from('<I2I2', REQUESTS, at + 1)
      at, head = at + 5, 4
    end
    -- By request: whether it is denied, and the number of its quota groups that are over. By request and group: whether
    -- the group is over. By counter: the time from which it is unused, if the charge changes it.
    local is_denied, is_any_denied, groups_over, is_group_over, unused_froms = {}, false, {}, {}, {}
    local first_charge, first_counter, first_n = at, KEYS_USED + 1, REPLY_SIZE + 1
    for _ = 1, charges do
      local kernel, mode, role, role_high = byte(REQUESTS, at, at + head - 1)
      local decide, counter, n = KERNELS[kernel], first_counter, first_n
      at = at + head
      local one, two, three, four, five = unpack_from(FORMATS[kernel], REQUESTS, at)
      role = role and role + 256 * role_high
      -- The most common charge. The code of gcra_whole for it is repeated below, because calling the function costs a
      -- tenth more: keep both the same.
      local takes_time = kernel == GCRA_WHOLE and mode == TAKE
      local latest = takes_time and NOW + two
      for request = 1, requests do
        -- Replies as if no request were denied; the second pass corrects this.
        local fits, unused_from, a, b, c
        if not takes_time then
          fits, unused_from, a, b, c = decide(counter, mode, one, two, three, four, five)
        else
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
        end
        if a then
          unused_froms[counter], REPLY[n] = unused_from, fits and a or -1 - a
          if b then
            REPLY[n + 1] = b
            if c then
              REPLY[n + 2] = c
            end
          end
        else
          reply_unchanged(n, counter, kernel, mode, at, fits, false)
        end
        if fits then -- nothing follows
        elseif role == 0 then
          is_denied[request], is_any_denied = true, true
        elseif role and role >= 2 and not is_group_over[request * 65536 + role] then
          local over = (groups_over[request] or 0) + 1
          is_group_over[request * 65536 + role], groups_over[request] = true, over
          if over == groups then
            is_denied[request], is_any_denied = true, true
          end
        end
        counter, n = counter + keys, n + width
      end
      first_counter, first_n = first_counter + (kernel == BLOCKED and 0 or 1), first_n + WIDTHS[kernel]
      at = at + SIZES[kernel]
    end
    at, first_counter, first_n = first_charge, KEYS_USED + 1, REPLY_SIZE + 1
    for _ = 1, charges do
      local kernel, mode = byte(REQUESTS, at, at + 1)
      local counter, n, own_width, state_format = first_counter, first_n, WIDTHS[kernel], STATE_FORMATS[kernel]
      local waits = is_any_denied and (mode == TAKE or mode == REFUND)
      at = at + head
      for request = 1, kernel == BLOCKED and 0 or requests do
        local unused_from = unused_froms[counter]
        if not unused_from then -- the charge does not change the counter
        elseif waits and is_denied[request] then
          reply_unchanged(n, counter, kernel, mode, at, true, false)
        else
          local a, b, c = REPLY[n], nil, nil
          if a < 0 then
            a = -1 - a
          end
          if own_width > 1 then
            b, c = REPLY[n + 1], own_width > 2 and REPLY[n + 2] or nil
          end
          local stored, expires = STORED_UNUSED_FROM[counter], unused_from + -unused_from % EXPIRY_STEP
          local keeps_expiry = stored and stored <= expires and stored > expires - EXPIRY_STEP
          if keeps_expiry and unused_from > NOW then
            call('SETRANGE', KEYS[counter], '0', pack(state_format, a, b, c))
          else
            A[counter], B[counter], C[counter] = a, b, c
            write(counter, kernel, unused_from, expires, keeps_expiry)
          end
        end
        counter, n = counter + keys, n + width
      end
      first_counter, first_n = first_counter + (kernel == BLOCKED and 0 or 1), first_n + own_width
      at = at + SIZES[kernel]
    end
    KEYS_USED, REPLY_SIZE = KEYS_USED + requests * keys, REPLY_SIZE + requests * width
    KEYS_WRITTEN = KEYS_WRITTEN + requests * keys
  end
end

for counter = 1, KEYS_WRITTEN < #KEYS and #KEYS or 0 do
  local unused_from = UNUSED_FROM[counter]
  if unused_from then
    local kernel, stored = KERNEL_OF[counter], STORED_UNUSED_FROM[counter]
    local expires = unused_from + -unused_from % EXPIRY_STEP
    -- Whether the stored time is rounded up to the same second.
    local keeps_expiry = stored and stored <= expires and stored > expires - EXPIRY_STEP
    if keeps_expiry and unused_from > NOW and kernel ~= SLIDING_LOG then
      call('SETRANGE', KEYS[counter], '0', pack(STATE_FORMATS[kernel], A[counter], B[counter], C[counter]))
    else
      write(counter, kernel, unused_from, expires, keeps_expiry)
    end
  end
end
return REPLY
