-- Decides equal charges: several requests each make the same charge to one counter, with mode PEEK, TAKE or RECORD.
--
-- A charge that is recorded adds the same to the counter as the one before it, up to a bound: for TAKE the limit, for
-- RECORD the most that the kernel records. So equal charges are up to three runs: those that fit, those that do not fit
-- and are counted in full, and those that all leave the counter alike. The reply has for each run the number of its
-- charges, negative if they leave the counter alike, and then what a single charge in place of the first one returns.
--
-- The room of a counter, after a first charge was recorded, is two numbers: how many more charges fit, if the first one
-- did, and how many more are counted in full by RECORD. Each may be negative, or exceed the charges that are left.
local decide_equal
if FEATURES % 1024 >= 512 then
  -- By kernel.
  local ROOMS = {
    fixed_window_room or false, sliding_window_room or false, false, gcra_whole_room or false, gcra_room or false,
    interval_bucket_room or false, false,
  }

  -- Replies for a run.
  local function reply_run(charges, counter, width, fits)
    local n, first = REPLY_SIZE + 1, A[counter]
    REPLY_SIZE = n + width
    REPLY[n], REPLY[n + 1] = charges, fits and first or -1 - first
    if width > 1 then
      REPLY[n + 2] = B[counter]
      if width > 2 then
        REPLY[n + 3] = C[counter]
      end
    end
  end

  -- Records charges that are counted in full, or one. Their cost is the first parameter, and for GCRA with fractions
  -- also the second.
  local function record(charges, counter, kernel, mode, cost, second, third, fourth, fifth)
    cost = charges * cost
    if kernel == GCRA then
      local parts = charges * second
      second = parts % fifth
      cost = cost + (parts - second) / fifth
    end
    local _
    _, UNUSED_FROM[counter], A[counter], B[counter], C[counter] =
      KERNELS[kernel](counter, mode, cost, second, third, fourth, fifth)
  end

  -- Decides the charges after the first one, which was recorded.
  local function decide_others(left, counter, kernel, mode, fits, ...)
    local width = WIDTHS[kernel]
    local fitting, counted = ROOMS[kernel](counter, ...)
    if mode == TAKE then
      counted = fitting
    end
    local more = fits and fitting or counted
    more = more < 0 and 0 or more > left and left or more
    reply_run(1 + more, counter, width, fits)
    if more > 0 then
      record(more, counter, kernel, mode, ...)
    end
    left = left - more
    local over = fits and counted - more or 0
    over = over > left and left or over
    if over > 0 then
      record(1, counter, kernel, mode, ...)
      reply_run(over, counter, width, false)
      if over > 1 then
        record(over - 1, counter, kernel, mode, ...)
      end
      left = left - over
    end
    if left > 0 then
      if mode == RECORD then
        record(1, counter, kernel, mode, ...)
      end
      reply_run(-left, counter, width, false)
    end
  end

  -- Decides the charges that start at `at`, and returns where the next request starts.
  function decide_equal(at)
    local charges, kernel, mode = unpack_from('<I2BB', REQUESTS, at)
    at = at + 4
    KEYS_USED = KEYS_USED + 1
    local counter = KEYS_REPEAT and first_position(KEYS_USED) or KEYS_USED
    local fits, unused_from, a, b, c = KERNELS[kernel](counter, mode, unpack_from(FORMATS[kernel], REQUESTS, at))
    if not a then -- nothing to record
      reply_run(-charges, counter, WIDTHS[kernel], fits)
    else
      KERNEL_OF[counter], UNUSED_FROM[counter], A[counter], B[counter], C[counter] = kernel, unused_from, a, b, c
      decide_others(charges - 1, counter, kernel, mode, fits, unpack_from(FORMATS[kernel], REQUESTS, at))
    end
    return at + SIZES[kernel]
  end
end
