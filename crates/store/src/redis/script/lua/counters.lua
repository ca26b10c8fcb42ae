-- Decides a batch of requests at one instant. This file is the first part of one script. The kernels follow, then
-- decide.lua, which decides one request, and batch.lua, which takes all requests in turn. A name in capitals without a
-- `local` stands for a number, a condition (NEEDS_...), facts about the kernels, or a piece of code: script/text.rs
-- replaces it.
--
-- KEYS     counters, in the order of the charges that use them. Two requests may use one counter, and so may charges
--          of one request that are recorded in any case, or never (postpaid charges, peeks). A blocked limit has no
--          counter and no key.
-- ARGV[1]  little endian:
--            double  time in us since the epoch, or -1 for the server's clock
--            double  time in ms for which a counter is kept after it is unused
--            u16     features of the requests, one bit each. A function that no request needs is not defined: to define
--                    all functions takes as long as two decisions
--            requests, one after the other; decide.lua describes the layout
-- Returns  integers: the time in us, then for each charge the counter after the decision:
--            fixed window     index of the window, units in it
--            sliding window   index of the window, units in it, units in the window before
--            sliding log      units in the window; times in us, or 0: of the newest grant, of the grant that must
--                             leave the window before one more unit fits, and before the cost fits
--            GCRA             theoretical arrival time (TAT) in us; with fractions also the fraction
--            interval bucket  time of the last refill in us, tokens
--            blocked, reset   0
--          The first integer x of a charge that does not fit, and of an undo that cannot be made, is returned as
--          -1 - x. For equal charges equal.lua says what is returned.
--
-- Each counter is read once, and is written at most once, after the requests that use it. A log is written immediately.
-- A peek, a charge that does not fit and a denied request write nothing, except for postpaid charges. A value that
-- cannot come from the limit (another type, another length, numbers out of range) counts as missing, and the next grant
-- replaces it.
--
-- Numbers are doubles. All quantities are below 2^53 and therefore exact.
--
-- At low load a call has one request, and half of its time goes into what each call does once. To define a function
-- costs a call up to a fifth of a decision, and more for each variable that the function uses. So the code for usual
-- requests has few functions. A table that starts as { false } has room for one number, and costs less than a table
-- that grows.
local KEYS, REQUESTS = KEYS, ARGV[1]
local call, byte, floor, pack, unpack_from = redis.call, string.byte, math.floor, struct.pack, struct.unpack
local NOW, GRACE_MS, FEATURES, FIRST_REQUEST = unpack_from('<ddI2', REQUESTS)
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end

-- An undo gives back what one grant took, but not the units that time has given back since. This identifies the grant.
local GRANT_ID

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

-- The numbers of the kernel of each counter, carried forward to NOW; nil until a charge uses the counter.
local A, B, C = { false }, {}, {}

-- Returns the counter of the key at this position. It is called only if a key occurs more than once, because the call
-- takes a twentieth of the time of a decision.
local KEYS_REPEAT, first_position = HAS_REPEATED_KEYS, nil
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

-- For each counter to write: the time in us from which it is unused, and the format of its text (false for a log).
-- STORED_UNUSED_FROM is this time for the stored value.
local UNUSED_FROM, FORMAT_OF, STORED_UNUSED_FROM = {}, {}, { false }

-- A kernel is a function of a counter, a mode and the parameters of the charge. It returns whether the charge fits. If
-- an admitted request would change the counter, the kernel also returns the time in us from which the counter is then
-- unused, and the new A, B and C. The kernel of a log returns only the time; record_log records the charge.
