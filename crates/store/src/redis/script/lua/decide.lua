-- A piece of batch.lua: the functions that decide one request after another. They can decide every request.
local decide_one, decide_several, reset
if NEEDS_ONE_BY_ONE then
  local function blocked(_, mode)
    return mode >= REFUND
  end

  -- Reads the log of a counter, and returns whether a charge fits and whether reply_unchanged must record it.
  local sliding_log
  if NEEDS_SLIDING_LOG then
    function sliding_log(counter, mode, units, limit, window)
      local log = A[counter]
      if not log then
        log = open_log(KEYS[counter], limit, window)
        A[counter] = log
      end
      local fits = mode >= REFUND or log.total - log.base + units <= limit
      return fits, mode ~= PEEK and (fits or mode == RECORD)
    end
  end

  -- By kernel: the function, the format and the size in bytes of its parameters, the number of integers in a reply, and
  -- the format of its state.
  local KERNELS, FORMATS, SIZES, WIDTHS, STATES =
    KERNEL_FUNCTIONS, KERNEL_FORMATS, KERNEL_SIZES, KERNEL_WIDTHS, KERNEL_STATES

  -- Writes the reply, from REPLY[n] on, to a charge that does not change A, B and C. Records a charge of a log.
  local function reply_unchanged(n, counter, kernel, mode, at, fits, is_recorded)
    if is_recorded then
      fits = record_log(KEYS[counter], A[counter], mode, unpack_from('<ddd', REQUESTS, at)) and fits
      UNUSED_FROM[counter] = A[counter].unused_from
    end
    local first, width = A[counter], WIDTHS[kernel]
    if kernel == SLIDING_LOG then
      local units, limit = unpack_from('<dd', REQUESTS, at)
      first, REPLY[n + 1], REPLY[n + 2], REPLY[n + 3] = log_facts(KEYS[counter], first, units, limit)
    elseif kernel == BLOCKED then
      first = 0
    elseif width > 1 then
      REPLY[n + 1] = B[counter]
      if width > 2 then
        REPLY[n + 2] = C[counter]
      end
    end
    REPLY[n] = fits and first or -1 - first
  end

  -- Decides a request with a single charge, which no other charge can deny. Returns where the next request starts.
  function decide_one(at)
    local kernel, mode = byte(REQUESTS, at, at + 1)
    local counter = 0
    if kernel ~= BLOCKED then
      KEYS_USED = KEYS_USED + 1
      local denominator = KEYS_REPEAT and kernel == GCRA and unpack_from('<d', REQUESTS, at + 34) or nil
      counter = KEYS_REPEAT and first_position(KEYS_USED, denominator) or KEYS_USED
    end
    local fits, unused_from, a, b, c = KERNELS[kernel](counter, mode, unpack_from(FORMATS[kernel], REQUESTS, at + 2))
    local n = REPLY_SIZE + 1
    REPLY_SIZE = REPLY_SIZE + WIDTHS[kernel]
    if a then
      FORMAT_OF[counter], UNUSED_FROM[counter], A[counter] = STATES[kernel], unused_from, a
      REPLY[n] = fits and a or -1 - a
      if b then
        B[counter], REPLY[n + 1] = b, b
        if c then
          C[counter], REPLY[n + 2] = c, c
        end
      end
    else -- nothing to record, or a log
      reply_unchanged(n, counter, kernel, mode, at + 2, fits, unused_from)
    end
    return at + 2 + SIZES[kernel]
  end

  -- Removes a counter. Replies 0 if the counter existed, in Redis or to be written, else -1.
  if NEEDS_RESET then
    function reset()
      KEYS_USED, REPLY_SIZE = KEYS_USED + 1, REPLY_SIZE + 1
      local counter = KEYS_REPEAT and first_position(KEYS_USED) or KEYS_USED
      local is_to_write = UNUSED_FROM[counter]
      TEXT[counter], A[counter], B[counter], C[counter] = false, nil, nil, nil
      UNUSED_FROM[counter], STORED_UNUSED_FROM[counter] = nil, nil
      REPLY[REPLY_SIZE] = (call('DEL', KEYS[KEYS_USED]) == 1 or is_to_write) and 0 or -1
    end
  end

  if NEEDS_SEVERAL then
    -- About the current request: the number of its quota groups, which groups are over and how many, and the verdict.
    local GROUPS, IS_GROUP_OVER, GROUPS_OVER, IS_DENIED

    -- Records that a charge with this role does not fit.
    local function note_over(role)
      if role == ENFORCE then
        IS_DENIED = true
      elseif role >= QUOTA and not IS_GROUP_OVER[role] then
        IS_GROUP_OVER[role], GROUPS_OVER = true, GROUPS_OVER + 1
        IS_DENIED = IS_DENIED or GROUPS_OVER == GROUPS
      end
    end

    -- Decides the charges of the request that are left, from `at` on, and returns where the next request starts. A
    -- charge that waits for the verdict on the request is recorded after the later charges are decided. No other charge
    -- of the request uses its counter.
    local function decide_charges(left, at)
      local kernel, mode, role, role_high = byte(REQUESTS, at, at + 3)
      local counter = 0
      if kernel ~= BLOCKED then
        KEYS_USED = KEYS_USED + 1
        local denominator = KEYS_REPEAT and kernel == GCRA and unpack_from('<d', REQUESTS, at + 36) or nil
        counter = KEYS_REPEAT and first_position(KEYS_USED, denominator) or KEYS_USED
      end
      local fits, unused_from, a, b, c =
        KERNELS[kernel](counter, mode, unpack_from(FORMATS[kernel], REQUESTS, at + 4))
      local n = REPLY_SIZE + 1
      REPLY_SIZE = REPLY_SIZE + WIDTHS[kernel]
      if not fits then
        note_over(role + 256 * role_high)
      end
      local waits, next_at = mode == TAKE or mode == REFUND, at + 4 + SIZES[kernel]
      if waits and left > 1 then
        next_at = decide_charges(left - 1, next_at)
      end
      local is_recorded = not (waits and IS_DENIED)
      if a and is_recorded then
        FORMAT_OF[counter], UNUSED_FROM[counter], A[counter] = STATES[kernel], unused_from, a
        REPLY[n] = fits and a or -1 - a
        if b then
          B[counter], REPLY[n + 1] = b, b
          if c then
            C[counter], REPLY[n + 2] = c, c
          end
        end
      else
        reply_unchanged(n, counter, kernel, mode, at + 4, fits, is_recorded and unused_from)
      end
      if not waits and left > 1 then
        next_at = decide_charges(left - 1, next_at)
      end
      return next_at
    end

    -- Decides a request with several charges. Returns where the next request starts.
    function decide_several(at)
      local count
      count, GROUPS = unpack_from('<I2I2', REQUESTS, at + 1)
      IS_GROUP_OVER, GROUPS_OVER, IS_DENIED = GROUPS > 0 and {}, 0, false
      return count > 0 and decide_charges(count, at + 5) or at + 5
    end
  end
end
