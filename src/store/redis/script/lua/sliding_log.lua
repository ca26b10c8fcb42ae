-- Sliding log. Kept as a list of pairs, each one element of two doubles: a time in us and the running total of units up to
-- and including that grant. Pair 0 is no grant: its total is what the others start from. A = the log as far as it is
-- known, see open_log. Sums over a span are one subtraction and searches go by bisection, so a decision reads few pairs.
local sliding_log, record_log, log_facts
if USES % 8 >= 4 then
  -- Time and total of a pair as it is kept. What is none counts as none: it is found out by what does not fit together.
  local function numbers(pair)
    if pair and #pair == 16 then
      return unpack_from('<dd', pair)
    end
    return 0, 0
  end

  local function time_of(key, pair)
    return (numbers(call('LINDEX', key, pair)))
  end

  local function total_of(key, pair)
    local _, total = numbers(call('LINDEX', key, pair))
    return total
  end

  -- The first pair in low..high whose number is not below `bound`; high + 1 when there is none.
  local function first_reaching(number_of, key, bound, low, high)
    while low <= high do
      local middle = floor((low + high) / 2)
      if number_of(key, middle) < bound then
        low = middle + 1
      else
        high = middle - 1
      end
    end
    return low
  end

  -- The first grant still in the window, from that pair on. Few have left since the last grant was recorded, so look in
  -- growing steps before bisecting.
  local function first_live(key, from, grants, oldest_live)
    local low, step = from, 1
    while low + step - 1 <= grants and time_of(key, low + step - 1) < oldest_live do
      low, step = low + step, step * 2
    end
    local high = low + step - 2
    return first_reaching(time_of, key, oldest_live, low, high < grants and high or grants)
  end

  -- The number of grants in the list, pair 0 left out. Few decisions need it.
  local function count(key, log)
    log.grants = log.grants or call('LLEN', key) - 1
    return log.grants
  end

  -- So much of a list is read at once: pair 0 and three grants, all that most decisions need of its beginning. Where a list
  -- ends is handed over as text: Redis spells numbers slowly.
  local HEAD, HEAD_END, END = 4, '3', '-1'

  -- Grants that have left the window are forgotten so many at a time.
  local FORGOTTEN_AT_ONCE = 2

  -- Fills in what is known of a list that begins like this; leaves the log as it is where the list is no log. Returns when
  -- the log is as if never used.
  local function read_log(log, key, head, limit, window)
    local is_whole = #head < HEAD
    local last = is_whole and head[#head] or call('LINDEX', key, END)
    local newest, total = numbers(last)
    local _, base = numbers(head[1])
    if not (#head[1] == 16 and #last == 16 and newest >= 0 and newest < EXACT and total < EXACT) then
      return
    end
    if is_whole then
      log.grants = #head - 1
    end
    local oldest_live = (NOW > newest and NOW or newest) - window + 1
    local first = 1
    local first_at, first_total = numbers(head[2])
    while first < #head and first_at < oldest_live do
      base, first = first_total, first + 1
      first_at, first_total = numbers(head[first + 1])
    end
    if newest < oldest_live then
      first, first_at, base = count(key, log) + 1, 0, total
    elseif first == #head then
      first = first_live(key, first, count(key, log), oldest_live)
      base, first_at = total_of(key, first - 1), time_of(key, first)
    end
    if base >= 0 and total >= base and total - base <= 2 * limit then
      log.newest, log.total, log.first, log.first_at, log.base = newest, total, first, first_at, base
      log.stored, log.foreign = true, false
      return newest + window
    end
  end

  -- grants = number of pairs without pair 0 (nil: ask count), newest and total = the last pair, first = the first grant in
  -- the window as seen from the later of NOW and the newest grant, first_at = its time, base = the total before it, stored =
  -- whether the list is there, foreign = whether something else is.
  local function open_log(place, limit, window)
    local key = KEYS[place]
    local head = try('LRANGE', key, '0', HEAD_END)
    local log = { newest = 0, total = 0, first = 1, first_at = 0, base = 0, stored = false, foreign = true }
    A[place] = log
    if #head >= 2 then
      WAS_FRESH_AT[place] = read_log(log, key, head, limit, window)
    elseif #head == 0 and not head.err then
      log.foreign = false
    end
    if not log.stored then
      log.grants = 0
    end
    return log
  end

  function sliding_log(place, mode, units, limit, window)
    local log = A[place] or open_log(place, limit, window)
    local fits = mode >= RETURN or log.total - log.base + units <= limit
    if mode == PEEK or not fits and mode == TAKE then
      return fits
    end
    return fits, NOW -- record_log knows better when the log is as if never used
  end

  local function clear(place, log)
    call('DEL', KEYS[place])
    log.grants, log.newest, log.total, log.base, log.stored = 0, 0, 0, 0, false
    WAS_FRESH_AT[place] = nil -- what comes next begins without a time to go
  end

  -- How many of the newest grants are looked through for one that is undone.
  local UNDONE_WITHIN = 64

  -- Takes units back from the grant at RECEIPT: those that followed are written again, lower by that much.
  local function undo_grant(place, log, units)
    local key = KEYS[place]
    local tail = call('LRANGE', key, -UNDONE_WITHIN, -1)
    local at = #tail
    local time, reached = numbers(tail[at])
    while at > 1 and time > RECEIPT do
      at = at - 1
      time, reached = numbers(tail[at])
    end
    local pair = count(key, log) - (#tail - at)
    if pair < 1 or time ~= RECEIPT then
      return
    end
    local before = at > 1 and select(2, numbers(tail[at - 1])) or total_of(key, pair - 1)
    local granted = reached - before
    units = units < granted and units or granted
    if log.total - units == log.base then
      return clear(place, log)
    end
    local rest = {}
    for i = units < granted and at or at + 1, #tail do
      time, reached = numbers(tail[i])
      rest[#rest + 1] = pack('<dd', time, reached - units)
    end
    call('LTRIM', key, 0, pair - 1)
    if #rest > 0 then
      call('RPUSH', key, unpack(rest))
    end
    log.grants, log.total = pair - 1 + #rest, log.total - units
    log.newest, log.first_at = time_of(key, log.grants), time_of(key, 1)
  end

  -- Takes units back, the newest first.
  local function undo(place, log, units)
    local key = KEYS[place]
    local total = log.total - units
    if total <= log.base then
      return clear(place, log)
    end
    -- The grant that reaches the total stays, shortened.
    local last = first_reaching(total_of, key, total, 1, count(key, log))
    local newest = time_of(key, last)
    call('LTRIM', key, 0, last)
    call('LSET', key, END, pack('<dd', newest, total))
    log.grants, log.newest, log.total = last, newest, total
  end

  local function append(key, log, at, units)
    local total = log.total + units
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

  -- Records a charge. Only here are grants forgotten that have left the window: when units go back at once, because a log
  -- whose newest grant is undone sees from an earlier time, else when it is worth a command.
  function record_log(place, mode, units, limit, window)
    local key, log = KEYS[place], A[place]
    local at = NOW > log.newest and NOW or log.newest
    if log.foreign then
      call('DEL', key)
      log.foreign = false
    end
    if log.first > FORGOTTEN_AT_ONCE or log.first > 1 and mode >= RETURN then
      call('LTRIM', key, format(WHOLE, log.first - 1), END)
      log.grants, log.first = log.grants and log.grants - log.first + 1, 1
    end
    if mode == UNDO then
      undo_grant(place, log, units)
    elseif mode >= RETURN then
      undo(place, log, units)
    else
      -- Booked units may owe one further limit.
      local room = 2 * limit - (log.total - log.base)
      if room > 0 then
        append(key, log, at, units < room and units or room)
      end
    end
    KIND[place], FRESH_AT[place] = SLIDING_LOG, log.newest + window
  end

  -- What a report needs of a log, see the header of the script.
  function log_facts(place, units, limit)
    local key, log = KEYS[place], A[place]
    local used = log.total - log.base
    if used == 0 then
      return 0, 0, 0, 0
    end
    local function freeing(room_for)
      return time_of(key, first_reaching(total_of, key, log.total + room_for - limit, log.first, count(key, log)))
    end
    local next_one = used <= limit and log.first_at or freeing(1)
    local same_cost = units <= limit and used + units > limit and freeing(units) or 0
    return used, log.newest, next_one, same_cost
  end
end
