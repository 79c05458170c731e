-- Leaves at most one baton for a waiter. Only a hint: what cannot be pushed (another type, no rights)
-- is left alone.
local function baton()
  if not at.w then return end
  redis.pcall('LPOP', at.w)
  if type(redis.pcall('RPUSH', at.w, '1')) == 'number' then redis.pcall('PEXPIRE', at.w, 1000) end
end
