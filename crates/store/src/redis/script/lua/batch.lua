-- Decides a batch of requests at one instant. It also decides a request alone that the script of its kernel does not
-- decide: one with several charges, an undo, a reset, a limit of 0. Read gcra_whole.lua first. The kernels stand in the
-- loop as copies (README.md): a function would cost each call as much as a part of a decision.
--
-- KEYS     counters, in the order of the charges that use them. Two requests may use one counter, and so may charges
--          of one request that are recorded in any case, or never (postpaid charges, peeks). A blocked limit has no
--          counter and no key.
-- ARGV[1]  little endian:
--            double  time in us since the epoch, or -1 for the server's clock
--            double  time in ms for which a counter is kept after it is unused
--            u8      1 if a key occurs more than once, else 0
--            u8      1 if there are charges to sliding logs, 2 if some of them give units back, else 0
--            records, one after the other. Each is the u16 number of requests that it stands for, which differ in their
--            keys only, and then what they are, one of:
--              a charge           u8 kernel, u8 mode, then the kernel's parameters as doubles
--              several charges    u8 SEVERAL, u16 charges, u16 quota groups; then the charges, with u16 role after the
--                                 mode
--              a charge to undo   u8 GRANT, the id of the grant as a double; then the charge with mode UNDO
--              a reset counter    u8 RESET
--              equal charges      u8 EQUAL; then the charge, which each of the requests makes to the same counter
-- Returns  integers: the time in us, then for each charge those that the script of its kernel returns; 0 for a blocked
--          limit. For a reset 0 if the counter existed, else -1. The first integer x of an undo that cannot be made is
--          also returned as -1 - x. For equal charges see `equal > 1` below.
--
-- Several charges are recorded together or not at all. A charge whose mode says that it is recorded in any case is an
-- exception, and takes effect before the next charge is decided. The role of a charge tells what follows if it does not
-- fit. ENFORCE: the request is denied. NON_BINDING: nothing. QUOTA + g: quota group g is over, and if all groups are
-- over, the request is denied. The id of a grant is the index or the start of its window, the time of the last refill
-- of its bucket, or the time of its entry in a log. For GCRA it is the theoretical arrival time before the grant or the
-- time of the grant, whichever is later.
--
-- The counters are read at once, and each is written when its charge is decided, or when the verdict on the request is
-- known. A peek, a charge that does not fit and a denied request write nothing, except for postpaid charges.
local PEEK, TAKE, RECORD, REFUND, UNDO = 0, 1, 2, 3, 5
local KEYS, REQUESTS = KEYS, ARGV[1]
local call, byte, pack, unpack_from = redis.call, string.byte, struct.pack, struct.unpack
local NOW, GRACE_MS, repeats, logs, at = unpack_from('<ddBB', REQUESTS)
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end

