-- Who holds the lock, for `status`. Only reads: works on a replica and for a user without writes.
-- KEYS[1] the lock. Replies {type, PTTL, first KiB of the value}.
local kind = redis.call('TYPE', KEYS[1]).ok
local seen = kind == 'string' and redis.call('GETRANGE', KEYS[1], 0, 1024) or ''
return {kind, redis.call('PTTL', KEYS[1]), seen}
