-- Sliding log. Kept as a list of pairs: a time in us and the running total of units up to and including that grant. Pair
-- 0 is no grant: its total is what the others start from. A = the log as far as it is known, see open_log. Sums over a
-- span are one subtraction and searches go by bisection, so a decision reads few of the entries.
local sliding_log, record_log, log_facts
if USES % 8 >= 4 then
  local function time_of(key, pair)
    return tonumber(call('LINDEX', key, 2 * pair)) or 0
  end

  local function total_of(key, pair)
    return tonumber(call('LINDEX', key, 2 * pair + 1)) or 0
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

  -- The first grant still in the window, when it is not pair 1. Few have left since the last grant was recorded, so look in
  -- growing steps before bisecting.
  local function first_live(key, grants, oldest_live)
    local low, step = 2, 1
    while low + step - 1 <= grants and time_of(key, low + step - 1) < oldest_live do
      low, step = low + step, step * 2
    end
    local high = low + step - 2
    return first_reaching(time_of, key, oldest_live, low, high < grants and high or grants)
  end

  -- The number of grants in the list, pair 0 left out. Few decisions need it.
  local function count(key, log)
    if not log.grants then
      local length = call('LLEN', key)
      log.odd = length % 2 == 1
      log.grants = floor(length / 2) - 1
    end
    return log.grants
  end

  -- Fills in what is known of a list that begins like this; leaves the log as it is where the list is no log. Returns when
  -- the log is as if never used.
  local function read_log(log, key, head, limit, window)
    local tail = call('LRANGE', key, -2, -1)
    local base, first_at = tonumber(head[2]), tonumber(head[3])
    local newest, total = tonumber(tail[1]), tonumber(tail[2])
    if not (base and first_at and newest and total and newest < EXACT and total < EXACT) then
      return
    end
    local first, oldest_live = 1, (NOW > newest and NOW or newest) - window + 1
    if newest < oldest_live then
      first, base = count(key, log) + 1, total
    elseif first_at < oldest_live then
      first = first_live(key, count(key, log), oldest_live)
      base, first_at = total_of(key, first - 1), time_of(key, first)
    end
    if not log.odd and base >= 0 and total >= base and total - base <= 2 * limit then
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
    local head = try('LRANGE', key, 0, 3)
    local log = { newest = 0, total = 0, first = 1, first_at = 0, base = 0, stored = false, foreign = true }
    A[place] = log
    if #head == 4 then
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

  -- Takes units back, the newest first.
  local function undo(place, log, units)
    local key = KEYS[place]
    local total = log.total - units
    if total <= log.base then
      call('DEL', key)
      log.grants, log.newest, log.total, log.base, log.stored = 0, 0, 0, 0, false
      WAS_FRESH_AT[place] = nil -- what comes next begins without a time to go
      return
    end
    -- The grant that reaches the total stays, shortened.
    local last = first_reaching(total_of, key, total, 1, count(key, log))
    call('LTRIM', key, 0, 2 * last + 1)
    call('LSET', key, -1, format(WHOLE, total))
    log.grants, log.newest, log.total = last, time_of(key, last), total
  end

  local function append(key, log, at, units)
    local total = log.total + units
    if log.stored and log.newest == at then
      call('LSET', key, -1, format(WHOLE, total))
    else
      if not log.stored then
        call('RPUSH', key, '0', '0')
      end
      call('RPUSH', key, format(WHOLE, at), format(WHOLE, total))
      if log.total == log.base then
        log.first_at = at
      end
      log.grants, log.stored = log.grants and log.grants + 1, true
    end
    log.newest, log.total = at, total
  end

  -- Records a charge. Only here are grants forgotten that have left the window.
  function record_log(place, mode, units, limit, window)
    local key, log = KEYS[place], A[place]
    local at = NOW > log.newest and NOW or log.newest
    if log.foreign then
      call('DEL', key)
      log.foreign = false
    end
    if log.first > 1 then
      call('LTRIM', key, 2 * (log.first - 1), -1)
      log.grants, log.first = log.grants - log.first + 1, 1
    end
    if mode >= RETURN then
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
