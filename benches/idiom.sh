#!/bin/sh
# The idiom that redlock-run replaces, done as well as a shell can: a random token, SET NX PX, the
# job, and a release that checks the token. Usage: idiom.sh SOCKET KEY COMMAND [ARG]...
socket=$1 key=$2
shift 2
token=$(cat /proc/sys/kernel/random/uuid)
[ "$(redis-cli -s "$socket" SET "$key" "$token" NX PX 30000)" = OK ] || exit 75
"$@"
code=$?
redis-cli -s "$socket" EVAL \
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0" \
    1 "$key" "$token" >/dev/null
exit "$code"
