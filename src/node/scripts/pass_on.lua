-- A waiter that leaves may have taken a baton with it: if the lock is free, leaves one again.
-- Replies 1 left, 0 the lock is held.
if redis.call('TYPE', K).ok ~= 'none' then return 0 end
baton()
return 1
