/*
 * floor: the least that a Redis lock around a command can cost, as a yardstick for `make bench`.
 *
 *     floor SOCKET|HOST:PORT KEY COMMAND [ARG]...
 *
 * Connects, takes KEY for 30 s (one EVAL), runs COMMAND, deletes KEY if it is still ours (one EVAL),
 * exits with COMMAND's status: the two round trips of redlock-run without anything that makes it
 * safe: no renewal, no waiting, no signals, no retries. Not for use.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char ACQUIRE[] = "return redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2])";
static const char RELEASE[] =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

static int connect_to(const char *address)
{
    const char *colon = strrchr(address, ':');
    int fd;

    if (strchr(address, '/') == NULL && colon != NULL) {
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(atoi(colon + 1)) };
        char host[64];
        int on = 1;

        snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
        if (inet_pton(AF_INET, host, &in.sin_addr) != 1)
            errx(1, "'%s' is no IPv4 address", host);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (fd < 0 || connect(fd, (struct sockaddr *)&in, sizeof in) != 0)
            err(1, "%s", address);
    } else {
        struct sockaddr_un un = { .sun_family = AF_UNIX };

        if (strlen(address) >= sizeof un.sun_path)
            errx(1, "'%s' is too long for a socket", address);
        strcpy(un.sun_path, address);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&un, sizeof un) != 0)
            err(1, "%s", address);
    }
    return fd;
}

/* Sends EVAL script 1 key value [ttl] and reads the one-line reply, which must begin with `wanted`
 * (anything else ends the program). */
static void eval(int fd, const char *script, const char *key, const char *value, const char *ttl,
                 const char *wanted)
{
    const char *words[] = { "EVAL", script, "1", key, value, ttl };
    int count = ttl ? 6 : 5, used, i;
    char bytes[2048], reply[256];
    ssize_t got, have = 0;

    used = snprintf(bytes, sizeof bytes, "*%d\r\n", count);
    for (i = 0; i < count && used < (int)sizeof bytes; i++)
        used += snprintf(bytes + used, sizeof bytes - used, "$%zu\r\n%s\r\n", strlen(words[i]),
                         words[i]);
    if (used >= (int)sizeof bytes)
        errx(1, "the key is too long");
    if (write(fd, bytes, used) != used)
        err(1, "write");
    do {
        got = read(fd, reply + have, sizeof reply - 1 - have);
        if (got <= 0)
            err(1, "read");
        have += got;
        reply[have] = '\0';
    } while (strstr(reply, "\r\n") == NULL && have < (ssize_t)sizeof reply - 1);
    if (strncmp(reply, wanted, strlen(wanted)) != 0)
        errx(1, "Redis replied: %s", reply);
}

int main(int argc, char **argv)
{
    unsigned char random[16];
    char token[33];
    int fd, status, i;
    pid_t child;

    if (argc < 4)
        errx(64, "usage: floor SOCKET|HOST:PORT KEY COMMAND [ARG]...");
    if (getrandom(random, sizeof random, 0) != sizeof random)
        err(1, "getrandom");
    for (i = 0; i < 16; i++)
        sprintf(token + 2 * i, "%02x", random[i]);

    fd = connect_to(argv[1]);
    eval(fd, ACQUIRE, argv[2], token, "30000", "+OK");
    child = fork();
    if (child < 0)
        err(71, "fork");
    if (child == 0) {
        execvp(argv[3], argv + 3);
        err(127, "%s", argv[3]);
    }
    if (waitpid(child, &status, 0) != child)
        err(71, "waitpid");
    eval(fd, RELEASE, argv[2], token, NULL, ":1");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
