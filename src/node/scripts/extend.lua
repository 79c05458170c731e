-- Lengthens the lease if the lock is ours; never shortens it, never sets it.
-- ARGV[2] TTL in ms.
-- Replies 1 ours, 0 absent or another's.
if redis.call('GETRANGE', K, 0, 1024) ~= value then return 0 end
if redis.call('PTTL', K) < tonumber(ARGV[2]) then redis.call('PEXPIRE', K, ARGV[2]) end
return 1
