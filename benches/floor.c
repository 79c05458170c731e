/*
 * floor: the least that a Redis lock around a command can cost, as a yardstick for `make bench`.
 *
 *     floor [-g] SOCKET|HOST:PORT KEY COMMAND [ARG]...
 *
 * Connects, takes KEY for 30 s (one EVAL), runs COMMAND, deletes KEY if it is still ours (one EVAL),
 * exits with COMMAND's status: the two round trips of redlock-run without anything that makes it
 * safe: no renewal, no waiting, no signals, no retries. Not for use.
 *
 * With -g the command is the child of a process in between, as redlock-run's guard is, which does
 * nothing but start it and report its end: the least that any guard with a memory of its own can cost.
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

/* Starts the command and waits for it. */
static int run(char **argv)
{
    int status;
    pid_t child = vfork();

    if (child < 0)
        err(71, "vfork");
    if (child == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    if (waitpid(child, &status, 0) != child)
        err(71, "waitpid");
    return status;
}

/* Forks the process in between: it runs the command when it reads a byte, writes the status, and ends
 * when the other side is closed. */
static pid_t fork_guard(char **argv, int *link)
{
    int ends[2], status;
    char go;
    pid_t guard;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        err(71, "socketpair");
    guard = fork();
    if (guard < 0)
        err(71, "fork");
    *link = ends[0];
    if (guard != 0) {
        close(ends[1]);
        return guard;
    }
    close(ends[0]);
    if (read(ends[1], &go, 1) == 1) {
        status = run(argv);
        if (write(ends[1], &status, sizeof status) == sizeof status)
            go = read(ends[1], &go, 1);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    unsigned char random[16];
    char token[33];
    int fd, status, i, guarded, link = -1;
    pid_t guard = 0;

    guarded = argc > 1 && strcmp(argv[1], "-g") == 0;
    argc -= guarded;
    argv += guarded;
    if (argc < 4)
        errx(64, "usage: floor [-g] SOCKET|HOST:PORT KEY COMMAND [ARG]...");
    if (getrandom(random, sizeof random, 0) != sizeof random)
        err(1, "getrandom");
    for (i = 0; i < 16; i++)
        sprintf(token + 2 * i, "%02x", random[i]);

    fd = connect_to(argv[1]);
    if (guarded)
        guard = fork_guard(argv + 3, &link);
    eval(fd, ACQUIRE, argv[2], token, "30000", "+OK");
    if (!guarded)
        status = run(argv + 3);
    else if (write(link, "g", 1) != 1 || read(link, &status, sizeof status) != sizeof status)
        errx(71, "the guard is gone");
    close(link);
    eval(fd, RELEASE, argv[2], token, NULL, ":1");
    if (guarded)
        waitpid(guard, NULL, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
