-- A piece of sliding_log.lua: gives units of a log back.
local function clear(key, log)
  call('DEL', key)
  log.grants, log.newest, log.total, log.base, log.stored = 0, 0, 0, 0, false
  log.stored_unused_from = nil -- a new list has no expiry
end

-- Removes units from the newest of the grants up to `high`, so that the last grant left has this total. It may keep a
-- part of its units. Returns its index and its time. Pair 0 always stays.
local function cut(key, high, total)
  local last = first_reaching(total_of, key, total, 0, high)
  local time = time_of(key, last)
  call('LTRIM', key, 0, last)
  call('LSET', key, END, pack('<dd', time, total))
  return last, time
end

-- UNDO_SEARCH is a number: an undo writes the grants after its own again, if they are fewer.

-- Removes units of the grant at the time GRANT_ID. A refund removes the newest units, so it may have removed units of
-- this grant. The undo therefore removes the newest units that are not later than the grant. The later grants are
-- written again with lower totals. If there are too many of them, the undo returns false, and the units stay
-- recorded.
function undo_grant(key, log, units)
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
