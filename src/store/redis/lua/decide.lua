-- Decides the requests of a batch in order. A request is either one charge:
--   u8 kernel * 8 + mode, then the kernel's numbers as doubles
-- or a 0 byte and several that are recorded together or not at all:
--   u32 charges, u32 quota groups, and before each charge u32 what its denial means:
--   0 holds the request back, 1 holds nothing back, 2 + g is over for quota group g (all groups over hold it back)
-- or one that undoes a prepaid charge:
--   u8 5, u8 kernel, the kernel's numbers as they were, and the receipt as a double: of a window its index, of an interval
--   bucket its last interval, of a log the time of the entry, of GCRA the time of the grant
local function blocked(_, mode)
  return mode >= RETURN
end

local JUDGE = { fixed_window, sliding_window, sliding_log, gcra_whole, gcra, interval_bucket, blocked }
local NUMBERS = { '<ddd', '<ddd', '<ddd', '<dd', '<ddddd', '<dddd', '' }
local BYTES = { 24, 24, 24, 16, 40, 32, 0 }
local SPELLING = {
  WHOLE .. ':' .. WHOLE, WHOLE .. ':' .. WHOLE .. ':' .. WHOLE, nil, WHOLE, WHOLE .. ':' .. WHOLE, WHOLE .. ':' .. WHOLE,
}

local REPLY, REPLIED, KEYS_USED = { NOW }, 1, 0

local function next_place(kind)
  if kind == BLOCKED then
    return 0
  end
  KEYS_USED = KEYS_USED + 1
  local key = KEYS[KEYS_USED]
  local place = PLACE_OF[key]
  if not place then
    place = KEYS_USED
    PLACE_OF[key] = place
  end
  return place
end

local function record(place, kind, mode, at, fresh_at, a, b, c)
  if kind == SLIDING_LOG then
    record_log(place, mode, unpack_from('<ddd', BLOB, at))
  else
    KIND[place], FRESH_AT[place], A[place] = kind, fresh_at, a
    if b then
      B[place] = b
      if c then
        C[place] = c
      end
    end
  end
end

local function reply(place, kind, fits, at)
  local n, first = REPLIED + 1, A[place]
  if kind == SLIDING_LOG then
    first, REPLY[n + 1], REPLY[n + 2], REPLY[n + 3] = log_facts(place, unpack_from('<dd', BLOB, at))
    REPLIED = n + 3
  elseif kind == BLOCKED then
    first, REPLIED = 0, n
  else
    REPLIED = n
    if kind ~= GCRA_WHOLE then
      REPLIED = n + 1
      REPLY[n + 1] = B[place]
      if kind == SLIDING_WINDOW then
        REPLIED = n + 2
        REPLY[n + 2] = C[place]
      end
    end
  end
  REPLY[n] = fits and first or -1 - first
end

-- A charge that was recorded is taken back: the charge as it was, and what is known of its grant.
local function undo_charge(at)
  local kind = byte(BLOB, at)
  local place, numbers_at = next_place(kind), at + 1
  local after = numbers_at + BYTES[kind]
  RECEIPT = unpack_from('<d', BLOB, after)
  local _, fresh_at, a, b, c = JUDGE[kind](place, UNDO, unpack_from(NUMBERS[kind], BLOB, numbers_at))
  if fresh_at then
    record(place, kind, UNDO, numbers_at, fresh_at, a, b, c)
  end
  reply(place, kind, true, numbers_at)
  return after + 8
end

-- All charges are judged on the counters as they are before any is recorded.
local function judge_several(count, groups, at)
  local judged, over_groups, groups_over, held = {}, {}, 0, false
  for i = 1, count do
    local role, op = unpack_from('<I4B', BLOB, at)
    local mode = op % 8
    local kind = (op - mode) / 8
    local place = next_place(kind)
    local fits, fresh_at, a, b, c = JUDGE[kind](place, mode, unpack_from(NUMBERS[kind], BLOB, at + 5))
    judged[i] = { place, kind, mode, at + 5, fits, fresh_at, a, b, c }
    if not fits and role == 0 then
      held = true
    elseif not fits and role >= 2 and not over_groups[role] then
      over_groups[role] = true
      groups_over = groups_over + 1
    end
    at = at + 5 + BYTES[kind]
  end
  return judged, held or groups > 0 and groups_over == groups, at
end

local function decide_several(at)
  local count, groups = unpack_from('<I4I4', BLOB, at)
  local judged, held, after = judge_several(count, groups, at + 8)
  for i = 1, count do
    local place, kind, mode, numbers_at, fits, fresh_at, a, b, c = unpack(judged[i], 1, 9)
    if fresh_at and (not held or mode == BOOK or mode == RETURN_BOOKED) then
      record(place, kind, mode, numbers_at, fresh_at, a, b, c)
    end
    reply(place, kind, fits, numbers_at)
  end
  return after
end

local at, length = 1, #BLOB
while at <= length do
  local op = byte(BLOB, at)
  if op == 0 then
    at = decide_several(at + 1)
  elseif op == UNDO then
    at = undo_charge(at + 1)
  else
    -- A single charge: nothing else can hold it back. By far the most common, so what next_place, record and reply do
    -- stands here once more, without the calls.
    local mode = op % 8
    local kind = (op - mode) / 8
    local place = 0
    if kind ~= BLOCKED then
      KEYS_USED = KEYS_USED + 1
      local key = KEYS[KEYS_USED]
      place = PLACE_OF[key]
      if not place then
        place = KEYS_USED
        PLACE_OF[key] = place
      end
    end
    local fits, fresh_at, a, b, c = JUDGE[kind](place, mode, unpack_from(NUMBERS[kind], BLOB, at + 1))
    if not a then -- nothing to record, or a log
      if fresh_at then
        record(place, kind, mode, at + 1, fresh_at)
      end
      reply(place, kind, fits, at + 1)
    else
      KIND[place], FRESH_AT[place], A[place] = kind, fresh_at, a
      REPLIED = REPLIED + 1
      REPLY[REPLIED] = fits and a or -1 - a
      if b then
        B[place] = b
        REPLIED = REPLIED + 1
        REPLY[REPLIED] = b
        if c then
          C[place] = c
          REPLIED = REPLIED + 1
          REPLY[REPLIED] = c
        end
      end
    end
    at = at + 1 + BYTES[kind]
  end
end

for place = 1, #KEYS do
  local fresh_at = FRESH_AT[place]
  if fresh_at then
    -- Rounded up to whole ms.
    local left = fresh_at > NOW and fresh_at - NOW or 0
    local ttl_ms, kind = format(WHOLE, (left + -left % 1000) / 1000 + SLACK_MS), KIND[place]
    if kind ~= SLIDING_LOG then
      local spelling = SPELLING[kind == GCRA and B[place] == 0 and GCRA_WHOLE or kind]
      call('PSETEX', KEYS[place], ttl_ms, format(spelling, A[place], B[place], C[place]))
    elseif A[place].stored then
      call('PEXPIRE', KEYS[place], ttl_ms)
    end
  end
end
return REPLY
