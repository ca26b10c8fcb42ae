-- A piece of gcra_whole.lua and alike.lua: sets `arrival` to the stored theoretical arrival time of the counter.
local text = TEXT[counter]
arrival = text and #text == 8 and unpack_from('<d', text) or 0
if arrival > 0 and arrival < EXACT and arrival % 1 == 0 then
  STORED_UNUSED_FROM[counter] = arrival
else
  arrival = 0
end
A[counter] = arrival
