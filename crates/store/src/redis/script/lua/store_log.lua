-- A piece of batch.lua: sets the expiry of a log that has changed.
do
  local unused_from = log.unused_from
  EXPIRE_LOG
  log.stored_unused_from = log.stored and unused_from or nil
end
