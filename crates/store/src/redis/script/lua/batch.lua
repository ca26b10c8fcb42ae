-- Takes the requests in order, then writes the counters that they have changed.
--
-- decide.lua decides one request after another, and could decide all of them. Two kinds of requests are common, and
-- cost Redis less when they are decided together: equal charges (equal.lua) and alike requests (alike.lua). Both files
-- are pieces of this one: Rust replaces the name of a piece by its text. They are not functions, because to define them
-- would cost each call as much as a decision.
local at, length = FIRST_REQUEST, #REQUESTS
while at <= length do
  local mark = byte(REQUESTS, at)
  if mark > SEVERAL and mark < RESET then -- a kernel: a single charge
    at = decide_one(at)
  elseif mark == SEVERAL then
    at = decide_several(at)
  elseif mark == RESET then
    reset()
    at = at + 1
  elseif mark == GRANT then
    GRANT_ID = unpack_from('<d', REQUESTS, at + 1)
    at = at + 9
  elseif mark == EQUAL then
    DECIDE_EQUAL
  elseif mark == ALIKE then
    DECIDE_ALIKE
  else
    error('no request ' .. mark)
  end
end

for counter = 1, #KEYS do
  local unused_from = UNUSED_FROM[counter]
  if unused_from then
    local state, a, b, c = FORMAT_OF[counter], A[counter], B[counter], C[counter]
    if state then
      WRITE_COUNTER
    else -- a log, which is written already
      expire_log(counter, unused_from)
    end
  end
end
return REPLY
