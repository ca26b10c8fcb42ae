-- Sliding log: every grant within the window. A kernel with functions, which plain_log.lua and log_charge.lua call.
-- State    a list with a pair of doubles per grant: time in us, and total of units up to and including the grant.
--          Pair 0 is not a grant: its total is where the totals start. `log` is a table with what is known of the
--          list, see open_log. The units of several grants are a difference of two totals, and searches are binary, so
--          a decision reads few pairs
-- units, limit in units; window in us
local open_log, record_log, log_facts
if NEEDS_SLIDING_LOG then
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
  local function read_log(log, key, head, limit, window)
    local is_whole = #head < HEAD
    local last = is_whole and head[#head] or call('LINDEX', key, END)
    local newest, total = unpack_pair(last)
    local _, base = unpack_pair(head[1])
    if not (#head[1] == 16 and #last == 16 and newest >= 0 and newest < EXACT and total < EXACT) then
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
  function open_log(key, limit, window)
    local head = try('LRANGE', key, '0', HEAD_END)
    -- Only a value of another type is foreign. Any other error, such as a missing permission, fails the call.
    if head.err and not string.find(head.err, '^WRONGTYPE') then
      error(head)
    end
    local log = { newest = 0, total = 0, first = 1, first_at = 0, base = 0, stored = false, foreign = true }
    if #head >= 2 then
      log.stored_unused_from = read_log(log, key, head, limit, window)
    elseif #head == 0 and not head.err then
      log.foreign = false
    end
    if not log.stored then
      log.grants = 0
    end
    return log
  end

  local undo_grant, refund
  if NEEDS_LOG_REFUNDS then
    DEFINE_LOG_REFUNDS
  end

  -- Records a charge. Returns false for an undo that cannot be made (undo_grant). Also removes expired grants: always
  -- before a refund, otherwise when there are TRIM_AT of them and units are added. When a refund removes the newest
  -- grant, the window of the log ends earlier, and would include expired grants again.
  function record_log(key, log, mode, units, limit, window)
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

  -- The four integers of the reply, see plain.lua.
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
end
