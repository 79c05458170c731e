-- Frees the lock if it is ours and wakes one waiter.
-- Replies 1 released, 0 absent or another's.
if redis.call('GETRANGE', K, 0, 1024) ~= value then return 0 end
redis.call('DEL', K)
baton()
return 1
