-- A piece of batch.lua: equal charges. Several requests each make the same charge to one counter, with mode PEEK, TAKE
-- or RECORD.
--
-- Each recorded charge adds the same to the counter, up to a bound: for TAKE the limit, for RECORD the most that the
-- kernel records. So equal charges form up to three runs: charges that fit, charges that do not fit and are counted in
-- full, and charges that leave the counter as it is. For each run the reply has the number of its charges, negative if
-- they leave the counter as it is, and then the reply to the first of them. The kernel decides the first charge of a
-- run, and then, if `is_rest`, the other ones as one charge. `left` charges are in later runs. `is_at_most` tells
-- whether RECORD counts no more charges in full.
if unused_from then
  a, b, c = new_a, new_b, new_c
  changed_from, changed_state = unused_from, state
end
if is_rest then
  is_rest, one, two = false, cost, cost_part
else
  local run = -left
  if unused_from and not is_at_most then
    local fitting, counted
    SET_ROOM
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
    is_rest, cost, cost_part = true, one, two
    one = (run - 1) * cost
    if kernel == GCRA then -- the second parameter is a part of the cost
      local parts = (run - 1) * cost_part
      two = parts % five
      one = one + (parts - two) / five
    end
  end
end
if left == 0 and not is_rest then
  if changed_from then
    local new_a, new_b, new_c
    unused_from, state, new_a, new_b, new_c = changed_from, changed_state, a, b, c
    STORE_COUNTER
  end
  a = nil -- it is in the reply already
end
