-- Begins every script: a write that cannot change anything. Only a master in good order can carry it
-- out; a demoted one answers READONLY, one that lost its replicas NOREPLICAS, and so on. Without it a
-- stale replica would answer "busy" or 0 as if it knew.
-- KEYS[1] the lock; ARGV[1] the value of the attempt (never a member of a sorted set at that key).
local K, value = KEYS[1], ARGV[1]
local proof = redis.pcall('ZREM', K, value)
if type(proof) == 'table' and proof.err and not proof.err:find('WRONGTYPE', 1, true) then return proof end
