-- Decides which of the rows that are set while the service runs are kept, and returns those that have changed. What the
-- JSON of a row says is up to the service. All times are in us since the epoch. A version is the time of a change or
-- later: it rises with each change of any row, also if the clock steps back.
--
-- KEYS     1  hash: id -> "<version> <end, or 0> <level> <1 if automatic, else 0> <JSON, empty if the row is removed>",
--             and "" -> "<sum of all versions modulo 2^52> <rows that are not removed> <automatic rows among them>"
--          2  sorted set: the ids by version. Its scores say which versions are in the sum
--          3  hash: name of an instance -> "<time of its last poll> <status>"
-- ARGV[1]  poll       ARGV[2] is the version after which the page begins, ARGV[3] and ARGV[4] are the name and the
--                     status of the instance that polls. An empty status is not stored
--          put        ARGV[2] is the last version that the sender has. Then 8 arguments for each row: id, kind, end,
--                     automatic, JSON, and those of the kind:
--            set      version that the row must have, 0: no row in effect, empty: any
--            later    none. A row in effect that does not end earlier is kept
--            ban      length in us, factor, greatest length. A row in effect is kept. If the last ban has ended for
--                     less than the greatest length, the level is one higher, and the ban longer by the factor
--            restore  version and level. Writes the row with this version, unless it has this or a newer one
--            drop     version. Deletes a row that was removed or has ended 7 days ago; an automatic one at its end
--          instances
-- Returns  poll       the sum, the time, the last version of the page, 1 if the page is full, and a list: id and row of
--                     each. A row that was not written by this script is deleted, and nil in the list
--          put        for each row two strings. All rows are written unless one is refused (conflict, full)
--                     written and the row without JSON; kept and the row; conflict and the row or nil; newer, full,
--                     unwritten and nil
--          instances  for each name, age of its last poll in us, and status. Those older than a day are deleted

local PAGE, MOST_ROWS, MOST_AUTOMATIC, DAY = 1000, 100000, 20000, 86400000000
local call, format, match = redis.call, string.format, string.match
local rows, changes, instances = KEYS[1], KEYS[2], KEYS[3]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

