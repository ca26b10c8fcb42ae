-- A kernel as a function of the batch script. Rust puts it together for each kernel that keeps numbers in a string: it
-- replaces NAME, NEEDS_NAME, PARAMETERS, NUMBERS, NEW_NUMBERS and KERNEL. In the text of the kernel it replaces
-- stored_unused_from by the element of the counter in STORED_UNUSED_FROM.
local NAME
if NEEDS_NAME then
  function NAME(counter, mode, PARAMETERS)
    local text, fits, unused_from, NEW_NUMBERS = TEXT[counter], true
    local NUMBERS = NUMBERS_OF_COUNTER
    KERNEL
    NUMBERS_OF_COUNTER = NUMBERS
    return fits, unused_from, NEW_NUMBERS
  end
end
