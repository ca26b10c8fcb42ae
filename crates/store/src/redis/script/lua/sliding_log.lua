-- Decides one charge to a limit with a sliding log, which holds every grant within the window.
--
-- KEYS[1]  the counter: a list with a pair of doubles for each grant, its time in us and the total of units up to and
--          including it. Pair 0 is no grant: its total is where the totals start. The units of several grants are a
--          difference of two totals, and searches are binary, so a decision reads few pairs
-- ARGV[1]  little endian:
--            double   time in us since the epoch, or -1 for the server's clock
--            double   time in ms for which the counter is kept after it is unused
--            u8       mode: 0 asks, 1 takes units if they fit, 2 takes them in any case, 3 and 4 give units back
--            doubles  units; limit in units; window in us
-- Returns  integers: the time in us, then the counter after the decision: units in the window; times in us, or 0: of
--          the newest grant, of the grant that must leave the window before one more unit fits, and before the units
--          fit. If the charge does not fit, its first number x is returned as -1 - x.
local PEEK, RECORD, REFUND = 0, 2, 3
local GRANT_ID = nil -- the grant to undo: only batch.lua undoes grants
local call, pack, unpack_from = redis.call, struct.pack, struct.unpack
local NOW, GRACE_MS, mode, units, limit, window = unpack_from('<ddBddd', ARGV[1])
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
local key = KEYS[1]

