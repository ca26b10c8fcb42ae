-- Fixed window.
-- State    A index of the window, B units in it; stored as two doubles. More than twice the limit counts as twice the
--          limit; the exact number tells how many units of the last charge were over the limit
-- units, limit in units; window in us
-- Returns  what counters.lua says about kernels
local fixed_window, fixed_window_room
if NEEDS_FIXED_WINDOW then
  function fixed_window(counter, mode, units, limit, window)
    local now_index = floor(NOW / window)
    local index, count = A[counter], B[counter]
    if not index then
      local text = TEXT[counter]
      if text and #text == 16 then
        index, count = unpack_from('<dd', text)
      end
      if index and index >= now_index and index * window < EXACT and index % 1 == 0
        and count >= 0 and count <= 2 * limit + 4294967296 and count % 1 == 0 then
        STORED_UNUSED_FROM[counter] = (index + 1) * window
      else
        index, count = now_index, 0
      end
      A[counter], B[counter] = index, count
    end
    if count == 0 and index > now_index then -- an unused window equals a missing counter, even if it is in the future
      index = now_index
      A[counter] = index
    end
    if count > 2 * limit then
      count = 2 * limit
    end
    if mode == UNDO and index ~= GRANT_ID then -- GRANT_ID is the window of the grant
      return true
    end
    if mode >= REFUND then
      local after = count > units and count - units or 0
      if after == 0 then
        return true, NOW, now_index, 0
      end
      return true, (index + 1) * window, index, after
    end
    local after = count + units
    local fits = after <= limit
    if mode == PEEK or not fits and mode == TAKE then
      return fits
    end
    return fits, (index + 1) * window, index, after
  end

  if NEEDS_EQUAL then
    -- equal.lua says what the room of a counter is.
    function fixed_window_room(counter, units, limit)
      local count = B[counter]
      return floor((limit - count) / units), floor((2 * limit + units - count) / units)
    end
  end
end