-- A counter is an index: the position of its key in KEYS, the first one where keys repeat. TEXT has the stored value.
local TEXT = {}
for first = 1, #KEYS, 4000 do -- the Lua stack holds 8,000 values
  local last = first + 3999
  local part = call('MGET', unpack(KEYS, first, last < #KEYS and last or #KEYS))
  if first == 1 then
    TEXT = part
  else
    for i = 1, #part do
      TEXT[first + i - 1] = part[i]
    end
  end
end
-- Where keys repeat, the counter by its key. By counter: what is known of a sliding log.
local COUNTER_OF, LOGS = {}, {}

local GRANT_ID -- of the charge to undo
local has_refunds = logs >= 2
local open_log, record_log, log_facts
if logs >= 1 then
  -- COPY sliding_log.lua log
  local try, format = redis.pcall, string.format
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
  local function first_in_window(key, from, grants, oldest_live)
    local low, step = from, 1
    while low + step - 1 <= grants and time_of(key, low + step - 1) < oldest_live do
      low, step = low + step, step * 2
    end
    local high = low + step - 2
    return first_reaching(time_of, key, oldest_live, low, high < grants and high or grants)
  end
  local function count(key, log)
    log.grants = log.grants or call('LLEN', key) - 1
    return log.grants
  end
  local HEAD, HEAD_END, END = 4, '3', '-1'
  local TRIM_AT = 2
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
    if base >= 0 and total >= base and total - base <= 20000 then
      log.newest, log.total, log.first, log.first_at, log.base = newest, total, first, first_at, base
      log.stored, log.foreign = true, false
      return newest + window
    end
  end
  function open_log(key, window)
    local head = try('LRANGE', key, '0', HEAD_END)
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
      log.stored_unused_from = nil
    end
    local function cut(key, high, total)
      local last = first_reaching(total_of, key, total, 0, high)
      local time = time_of(key, last)
      call('LTRIM', key, 0, last)
      call('LSET', key, END, pack('<dd', time, total))
      return last, time
    end
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
      if removed <= 0 then
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
    function refund(key, log, units)
      local total = log.total - units
      if total <= log.base then
        return clear(key, log)
      end
      log.grants, log.newest = cut(key, count(key, log), total)
      log.total = total
    end
  end
  function record_log(key, log, mode, units, limit, window)
    local REFUND, UNDO = 3, 5
    local at = NOW > log.newest and NOW or log.newest
    local is_recorded = true
    if log.foreign then
      call('DEL', key)
      log.foreign = false
    end
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
  function log_facts(key, log, units, limit)
    local used = log.total - log.base
    if used == 0 then
      return 0, 0, 0, 0
    end
    local function grant_that_frees(room)
      return time_of(key, first_reaching(total_of, key, log.total + room - limit, log.first, count(key, log)))
    end
    local next_one = used <= limit and log.first_at or grant_that_frees(1)
    local same_cost = units <= limit and used + units > limit and grant_that_frees(units) or 0
    return used, log.newest, next_one, same_cost
  end
  -- END log
end

-- The charges that requests share, 8 values for each: kernel, mode, role and parameters. And the changes of a
-- request that wait for its verdict, 8 values for each.
local CHARGES, WAITING, waiting = {}, {}, 0

local REPLY, n, position, length = { NOW }, 1, 0, #REQUESTS
while at <= length do
  -- `groups` is nil for a single charge. The parameters of the kernel are `one` to `five`.
  local requests, kernel, mode
  local charges, equal = 1, 1
  local groups, role, one, two, three, four, five
  requests, kernel, at = unpack_from('<I2B', REQUESTS, at)
  if kernel == 0 then -- SEVERAL
    charges, groups, at = unpack_from('<I2I2', REQUESTS, at)
  elseif kernel ~= 100 then -- RESET
    if kernel == 101 then -- GRANT
      GRANT_ID, kernel, at = unpack_from('<dB', REQUESTS, at)
    elseif kernel == 102 then -- EQUAL
      requests, equal, kernel, at = 1, requests, byte(REQUESTS, at), at + 1
    end
    mode, at = byte(REQUESTS, at), at + 1
  end
  for request = 1, requests do
    local is_denied, groups_over, is_group_over
    for i = 8, 8 * charges, 8 do
      local is_known = request > 1 -- whether the parameters are read already
      if groups then
        if is_known then
          kernel, mode, role = CHARGES[i - 7], CHARGES[i - 6], CHARGES[i - 5]
        else
          local role_high
          kernel, mode, role, role_high = byte(REQUESTS, at, at + 3)
          role, at = role + 256 * role_high, at + 4
          if requests > 1 then
            CHARGES[i - 7], CHARGES[i - 6], CHARGES[i - 5] = kernel, mode, role
          end
        end
      end
      local key, counter, text
      if kernel ~= 7 then -- BLOCKED
        position = position + 1
        key, counter = KEYS[position], position
        if repeats == 1 then
          counter = COUNTER_OF[key] or position
          COUNTER_OF[key] = counter
        end
        text = TEXT[counter]
      end
      local a, b, c, d -- the numbers of the counter
      local fits, stored_unused_from
      -- The variables of equal charges, see below:
      local left, is_rest, is_at_most, first_one, first_two, changed_from, changed_state = equal
      repeat -- once, unless charges are equal
        local unused_from, state, new_a, new_b, new_c
        fits = true
        if kernel == 1 then -- GCRA_WHOLE
          if not is_known then
            one, two, at = unpack_from('<dd', REQUESTS, at)
            is_known = true
            if groups and requests > 1 then
              CHARGES[i - 4], CHARGES[i - 3] = one, two
            end
          elseif groups then
            one, two = CHARGES[i - 4], CHARGES[i - 3]
          end
          local cost, burst = one, two
          local arrival = a
          local new_arrival
          -- COPY gcra_whole.lua kernel
          if not arrival then
            arrival = 0
            if text and #text == 8 then
              arrival = unpack_from('<d', text)
              if arrival > 0 and arrival < 2^53 and arrival % 1 == 0 then
                stored_unused_from = arrival
              else
                arrival = 0
              end
            elseif text and #text == 16 then
              local part
              arrival, part = unpack_from('<dd', text)
              if arrival >= 0 and arrival < 2^53 and arrival % 1 == 0
                and part >= 0 and part < 2^32 and part % 1 == 0 then
                arrival = part > 0 and arrival + 1 or arrival
              else
                arrival = 0
              end
            end
          end
          if mode < REFUND then
            local base = arrival > NOW and arrival or NOW
            local after = base + cost
            if after <= NOW + burst then
              if mode ~= PEEK then
                unused_from, new_arrival = after, after
              end
            else
              fits = false
              if mode == RECORD then
                local latest = NOW + 2 * burst
                if after > latest then
                  after = latest > base and latest or base
                end
                unused_from, new_arrival = after, after
              end
            end
          else
            if mode == UNDO and NOW > GRANT_ID then
              cost = cost - (NOW - GRANT_ID)
            end
            if cost > 0 then
              new_arrival = arrival - cost
              if new_arrival < NOW then
                new_arrival = NOW
              end
              unused_from = new_arrival
            end
          end
          -- END kernel
          a = arrival
          if unused_from then
            state, new_a = '<d', new_arrival
          end
        elseif kernel == 2 then -- FIXED_WINDOW
          if not is_known then
            one, two, three, at = unpack_from('<ddd', REQUESTS, at)
            is_known = true
            if groups and requests > 1 then
              CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2] = one, two, three
            end
          elseif groups then
            one, two, three = CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2]
          end
          local units, limit, window = one, two, three
          local index, count = a, b
          local new_index, new_count
          -- COPY fixed_window.lua kernel
          local now_index = (NOW - NOW % window) / window
          if not index then
            if text and #text == 16 then
              index, count = unpack_from('<dd', text)
            end
            if index and index >= now_index and index * window < 2^53 and index % 1 == 0
              and count >= 0 and count < 2^53 and count % 1 == 0 then
              stored_unused_from = (index + 1) * window
            else
              index, count = now_index, 0
            end
          end
          if count == 0 and index > now_index then
            index = now_index
          end
          if mode < REFUND then
            local after = count + units
            fits = after <= limit
            if fits and mode ~= PEEK then
              unused_from, new_index, new_count = (index + 1) * window, index, after
            elseif mode == RECORD then
              unused_from, new_index, new_count = (index + 1) * window, index, after < 2^53 and after or 2^53 - 1
            end
          elseif mode ~= UNDO or index == GRANT_ID then
            if count > units then
              unused_from, new_index, new_count = (index + 1) * window, index, count - units
            else
              unused_from, new_index, new_count = NOW, now_index, 0
            end
          end
          -- END kernel
          a, b = index, count
          if unused_from then
            state, new_a, new_b = '<dd', new_index, new_count
          end
        elseif kernel == 3 then -- GCRA
          if not is_known then
            one, two, three, four, five, at = unpack_from('<ddddd', REQUESTS, at)
            is_known = true
            if groups and requests > 1 then
              CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2], CHARGES[i - 1], CHARGES[i] = one, two, three, four, five
            end
          elseif groups then
            one, two, three, four, five = CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2], CHARGES[i - 1], CHARGES[i]
          end
          local cost, cost_part, burst, burst_part, denominator = one, two, three, four, five
          local arrival, part = a, b
          local new_arrival, new_part
          -- COPY gcra.lua kernel
          if not arrival then
            if text and #text == 16 then
              arrival, part = unpack_from('<dd', text)
            end
            if arrival and arrival >= 0 and arrival < 2^53 and arrival % 1 == 0
              and part >= 0 and part < denominator and part % 1 == 0 then
              stored_unused_from = part > 0 and arrival + 1 or arrival
            elseif text then
              local is_whole = #text == 8
              if is_whole then
                arrival, part = unpack_from('<d', text), 0
              end
              if arrival and arrival >= 0 and arrival < 2^53 and arrival % 1 == 0
                and part >= 0 and part < 2^32 and part % 1 == 0 then
                if part > 0 then
                  arrival, part = arrival + 1, 0
                end
                stored_unused_from = not is_whole and arrival or nil
              else
                arrival, part = 0, 0
              end
            else
              arrival, part = 0, 0
            end
          end
          local after, after_part
          if mode >= REFUND then
            if mode == UNDO and NOW > GRANT_ID then
              cost = cost - (NOW - GRANT_ID)
            end
            if cost > 0 or cost == 0 and cost_part > 0 then
              after, after_part = arrival - cost, part - cost_part
              if after_part < 0 then
                after, after_part = after - 1, after_part + denominator
              end
              if after < NOW then
                after, after_part = NOW, 0
              end
            end
          else
            local base, base_part = arrival, part
            if base < NOW then
              base, base_part = NOW, 0
            end
            after, after_part = base + cost, base_part + cost_part
            if after_part >= denominator then
              after, after_part = after + 1, after_part - denominator
            end
            local full = NOW + burst
            fits = after < full or after == full and after_part <= burst_part
            if mode == PEEK or not fits and mode == TAKE then
              after = nil
            elseif not fits then
              local latest, latest_part = full + burst, 2 * burst_part
              if latest_part >= denominator then
                latest, latest_part = latest + 1, latest_part - denominator
              end
              if after > latest or after == latest and after_part > latest_part then
                after, after_part = latest, latest_part
                if after < base or after == base and after_part < base_part then
                  after, after_part = base, base_part
                end
              end
            end
          end
          if after then
            unused_from, new_arrival, new_part = after_part > 0 and after + 1 or after, after, after_part
          end
          -- END kernel
          a, b = arrival, part
          if unused_from then
            state, new_a, new_b = '<dd', new_arrival, new_part
          end
        elseif kernel == 4 then -- SLIDING_WINDOW
          if not is_known then
            one, two, three, at = unpack_from('<ddd', REQUESTS, at)
            is_known = true
            if groups and requests > 1 then
              CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2] = one, two, three
            end
          elseif groups then
            one, two, three = CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2]
          end
          local units, limit, window = one, two, three
          local index, current, previous = a, b, c
          local new_index, new_current, new_previous
          -- COPY sliding_window.lua kernel
          local now_index = (NOW - NOW % window) / window
          if not index then
            if text and #text == 24 then
              index, current, previous = unpack_from('<ddd', text)
            end
            if index and index >= now_index - 1 and index * window < 2^53 and index % 1 == 0
              and current >= 0 and current < 2^48 and current % 1 == 0
              and previous >= 0 and previous < 2^48 and previous % 1 == 0 then
              stored_unused_from = (index + (current > 0 and 2 or previous > 0 and 1 or 0)) * window
              if index < now_index then
                index, current, previous = now_index, 0, current
              end
            else
              index, current, previous = now_index, 0, 0
            end
          end
          if current == 0 and previous == 0 and index > now_index then
            index = now_index
          end
          local after, after_previous = nil, previous
          if mode == UNDO and index ~= GRANT_ID then
            if index - 1 == GRANT_ID then
              after, after_previous = current, previous > units and previous - units or 0
            end
          elseif mode >= REFUND then
            after = current > units and current - units or 0
          else
            after = current + units
            local remaining = (index + 1) * window - NOW
            if remaining > window then
              remaining = window
            end
            local uncovered, room = previous * remaining, (limit - after) * window
            fits = after <= limit and uncovered <= room
            if fits and uncovered == room and room >= 2^53 then
              local function product(x, y)
                local x_low, y_low = x % 2^24, y % 2^24
                local x_high, y_high = (x - x_low) / 2^24, (y - y_low) / 2^24
                local middle = x_high * y_low + x_low * y_high
                local middle_low = middle % 2^24
                local low = x_low * y_low + middle_low * 2^24
                local rest = low % 2^48
                return x_high * y_high + (middle - middle_low) / 2^24 + (low - rest) / 2^48, rest
              end
              local function at_most(x, y, u, v)
                local left, right = x * y, u * v
                if left ~= right or left < 2^53 then
                  return left <= right
                end
                local left_high, left_low = product(x, y)
                local right_high, right_low = product(u, v)
                return left_high < right_high or left_high == right_high and left_low <= right_low
              end
              fits = at_most(previous, remaining, limit - after, window)
            end
            if mode == PEEK or not fits and mode == TAKE then
              after = nil
            elseif after > 2 * limit then
              after = current > 2 * limit and current or 2 * limit
            end
          end
          if after then
            new_index, new_current, new_previous = index, after, after_previous
            if after == 0 and after_previous == 0 then
              new_index = now_index
            end
            unused_from = (new_index + (after > 0 and 2 or after_previous > 0 and 1 or 0)) * window
          end
          -- END kernel
          a, b, c = index, current, previous
          if unused_from then
            state, new_a, new_b, new_c = '<ddd', new_index, new_current, new_previous
          end
        elseif kernel == 5 then -- INTERVAL_BUCKET
          if not is_known then
            one, two, three, four, at = unpack_from('<dddd', REQUESTS, at)
            is_known = true
            if groups and requests > 1 then
              CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2], CHARGES[i - 1] = one, two, three, four
            end
          elseif groups then
            one, two, three, four = CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2], CHARGES[i - 1]
          end
          local units, capacity, refill, interval = one, two, three, four
          local last, tokens = a, b
          local new_last, new_tokens
          -- COPY interval_bucket.lua kernel
          if not last then
            if text and #text == 16 then
              last, tokens = unpack_from('<dd', text)
            end
            if last and last >= 0 and last < 2^53 and last % 1 == 0
              and tokens >= -capacity and tokens <= capacity and tokens % 1 == 0 then
              stored_unused_from = last + math.floor((capacity - tokens + refill - 1) / refill) * interval
            else
              tokens, last = capacity, NOW
            end
            local refills = NOW > last and math.floor((NOW - last) / interval) or 0
            if refills >= math.floor((capacity - tokens + refill - 1) / refill) then
              tokens, last = capacity, NOW
            else
              tokens, last = tokens + refills * refill, last + refills * interval
            end
          end
          local start = tokens == capacity and NOW or last
          local after
          if mode >= REFUND then
            if mode == UNDO and start > GRANT_ID then
              units = units - math.floor((start - GRANT_ID + interval - 1) / interval) * refill
            end
            if units > 0 then
              after = tokens + units
              if after > capacity then
                after = capacity
              end
            end
          else
            fits = units <= tokens
            if mode == RECORD or fits and mode == TAKE then
              after = tokens - units
              if after < -capacity then
                after = -capacity
              end
            end
          end
          if after then
            new_last, new_tokens = start, after
            unused_from = NOW
            if after < capacity then
              unused_from = start + math.floor((capacity - after + refill - 1) / refill) * interval
            end
          end
          -- END kernel
          a, b = last, tokens
          if unused_from then
            state, new_a, new_b = '<dd', new_last, new_tokens
          end
        elseif kernel == 6 then -- SLIDING_LOG
          if not is_known then
            one, two, three, at = unpack_from('<ddd', REQUESTS, at)
            is_known = true
            if groups and requests > 1 then
              CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2] = one, two, three
            end
          elseif groups then
            one, two, three = CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2]
          end
          local log = LOGS[counter] or open_log(key, three)
          LOGS[counter] = log
          fits = mode >= REFUND or log.total - log.base + one <= two
          if mode ~= PEEK and (fits or mode == RECORD) then
            local waits = groups and (mode == TAKE or mode == REFUND)
            if waits and i < 8 * charges then
              WAITING[waiting + 1], WAITING[waiting + 2], WAITING[waiting + 3] = n, counter, log
              WAITING[waiting + 4], WAITING[waiting + 5] = mode, false
              WAITING[waiting + 6], WAITING[waiting + 7], WAITING[waiting + 8] = one, two, three
              waiting = waiting + 8
            elseif not (waits and is_denied) then
              fits = record_log(key, log, mode, one, two, three) and fits
              -- COPY sliding_log.lua expire
              local unused, stored = log.unused_from, log.stored_unused_from
              local expires = unused + -unused % 1000000
              if log.stored and not (stored and stored <= expires and stored > expires - 1000000) then
                local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS
                call('PEXPIRE', key, string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms))
              end
              -- END expire
              log.stored_unused_from = log.stored and unused or nil
            end
          end
          a, b, c, d = log_facts(key, log, one, two)
        elseif kernel == 8 then -- CALENDAR_WINDOW
          if not is_known then
            one, two, three, four, five, at = unpack_from('<ddddd', REQUESTS, at)
            is_known = true
            if groups and requests > 1 then
              CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2], CHARGES[i - 1], CHARGES[i] = one, two, three, four, five
            end
          elseif groups then
            one, two, three, four, five = CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2], CHARGES[i - 1], CHARGES[i]
          end
          local units, limit, first, middle, last = one, two, three, four, five
          local start, count = a, b
          local new_start, new_count
          -- COPY calendar_window.lua kernel
          local now_start = NOW < middle and first or middle
          local earliest = now_start
          if NOW >= last then
            now_start = NOW - (NOW - last) % (last - middle)
            earliest = math.max(last, NOW - (last - middle) + 1)
          elseif NOW < first then
            now_start = math.max(NOW - (NOW - first) % (middle - first), 0)
            earliest = NOW - (middle - first) + 1
          end
          if not start then
            if text and #text == 16 then
              start, count = unpack_from('<dd', text)
            end
            if start and start >= earliest and start + last - middle < 2^53 and start % 1 == 0
              and count >= 0 and count < 2^53 and count % 1 == 0 then
              stored_unused_from = start < first and start + middle - first or start < middle and middle
                or start < last and last or start + last - middle
            else
              start, count = now_start, 0
            end
          end
          if count == 0 then
            start = now_start
          end
          local after
          if mode < REFUND then
            after = count + units
            fits = after <= limit
            if mode == PEEK or not fits and mode == TAKE then
              after = nil
            elseif after >= 2^53 then
              after = 2^53 - 1
            end
          elseif mode ~= UNDO or start == GRANT_ID then
            after = count > units and count - units or 0
          end
          if after then
            new_start, new_count = start, after
            unused_from = start < first and start + middle - first or start < middle and middle
              or start < last and last or start + last - middle
            if after == 0 then
              unused_from, new_start = NOW, now_start
            end
          end
          -- END kernel
          a, b = start, count
          if unused_from then
            state, new_a, new_b = '<dd', new_start, new_count
          end
        elseif kernel == 9 then -- SLOTS
          if not is_known then
            one, two, three, four, at = unpack_from('<dddd', REQUESTS, at)
            is_known = true
            if groups and requests > 1 then
              CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2], CHARGES[i - 1] = one, two, three, four
            end
          elseif groups then
            one, two, three, four = CHARGES[i - 4], CHARGES[i - 3], CHARGES[i - 2], CHARGES[i - 1]
          end
          local units, limit, hold, id = one, two, three, four
          -- COPY slots.lua read
          local live = string.format('(%.0f', NOW)
          local ends = redis.pcall('ZSCORE', key, id)
          local is_foreign = type(ends) == 'table'
          if is_foreign and not string.find(ends.err, '^WRONGTYPE') then
            error(ends)
          end
          local open = is_foreign and 0 or call('ZCOUNT', key, live, '+inf')
          ends = not is_foreign and tonumber(ends or 0) or 0
          -- END read
          fits = mode >= REFUND or ends > NOW or open + units <= limit
          local is_recorded = mode ~= PEEK and (fits or mode == RECORD)
          if is_recorded and groups and (mode == TAKE or mode == REFUND) then
            if i < 8 * charges then
              WAITING[waiting + 1], WAITING[waiting + 2], WAITING[waiting + 3] = n, counter, hold
              WAITING[waiting + 4], WAITING[waiting + 5], WAITING[waiting + 6] = mode, false, limit
              WAITING[waiting + 7] = id
              waiting, is_recorded = waiting + 8, false
            elseif is_denied then
              is_recorded = false
            end
          end
          -- COPY slots.lua record
          local removed, frees, last = 0, 0, 0
          if is_recorded and mode >= REFUND then
            removed = ends > NOW and 1 or 0
            open = open - removed
            if open == 0 and not is_foreign then
              call('DEL', key)
            elseif ends > 0 then
              call('ZREM', key, id)
            end
          elseif is_recorded then
            if is_foreign then
              call('DEL', key)
            end
            removed = call('ZREMRANGEBYSCORE', key, '-inf', NOW)
            open = ends > NOW and open or open + 1
            call('ZADD', key, ends > NOW + hold and ends or NOW + hold, id)
          end
          if open > 0 then
            last = tonumber(call('ZREVRANGE', key, '0', '0', 'WITHSCORES')[2])
            local above = open > limit and open - limit or 0
            frees = last
            if open > 1 then
              frees = tonumber(call('ZRANGEBYSCORE', key, live, '+inf', 'WITHSCORES', 'LIMIT', above, '1')[2])
            end
            if is_recorded and mode < REFUND then
              call('PEXPIRE', key, string.format('%.0f', math.ceil((last - NOW) / 1000) + GRACE_MS))
            end
          end
          -- END record
          a, b, c, d = open, frees, last, removed
        elseif kernel == 7 then -- BLOCKED
          fits, a = mode >= REFUND, 0
        elseif kernel == 100 then -- RESET
          a = call('DEL', key) == 1 and 0 or -1
          TEXT[counter], LOGS[counter] = false, nil
        else
          error('no kernel ' .. kernel)
        end
        if equal > 1 then
          -- Several requests each make the same charge to one counter, with mode PEEK, TAKE or RECORD. Each recorded
          -- charge adds the same to the counter, up to a bound: for TAKE the limit, for RECORD the most that the kernel
          -- records. So equal charges form up to three runs: charges that fit, charges that do not fit and are counted
          -- in full, and charges that leave the counter as it is. For each run the reply has the number of its charges,
          -- negative if they leave the counter as it is, and then the reply to the first of them. The kernel decides
          -- the first charge of a run, and then, if `is_rest`, the other ones as one charge. `left` charges are in
          -- later runs. `is_at_most` tells whether RECORD counts no more charges in full.
          if unused_from then
            a, b, c = new_a, new_b, new_c
            changed_from, changed_state = unused_from, state
          end
          if is_rest then
            is_rest, one, two = false, first_one, first_two
          else
            local run = -left
            if unused_from and not is_at_most then
              local fitting, counted
              -- The room of the counter after the recorded charge: how many more equal charges fit, if that charge
              -- did, and how many more RECORD counts in full. Each may be negative, or exceed the number of charges
              -- that are left. Rounding makes an estimate wrong by at most one, so the estimates are corrected.
              if kernel == 1 then -- GCRA_WHOLE
                local cost, burst, backlog = one, two, a - NOW
                fitting, counted = math.floor((burst - backlog) / cost), math.floor((2 * burst - backlog) / cost)
              elseif kernel == 2 or kernel == 8 then -- FIXED_WINDOW, CALENDAR_WINDOW
                local units, limit = one, two
                fitting, counted = math.floor((limit - b) / units), math.floor((2^53 - 1 - b) / units)
              elseif kernel == 5 then -- INTERVAL_BUCKET
                local units, capacity = one, two
                fitting, counted = math.floor(b / units), math.floor((b + capacity) / units)
              elseif kernel == 3 then -- GCRA
                local cost, cost_part, burst, burst_part, denominator = one, two, three, four, five
                -- The largest number of costs that fit before a time. It is at most 65,535, because no more charges are
                -- sent as equal ones. So the fractions add up to less than 2^49.
                local function costs_before(last, last_part)
                  local function is_before(number)
                    local parts = b + number * cost_part
                    local after_part = parts % denominator
                    local after = a + number * cost + (parts - after_part) / denominator
                    return after < last or after == last and after_part <= last_part
                  end
                  local whole_cost = cost + cost_part / denominator
                  local number = math.floor((last - a + (last_part - b) / denominator) / whole_cost)
                  number = number < 0 and 0 or number > 65535 and 65535 or number
                  while number > 0 and not is_before(number) do
                    number = number - 1
                  end
                  while number < 65535 and is_before(number + 1) do
                    number = number + 1
                  end
                  return number
                end
                local latest, latest_part = NOW + 2 * burst, 2 * burst_part
                if latest_part >= denominator then
                  latest, latest_part = latest + 1, latest_part - denominator
                end
                fitting, counted = costs_before(NOW + burst, burst_part), costs_before(latest, latest_part)
              elseif kernel == 4 then -- SLIDING_WINDOW
                -- COPY sliding_window.lua at_most
                local function product(x, y)
                  local x_low, y_low = x % 2^24, y % 2^24
                  local x_high, y_high = (x - x_low) / 2^24, (y - y_low) / 2^24
                  local middle = x_high * y_low + x_low * y_high
                  local middle_low = middle % 2^24
                  local low = x_low * y_low + middle_low * 2^24
                  local rest = low % 2^48
                  return x_high * y_high + (middle - middle_low) / 2^24 + (low - rest) / 2^48, rest
                end
                local function at_most(x, y, u, v)
                  local left, right = x * y, u * v
                  if left ~= right or left < 2^53 then
                    return left <= right
                  end
                  local left_high, left_low = product(x, y)
                  local right_high, right_low = product(u, v)
                  return left_high < right_high or left_high == right_high and left_low <= right_low
                end
                -- END at_most
                local units, limit, window = one, two, three
                local remaining = (a + 1) * window - NOW
                if remaining > window then
                  remaining = window
                end
                local room = limit - b
                fitting = math.floor((room - c * remaining / window) / units)
                counted = math.floor((2 * limit - b) / units)
                while fitting > 0 and not at_most(c, remaining, room - fitting * units, window) do
                  fitting = fitting - 1
                end
                while (fitting + 1) * units <= room and at_most(c, remaining, room - (fitting + 1) * units, window) do
                  fitting = fitting + 1
                end
              else
                error('no room for kernel ' .. kernel)
              end
              if mode == TAKE then
                counted = fitting
              end
              local more = fits and fitting or counted
              more = more < 0 and 0 or more >= left and left - 1 or more
              run, is_at_most = 1 + more, counted <= more
            end
            REPLY[n + 1], REPLY[n + 2], REPLY[n + 3], REPLY[n + 4] = run, fits and a or -1 - a, b, c
            n = n + (c and 4 or b and 3 or 2)
            left = run > 0 and left - run or 0
            if run > 1 then
              is_rest, first_one, first_two = true, one, two
              one = (run - 1) * first_one
              if kernel == 3 then -- GCRA: the second parameter is a part of the cost
                local parts = (run - 1) * first_two
                two = parts % five
                one = one + (parts - two) / five
              end
            end
          end
          unused_from = nil
          if changed_from and left == 0 and not is_rest then
            unused_from, state, new_a, new_b, new_c = changed_from, changed_state, a, b, c
          end
        elseif unused_from and groups and (mode == TAKE or mode == REFUND) then
          if i < 8 * charges then
            WAITING[waiting + 1], WAITING[waiting + 2], WAITING[waiting + 3] = n, counter, unused_from
            WAITING[waiting + 4], WAITING[waiting + 5], WAITING[waiting + 6] = stored_unused_from or false, state, a
            if b then
              WAITING[waiting + 7], WAITING[waiting + 8] = b, c or false
            end
            waiting = waiting + 8
            a, b, c, unused_from = new_a, new_b, new_c, nil
          elseif is_denied then
            unused_from = nil
          end
        end
        if unused_from then
          local new_text = unused_from > NOW and pack(state, new_a, new_b, new_c)
          -- COPY gcra_whole.lua write
          local expires = unused_from + -unused_from % 1000000
          if not new_text then
            if text then
              call('DEL', key)
            end
          elseif stored_unused_from and stored_unused_from <= expires and stored_unused_from > expires - 1000000 then
            call('SETRANGE', key, '0', new_text)
          else
            local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS
            ttl_ms = string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms)
            call('PSETEX', key, ttl_ms, new_text)
          end
          -- END write
          if repeats == 1 then
            TEXT[counter] = new_text
          end
          a, b, c = new_a, new_b, new_c
        end
      until equal == 1 or left == 0 and not is_rest
      if equal == 1 then -- the replies to equal charges are there already
        n = n + 1
        REPLY[n] = fits and a or -1 - a
        if b then
          n = n + 1
          REPLY[n] = b
          if c then
            n = n + 1
            REPLY[n] = c
            if d then
              n = n + 1
              REPLY[n] = d
            end
          end
        end
      end
      if not fits and groups then -- what follows from the charge
        if role == 0 then -- ENFORCE
          is_denied = true
        elseif role >= 2 then -- QUOTA
          is_group_over = is_group_over or {}
          if not is_group_over[role] then
            is_group_over[role], groups_over = true, (groups_over or 0) + 1
            is_denied = is_denied or groups_over == groups
          end
        end
      end
    end
    for first = 1, waiting, 8 do
      local place = WAITING[first] -- of its integers in REPLY
      if not WAITING[first + 4] and type(WAITING[first + 2]) == 'number' then -- slots
        if not is_denied then
          local key, hold = KEYS[WAITING[first + 1]], WAITING[first + 2]
          mode = WAITING[first + 3]
          local limit, id, is_recorded = WAITING[first + 5], WAITING[first + 6], true
          -- COPY slots.lua read
          local live = string.format('(%.0f', NOW)
          local ends = redis.pcall('ZSCORE', key, id)
          local is_foreign = type(ends) == 'table'
          if is_foreign and not string.find(ends.err, '^WRONGTYPE') then
            error(ends)
          end
          local open = is_foreign and 0 or call('ZCOUNT', key, live, '+inf')
          ends = not is_foreign and tonumber(ends or 0) or 0
          -- END read
          -- COPY slots.lua record
          local removed, frees, last = 0, 0, 0
          if is_recorded and mode >= REFUND then
            removed = ends > NOW and 1 or 0
            open = open - removed
            if open == 0 and not is_foreign then
              call('DEL', key)
            elseif ends > 0 then
              call('ZREM', key, id)
            end
          elseif is_recorded then
            if is_foreign then
              call('DEL', key)
            end
            removed = call('ZREMRANGEBYSCORE', key, '-inf', NOW)
            open = ends > NOW and open or open + 1
            call('ZADD', key, ends > NOW + hold and ends or NOW + hold, id)
          end
          if open > 0 then
            last = tonumber(call('ZREVRANGE', key, '0', '0', 'WITHSCORES')[2])
            local above = open > limit and open - limit or 0
            frees = last
            if open > 1 then
              frees = tonumber(call('ZRANGEBYSCORE', key, live, '+inf', 'WITHSCORES', 'LIMIT', above, '1')[2])
            end
            if is_recorded and mode < REFUND then
              call('PEXPIRE', key, string.format('%.0f', math.ceil((last - NOW) / 1000) + GRACE_MS))
            end
          end
          -- END record
          REPLY[place + 1], REPLY[place + 2], REPLY[place + 3], REPLY[place + 4] = open, frees, last, removed
        end
      elseif not WAITING[first + 4] then -- a log
        if not is_denied then
          local key, log = KEYS[WAITING[first + 1]], WAITING[first + 2]
          local units, limit, window = WAITING[first + 5], WAITING[first + 6], WAITING[first + 7]
          record_log(key, log, WAITING[first + 3], units, limit, window)
          -- COPY sliding_log.lua expire
          local unused, stored = log.unused_from, log.stored_unused_from
          local expires = unused + -unused % 1000000
          if log.stored and not (stored and stored <= expires and stored > expires - 1000000) then
            local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS
            call('PEXPIRE', key, string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms))
          end
          -- END expire
          log.stored_unused_from = log.stored and unused or nil
          REPLY[place + 1], REPLY[place + 2], REPLY[place + 3], REPLY[place + 4] = log_facts(key, log, units, limit)
        end
      elseif is_denied then
        REPLY[place + 1] = WAITING[first + 5]
        if WAITING[first + 4] ~= '<d' then
          local c = WAITING[first + 7]
          REPLY[place + 2] = WAITING[first + 6]
          if c then
            REPLY[place + 3] = c
          end
        end
      else
        local counter, unused_from, stored_unused_from = WAITING[first + 1], WAITING[first + 2], WAITING[first + 3]
        local state, new_a, new_b, new_c = WAITING[first + 4], REPLY[place + 1], REPLY[place + 2], REPLY[place + 3]
        local key, text = KEYS[counter], TEXT[counter]
        local new_text = unused_from > NOW and pack(state, new_a, new_b, new_c)
        -- COPY gcra_whole.lua write
        local expires = unused_from + -unused_from % 1000000
        if not new_text then
          if text then
            call('DEL', key)
          end
        elseif stored_unused_from and stored_unused_from <= expires and stored_unused_from > expires - 1000000 then
          call('SETRANGE', key, '0', new_text)
        else
          local ttl_ms = (expires - NOW + (NOW - expires) % 1000) / 1000 + GRACE_MS
          ttl_ms = string.format(ttl_ms < 2147483648 and '%d' or '%.0f', ttl_ms)
          call('PSETEX', key, ttl_ms, new_text)
        end
        -- END write
        if repeats == 1 then
          TEXT[counter] = new_text
        end
      end
    end
    waiting = 0
  end
end
return REPLY
