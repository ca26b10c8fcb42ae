-- A piece of kernel.lua and log_charge.lua: sets the parameters of a charge.
if not is_known then
  THEIR_PARAMETERS, at = unpack_from(PARAMETERS_FORMAT, REQUESTS, at)
  is_known = true
  if groups and requests > 1 then
    SHARED_PARAMETERS = THEIR_PARAMETERS
  end
elseif groups then
  THEIR_PARAMETERS = SHARED_PARAMETERS
end
