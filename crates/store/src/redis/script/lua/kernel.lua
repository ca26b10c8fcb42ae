-- A kernel as a function of the batch script. Rust puts it together for each kernel that keeps numbers in a string: it
-- replaces NAME, NEEDS_NAME, PARAMETERS, NUMBERS and NEW_NUMBERS, and KERNEL by the text of the kernel.
local NAME
if NEEDS_NAME then
  function NAME(counter, mode, PARAMETERS)
    local text, stored_unused_from = TEXT[counter], nil
    local fits, unused_from, NEW_NUMBERS = true, nil, nil
    local NUMBERS = NUMBERS_OF_COUNTER
    KERNEL
    NUMBERS_OF_COUNTER = NUMBERS
    if stored_unused_from then
      STORED_UNUSED_FROM[counter] = stored_unused_from
    end
    return fits, unused_from, NEW_NUMBERS
  end
end
