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
    if not log.grants then
      local length = call('LLEN', key)
      log.odd = length % 2 == 1
      log.grants = floor(length / 2) - 1
    end
    return log.grants
  end

  -- So much of a list is read at once: pair 0 and three grants, all that most decisions need of its beginning.
  local HEAD = 8

  -- Grants that have left the window are forgotten so many at a time.
  local FORGOTTEN_AT_ONCE = 2

  -- Fills in what is known of a list that begins like this; leaves the log as it is where the list is no log. Returns when
  -- the log is as if never used.
  local function read_log(log, key, head, limit, window)
    local is_whole = #head < HEAD
    local tail = is_whole and head or call('LRANGE', key, -2, -1)
    local newest, total, base = tonumber(tail[#tail - 1]), tonumber(tail[#tail]), tonumber(head[2])
    if not (newest and total and newest < EXACT and total < EXACT) then
      return
    end
    if is_whole then
      log.grants, log.odd = floor(#head / 2) - 1, #head % 2 == 1
    end
    local oldest_live = (NOW > newest and NOW or newest) - window + 1
    local first, first_at = 1, tonumber(head[3])
    while first_at and first_at < oldest_live do
      base, first = tonumber(head[2 * first + 2]), first + 1
      first_at = tonumber(head[2 * first + 1])
    end
    if newest < oldest_live then
      first, first_at, base = count(key, log) + 1, 0, total
    elseif not first_at then
      first = first_live(key, first, count(key, log), oldest_live)
      base, first_at = total_of(key, first - 1), time_of(key, first)
    end
    if not log.odd and base and base >= 0 and total >= base and total - base <= 2 * limit then
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
    local head = try('LRANGE', key, 0, HEAD - 1)
    local log = { newest = 0, total = 0, first = 1, first_at = 0, base = 0, stored = false, foreign = true }
    A[place] = log
    if #head >= 4 then
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
    local tail = call('LRANGE', key, -2 * UNDONE_WITHIN, -1)
    local at = #tail - 1
    while at > 0 and tonumber(tail[at]) > RECEIPT do
      at = at - 2
    end
    local pair = count(key, log) - (#tail - 1 - at) / 2
    if at < 1 or pair < 1 or tonumber(tail[at]) ~= RECEIPT then
      return
    end
    local before = at > 1 and tonumber(tail[at - 1]) or total_of(key, pair - 1)
    local granted = tonumber(tail[at + 1]) - before
    units = units < granted and units or granted
    if log.total - units == log.base then
      return clear(place, log)
    end
    local rest = {}
    for i = units < granted and at or at + 2, #tail, 2 do
      rest[#rest + 1], rest[#rest + 2] = tail[i], format(WHOLE, tonumber(tail[i + 1]) - units)
    end
    call('LTRIM', key, 0, 2 * pair - 1)
    if #rest > 0 then
      call('RPUSH', key, unpack(rest))
    end
    log.grants, log.total = pair - 1 + #rest / 2, log.total - units
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
      call('LTRIM', key, 2 * (log.first - 1), -1)
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
