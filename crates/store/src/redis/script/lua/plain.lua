-- Decides a request of one charge to a counter that is a string: nearly every call on an ordinary day. Rust puts one
-- script together for each kernel: it replaces NUMBERS, NEW_NUMBERS, PARAMETERS and the like by the names that the
-- kernel uses, other names in capitals by numbers, KERNEL by the text of the kernel (gcra_whole.lua, fixed_window.lua,
-- ...), and WRITE_COUNTER by write_counter.lua. plain_log.lua is the same for a sliding log. batch.lua decides all
-- other calls, with the same text of the kernels.
--
-- KEYS[1]  the counter
-- ARGV[1]  little endian:
--            double   time in us since the epoch, or -1 for the server's clock
--            double   time in ms for which a counter is kept after it is unused
--            u8       mode of the charge
--            doubles  parameters of the kernel
-- Returns  integers: the time in us, then the counter after the decision:
--            fixed window     index of the window, units in it
--            calendar window  start of the window in us, units in it
--            sliding window   index of the window, units in it, units in the window before
--            sliding log      units in the window; times in us, or 0: of the newest grant, of the grant that must
--                             leave the window before one more unit fits, and before the cost fits
--            GCRA             theoretical arrival time (TAT) in us; with fractions also the fraction
--            interval bucket  time of the last refill in us, tokens
--          The first integer x after the time is returned as -1 - x if the charge does not fit.
--
-- Modes    PEEK writes nothing. TAKE takes units if they fit. RECORD takes them in any case (postpaid). REFUND and
--          REFUND_RECORDED give units back, and always fit. UNDO, which only batch.lua knows, gives back what one grant
--          took, but not the units that time has given back since; GRANT_ID identifies the grant.
--
-- A kernel decides one charge at NOW. It gets mode, its parameters, and `text`, the stored counter or false. In NUMBERS
-- it leaves the counter carried forward to NOW, in `stored_unused_from` the time in us from which the stored counter is
-- unused, and in `fits` whether the charge fits. If the charge changes the counter, NEW_NUMBERS and `unused_from` are
-- the counter after it and its time. (In batch.lua an equal charge may have left NUMBERS.)
--
-- Contract of a kernel, beyond this:
--   - The first of NUMBERS is never negative, because -1 - x means that the charge does not fit. There are at most 3
--     NUMBERS and 5 PARAMETERS.
--   - `text` is read only `if not NUMBER`, where NUMBER is the first of NUMBERS: they may be set already, see above.
--   - `fits` is true at first. It stays true for REFUND, REFUND_RECORDED and UNDO.
--   - A kernel uses `math` and, of the script, only the names above, EXACT and unpack_from. The first use of at_most
--     follows DEFINE_AT_MOST. All other variables are `local`.
--   - text.rs replaces every whole word in capitals that it knows, also a kernel's name.
--   - text.rs cuts a line at its first two hyphens in a row, which begin a comment: a string must not have them.
--
-- A value that cannot come from the limit (another type, another length, numbers out of range) counts as missing, and
-- the next grant replaces it. Numbers are doubles. All quantities are below 2^53 and therefore exact.
local call, pack, unpack_from = redis.call, struct.pack, struct.unpack
local key = KEYS[1]
local NOW, GRACE_MS, mode, PARAMETERS = unpack_from(PLAIN_FORMAT, ARGV[1])
if NOW < 0 then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
local text = call('MGET', key)[1] -- GET would be an error for a list
local NUMBERS
local fits, stored_unused_from, unused_from, NEW_NUMBERS = true
KERNEL
if unused_from then
  WRITE_COUNTER
  NUMBERS = NEW_NUMBERS
end
if not fits then
  FIRST_NUMBER = -1 - FIRST_NUMBER
end
return { NOW, NUMBERS }
