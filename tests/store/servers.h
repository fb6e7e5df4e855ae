/* Servers for the remote tier's tests: Debian's redis-server on free ports of the loopback, without
 * persistence, which dies with the test; and fakes, which say what they are told to. */
#ifndef MOTE_TESTS_STORE_SERVERS_H
#define MOTE_TESTS_STORE_SERVERS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include <hiredis/hiredis.h>

#include "common.h"

enum { SERVERS = 8 };
typedef struct server {
    int port;
    pid_t pid;
    char dir[64];
} server;
static server *running[SERVERS];

static inline int listen_on(int port, int backlog)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)port) };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, backlog)) {
        close(fd);
        return -1;
    }
    return fd;
}
/* A cluster's servers talk to each other 10,000 ports higher. */
static inline int free_port(void)
{
    static rnd r;
    if (!r.s)
        r.s = (uint64_t)getpid() * 2654435761u + (uint64_t)time(NULL);
    for (int tries = 0; tries < 1000; tries++) {
        int port = 12000 + (int)rnd_below(&r, 20000), a = listen_on(port, 1),
            b = a < 0 ? -1 : listen_on(port + 10000, 1);
        if (a >= 0)
            close(a);
        if (b >= 0) {
            close(b);
            return port;
        }
    }
    fail_msg("no free port");
    return 0;
}

static inline void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}
static inline double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void server_stop(server *s)
{
    if (s->pid > 0) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
    }
    s->pid = 0;
    for (int i = 0; i < SERVERS; i++)
        if (running[i] == s)
            running[i] = NULL;
    if (*s->dir)
        remove_dir(s->dir);
}
static inline int servers_stop(void **state)
{
    (void)state;
    for (int i = 0; i < SERVERS; i++)
        if (running[i])
            server_stop(running[i]);
    return 0;
}

static inline redisContext *server_dial(const server *s)
{
    redisContext *c = redisConnectWithTimeout("127.0.0.1", s->port, (struct timeval){ 5, 0 });
    if (c && !c->err)
        return c;
    if (c)
        redisFree(c);
    return NULL;
}
/* options: more words for its command line, ended by NULL. s->port 0: any free one. */
static inline void server_start(server *s, const char *const *options)
{
    char port[16];
    const char *argv[40] = { "redis-server", "--save",    "",           "--appendonly", "no",
                             "--bind",       "127.0.0.1", "--loglevel", "warning",      "--logfile",
                             "/dev/null",    "--port",    port,         "--dir",        s->dir };
    int n = 15;
    for (; options && *options; options++)
        argv[n++] = *options;
    s->port = s->port ? s->port : free_port();
    snprintf(port, sizeof port, "%d", s->port);
    strcpy(s->dir, "/tmp/mote-redis-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    s->pid = fork();
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    for (int i = 0; i < SERVERS; i++)
        if (!running[i]) {
            running[i] = s;
            break;
        }
    for (int tries = 0; tries < 500; tries++) {
        redisContext *c = server_dial(s);
        redisReply *r = c ? redisCommand(c, "PING") : NULL;
        int up = r != NULL; /* or "NOAUTH": also an answer */
        if (r)
            freeReplyObject(r);
        if (c)
            redisFree(c);
        if (up)
            return;
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
            s->pid = 0;
            fail_msg("redis-server does not start (is it installed? tools/setup.sh test)");
        }
        sleep_ms(20);
    }
    fail_msg("redis-server does not answer");
}
/* One command; the answer as text: an error, a status or a string; an integer in decimal. */
__attribute__((format(printf, 2, 3))) static inline const char *server_say(const server *s,
                                                                           const char *fmt, ...)
{
    static char text[4096];
    va_list ap;
    redisContext *c = server_dial(s);
    assert_non_null(c);
    va_start(ap, fmt);
    redisReply *r = redisvCommand(c, fmt, ap);
    va_end(ap);
    if (!r)
        fail_msg("no reply");
    if (r->type == REDIS_REPLY_INTEGER)
        snprintf(text, sizeof text, "%lld", r->integer);
    else
        snprintf(text, sizeof text, "%s", r->str ? r->str : "");
    freeReplyObject(r);
    redisFree(c);
    return text;
}

/* ---- fakes ---- */

/* After each piece of what a client says, `text` is said `times` times; then the line is cut, or
 * nothing more comes. */
typedef struct fake {
    int fd, port;
    const char *text;
    size_t n;
    int times, cut, ms;
    _Atomic int stop, connections;
    pthread_t thread;
} fake;

static void *fake_main(void *arg)
{
    fake *f = arg;
    int open[64], n_open = 0;
    char buf[65536];
    while (!f->stop) {
        struct timeval tv = { 0, 20000 };
        fd_set set;
        FD_ZERO(&set);
        FD_SET(f->fd, &set);
        int max = f->fd;
        for (int i = 0; i < n_open; i++) {
            FD_SET(open[i], &set);
            max = open[i] > max ? open[i] : max;
        }
        if (select(max + 1, &set, NULL, NULL, &tv) <= 0)
            continue;
        if (FD_ISSET(f->fd, &set) && n_open < 64) {
            int fd = accept(f->fd, NULL, NULL);
            if (fd >= 0) {
                open[n_open++] = fd;
                f->connections++;
                continue;
            }
        }
        for (int i = 0; i < n_open; i++) {
            if (!FD_ISSET(open[i], &set))
                continue;
            int over = recv(open[i], buf, sizeof buf, 0) <= 0;
            if (f->ms)
                sleep_ms(f->ms);
            for (int k = 0; k < f->times && !over && !f->stop; k++)
                over = f->n && send(open[i], f->text, f->n, MSG_NOSIGNAL) < 0;
            if (over || f->cut) {
                close(open[i]);
                open[i--] = open[--n_open];
                break;
            }
        }
    }
    for (int i = 0; i < n_open; i++)
        close(open[i]);
    return NULL;
}
static inline void fake_start(fake *f)
{
    f->port = f->port ? f->port : free_port();
    f->fd = listen_on(f->port, 16);
    assert_true(f->fd >= 0);
    assert_int_equal(pthread_create(&f->thread, NULL, fake_main, f), 0);
}
static inline void fake_stop(fake *f)
{
    f->stop = 1;
    pthread_join(f->thread, NULL);
    close(f->fd);
}

#endif
