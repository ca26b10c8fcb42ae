-- A piece of batch.lua: stores a counter that has changed. `unused_from`, `state` and `new_a` to `new_c` describe it.
local new_text = pack(state, new_a, new_b, new_c)
WRITE_COUNTER
if repeats == 1 then
  TEXT[counter] = unused_from > NOW and new_text
end
