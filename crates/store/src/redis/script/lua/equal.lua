-- A piece of batch.lua: equal charges. Several requests each make the same charge to one counter, with mode PEEK, TAKE
-- or RECORD.
--
-- Each recorded charge adds the same to the counter, up to a bound: for TAKE the limit, for RECORD the most that the
-- kernel records. So equal charges form up to three runs: charges that fit, charges that do not fit and are counted in
-- full, and charges that leave the counter as it is. For each run the reply has the number of its charges, negative if
-- they leave the counter as it is, and then the reply to the first of them. The other charges of a run are recorded as
-- one.
local left
left, at = unpack_from('<I2', REQUESTS, at + 1)
local kernel, mode = byte(REQUESTS, at, at + 1)
SET_KERNEL_FACTS
local one, two, three, four, five = unpack_from(parameters, REQUESTS, at + 2)
at = at + 2 + size
KEYS_USED = KEYS_USED + 1
local counter = KEYS_REPEAT and first_position(KEYS_USED, kernel == GCRA and five or nil) or KEYS_USED
local is_at_most = false -- whether RECORD counts no more charges in full
repeat
  -- Decides the first charge of a run.
  local fits, unused_from, a, b, c = decide(counter, mode, one, two, three, four, five)
  local run = -left
  if a then
    FORMAT_OF[counter], UNUSED_FROM[counter], A[counter], B[counter], C[counter] = state, unused_from, a, b, c
    if not is_at_most then
      local fitting, counted
      SET_ROOM
      if mode == TAKE then
        counted = fitting
      end
      local more = fits and fitting or counted
      more = more < 0 and 0 or more >= left and left - 1 or more
      run, is_at_most = 1 + more, counted <= more
    end
  end
  local n, first = REPLY_SIZE + 1, A[counter]
  REPLY[n], REPLY[n + 1], REPLY[n + 2], REPLY[n + 3] = run, fits and first or -1 - first, B[counter], C[counter]
  REPLY_SIZE = n + width
  if run > 1 then
    -- The cost is the first parameter. For GCRA with fractions the second parameter is a part of it.
    local cost, part, _ = (run - 1) * one, two, nil
    if kernel == GCRA then
      local parts = (run - 1) * two
      part = parts % five
      cost = cost + (parts - part) / five
    end
    _, UNUSED_FROM[counter], A[counter], B[counter], C[counter] = decide(counter, mode, cost, part, three, four, five)
  end
  left = run > 0 and left - run or 0
until left == 0
