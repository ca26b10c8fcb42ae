-- Decides a batch of requests at one instant: all calls that plain.lua does not decide. Read plain.lua first: it says
-- what a charge and a kernel are, and which integers are returned for a counter. Rust replaces names in capitals by
-- numbers, by conditions (NEEDS_...), by facts about the kernels, and by pieces of code, which are files of their own.
--
-- KEYS     counters, in the order of the charges that use them. Two requests may use one counter, and so may charges
--          of one request that are recorded in any case, or never (postpaid charges, peeks). A blocked limit has no
--          counter and no key.
-- ARGV[1]  little endian:
--            double  time in us since the epoch, or -1 for the server's clock
--            double  time in ms for which a counter is kept after it is unused
--            u16     features of the requests, one bit each. A function that no request needs is not defined
--            requests, one after the other, each one of:
--              a charge           u8 kernel, u8 mode, then the kernel's parameters as doubles
--              several charges    u8 SEVERAL, u16 charges, u16 quota groups; then the charges, with u16 role after the
--                                 mode
--              a charge to undo   u8 GRANT, the id of the grant as a double; then the charge with mode UNDO
--              a reset counter    u8 RESET
--              equal charges      u8 EQUAL, u16 charges; then the charge, which each of several requests makes
--              a shape            u8 SAME_SHAPE, u16 requests, u16 keys and u16 integers of the reply of each; then what
--                                 one of the requests is, a charge or several. All of these requests differ in their
--                                 keys only; there may be one of them or more. No key of the call occurs twice, and
--                                 none of the charges is to a log
-- Returns  integers: the time in us, then for each charge those of plain.lua; 0 for a blocked limit and for a reset.
--          The first integer x of an undo that cannot be made is also returned as -1 - x. For equal charges equal.lua
--          says what is returned.
--
-- Several charges are recorded together or not at all. A charge whose mode says that it is recorded in any case is an
-- exception, and takes effect before the next charge is decided. The role of a charge tells what follows if it does not
-- fit. ENFORCE: the request is denied. NON_BINDING: nothing. QUOTA + g: quota group g is over, and if all groups are
-- over, the request is denied. The id of a grant is the index or the start of its window, the time of the last refill
-- of its bucket, or the time of its entry in a log. For GCRA it is the theoretical arrival time before the grant or the
-- time of the grant, whichever is later.
--
-- Each counter is read once, and is written at most once, after the requests that use it. A log is written immediately.
-- A peek, a charge that does not fit and a denied request write nothing, except for postpaid charges.
--
-- decide.lua decides one request after another, and could decide all of them. Two kinds of requests are common, and
-- cost Redis less when they are decided together: equal charges (equal.lua) and requests of the same shape
-- (same_shape.lua).
local KEYS, REQUESTS = KEYS, ARGV[1]
local call, byte, pack, unpack_from = redis.call, string.byte, struct.pack, struct.unpack
local NOW, GRACE_MS, FEATURES, FIRST_REQUEST = unpack_from('<ddI2', REQUESTS)
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end

local GRANT_ID -- of the next charge to undo

-- A counter is an index: the first position of its key in KEYS. TEXT has the stored value.
local TEXT = {}
for first = 1, #KEYS, KEYS_AT_ONCE do
  local last = first + KEYS_AT_ONCE - 1
  local part = call('MGET', unpack(KEYS, first, last < #KEYS and last or #KEYS))
  if first == 1 then
    TEXT = part
  else
    for i = 1, #part do
      TEXT[first + i - 1] = part[i]
    end
  end
end

-- The numbers of the kernel of each counter, carried forward to NOW; nil until a charge uses the counter. For a log, A
-- is its table. A table that starts as { false } has room for one number, and costs less than a table that grows.
local A, B, C = { false }, {}, {}

-- For each counter to write: the time in us from which it is unused, and the format of its text (false for a log).
-- STORED_UNUSED_FROM is this time for the stored value.
local UNUSED_FROM, FORMAT_OF, STORED_UNUSED_FROM = {}, {}, { false }

-- Returns the counter of the key at this position. It is called only if a key occurs more than once. `denominator` is
-- that of GCRA with fractions. A limit of another number may have another one, which reads the stored text in another
-- way: the text is then written, and read again as another counter.
local KEYS_REPEAT, first_position = HAS_REPEATED_KEYS, nil
if KEYS_REPEAT then
  local COUNTER_OF, DENOMINATOR_OF = {}, {}
  function first_position(position, denominator)
    local key = KEYS[position]
    local counter = COUNTER_OF[key]
    if counter and DENOMINATOR_OF[counter] == denominator then
      return counter
    end
    local unused_from = UNUSED_FROM[counter]
    if unused_from then
      local state, a, b, c = FORMAT_OF[counter], A[counter], B[counter], C[counter]
      local stored_unused_from = STORED_UNUSED_FROM[counter]
      WRITE_COUNTER
      UNUSED_FROM[counter] = nil
    end
    if counter then
      TEXT[position] = call('MGET', key)[1]
    end
    COUNTER_OF[key], DENOMINATOR_OF[position] = position, denominator
    return position
  end
end

-- A kernel is a function of a counter, a mode and the parameters of the charge (kernel.lua). It returns whether the
-- charge fits. If an admitted request would change the counter, the kernel also returns the time in us from which the
-- counter is then unused, and the new A, B and C.
DEFINE_KERNELS
DEFINE_SLIDING_LOG

local REPLY, REPLY_SIZE, KEYS_USED = { NOW }, 1, 0
DEFINE_DECIDE_ONE

-- Takes the requests in order, then writes the counters that they have changed.
local at, length = FIRST_REQUEST, #REQUESTS
while at <= length do
  local mark = byte(REQUESTS, at)
  if mark > SEVERAL and mark < RESET then -- a kernel: a single charge
    at = decide_one(at)
  elseif mark == SEVERAL then
    at = decide_several(at)
  elseif mark == RESET then
    reset()
    at = at + 1
  elseif mark == GRANT then
    GRANT_ID = unpack_from('<d', REQUESTS, at + 1)
    at = at + 9
  elseif mark == EQUAL then
    DECIDE_EQUAL
  elseif mark == SAME_SHAPE then
    DECIDE_SAME_SHAPE
  else
    error('no request ' .. mark)
  end
end

for counter = 1, #KEYS do
  local unused_from = UNUSED_FROM[counter]
  if unused_from then
    local state, a, b, c = FORMAT_OF[counter], A[counter], B[counter], C[counter]
    if state then
      local stored_unused_from = STORED_UNUSED_FROM[counter]
      WRITE_COUNTER
    else -- a log, which is written already
      local log = a
      EXPIRE_LOG
    end
  end
end
return REPLY
