-- A charge to a sliding log in the loop of batch.lua.
elseif kernel == SLIDING_LOG then
  READ_PARAMETERS
  local log = LOGS[counter] or open_log(key, two, three)
  LOGS[counter] = log
  fits = mode >= REFUND or log.total - log.base + one <= two
  if mode ~= PEEK and (fits or mode == RECORD) then
    local waits = groups and (mode == TAKE or mode == REFUND)
    if waits and i < 8 * charges then
      WAITING[waiting + 1], WAITING[waiting + 2], WAITING[waiting + 3], WAITING[waiting + 4] = n, counter, log, mode
      WAITING[waiting + 5], WAITING[waiting + 6], WAITING[waiting + 7], WAITING[waiting + 8] = false, one, two, three
      waiting = waiting + 8
    elseif not (waits and is_denied) then
      fits = record_log(key, log, mode, one, two, three) and fits
      STORE_LOG
    end
  end
  a, b, c, d = log_facts(key, log, one, two)
