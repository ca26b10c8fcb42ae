-- Decides a batch of whole requests at one instant. This file is the head of one script; the kernels and decide.lua
-- follow it, joined in the order that script.rs gives.
--
-- KEYS     the counters, in the order of the charges that use them. A key may come up several times in a batch, not
--          within one request. A limit that blocks keeps no counter and has no key. One key serves one limit.
-- ARGV[1]  the time in us since the epoch, or -1 for the server's own
-- ARGV[2]  how long a counter outlives its use, in ms
-- ARGV[3]  the requests, one after the other, little endian; codec.rs writes them, decide.lua says how they are built
-- ARGV[4]  what the requests use, added up: 2 ^ (kernel - 1), 128 for several charges, 256 to forget. To make the functions of every
--          kernel would cost each call as much as two decisions
-- Returns  integers: the time in us, then per charge the counter after the decision, its first number x given as -1 - x
--          when the charge does not fit. Fixed window: index, count; sliding window: index, current, previous; GCRA: whole
--          us, and the fraction where the interval has one; interval bucket: us of the last interval, tokens; log: units
--          used, us of the newest grant, of the one whose end makes room for one unit more, of the one whose end makes
--          room for the cost; nothing kept: 0
--
-- Each counter is read once and written at most once, after everything is decided (a log is written as it goes). A
-- request that is held back, a charge over its limit and a peek write nothing. A value that its limit cannot have left
-- there (another type, other text, numbers out of range) counts as absent and is overwritten by the next grant.
--
-- Numbers are doubles: every quantity stays below 2^53 and is exact.
local KEYS, BLOB = KEYS, ARGV[3]
local call, try = redis.call, redis.pcall
local byte, format, pack, unpack_from = string.byte, string.format, struct.pack, struct.unpack
local floor, tonumber, type = math.floor, tonumber, type

local EXACT = 9007199254740992 -- 2^53
-- `%d` spells a number twice as fast as `%.0f`, and as exactly where C's long has 64 bits.
local WHOLE = format('%d', EXACT) == '9007199254740992' and '%d' or '%.0f'
local NOW, SLACK_MS, USES = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
if NOW < 0 then
  local time = call('TIME')
  NOW = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- What the kernels are called in the requests.
local FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, GCRA_WHOLE, GCRA, INTERVAL_BUCKET, BLOCKED, FORGET = 1, 2, 3, 4, 5, 6, 7, 8

-- How a charge asks. Only a peek never writes; from RETURN on it gives units back, which always fits. An undo gives back
-- what one grant took, and never more than is still missing because of it; RECEIPT says which grant.
local PEEK, TAKE, BOOK, RETURN, RETURN_BOOKED, UNDO = 0, 1, 2, 3, 4, 5
local RECEIPT

-- The most keys of one MGET; Lua's stack holds 8,000.
local KEYS_AT_ONCE = 4000

local function read(keys)
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

-- A counter is known by the first place of its key in KEYS. Its numbers stand in A, B and C as its kernel means them,
-- moved on to NOW but as yet unchanged by the request in hand.
local TEXT, PLACE_OF = read(KEYS), {}
local A, B, C = {}, {}, {}

-- What is to be written, by place: the kernel, and the time in us at which the counter is as if never used. WAS_FRESH_AT is
-- that time of the counter as it was read.
local KIND, FRESH_AT, WAS_FRESH_AT = {}, {}, {}
