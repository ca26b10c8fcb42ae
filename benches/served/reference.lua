-- One GCRA decision, as a careful hand-written script makes it: the measure for what Redis itself can do.
-- KEYS[1] the counter; ARGV[1] what one unit takes to drain, ARGV[2] what a full burst takes, in us
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local arrival = tonumber(redis.call('GET', KEYS[1]) or 0)
if arrival < now then
  arrival = now
end
local after = arrival + tonumber(ARGV[1])
if after > now + tonumber(ARGV[2]) then
  return { 0, arrival }
end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', string.format('%.0f', math.ceil((after - now) / 1000) + 1000))
return { 1, after }
