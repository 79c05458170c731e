-- Second in scripts with companions: gives each companion's name to its letter.
-- KEYS[2..] the companions; ARGV[2] one letter for each: w wake, f fence, h holds.
local at = {}
for i = 1, #ARGV[2] do at[ARGV[2]:sub(i, i)] = KEYS[i + 1] end
