-- Decides the requests of a batch in order. ARGV[3] has, for each request, one of:
--   a charge              u8 kernel, u8 mode, then the kernel's parameters as doubles
--   several charges       u8 SEVERAL, u16 charges, u16 quota groups; then the charges, with u16 role after the mode
--   a charge to undo      u8 GRANT, the id of the grant as a double; then the charge with mode UNDO
--   a counter to reset    u8 RESET
--   equal charges         u8 EQUAL, u16 charges; then the charge, which each of several requests makes
-- Several charges are recorded together or not at all, except those whose mode says that they are recorded in any case:
-- they take effect before the next charge is decided. The role of a charge tells what follows if it does not fit: 0
-- the request is denied, 1 nothing, 2 + g quota group g is over; if all groups are over, the request is denied. The id
-- of a grant is: of a window its index, of an interval bucket the time of the last refill, of a log the time of its
-- entry, of GCRA the theoretical arrival time before the grant or the time of the grant, whichever is later.
local SEVERAL, RESET, GRANT, EQUAL = 0, 100, 101, 102

local function blocked(_, mode)
  return mode >= REFUND
end

-- By kernel: the function, the format and the size in bytes of its parameters, and the number of integers in a reply.
-- Except for a log, a state has as many numbers as a reply.
local KERNELS = {
  fixed_window or false, sliding_window or false, sliding_log or false, gcra_whole or false, gcra or false,
  interval_bucket or false, blocked,
}
local FORMATS = { '<ddd', '<ddd', '<ddd', '<dd', '<ddddd', '<dddd', '' }
local SIZES = { 24, 24, 24, 16, 40, 32, 0 }
local WIDTHS = { 2, 3, 4, 1, 2, 2, 1 }

local REPLY, REPLY_SIZE, KEYS_USED = { NOW }, 1, 0

-- Removes a counter. Replies 0 if the counter existed, in Redis or to be written, else -1.
local reset
if FEATURES % 4 >= 2 then
  function reset()
    KEYS_USED, REPLY_SIZE = KEYS_USED + 1, REPLY_SIZE + 1
    local key = KEYS[KEYS_USED]
    local counter = KEYS_REPEAT and first_position(KEYS_USED) or KEYS_USED
    local is_to_write = UNUSED_FROM[counter] ~= nil
    TEXT[counter], A[counter], B[counter], C[counter] = false, nil, nil, nil
    UNUSED_FROM[counter], STORED_UNUSED_FROM[counter] = nil, nil
    REPLY[REPLY_SIZE] = (call('DEL', key) == 1 or is_to_write) and 0 or -1
  end
end

-- Replies, from REPLY[n] on, for a charge that does not change A, B and C. Records a charge of a log.
local function reply_unchanged(n, counter, kernel, mode, at, fits, is_recorded)
  if is_recorded then
    fits = record_log(counter, mode, unpack_from('<ddd', REQUESTS, at)) and fits
  end
  local first, width = A[counter], WIDTHS[kernel]
  if kernel == SLIDING_LOG then
    first, REPLY[n + 1], REPLY[n + 2], REPLY[n + 3] = log_facts(counter, unpack_from('<dd', REQUESTS, at))
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

local decide_several
if FEATURES % 2 >= 1 then
  -- Of the current request: the number of quota groups, those that are over, and the verdict.
  local GROUPS, IS_GROUP_OVER, GROUPS_OVER, IS_DENIED

  -- Notes that a charge with this role does not fit.
  local function note_over(role)
    if role == 0 then
      IS_DENIED = true
    elseif role >= 2 and not IS_GROUP_OVER[role] then
      IS_GROUP_OVER[role], GROUPS_OVER = true, GROUPS_OVER + 1
      IS_DENIED = IS_DENIED or GROUPS_OVER == GROUPS
    end
  end

  -- Decides the last charges of the request, which start at `at`, and returns where the next request starts. A charge
  -- that waits for the verdict on the request is recorded when the charges after it are decided. No other charge of the
  -- request uses its counter.
  local function decide_charges(left, at)
    local kernel, mode, role, role_high = byte(REQUESTS, at, at + 3)
    local counter = 0
    if kernel ~= BLOCKED then
      KEYS_USED = KEYS_USED + 1
      counter = KEYS_REPEAT and first_position(KEYS_USED) or KEYS_USED
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
      KERNEL_OF[counter], UNUSED_FROM[counter], A[counter] = kernel, unused_from, a
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

  function decide_several(at)
    local count
    count, GROUPS = unpack_from('<I2I2', REQUESTS, at)
    IS_GROUP_OVER, GROUPS_OVER, IS_DENIED = GROUPS > 0 and {}, 0, false
    return count > 0 and decide_charges(count, at + 4) or at + 4
  end
end

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
  else -- EQUAL
    at = decide_equal(at + 1)
  end
end

-- Expiry times are rounded up to whole seconds. The expiry of a counter in use then seldom changes, and SET with
-- KEEPTTL costs Redis a third less than PSETEX.
local EXPIRY_STEP = 1000000

-- The state of a counter as text, by kernel.
local STATE_FORMATS = { '<dd', '<ddd', false, '<d', '<dd', '<dd' }

-- Writes a counter, or the expiry of a log, if the stored expiry is another.
local function write(counter, kernel, unused_from, expires, keeps_expiry)
  local key, is_log = KEYS[counter], kernel == SLIDING_LOG
  if not is_log and unused_from <= NOW then -- a refund has emptied the counter: it leaves no key
    if TEXT[counter] then
      call('DEL', key)
    end
  elseif not keeps_expiry and not (is_log and not A[counter].stored) then
    local left = expires > NOW and expires - NOW or 0
    local ttl_ms = format(WHOLE, (left + -left % 1000) / 1000 + GRACE_MS) -- rounded up to whole ms
    if is_log then
      call('PEXPIRE', key, ttl_ms)
    else
      call('PSETEX', key, ttl_ms, pack(STATE_FORMATS[kernel], A[counter], B[counter], C[counter]))
    end
  end
end

for counter = 1, #KEYS do
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
