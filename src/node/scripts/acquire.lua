-- Takes the lock if it is free.
-- ARGV[3] TTL in ms.
-- Replies {1, fencing token or ''}, or {0, PTTL, first KiB of the value, type of the key}.
-- Order matters: scripts do not roll back, so nothing that can fail may follow the SET; PTTL, PEXPIRE
-- and DEL on the absent key prove the rights that extend and release will need.
local kind = redis.call('TYPE', K).ok
if kind ~= 'none' then
  local seen = kind == 'string' and redis.call('GETRANGE', K, 0, 1024) or ''
  return {0, redis.call('PTTL', K), seen, kind}
end
local fencing = ''
if at.f then
  local now = redis.call('TIME')
  local last = tonumber(redis.call('GETRANGE', at.f, 0, 31)) or 0
  if not (last < 9007199254740991) then last = 0 end
  fencing = string.format('%.0f', math.max(last + 1, now[1] * 1000000 + now[2]))
  redis.call('SET', at.f, fencing, 'EX', 604800)
end
redis.call('GETRANGE', K, 0, 0)
redis.call('PTTL', K)
redis.call('PEXPIRE', K, ARGV[3])
redis.call('DEL', K)
if at.h then redis.call('DEL', at.h) end
if at.w then redis.pcall('LPOP', at.w) end
redis.call('SET', K, value, 'NX', 'PX', ARGV[3])
return {1, fencing}
