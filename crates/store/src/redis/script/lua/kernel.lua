-- A kernel in the loop of batch.lua. Rust puts it together for each kernel that keeps numbers in a string: it replaces
-- KEYWORD, KERNEL_NUMBER, PARAMETERS, NUMBERS, NEW_NUMBERS, KERNEL, and STATE_FORMAT, the format of the stored text.
-- THEIR_PARAMETERS and THEIR_NUMBERS are their names in batch.lua: `one` to `five`, and `a`, `b` and `c`.
KEYWORD kernel == KERNEL_NUMBER then
  READ_PARAMETERS
  local PARAMETERS = THEIR_PARAMETERS
  local NUMBERS = THEIR_NUMBERS
  local NEW_NUMBERS
  KERNEL
  THEIR_NUMBERS = NUMBERS
  if unused_from then
    state, THEIR_NEW_NUMBERS = STATE_FORMAT, NEW_NUMBERS
  end
