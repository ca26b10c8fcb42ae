-- Decides the requests of a batch in order. A request is either one charge:
--   u8 kernel, u8 mode, then the kernel's numbers as doubles (kernel 8 forgets a counter and has none)
-- or a 0 byte and several that are recorded together or not at all:
--   u16 charges, u16 quota groups, and each charge as above with, after the mode, u16 what its denial means:
--   0 holds the request back, 1 holds nothing back, 2 + g is over for quota group g (all groups over hold it back)
-- Before a charge that is undone stand u8 9 and RECEIPT as a double: of a window its index, of an interval bucket its last
-- interval, of a log the time of the entry, of GCRA the time of the grant.
local function blocked(_, mode)
  return mode >= RETURN
end

-- Makes a counter as if never used; the charge fits if it had been.
local forget
if USES >= 256 then
  function forget(place)
    local is_to_come = FRESH_AT[place] ~= nil
    TEXT[place], A[place], B[place], C[place], FRESH_AT[place], WAS_FRESH_AT[place] = false, nil, nil, nil, nil, nil
    return call('DEL', KEYS[place]) == 1 or is_to_come
  end
end

local JUDGE = {
  fixed_window or false, sliding_window or false, sliding_log or false, gcra_whole or false, gcra or false, interval_bucket or false,
  blocked, forget,
}
local NUMBERS = { '<ddd', '<ddd', '<ddd', '<dd', '<ddddd', '<dddd', '', '' }
local BYTES = { 24, 24, 24, 16, 40, 32, 0, 0 }

local BEFORE_UNDO = 9

local REPLY, REPLIED, KEYS_USED = { NOW }, 1, 0

-- Replies with a counter that has no numbers to be recorded. A log records by itself where it is to.
local function settle(place, kind, mode, at, fits, is_recorded)
  if is_recorded then
    record_log(place, mode, unpack_from('<ddd', BLOB, at))
  end
  local n = REPLIED + 1
  local first = A[place]
  if kind == SLIDING_LOG then
    first, REPLY[n + 1], REPLY[n + 2], REPLY[n + 3] = log_facts(place, unpack_from('<dd', BLOB, at))
    REPLIED = n + 3
  elseif kind == BLOCKED or kind == FORGET then
    first, REPLIED = 0, n
  elseif kind == GCRA_WHOLE then
    REPLIED = n
  else
    REPLIED = n + 1
    REPLY[n + 1] = B[place]
    if kind == SLIDING_WINDOW then
      REPLIED = n + 2
      REPLY[n + 2] = C[place]
    end
  end
  REPLY[n] = fits and first or -1 - first
end

local decide_several
if USES % 256 >= 128 then
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

  -- The charges of the request in hand, by number.
  local PLACES, KINDS, MODES, ATS, FITS, FRESH_ATS, AS, BS, CS = {}, {}, {}, {}, {}, {}, {}, {}, {}

  -- All charges are judged on the counters as they are before any is recorded.
  function decide_several(at)
    local count, groups = unpack_from('<I2I2', BLOB, at)
    local held, over_groups, groups_over = false, nil, 0
    at = at + 4
    for i = 1, count do
      local kind, mode, role, role_high = byte(BLOB, at, at + 3)
      local place = next_place(kind)
      at = at + 4
      PLACES[i], KINDS[i], MODES[i], ATS[i] = place, kind, mode, at
      local fits, fresh_at, a, b, c = JUDGE[kind](place, mode, unpack_from(NUMBERS[kind], BLOB, at))
      FITS[i], FRESH_ATS[i], AS[i] = fits, fresh_at, a
      if b then
        BS[i], CS[i] = b, c
      end
      if not fits then
        role = role + 256 * role_high
        if role == 0 then
          held = true
        elseif role >= 2 then
          over_groups = over_groups or {}
          if not over_groups[role] then
            over_groups[role] = true
            groups_over = groups_over + 1
          end
        end
      end
      at = at + BYTES[kind]
    end
    held = held or groups > 0 and groups_over == groups
    for i = 1, count do
      local mode, kind, place, a = MODES[i], KINDS[i], PLACES[i], AS[i]
      local is_free = not held or mode == BOOK or mode == RETURN_BOOKED
      if not (a and is_free) then
        settle(place, kind, mode, ATS[i], FITS[i], is_free and FRESH_ATS[i])
      else
        KIND[place], FRESH_AT[place], A[place] = kind, FRESH_ATS[i], a
        REPLIED = REPLIED + 1
        REPLY[REPLIED] = FITS[i] and a or -1 - a
        if kind ~= GCRA_WHOLE then
          local b = BS[i]
          B[place] = b
          REPLIED = REPLIED + 1
          REPLY[REPLIED] = b
          if kind == SLIDING_WINDOW then
            C[place] = CS[i]
            REPLIED = REPLIED + 1
            REPLY[REPLIED] = CS[i]
          end
        end
      end
    end
    return at
  end
end

local at, length = 1, #BLOB
while at <= length do
  local kind, mode = byte(BLOB, at, at + 1)
  if kind == 0 then
    at = decide_several(at + 1)
  elseif kind == BEFORE_UNDO then
    RECEIPT = unpack_from('<d', BLOB, at + 1)
    at = at + 9
  else
    -- A single charge: nothing else can hold it back. By far the most common, so what decide_several does for each of its
    -- charges stands here once more, without the detours.
    at = at + 2
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
    local fits, fresh_at, a, b, c = JUDGE[kind](place, mode, unpack_from(NUMBERS[kind], BLOB, at))
    if not a then -- nothing to record, or a log
      settle(place, kind, mode, at, fits, fresh_at)
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
    at = at + BYTES[kind]
  end
end

-- Counters go in whole seconds, so that those in use seldom need another time to go: to keep it costs Redis a third less
-- than to set it.
local EXPIRY_STEP = 1000000

local function goes_at(fresh_at)
  return fresh_at + -fresh_at % EXPIRY_STEP
end

for place = 1, #KEYS do
  local fresh_at = FRESH_AT[place]
  if fresh_at then
    local kind, key, value = KIND[place], KEYS[place], nil
    if kind == GCRA_WHOLE then
      value = format(WHOLE, A[place])
    elseif kind == SLIDING_WINDOW then
      value = pack('<ddd', A[place], B[place], C[place])
    elseif kind ~= SLIDING_LOG then
      value = pack('<dd', A[place], B[place])
    end
    local goes, was_fresh_at = goes_at(fresh_at), WAS_FRESH_AT[place]
    local stays = was_fresh_at and goes_at(was_fresh_at) == goes
    if value and stays then
      call('SET', key, value, 'KEEPTTL')
    elseif not stays and (value or A[place].stored) then
      -- Rounded up to whole ms.
      local left = goes > NOW and goes - NOW or 0
      local ttl_ms = format(WHOLE, (left + -left % 1000) / 1000 + SLACK_MS)
      if value then
        call('PSETEX', key, ttl_ms, value)
      else
        call('PEXPIRE', key, ttl_ms)
      end
    end
  end
end
return REPLY