if ARGV[1] == 'instances' then
  local found, list = call('HGETALL', instances), {}
  for i = 1, #found, 2 do
    local polled, status = match(found[i + 1], '^(%d+) (.*)$')
    if polled and now - polled < DAY then
      list[#list + 1] = found[i]
      list[#list + 1] = math.max(now - polled, 0)
      list[#list + 1] = status
    else
      call('HDEL', instances, found[i])
    end
  end
  return list
end

local sum, count, automatic = match(call('HGET', rows, '') or '', '^(%d+) (%d+) (%d+)$')
sum, count, automatic = tonumber(sum), tonumber(count), tonumber(automatic)
if not sum or call('EXISTS', changes) == 0 then
  -- There is no row, or the server has evicted one of the keys: the instances restore the rows that they have.
  call('UNLINK', rows, changes)
  sum, count, automatic = 0, 0, 0
end

-- The row in this text; nil unless this script has written it with this version.
local function read(text, version)
  local stored, ends, level, flag, json = match(text or '', '^(%d+) (%d+) (%d+) ([01]) (.*)$')
  if tonumber(stored) == version and tonumber(ends) < 2^53 and tonumber(level) < 2^32 then
    return { version = version, ends = tonumber(ends), level = tonumber(level), flag = flag, json = json }
  end
end

local function write(row, json)
  return format('%.0f %.0f %.0f %s ', row.version, row.ends, row.level, row.flag) .. json
end

local function save_totals()
  call('HSET', rows, '', format('%.0f %.0f %.0f', sum, count, automatic))
end

if ARGV[1] == 'poll' then
  if ARGV[4] ~= '' then
    call('HSET', instances, ARGV[3], format('%.0f ', now) .. ARGV[4])
  end
  local found = call('ZRANGEBYSCORE', changes, '(' .. ARGV[2], '(4503599627370496', 'WITHSCORES', 'LIMIT', 0, PAGE)
  local list, last = {}, tonumber(ARGV[2])
  for i = 1, #found, 2 do
    local id, text = found[i], call('HGET', rows, found[i])
    last = tonumber(found[i + 1])
    if not read(text, last) then
      call('HDEL', rows, id)
      call('ZREM', changes, id)
      sum, count, text = (sum - last) % 2^52, math.max(count - 1, 0), false
      save_totals()
    end
    list[i], list[i + 1] = id, text
  end
  return { sum, now, last, #found == 2 * PAGE and 1 or 0, list }
end

local newest = call('ZREVRANGEBYSCORE', changes, '(4503599627370496', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or 0
local version = math.max(now - 1, tonumber(ARGV[2]), tonumber(newest))
local known, writes, results, is_refused = {}, {}, {}, false
for i = 3, #ARGV, 8 do
  local id, kind, ends, flag, json = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4]
  local first, second, third = tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6]), tonumber(ARGV[i + 7])
  local old = known[id]
  if not old then
    local score = tonumber(call('ZSCORE', changes, id) or 0)
    old = read(call('HGET', rows, id), score) or { version = 0, ends = 0, level = 0, flag = flag, json = '' }
    old.score = score
  end
  local is_row = old.json ~= ''
  local is_in_force = is_row and (old.ends == 0 or old.ends > now)
  local result, level = 'written', 0
  if kind == 'set' then
    if first and first ~= old.version and (first ~= 0 or is_in_force) then
      result = 'conflict'
    end
  elseif kind == 'later' then
    if is_in_force and (old.ends == 0 or ends ~= 0 and ends <= old.ends) then
      result = 'kept'
    end
  elseif kind == 'ban' then
    if is_in_force then
      result = 'kept'
    elseif is_row and now - old.ends < third then
      level = old.level + 1
    end
    ends = now + math.min(math.floor(first * second ^ level), third)
  elseif kind == 'restore' then
    level = second
    if old.version >= first then
      result = 'newer'
    end
  else
    local gone = is_row and old.ends or old.version
    local kept_for = is_row and old.flag == '1' and 0 or 7 * DAY
    if old.version ~= first or is_in_force or gone + kept_for > now then
      result = 'newer'
    end
  end
  local is_full = count >= MOST_ROWS or flag == '1' and automatic >= MOST_AUTOMATIC
    or call('ZCARD', changes) >= 2 * MOST_ROWS
  if is_full and result == 'written' and json ~= '' and not is_row and kind ~= 'restore' then
    result = 'full'
  end

  local text = false
  if result == 'written' then
    local new = { version = first, ends = ends, level = level, flag = flag, json = json }
    if kind == 'drop' then
      new.version = 0
    elseif kind ~= 'restore' then
      version = version + 1
      new.version = version
    end
    new.score = new.version
    local after, before = json ~= '' and 1 or 0, is_row and 1 or 0
    count, automatic = count + after - before, automatic + after * flag - before * old.flag
    sum = (sum - old.score + new.score) % 2^52
    known[id], text = new, write(new, '')
    writes[#writes + 1] = { id, new }
  elseif (result == 'kept' or result == 'conflict') and old.version > 0 then
    text = write(old, old.json)
  end
  is_refused = is_refused or result == 'conflict' or result == 'full'
  results[#results + 1] = result
  results[#results + 1] = text
end

if is_refused then
  for i = 1, #results, 2 do
    if results[i] == 'written' then
      results[i], results[i + 1] = 'unwritten', false
    end
  end
  return results
end
for _, item in ipairs(writes) do
  local id, row = item[1], item[2]
  if row.version == 0 then
    call('HDEL', rows, id)
    call('ZREM', changes, id)
  else
    call('HSET', rows, id, write(row, row.json))
    call('ZADD', changes, format('%.0f', row.version), id)
  end
end
if #writes > 0 then
  save_totals()
end
return results