local has_refunds = mode >= REFUND
local open_log, record_log, log_facts
do
  -- BEGIN log
  local try, format = redis.pcall, string.format

  -- Time and total of a stored pair; 0, 0 for any other text: read_log rejects a list whose totals do not match.
  local function unpack_pair(pair)
    if pair and #pair == 16 then
      return unpack_from('<dd', pair)
    end
    return 0, 0
  end

  local function time_of(key, pair)
    return (unpack_pair(call('LINDEX', key, pair)))
  end

  local function total_of(key, pair)
    local _, total = unpack_pair(call('LINDEX', key, pair))
    return total
  end

  -- The first pair in low..high whose time or total is at least `bound`; high + 1 if there is none.
  local function first_reaching(value_of, key, bound, low, high)
    while low <= high do
      local middle = math.floor((low + high) / 2)
      if value_of(key, middle) < bound then
        low = middle + 1
      else
        high = middle - 1
      end
    end
    return low
  end

  -- The first grant in the window, from pair `from` on. Few grants have expired since the last one was recorded, so the
  -- steps grow from 1 before the binary search.
  local function first_in_window(key, from, grants, oldest_live)
    local low, step = from, 1
    while low + step - 1 <= grants and time_of(key, low + step - 1) < oldest_live do
      low, step = low + step, step * 2
    end
    local high = low + step - 2
    return first_reaching(time_of, key, oldest_live, low, high < grants and high or grants)
  end

  -- The number of grants in the list, without pair 0. Few decisions need it.
  local function count(key, log)
    log.grants = log.grants or call('LLEN', key) - 1
    return log.grants
  end

  -- The first read of a list takes pair 0 and three grants, which is enough for most decisions. Indices are text,
  -- because Redis converts numbers slowly.
  local HEAD, HEAD_END, END = 4, '3', '-1'

  -- Expired grants are removed when there are at least this many, so that not every grant costs an LTRIM.
  local TRIM_AT = 2

  -- Fills in `log` from the start of its list, and returns the time from which the log is unused. If the list is not a
  -- log, it changes nothing and returns nil.
  local function read_log(log, key, head, window)
    local is_whole = #head < HEAD
    local last = is_whole and head[#head] or call('LINDEX', key, END)
    local newest, total = unpack_pair(last)
    local _, base = unpack_pair(head[1])
    if not (#head[1] == 16 and #last == 16 and newest >= 0 and newest < 2^53 and total < 2^53) then
      return
    end
    if is_whole then
      log.grants = #head - 1
    end
    local oldest_live = (NOW > newest and NOW or newest) - window + 1
    local first = 1
    local first_at, first_total = unpack_pair(head[2])
    while first < #head and first_at < oldest_live do
      base, first = first_total, first + 1
      first_at, first_total = unpack_pair(head[first + 1])
    end
    if newest < oldest_live then
      first, first_at, base = count(key, log) + 1, 0, total
    elseif first == #head then
      first = first_in_window(key, first, count(key, log), oldest_live)
      base, first_at = total_of(key, first - 1), time_of(key, first)
    end
    -- No more is recorded than twice the limit, which is at most 10,000, and may have been larger.
    if base >= 0 and total >= base and total - base <= 20000 then
      log.newest, log.total, log.first, log.first_at, log.base = newest, total, first, first_at, base
      log.stored, log.foreign = true, false
      return newest + window
    end
  end

  -- Reads a log:
  --   grants   number of grants; nil until `count` reads it
  --   newest   time of the last grant
  --   total    total of the last grant
  --   first    index of the first grant in the window that ends at NOW, or at the newest grant if that is later
  --   first_at time of the first grant in the window
  --   base     total before the first grant in the window
  --   stored   whether the key has a log
  --   foreign  whether the key has something else
  --   stored_unused_from, unused_from  the time in us from which the stored log is unused, and the changed one
  function open_log(key, window)
    local head = try('LRANGE', key, '0', HEAD_END)
    -- Only a value of another type is foreign. Any other error, such as a missing permission, fails the call.
    if head.err and not string.find(head.err, '^WRONGTYPE') then
      error(head)
    end
    local log = { newest = 0, total = 0, first = 1, first_at = 0, base = 0, stored = false, foreign = true }
    if #head >= 2 then
      log.stored_unused_from = read_log(log, key, head, window)
    elseif #head == 0 and not head.err then
      log.foreign = false
    end
    if not log.stored then
      log.grants = 0
    end
    return log
  end

  local undo_grant, refund
  if has_refunds then
    local function clear(key, log)
      call('DEL', key)
      log.grants, log.newest, log.total, log.base, log.stored = 0, 0, 0, 0, false
      log.stored_unused_from = nil -- a new list has no expiry
    end

    -- Removes units from the newest of the grants up to `high`, so that the last grant left has this total. It may
    -- keep a part of its units. Returns its index and its time. Pair 0 always stays.
    local function cut(key, high, total)
      local last = first_reaching(total_of, key, total, 0, high)
      local time = time_of(key, last)
      call('LTRIM', key, 0, last)
      call('LSET', key, END, pack('<dd', time, total))
      return last, time
    end

    -- Removes units of the grant at the time GRANT_ID. A refund removes the newest units, so it may have removed units
    -- of this grant. The undo therefore removes the newest units that are not later than the grant. The later grants
    -- are written again with lower totals. If there are UNDO_SEARCH of them or more, the undo returns false, and the
    -- units stay recorded.
    function undo_grant(key, log, units)
      local UNDO_SEARCH = 64
      local tail = call('LRANGE', key, -UNDO_SEARCH, -1)
      local at = #tail
      local time, reached = unpack_pair(tail[at])
      while at > 1 and time > GRANT_ID do
        at = at - 1
        time, reached = unpack_pair(tail[at])
      end
      local pair = count(key, log) - (#tail - at)
      if time > GRANT_ID then
        return pair < 2 or time_of(key, 1) > GRANT_ID
      end
      local total = reached - units > log.base and reached - units or log.base
      local removed = reached - total
      if removed <= 0 then -- the units have left the window, or were given back
        return true
      end
      if log.total - removed == log.base then
        clear(key, log)
        return true
      end
      local later = {}
      for i = at + 1, #tail do
        time, reached = unpack_pair(tail[i])
        later[#later + 1] = pack('<dd', time, reached - removed)
      end
      log.grants = cut(key, pair, total) + #later
      if #later > 0 then
        call('RPUSH', key, unpack(later))
      end
      log.total = log.total - removed
      log.newest, log.first_at = time_of(key, log.grants), time_of(key, 1)
      return true
    end

    -- Removes units, from the newest grant backwards.
    function refund(key, log, units)
      local total = log.total - units
      if total <= log.base then
        return clear(key, log)
      end
      log.grants, log.newest = cut(key, count(key, log), total)
      log.total = total
    end
  end

  -- Records a charge. Returns false for an undo that cannot be made (undo_grant). Also removes expired grants: always
  -- before a refund, otherwise when there are TRIM_AT of them and units are added. When a refund removes the newest
  -- grant, the window of the log ends earlier, and would include expired grants again.
  function record_log(key, log, mode, units, limit, window)
    local REFUND, UNDO = 3, 5
    local at = NOW > log.newest and NOW or log.newest
    local is_recorded = true
    if log.foreign then
      call('DEL', key)
      log.foreign = false
    end
    -- Postpaid units may exceed the limit by one more limit.
    local room = 2 * limit - (log.total - log.base)
    if log.first > TRIM_AT and room > 0 or log.first > 1 and mode >= REFUND then
      call('LTRIM', key, format('%d', log.first - 1), END)
      log.grants, log.first = log.grants and log.grants - log.first + 1, 1
    end
    if mode == UNDO then
      is_recorded = undo_grant(key, log, units)
    elseif mode >= REFUND then
      refund(key, log, units)
    elseif room > 0 then
      local total = log.total + (units < room and units or room)
      local grant = pack('<dd', at, total)
      if log.stored and log.newest == at then
        call('LSET', key, END, grant)
      else
        if log.stored then
          call('RPUSH', key, grant)
        else
          call('RPUSH', key, pack('<dd', 0, 0), grant)
        end
        if log.total == log.base then
          log.first_at = at
        end
        log.grants, log.stored = log.grants and log.grants + 1, true
      end
      log.newest, log.total = at, total
    end
    log.unused_from = log.newest + window
    return is_recorded
  end

  -- The four integers of the reply.
  function log_facts(key, log, units, limit)
    local used = log.total - log.base
    if used == 0 then
      return 0, 0, 0, 0
    end
    -- Time of the grant after whose end `room` units fit.
    local function grant_that_frees(room)
      return time_of(key, first_reaching(total_of, key, log.total + room - limit, log.first, count(key, log)))
    end
    local next_one = used <= limit and log.first_at or grant_that_frees(1)
    local same_cost = units <= limit and used + units > limit and grant_that_frees(units) or 0
    return used, log.newest, next_one, same_cost
  end
  -- END log
end

local log = open_log(key, window)
local fits = mode >= REFUND or log.total - log.base + units <= limit
if mode ~= PEEK and (fits or mode == RECORD) then
  record_log(key, log, mode, units, limit, window)
  -- BEGIN expire
  -- Sets the expiry of a changed log, unless its key expires in that second already.
  local unused, stored = log.unused_from, log.stored_unused_from
  local expires = unused + -unused % 1000000 -- rounded up to whole seconds: it seldom changes
  if log.stored and not (stored and stored <= expires and stored > expires - 1000000) then
    local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS
    call('PEXPIRE', key, string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms))
  end
  -- END expire
end
local used, newest, next_one, same_cost = log_facts(key, log, units, limit)
return { NOW, fits and used or -1 - used, newest, next_one, same_cost }
