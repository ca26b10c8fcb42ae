-- Fixed window. A = index of the window, B = units recorded in it; kept as two doubles.
-- A kernel answers whether the charge fits and, where it is to be recorded should nothing hold the request back, when
-- the counter is then as if never used, and the counter's numbers.
local fixed_window
if USES % 2 >= 1 then
  function fixed_window(place, mode, units, limit, window)
    local now_index = floor(NOW / window)
    local index, count = A[place], B[place]
    if not index then
      local text = TEXT[place]
      if text and #text == 16 then
        index, count = unpack_from('<dd', text)
      end
      if index and index >= now_index and index * window < EXACT and index % 1 == 0
        and count >= 0 and count <= 2 * limit and count % 1 == 0 then
        WAS_FRESH_AT[place] = (index + 1) * window
      else
        index, count = now_index, 0
      end
      A[place], B[place] = index, count
    end
    if count == 0 and index > now_index then -- a window that is not used is as good as none, even a later one
      index = now_index
      A[place] = index
    end
    if mode == UNDO and index ~= RECEIPT then -- RECEIPT = the window of the grant
      return true
    end
    if mode >= RETURN then
      local after = count > units and count - units or 0
      return true, (index + 1) * window, after > 0 and index or now_index, after
    end
    local after = count + units
    local fits = after <= limit
    if mode == PEEK or not fits and mode == TAKE then
      return fits
    end
    -- Booked units may owe one further limit.
    return fits, (index + 1) * window, index, after < 2 * limit and after or 2 * limit
  end
end
