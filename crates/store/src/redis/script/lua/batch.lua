-- Decides a batch of requests at one instant: all calls that plain.lua does not decide. Read plain.lua first: it says
-- what a charge and a kernel are, and which integers are returned for a counter. Rust replaces names in capitals by
-- numbers, by facts about the kernels, and by pieces of code, which are files of their own. The kernels stand in the
-- loop (kernel.lua): a function would cost each call as much as a part of a decision.
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
-- Returns  integers: the time in us, then for each charge those of plain.lua; 0 for a blocked limit. For a reset 0 if
--          the counter existed, else -1. The first integer x of an undo that cannot be made is also returned as -1 - x.
--          For equal charges equal.lua says what is returned.
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
local KEYS, REQUESTS = KEYS, ARGV[1]
local call, byte, pack, unpack_from = redis.call, string.byte, struct.pack, struct.unpack
local NOW, GRACE_MS, repeats, logs, at = unpack_from('<ddBB', REQUESTS)
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end

-- A counter is an index: the position of its key in KEYS, the first one where keys repeat. TEXT has the stored value.
local TEXT = {}
for first = 1, #KEYS, KEYS_AT_ONCE do
  local last = first + KEYS_AT_ONCE - 1
  local part = call('MGET', unpack(KEYS, first, last < #KEYS and last or #KEYS))
  if first == 1 then
    TEXT = part
  else
    for i = 1, #part do
      TEXT[first + i - 1] = part[i]
    end
  end
end
-- Where keys repeat, the counter by its key. By counter: what sliding_log.lua knows of its log.
local COUNTER_OF, LOGS = {}, {}

local GRANT_ID -- of the charge to undo
DEFINE_SLIDING_LOG

-- The charges that several requests share, 8 values for each: kernel, mode, role and parameters. And the changes of a
-- request that wait for its verdict, 8 values for each.
local CHARGES, WAITING, waiting = {}, {}, 0

local REPLY, n, position, length = { NOW }, 1, 0, #REQUESTS
while at <= length do
  -- `groups` is nil for a single charge. The parameters of the kernel are `one` to `five`.
  local requests, kernel, mode, charges, equal = 1, nil, nil, 1, 1
  local groups, role, one, two, three, four, five
  requests, kernel, at = unpack_from('<I2B', REQUESTS, at)
  if kernel == SEVERAL then
    charges, groups, at = unpack_from('<I2I2', REQUESTS, at)
  elseif kernel ~= RESET then
    if kernel == GRANT then
      GRANT_ID, kernel, at = unpack_from('<dB', REQUESTS, at)
    elseif kernel == EQUAL then
      requests, equal, kernel, at = 1, requests, byte(REQUESTS, at), at + 1
    end
    mode, at = byte(REQUESTS, at), at + 1
  end
  for request = 1, requests do
    local is_denied, groups_over, is_group_over
    for i = 8, 8 * charges, 8 do
      local is_known = request > 1 -- whether the parameters are read already
      if not groups then -- a single charge
      elseif is_known then
        kernel, mode, role = CHARGES[i - 7], CHARGES[i - 6], CHARGES[i - 5]
      else
        local role_high
        kernel, mode, role, role_high = byte(REQUESTS, at, at + 3)
        role, at = role + 256 * role_high, at + 4
        if requests > 1 then
          CHARGES[i - 7], CHARGES[i - 6], CHARGES[i - 5] = kernel, mode, role
        end
      end
      local key, counter, text
      if kernel ~= BLOCKED then
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
      -- The variables of equal.lua:
      local left, is_rest, is_at_most, cost, cost_part, changed_from, changed_state = equal
      repeat -- once, unless charges are equal
        local unused_from, state, new_a, new_b, new_c
        fits = true
        DECIDE_CHARGE
        elseif kernel == BLOCKED then
          fits, a = mode >= REFUND, 0
        elseif kernel == RESET then
          a = call('DEL', key) == 1 and 0 or -1
          TEXT[counter], LOGS[counter] = false, nil
        else
          error('no kernel ' .. kernel)
        end
        if equal > 1 then
          DECIDE_EQUAL
        elseif unused_from then
          local waits = groups and (mode == TAKE or mode == REFUND)
          if waits and i < 8 * charges then
            WAITING[waiting + 1], WAITING[waiting + 2], WAITING[waiting + 3] = n, counter, unused_from
            WAITING[waiting + 4], WAITING[waiting + 5], WAITING[waiting + 6] = stored_unused_from or false, state, a
            if b then
              WAITING[waiting + 7], WAITING[waiting + 8] = b, c or false
            end
            waiting = waiting + 8
            a, b, c = new_a, new_b, new_c
          elseif not (waits and is_denied) then
            STORE_COUNTER
            a, b, c = new_a, new_b, new_c
          end
        end
      until equal == 1 or left == 0 and not is_rest
      if a then
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
        if role == ENFORCE then
          is_denied = true
        elseif role >= QUOTA then
          is_group_over = is_group_over or {}
          if not is_group_over[role] then
            is_group_over[role], groups_over = true, (groups_over or 0) + 1
            is_denied = is_denied or groups_over == groups
          end
        end
      end
    end
    for first = 1, waiting, 8 do
      local n = WAITING[first]
      if not WAITING[first + 4] then -- a log
        if not is_denied then
          RECORD_WAITING_LOG
        end
      elseif is_denied then
        REPLY[n + 1] = WAITING[first + 5]
        if WAITING[first + 4] ~= '<d' then
          local c = WAITING[first + 7]
          REPLY[n + 2] = WAITING[first + 6]
          if c then
            REPLY[n + 3] = c
          end
        end
      else
        local counter, unused_from, stored_unused_from = WAITING[first + 1], WAITING[first + 2], WAITING[first + 3]
        local state, new_a, new_b, new_c = WAITING[first + 4], REPLY[n + 1], REPLY[n + 2], REPLY[n + 3]
        local key, text = KEYS[counter], TEXT[counter]
        STORE_COUNTER
      end
    end
    waiting = 0
  end
end
return REPLY
