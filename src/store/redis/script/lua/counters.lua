-- Decides a batch of requests at one instant. This file is the first part of one script: the kernels follow, then what
-- decides charges and requests, in the order of script/mod.rs. The numbers that Rust must know too are in
-- script/layout.rs.
--
-- KEYS     counters, in the order of the charges that use them. Two requests may use one counter, and so may charges of
--          one request that are recorded in any case, or never (postpaid charges, peeks). A blocked limit has no counter
--          and no key.
-- ARGV[1]  time in us since the epoch, or -1 for the server's clock
-- ARGV[2]  time in ms for which a counter is kept after it is unused
-- ARGV[3]  requests, one after the other, little endian; decide.lua describes the layout
-- ARGV[4]  features of the requests, added up: 1 several charges, 2 reset, 2 ^ (1 + kernel) for each kernel, 512 equal
--          charges. Only the functions for these are defined: to define all functions takes as long as two decisions.
--          1024: a key occurs more than once
-- Returns  integers: the time in us, then for each charge the counter after the decision:
--            fixed window     index of the window, units in it
--            sliding window   index of the window, units in it, units in the window before
--            sliding log      units in the window; times in us, or 0: of the newest grant, of the grant that must
--                             leave the window before one more unit fits, and before the cost fits
--            GCRA             theoretical arrival time (TAT) in us; with fractions also the fraction
--            interval bucket  time of the last refill in us, tokens
--            blocked, reset   0
--          The first integer x of a charge that does not fit, and of an undo that cannot be made, is returned as
--          -1 - x. For equal charges decide_equal says what is returned.
--
-- Each counter is read once and written at most once, after the requests that use it (a log is written immediately). A
-- peek, a charge that does not fit and a denied request write nothing, except postpaid charges. A value that cannot
-- come from the limit (another type, another length, numbers out of range) counts as missing, and the next grant
-- replaces it.
--
-- Numbers are doubles. All quantities are below 2^53 and therefore exact.
local KEYS, REQUESTS = KEYS, ARGV[3]
local call, try = redis.call, redis.pcall
local byte, format, pack, unpack_from = string.byte, string.format, struct.pack, struct.unpack
local floor = math.floor

local EXACT = 9007199254740992 -- 2^53
-- '%d' is twice as fast as '%.0f', and exact where a C long has 64 bits.
local WHOLE = format('%d', EXACT) == '9007199254740992' and '%d' or '%.0f'
-- Arithmetic converts text to a number in half the time of tonumber.
local NOW, GRACE_MS, FEATURES = ARGV[1] + 0, ARGV[2] + 0, ARGV[4] + 0
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end

-- Kernels in a request.
local FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, GCRA_WHOLE, GCRA, INTERVAL_BUCKET, BLOCKED = 1, 2, 3, 4, 5, 6, 7

-- Modes of a charge. PEEK never writes. REFUND and the modes after it give units back, and always fit. UNDO gives back
-- what one grant took, but not the units that time has given back since; GRANT_ID identifies the grant.
local PEEK, TAKE, RECORD, REFUND, REFUND_RECORDED, UNDO = 0, 1, 2, 3, 4, 5
local GRANT_ID

-- Keys in one MGET. The Lua stack holds 8,000 values.
local KEYS_AT_ONCE = 4000

local function read_counters(keys)
  if #keys <= KEYS_AT_ONCE then
    return #keys > 0 and call('MGET', unpack(keys)) or {}
  end
  local texts = {}
  for first = 1, #keys, KEYS_AT_ONCE do
    local last = first + KEYS_AT_ONCE - 1
    local part = call('MGET', unpack(keys, first, last < #keys and last or #keys))
    for i = 1, #part do
      texts[first + i - 1] = part[i]
    end
  end
  return texts
end

-- A counter is an index: the first position of its key in KEYS. TEXT has the stored value. A, B and C have the numbers
-- of its kernel, carried forward to NOW; they are nil until a charge uses the counter.
local TEXT = read_counters(KEYS)
local A, B, C = {}, {}, {}

-- The counter of the key at this position. Asked only if a key occurs more than once: the question takes as long as a
-- twentieth of a decision.
local KEYS_REPEAT, first_position = FEATURES % 2048 >= 1024, nil
if KEYS_REPEAT then
  local COUNTER_OF = {}
  function first_position(position)
    local key = KEYS[position]
    local counter = COUNTER_OF[key]
    if not counter then
      counter = position
      COUNTER_OF[key] = counter
    end
    return counter
  end
end

-- For each counter to write: its kernel, and the time in us from which it is unused. STORED_UNUSED_FROM is this
-- time for the stored value.
local KERNEL_OF, UNUSED_FROM, STORED_UNUSED_FROM = {}, {}, {}

-- A kernel is a function of a counter, a mode and the kernel's parameters in the request. It returns whether the charge
-- fits. If the charge changes the counter when the request is admitted, the kernel also returns the time in us from
-- which the counter is then unused, and the new A, B and C. A log returns only the time, and is recorded by
-- record_log.
