/* The remote tier against real servers, and against ones that lie, hang and die.
 *
 *   test-store-remote speed [ROUNDS]      no test: 240 blocks (61,440 tokens) of the published
 * geometry over the loopback, 7 rounds
 */
#include <dlfcn.h>
#include <netdb.h>

#include "servers.h"
#include "store/impl.h"
#include "store/remote/remote.h"

/* A name server that does not answer: one name takes as long as it likes. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **list)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (node && !strcmp(node, "slow.invalid") && !(hints->ai_flags & AI_NUMERICHOST)) {
        sleep_ms(2500);
        return EAI_AGAIN;
    }
    return real(node, service, hints, list);
}

enum { BYTES = 5000, SLOT_BYTES = 8192, N = 24 };
static int32_t ids[N * 256];

/* A store over a directory of its own and the server(s) at `url` (after the comma). */
static void begin(fixture *f, const char *url)
{
    fixture_init(f, BYTES);
    size_t n = strlen(f->dir);
    snprintf(f->dir + n, sizeof f->dir - n, ",%s", url);
    f->tuning.remote_timeout_ms = 10000; /* machines that run tests are busy */
    must_open(f);
}
static void end(fixture *f)
{
    mote_store_close(f->store);
    f->store = NULL;
    mote__kv_pool_deinit(&f->pool);
    char *comma = strchr(f->dir, ',');
    if (comma)
        *comma = 0;
    remove_dir(f->dir);
}
static const char *url_of(int port)
{
    static char url[4][64];
    static int turn;
    char *p = url[turn++ & 3];
    snprintf(p, 64, "redis://127.0.0.1:%d", port);
    return p;
}
static mote__store_counts counts_of(fixture *f)
{
    mote__store_counts c;
    mote__tier_remote->flush(f->store->tier);
    mote__store_flush(f->store, &c);
    return c;
}
/* Put n blocks, the first n_exact of them exact, and wait until they are there. */
static void fill(const char *url, size_t n, size_t n_exact)
{
    fixture f;
    mote__chain chain = { 0 };
    begin(&f, url);
    put_blocks(&f, &f.context, &f.pool, &chain, ids, n, n_exact);
    mote__store_counts c = counts_of(&f);
    if (c.remote_written + c.remote_known != n)
        fail_msg("%d of %d sent: %s", (int)c.remote_written, (int)n, f.log);
    mote_store_stats m;
    assert_int_equal(mote_store_get_stats(f.store, &m, sizeof m), 0);
    assert_int_equal(m.remote_written, c.remote_written);
    assert_int_equal(m.queued_sends, 0);
    assert_true(m.n_servers >= 1);
    assert_int_equal(m.n_servers_down, 0);
    end(&f);
}
/* What a fresh directory finds. */
static size_t found(const char *url)
{
    fixture f;
    begin(&f, url);
    size_t n = match_n(&f, ids, N * 256);
    end(&f);
    return n;
}
static int times(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
        n++;
    return n;
}
static void chain_ids(uint8_t out[][MOTE_STORE_ID], size_t n)
{
    mote__store_context c;
    mote__chain chain = { 0 };
    make_context(&c, BYTES, "test");
    for (size_t i = 0; i < n; i++) {
        chain = mote__chain_next(&c, &chain, ids + i * 256, 1);
        memcpy(out[i], chain.id, MOTE_STORE_ID);
    }
}
static const char *key_of(size_t block)
{
    static char key[4][MOTE_REMOTE_KEY + 1];
    static int turn;
    uint8_t all[N][MOTE_STORE_ID];
    char *p = key[turn++ & 3];
    chain_ids(all, N);
    mote__remote_key(p, all[block]);
    return p;
}

/* ---- round trips ---- */

static void round_trip(void **state)
{
    (void)state;
    server s = { 0 };
    server_start(&s, NULL);
    fill(url_of(s.port), N, N);
    assert_string_equal(server_say(&s, "DBSIZE"), "24");
    assert_int_equal(atoi(server_say(&s, "STRLEN %s", key_of(3))), SLOT_BYTES);
    int ttl = atoi(server_say(&s, "TTL %s", key_of(3)));
    assert_in_range(ttl, 72 * 3600 - 600, 72 * 3600);
    server_say(&s, "EXPIRE %s 1000", key_of(3));

    fixture f;
    size_t n_remote = 0;
    mote__store_want want = { .n_remote = &n_remote };
    begin(&f, url_of(s.port));
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, N * 256, &want, NULL), N);
    assert_int_equal(n_remote, N);
    mote__store_counts c = counts_of(&f);
    assert_int_equal(c.remote_hits, N);
    assert_int_equal(c.written_blocks, N); /* read through */
    assert_int_equal(c.remote_known, N);   /* and their time renewed */
    assert_int_equal(c.remote_written, 0);
    assert_true(atoi(server_say(&s, "TTL %s", key_of(3))) > 1000);
    n_remote = 0;
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, N * 256, &want, NULL), N);
    assert_int_equal(n_remote, 0); /* now from the directory */
    assert_int_equal(ask(f.store, mote_store_stat_json, "blocks"), N);
    counts_of(&f);
    assert_string_equal(f.log, "");
    server_stop(&s);
    reopen(&f); /* and without the server */
    assert_int_equal(match_n(&f, ids, N * 256), N);
    counts_of(&f);
    assert_int_equal(times(f.log, "\n"), 1);
    end(&f);
}

/* Exact blocks first, approximate ones below them; what exact runs see; a walk that begins in the
 * directory. */
static void provenance(void **state)
{
    (void)state;
    server s = { 0 };
    server_start(&s, NULL);
    fill(url_of(s.port), 7, 3);
    fixture f;
    mote__chain chain;
    mote__store_want exact = { .exact_only = 1 };
    begin(&f, url_of(s.port));
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, N * 256, &exact, &chain), 3);
    counts_of(&f);
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, N * 256, NULL, &chain), 7);
    assert_int_equal(chain.n_exact, 3);
    mote__store_counts c = counts_of(&f);
    assert_int_equal(c.remote_hits, 7);
    assert_int_equal(c.remote_misses, 2);
    end(&f);
    /* following a snapshot's chain */
    begin(&f, url_of(s.port));
    mote__chain to = chain;
    mote__store_want follow = { .follow = &to };
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, N * 256, &follow, &chain), 7);
    end(&f);
    /* another name space has other names */
    begin(&f, url_of(s.port));
    make_context(&f.context, BYTES, "others");
    assert_int_equal(match_n(&f, ids, N * 256), 0);
    end(&f);
    /* blocks that only the directory had are brought to the server when they are used */
    begin(&f, url_of(s.port));
    chain = (mote__chain){ 0 };
    put_blocks(&f, &f.context, &f.pool, &chain, ids, N, N);
    counts_of(&f);
    server_say(&s, "FLUSHALL");
    assert_int_equal(match_n(&f, ids, N * 256), N);
    /* three were known the first time */
    assert_int_equal(counts_of(&f).remote_written, 2 * N - 3);
    assert_string_equal(server_say(&s, "DBSIZE"), "24");
    end(&f);
    server_stop(&s);
}

static void databases_and_ttl(void **state)
{
    (void)state;
    server s = { 0 };
    server_start(&s, NULL);
    char url[80];
    snprintf(url, sizeof url, "%s/3", url_of(s.port));
    fill(url, 5, 5);
    assert_string_equal(server_say(&s, "DBSIZE"), "0");
    assert_int_equal(found(url), 5);
    assert_int_equal(found(url_of(s.port)), 0);
    fixture f;
    fixture_init(&f, BYTES);
    snprintf(f.dir + strlen(f.dir), sizeof f.dir - strlen(f.dir), ",%s", url_of(s.port));
    f.params.ttl_s = -1;
    must_open(&f);
    mote__chain chain = { 0 };
    put_blocks(&f, &f.context, &f.pool, &chain, ids, 2, 2);
    counts_of(&f);
    assert_string_equal(server_say(&s, "TTL %s", key_of(1)), "-1");
    end(&f);
    snprintf(url, sizeof url, "%s/99", url_of(s.port)); /* there are 16 */
    begin(&f, url);
    assert_int_equal(match_n(&f, ids, N * 256), 0);
    assert_non_null(strstr(f.log, "database"));
    end(&f);
    server_stop(&s);
}

/* ---- logging in ---- */

static void log_in(void **state)
{
    (void)state;
    server s = { 0 };
    server_start(&s, (const char *[]){ "--requirepass", "sesame open", "--user", "ali", "on",
                                       ">baba@1,2/3", "~mote:*", "+@all", NULL });
    static const struct {
        const char *login, *env;
        size_t n;
        const char *says;
    } cases[] = {
        { ":sesame%20open@", NULL, 3, NULL },
        { "ali:baba%401%2C2%2F3@", NULL, 3, NULL },
        { "default:sesame%20open@", NULL, 3, NULL },
        { "", "sesame open", 3, NULL },
        { "ali@", "baba@1,2/3", 3, NULL },
        { ":hunter2@", NULL, 0, "refuses the user or the password" },
        { "ali:hunter2@", NULL, 0, "refuses the user or the password" },
        { "ali@", "hunter2", 0, "refuses the user or the password" },
        { "", NULL, 0, "wants a password" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char url[128];
        snprintf(url, sizeof url, "redis://%s127.0.0.1:%d/0", cases[i].login, s.port);
        unsetenv("MOTE_REDIS_PASSWORD");
        if (cases[i].env)
            setenv("MOTE_REDIS_PASSWORD", cases[i].env, 1);
        if (cases[i].n)
            fill(url, cases[i].n, cases[i].n);
        fixture f;
        begin(&f, url);
        assert_int_equal(match_n(&f, ids, N * 256), cases[i].n);
        assert_int_equal(match_n(&f, ids, N * 256), cases[i].n);
        mote__chain chain = { 0 };
        put_blocks(&f, &f.context, &f.pool, &chain, ids, 2, 2);
        counts_of(&f);
        if (cases[i].says && (times(f.log, cases[i].says) != 1 || times(f.log, "\n") != 1))
            fail_msg("case %zu says: %s", i, f.log);
        if (!cases[i].says)
            assert_string_equal(f.log, "");
        if (strstr(f.log, "hunter2") || strstr(f.log, "ali"))
            fail_msg("a secret is told: %s", f.log);
        end(&f);
    }
    unsetenv("MOTE_REDIS_PASSWORD");
    server_stop(&s);
}

/* ---- servers that are not there ---- */

/* Twice over a server that is of no use: the first try may cost the time-out (200 ms), the second
 * nothing; one warning. */
static void useless(const char *what, const char *url, double at_least)
{
    fixture f;
    mote__chain chain = { 0 };
    fixture_init(&f, BYTES);
    snprintf(f.dir + strlen(f.dir), sizeof f.dir - strlen(f.dir), ",%s", url);
    must_open(&f);
    double t0 = seconds_now();
    assert_int_equal(match_n(&f, ids, N * 256), 0);
    double t1 = seconds_now();
    assert_int_equal(match_n(&f, ids, N * 256), 0);
    double t2 = seconds_now();
    put_blocks(&f, &f.context, &f.pool, &chain, ids, N, N);
    double t3 = seconds_now();
    mote__store_counts c = counts_of(&f);
    double t4 = seconds_now();
    printf("    %-34s first %3.0f ms, second %5.2f ms, %d puts %5.2f ms\n", what, (t1 - t0) * 1e3,
           (t2 - t1) * 1e3, N, (t3 - t2) * 1e3);
    if (t1 - t0 > 1 || t1 - t0 < at_least || t2 - t1 > 0.1 || t3 - t2 > 0.1 || t4 - t3 > 3)
        fail_msg("%s: too slow, or too fast: %.3f %.3f %.3f %.3f s", what, t1 - t0, t2 - t1,
                 t3 - t2, t4 - t3);
    assert_int_equal(c.remote_dropped, N);
    /* the directory has them all the same */
    assert_int_equal(c.written_blocks, N);
    if (times(f.log, "is left out and tried again later") != 1)
        fail_msg("%s says: %s", what, f.log);
    t4 = seconds_now();
    end(&f);
    assert_true(seconds_now() - t4 < 2);
}

static void absent(void **state)
{
    (void)state;
    char url[200];
    useless("refused", url_of(free_port()), 0);
    /* the system takes the connection, and nobody answers */
    int port = free_port(), hole = listen_on(port, 16);
    useless("accepted, never answered", url_of(port), 0.15);
    close(hole);
    port = free_port();
    hole = listen_on(port, 0); /* not even that */
    int fillers[4];
    for (int i = 0; i < 4; i++) {
        struct sockaddr_in a = { .sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)port) };
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(fillers[i], (struct sockaddr *)&a, sizeof a))
            errno = 0;
    }
    useless("never connected", url_of(port), 0.15);
    for (int i = 0; i < 4; i++)
        close(fillers[i]);
    close(hole);
    useless("a name that nobody has", "redis://mote.invalid:6379", 0);
    useless("a name that takes long", "redis://slow.invalid:6379", 0.15);
    snprintf(url, sizeof url, "redis://[::1]:%d", free_port());
    useless("refused, IPv6", url, 0);
}

/* The second of two named servers serves when the first is not there. */
static void second_seed(void **state)
{
    (void)state;
    server s = { 0 };
    server_start(&s, NULL);
    fill(url_of(s.port), 5, 5);
    char url[200];
    snprintf(url, sizeof url, "%s,redis://localhost:%d", url_of(free_port()), s.port);
    assert_int_equal(found(url), 5);
    server_stop(&s);
}

/* Killed in the middle, and back later. */
static void killed_and_back(void **state)
{
    (void)state;
    server s = { 0 };
    server_start(&s, NULL);
    fixture f;
    mote__chain chain = { 0 };
    begin(&f, url_of(s.port));
    mote_store_close(f.store);
    f.tuning.remote_retry_ms = 100;
    must_open(&f);
    put_blocks(&f, &f.context, &f.pool, &chain, ids, 4, 4);
    assert_int_equal(counts_of(&f).remote_written, 4);
    assert_int_equal(match_n(&f, ids, N * 256), 4);
    server_stop(&s);
    put_blocks(&f, &f.context, &f.pool, &chain, ids, 8, 8);
    mote__store_counts c = counts_of(&f);
    assert_int_equal(c.written_blocks, 8);
    assert_int_equal(match_n(&f, ids, N * 256), 8);
    assert_int_equal(match_n(&f, ids, N * 256), 8);
    c = counts_of(&f);
    assert_true(c.remote_dropped >= 4);
    assert_int_equal(times(f.log, "is left out"), 1);
    server_start(&s, NULL); /* empty, on the same port */
    for (int tries = 0; tries < 200 && f.store->tier->cluster.nodes[0].down; tries++)
        sleep_ms(50);
    assert_int_equal(f.store->tier->cluster.nodes[0].down, 0);
    assert_int_equal(match_n(&f, ids, N * 256), 8); /* heals it */
    c = counts_of(&f);
    assert_string_equal(server_say(&s, "DBSIZE"), "8");
    /* a connection that was lost while idle is no outage */
    server_stop(&s);
    server_start(&s, NULL);
    assert_int_equal(match_n(&f, ids, N * 256), 8);
    counts_of(&f);
    assert_string_equal(server_say(&s, "DBSIZE"), "8");
    assert_int_equal(times(f.log, "is left out"), 1);
    server_stop(&s);
    end(&f);
}

/* ---- values that are not what they should be ---- */

static void bad_values(void **state)
{
    (void)state;
    static const char *const kinds[] = { "flipped header",  "flipped identity",
                                         "flipped ids",     "flipped payload",
                                         "flipped padding", "another block's",
                                         "another place's", "cut",
                                         "one byte longer", "huge",
                                         "a list",          "text",
                                         "another size's" };
    enum { KINDS = sizeof kinds / sizeof *kinds, AT = 5 };
    server s = { 0 };
    server_start(&s, NULL);
    fill(url_of(s.port), N, N);
    redisContext *c = server_dial(&s);
    redisReply *good = redisCommand(c, "GET %s", key_of(AT)),
               *other = redisCommand(c, "GET %s", key_of(AT + 1));
    assert_int_equal(good->len, SLOT_BYTES);
    static const size_t flips[5] = { 14, 70, 600, 2000, SLOT_BYTES - 1 };
    enum { HUGE_BYTES = 40 << 20 };
    char *huge = calloc(1, HUGE_BYTES), *changed = malloc(SLOT_BYTES + 1);
    memcpy(huge, good->str, good->len);
    for (int k = 0; k < KINDS; k++) {
        const char *value = changed;
        size_t n = SLOT_BYTES;
        memcpy(changed, good->str, SLOT_BYTES);
        changed[SLOT_BYTES] = 0;
        if (k < 5) {
            changed[flips[k]] ^= 4;
        } else if (k == 5) {
            value = other->str;
        } else if (k == 6) { /* sound in itself, but says it is the ninth */
            changed[48] = 9;
            mote__slot_seal((uint8_t *)changed, 1, (uint8_t *)changed + MOTE_SLOT_HEAD, BYTES,
                            SLOT_BYTES);
        } else if (k == 7) {
            n = SLOT_BYTES - 1;
        } else if (k == 8) {
            n = SLOT_BYTES + 1;
        } else if (k == 9) {
            value = huge;
            n = HUGE_BYTES;
        } else if (k == 11) {
            value = "hello";
            n = 5;
        } else if (k == 12) {
            n = 4096;
        }
        freeReplyObject(redisCommand(c, "DEL %s", key_of(AT)));
        redisReply *r = k == 10 ? redisCommand(c, "RPUSH %s a b", key_of(AT))
                                : redisCommand(c, "SET %s %b", key_of(AT), value, n);
        assert_true(r->type == REDIS_REPLY_INTEGER || r->type == REDIS_REPLY_STATUS);
        freeReplyObject(r);
        fixture f;
        begin(&f, url_of(s.port));
        if (match_n(&f, ids, N * 256) != AT || times(f.log, "is not used") != 1)
            fail_msg("%s: %s", kinds[k], f.log);
        assert_int_equal(match_n(&f, ids, N * 256), AT); /* said once */
        assert_int_equal(times(f.log, "\n"), 1);
        mote__store_counts n_of = counts_of(&f);
        assert_int_equal(n_of.remote_damaged, 2);
        /* computed again, it takes the bad one's place */
        mote__chain chain = { 0 };
        put_blocks(&f, &f.context, &f.pool, &chain, ids, AT + 1, AT + 1);
        n_of = counts_of(&f);
        if (n_of.remote_written != 1)
            fail_msg("%s: %d written", kinds[k], (int)n_of.remote_written);
        end(&f);
        if (found(url_of(s.port)) != N)
            fail_msg("%s was not replaced", kinds[k]);
    }
    free(huge);
    free(changed);
    freeReplyObject(good);
    freeReplyObject(other);
    redisFree(c);
    server_stop(&s);
}

/* A server without room: said once, counted, and the run goes on. */
static void full_server(void **state)
{
    (void)state;
    server s = { 0 };
    server_start(&s,
                 (const char *[]){ "--maxmemory", "1", "--maxmemory-policy", "noeviction", NULL });
    fixture f;
    mote__chain chain = { 0 };
    begin(&f, url_of(s.port));
    put_blocks(&f, &f.context, &f.pool, &chain, ids, 6, 6);
    mote__store_counts c = counts_of(&f);
    assert_int_equal(c.remote_errors, 6);
    assert_int_equal(c.remote_dropped, 6);
    assert_int_equal(c.written_blocks, 6);
    assert_int_equal(times(f.log, "\n"), 1);
    assert_non_null(strstr(f.log, "does not take blocks: OOM"));
    end(&f);
    server_stop(&s);
}

/* ---- a cluster ---- */

static int cluster_ok(const server *s)
{
    return strstr(server_say(s, "CLUSTER INFO"), "cluster_state:ok") != NULL;
}

static void cluster(void **state)
{
    (void)state;
    server s[2] = { { 0 }, { 0 } };
    char id[2][64];
    for (int i = 0; i < 2; i++) {
        server_start(&s[i], (const char *[]){ "--cluster-enabled", "yes", "--cluster-node-timeout",
                                              "5000", NULL });
        /* one who may not ask CLUSTER: it learns from MOVED alone */
        server_say(&s[i], "ACL SETUSER plain on >word ~* +@all -cluster");
        snprintf(id[i], sizeof id[i], "%s", server_say(&s[i], "CLUSTER MYID"));
    }
    assert_string_equal(server_say(&s[0], "CLUSTER ADDSLOTSRANGE 0 8191"), "OK");
    assert_string_equal(server_say(&s[1], "CLUSTER ADDSLOTSRANGE 8192 16383"), "OK");
    assert_string_equal(server_say(&s[0], "CLUSTER MEET 127.0.0.1 %d", s[1].port), "OK");
    for (int tries = 0; tries < 600 && !(cluster_ok(&s[0]) && cluster_ok(&s[1])); tries++)
        sleep_ms(50);
    assert_true(cluster_ok(&s[0]) && cluster_ok(&s[1]));

    char plain[80], url[160];
    snprintf(plain, sizeof plain, "redis://plain:word@127.0.0.1:%d", s[0].port);
    fill(plain, N, N); /* MOVED */
    int here = atoi(server_say(&s[0], "DBSIZE")), there = atoi(server_say(&s[1], "DBSIZE"));
    assert_int_equal(here + there, N);
    assert_true(here > 0 && there > 0);
    assert_int_equal(found(plain), N);
    snprintf(plain, sizeof plain, "redis://plain:word@127.0.0.1:%d", s[1].port);
    assert_int_equal(found(plain), N);
    server_say(&s[1], "CONFIG RESETSTAT");
    assert_int_equal(found(url_of(s[0].port)), N); /* CLUSTER SLOTS */
    snprintf(url, sizeof url, "%s,%s", url_of(free_port()), url_of(s[1].port));
    assert_int_equal(found(url), N); /* one seed is dead */

    /* two blocks of the first server are on their way: one has gone, one has not */
    fixture f;
    begin(&f, url_of(s[0].port));
    /* knows who owns what, and will be wrong */
    assert_int_equal(match_n(&f, ids, N * 256), N);
    counts_of(&f);
    int moved = 0;
    for (size_t i = 0; i < N && moved < 2; i++) {
        unsigned slot = mote__key_slot(key_of(i), MOTE_REMOTE_KEY);
        if (slot > 8191)
            continue;
        assert_string_equal(server_say(&s[0], "CLUSTER KEYSLOT %s", key_of(i)),
                            (sprintf(url, "%u", slot), url));
        assert_string_equal(server_say(&s[1], "CLUSTER SETSLOT %u IMPORTING %s", slot, id[0]),
                            "OK");
        assert_string_equal(server_say(&s[0], "CLUSTER SETSLOT %u MIGRATING %s", slot, id[1]),
                            "OK");
        if (moved++ == 0)
            assert_string_equal(
                server_say(&s[0], "MIGRATE 127.0.0.1 %d %s 0 5000", s[1].port, key_of(i)), "OK");
    }
    assert_int_equal(moved, 2);
    for (int twice = 0; twice < 2; twice++)
        assert_int_equal(found(url_of(s[0].port)), N); /* ASK */
    assert_non_null(strstr(server_say(&s[1], "INFO commandstats"), "cmdstat_asking"));
    assert_int_equal(atoi(server_say(&s[0], "DBSIZE")), here - 1);
    /* now both slots belong to the second one; the store that knew better is told so */
    for (size_t i = 0, done = 0; i < N && done < 2; i++) {
        unsigned slot = mote__key_slot(key_of(i), MOTE_REMOTE_KEY);
        if (slot > 8191)
            continue;
        if (done++ == 1)
            assert_string_equal(
                server_say(&s[0], "MIGRATE 127.0.0.1 %d %s 0 5000", s[1].port, key_of(i)), "OK");
        server_say(&s[1], "CLUSTER SETSLOT %u NODE %s", slot, id[1]);
        server_say(&s[0], "CLUSTER SETSLOT %u NODE %s", slot, id[1]);
    }
    mote_store_close(f.store);
    char *comma = strchr(f.dir, ',');
    *comma = 0;
    remove_dir(f.dir);
    *comma = ',';
    must_open(&f); /* an empty directory again */
    assert_int_equal(match_n(&f, ids, N * 256), N);
    assert_int_equal(counts_of(&f).remote_errors, 0);
    assert_string_equal(f.log, "");
    end(&f);

    /* one of the two dies: what the other has is found as far as the chain goes, and it costs one
     * time-out at most */
    server_stop(&s[1]);
    begin(&f, url_of(s[0].port));
    size_t n = match_n(&f, ids, N * 256);
    assert_true(n < N);
    assert_int_equal(match_n(&f, ids, N * 256), n);
    end(&f);
    server_stop(&s[0]);
}

static void slots_and_redirections(void **state)
{
    (void)state;
    assert_int_equal(mote__key_slot("123456789", 9), 0x31c3);
    assert_int_equal(mote__key_slot("", 0), 0);
    assert_int_equal(mote__key_slot("a{user}b", 8), mote__key_slot("user", 4));
    assert_int_equal(mote__key_slot("{user}", 6), mote__key_slot("user", 4));
    assert_int_equal(mote__key_slot("a{{b}}c", 7), mote__key_slot("{b", 2));
    assert_int_equal(mote__key_slot("a{b}{c}", 7), mote__key_slot("b", 1));
    assert_true(mote__key_slot("a{}b{c}", 7) != mote__key_slot("c", 1));
    assert_true(mote__key_slot("a{b", 3) != mote__key_slot("b", 1));
    static const struct {
        const char *text;
        int ok, is_ask;
        unsigned slot;
        const char *host;
        unsigned port;
    } cases[] = {
        { "MOVED 3999 127.0.0.1:6381", 1, 0, 3999, "127.0.0.1", 6381 },
        { "ASK 0 host.example:1", 1, 1, 0, "host.example", 1 },
        { "MOVED 16383 ::1:65535", 1, 0, 16383, "::1", 65535 },
        { "MOVED 1 :7000", 1, 0, 1, "", 7000 },
        { "MOVED 1 ?:7000", 1, 0, 1, "", 7000 },
        { "MOVED 16384 a:1", 0, 0, 0, "", 0 },
        { "MOVED -1 a:1", 0, 0, 0, "", 0 },
        { "MOVED 1 a:0", 0, 0, 0, "", 0 },
        { "MOVED 1 a:65536", 0, 0, 0, "", 0 },
        { "MOVED 1 a:", 0, 0, 0, "", 0 },
        { "MOVED 1 a", 0, 0, 0, "", 0 },
        { "MOVED 1", 0, 0, 0, "", 0 },
        { "MOVED ", 0, 0, 0, "", 0 },
        { "ASKING 1 a:1", 0, 0, 0, "", 0 },
        { "MOVED 1 a b:1", 0, 0, 0, "", 0 },
        { "MOVED 1 a\n:1", 0, 0, 0, "", 0 },
        { "ERR MOVED 1 a:1", 0, 0, 0, "", 0 },
        { "", 0, 0, 0, "", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mote__server to;
        int is_ask;
        unsigned slot;
        int rc = mote__redirection_read(cases[i].text, strlen(cases[i].text), &is_ask, &slot, &to);
        if ((rc == 0) != cases[i].ok)
            fail_msg("'%s': %d", cases[i].text, rc);
        if (!rc && (is_ask != cases[i].is_ask || slot != cases[i].slot ||
                    strcmp(to.host, cases[i].host) || to.port != cases[i].port))
            fail_msg("'%s' is read as %d %u %s:%u", cases[i].text, is_ask, slot, to.host, to.port);
    }
}

/* ---- liars ---- */

static void liars(void **state)
{
    (void)state;
    char loop[64], deep[4096] = "";
    for (int i = 0; i < 400; i++)
        strcat(deep, "*1\r\n");
    fake self = { .port = free_port() };
    snprintf(loop, sizeof loop, "-MOVED 7 127.0.0.1:%d\r\n", self.port);
    const struct {
        const char *what, *text;
        int times, cut;
    } cases[] = {
        { "noise", "hello, I am no server\r\n", 1, 0 },
        { "a web server", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", 1, 1 },
        { "bad length", "$-5\r\n", 1, 0 },
        { "long length", "$99999999999999999999\r\n", 1, 0 },
        { "much that never ends",
          "$500000000\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
          40000, 0 },
        { "many elements", "*2147483647\r\n", 1, 0 },
        { "too many elements", "*65537\r\n:1\r\n", 1, 0 },
        { "negative elements", "*-7\r\n", 1, 0 },
        { "deep", deep, 1, 0 },
        { "integers", ":1\r\n", 40, 0 },
        { "empty arrays", "*0\r\n", 40, 0 },
        { "half a reply, then the end", "$8192\r\nMOTESLT1", 1, 1 },
        { "half a reply, then silence", "$8192\r\nMOTESLT1", 1, 0 },
        { "zeros", "\0\0\0\0", 1, 0 },
        { "an end at once", "", 0, 1 },
        { "round in circles", loop, 1, 0 },
        { "elsewhere", "-MOVED 7 127.0.0.1:1\r\n", 17, 0 },
        { "elsewhere, badly", "-MOVED 99999 127.0.0.1:99999\r\n", 17, 0 },
        { "odd slots", "*2\r\n*3\r\n:-1\r\n:70000\r\n*2\r\n$1\r\na\r\n:99999\r\n*1\r\n:1\r\n", 1,
          0 },
        { "an error with bytes in it", "-ERR \x1b[31mred\x07\r\n", 20, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake f = { .port = self.port,
                   .text = cases[i].text,
                   .n = cases[i].text[0] ? strlen(cases[i].text) : 4,
                   .times = cases[i].times,
                   .cut = cases[i].cut };
        fake_start(&f);
        fixture x;
        mote__chain chain = { 0 };
        fixture_init(&x, BYTES);
        snprintf(x.dir + strlen(x.dir), sizeof x.dir - strlen(x.dir), ",%s", url_of(f.port));
        x.tuning.remote_retry_ms = 50; /* it is asked again and again */
        must_open(&x);
        double t0 = seconds_now();
        assert_int_equal(match_n(&x, ids, N * 256), 0);
        double t1 = seconds_now();
        put_blocks(&x, &x.context, &x.pool, &chain, ids, 3, 3);
        mote__store_counts c = counts_of(&x);
        assert_int_equal(c.remote_hits, 0);
        sleep_ms(120);
        end(&x);
        double t2 = seconds_now();
        if (t1 - t0 > 2 || t2 - t1 > 8)
            fail_msg("%s: %.2f s, then %.2f s", cases[i].what, t1 - t0, t2 - t1);
        for (const char *p = x.log; *p; p++)
            if ((unsigned char)*p < ' ' && *p != '\n')
                fail_msg("%s: control characters in '%s'", cases[i].what, x.log);
        fake_stop(&f);
        self.port = free_port();
        snprintf(loop, sizeof loop, "-MOVED 7 127.0.0.1:%d\r\n", self.port);
    }
}

/* ---- slow ones ---- */

/* Putting never waits, however slow the server is; the queue is bounded, and closing is. */
static void slow_server(void **state)
{
    (void)state;
    /* one answer to each piece that is read, 150 ms later */
    fake f = { .text = ":1\r\n", .n = 4, .times = 1, .ms = 150 };
    fake_start(&f);
    fixture x;
    mote__chain chain = { 0 };
    fixture_init(&x, BYTES);
    snprintf(x.dir + strlen(x.dir), sizeof x.dir - strlen(x.dir), ",%s", url_of(f.port));
    x.tuning.queue_items = 8;
    x.tuning.remote_close_ms = 300;
    must_open(&x);
    double slowest = 0, t0 = seconds_now();
    for (size_t n = 1; n <= N; n++) {
        double t = seconds_now();
        put_blocks(&x, &x.context, &x.pool, &chain, ids, n, n);
        t = seconds_now() - t;
        slowest = t > slowest ? t : slowest;
        /* the directory's queue is short too */
        mote__store_flush(x.store, NULL);
    }
    printf("    %d puts: slowest %.2f ms\n", N, slowest * 1e3);
    assert_true(slowest < 0.1);
    mote__store_counts c;
    mote__store_get_counts(x.store, &c);
    assert_true(c.remote_dropped >= 1 || seconds_now() - t0 > 2);
    assert_int_equal(c.written_blocks, N);
    t0 = seconds_now();
    end(&x);
    assert_true(seconds_now() - t0 < 4);
    fake_stop(&f);
}

/* Several threads find and put at once. */
typedef struct worker {
    fixture *f;
    size_t found;
} worker;
static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < 10; i++) {
        mote__chain chain = { 0 };
        w->found += match_n(w->f, ids, N * 256) == N;
        put_blocks(w->f, &w->f->context, &w->f->pool, &chain, ids, N, N);
    }
    return NULL;
}
static void threads(void **state)
{
    (void)state;
    server s = { 0 };
    server_start(&s, NULL);
    fill(url_of(s.port), N, N);
    fixture f;
    begin(&f, url_of(s.port));
    worker w[3];
    pthread_t t[3];
    for (int i = 0; i < 3; i++) {
        w[i] = (worker){ &f, 0 };
        assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(w[i].found, 10);
    }
    end(&f);
    server_stop(&s);
}

/* ---- places in words ---- */

static void urls(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int n;
        size_t n_dir;
        const char *user, *password, *host;
        unsigned port, db;
    } good[] = {
        { "/a/b", 0, 4, NULL, NULL, NULL, 0, 0 },
        { "a,b", 0, 3, NULL, NULL, NULL, 0, 0 },
        { "d,redis://h", 1, 1, "", "", "h", 6379, 0 },
        { "d,redis://h:1/", 1, 1, "", "", "h", 1, 0 },
        { "d,e,redis://10.0.0.1:65535/7", 1, 3, "", "", "10.0.0.1", 65535, 7 },
        { "d,redis://:p@h", 1, 1, "", "p", "h", 6379, 0 },
        { "d,redis://u@h", 1, 1, "u", "", "h", 6379, 0 },
        { "d,redis://u:p:q@h:2", 1, 1, "u", "p:q", "h", 2, 0 },
        { "d,redis://u%40:%25%2c%2F@[fe80::1]:3/4", 1, 1, "u@", "%,/", "fe80::1", 3, 4 },
        { "d,redis://u:a@b@h", 1, 1, "u", "a@b", "h", 6379, 0 },
        { "d,redis://h:1,redis://k:2", 2, 1, "", "", "h", 1, 0 },
        { "//d", 0, 3, NULL, NULL, NULL, 0, 0 },
        { "./a:b@c", 0, 7, NULL, NULL, NULL, 0, 0 },
        { "/x:y/a:b@c", 0, 10, NULL, NULL, NULL, 0, 0 },
        { "./~", 0, 3, NULL, NULL, NULL, 0, 0 },
        { "a b,c d", 0, 7, NULL, NULL, NULL, 0, 0 },
        { "redis/x:y", 0, 9, NULL, NULL, NULL, 0, 0 },
    };
    static const char *const bad[] = {
        "d,rediss://secret@h",
        "d,http://secret@h",
        "d,redis://",
        "d,redis://h:",
        "d,redis://h:0",
        "d,redis://h:65536",
        "d,redis://h:1x",
        "d,redis://h/x",
        "d,redis://h/99999999",
        "d,redis://[::1",
        "d,redis://[]:1",
        "d,redis://[::1]x",
        "d,redis://::1",
        "d,redis://h h",
        "d,redis://:secret%@h",
        "d,redis://:secret%0@h",
        "d,redis://:secret%zz@h",
        "d,redis://:secret%00@h",
        "d,redis://:secret,1@h",
        "d,redis://h,",
        "d,redis://h,e",
        "d,redis://:secret/1@h:x",
        /* a server where the directory should be, in every way to write it wrongly */
        "redis://:secret@h",
        "redis://:secret@h:6379/0",
        "d, redis://:secret@h",
        "d;redis://:secret@h",
        " redis://:secret@h",
        "redis:secret@h",
        "redis:/:secret@h",
        "d,redis:secret",
        "d, Redis:/secret",
        "REDISS:secret",
        "rediss://:secret@h",
        "http://secret/",
        ":secret@h",
        "u:secret@h:6379",
        "//u:secret@h",
        "///:secret@h",
        "file:/secret",
        "file:///secret",
        "d,unix:/secret",
        "~/secret",
        "~secret",
        "secret,",
        "secret,,redis://h",
    };
    mote__server s[MOTE_URL_SERVERS];
    size_t n_dir, n;
    mote_err err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (mote__store_url_parse(good[i].text, &n_dir, s, &n, &err))
            fail_msg("'%s': %s", good[i].text, err.message);
        if ((int)n != good[i].n || n_dir != good[i].n_dir)
            fail_msg("'%s': %zu servers, %zu bytes", good[i].text, n, n_dir);
        if (n &&
            (strcmp(s[0].user, good[i].user) || strcmp(s[0].password, good[i].password) ||
             strcmp(s[0].host, good[i].host) || s[0].port != good[i].port || s[0].db != good[i].db))
            fail_msg("'%s': '%s' '%s' '%s' %u %u", good[i].text, s[0].user, s[0].password,
                     s[0].host, s[0].port, s[0].db);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (mote_err){ 0 };
        if (mote__store_url_parse(bad[i], &n_dir, s, &n, &err) != MOTE_EINVAL || !*err.message)
            fail_msg("'%s' is taken", bad[i]);
        if (strstr(err.message, "secret"))
            fail_msg("'%s': %s", bad[i], err.message);
        assert_int_equal(mote_store_check_place(bad[i], &err), MOTE_EINVAL);
    }
    assert_int_equal(mote_store_check_place("", &err), MOTE_EINVAL);
    assert_int_equal(mote_store_check_place(",redis://h", &err), MOTE_EINVAL);
    assert_int_equal(mote_store_check_place("d,redis://h", &err), 0);
    char many[1000] = "d";
    for (int i = 0; i <= MOTE_URL_SERVERS; i++)
        strcat(many, ",redis://h");
    assert_int_equal(mote__store_url_parse(many, &n_dir, s, &n, &err), MOTE_EINVAL);
    char name[400] = "d,redis://";
    memset(name + 10, 'h', 255);
    assert_int_equal(mote__store_url_parse(name, &n_dir, s, &n, &err), 0);
    memset(name + 10, 'h', 256);
    assert_int_equal(mote__store_url_parse(name, &n_dir, s, &n, &err), MOTE_EINVAL);
}

/* ---- speed ---- */

enum { PROMPT = 240, PUBLISHED = 227840, ROUNDS = 15 };

/* What the same connection gives without any of our work: the values fetched by plain hiredis, 16
 * ahead, and thrown away. */
static double plain_rate(const server *s, uint8_t all[][MOTE_STORE_ID])
{
    redisContext *c = server_dial(s);
    char key[MOTE_REMOTE_KEY + 1];
    double t = seconds_now(), bytes = 0;
    for (int sent = 0, got = 0; got < PROMPT; got++) {
        redisReply *r = NULL;
        for (; sent < PROMPT && sent < got + MOTE_REMOTE_IN_FLIGHT; sent++) {
            mote__remote_key(key, all[sent]);
            redisAppendCommand(c, "GET %s", key);
        }
        assert_int_equal(redisGetReply(c, (void **)&r), REDIS_OK);
        bytes += (double)r->len;
        freeReplyObject(r);
    }
    t = seconds_now() - t;
    redisFree(c);
    return bytes / t / 1e6;
}

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static int speed(int rounds)
{
    static uint8_t all[PROMPT][MOTE_STORE_ID];
    int32_t *own = malloc(PROMPT * 256 * sizeof *own);
    mote__kv_block **blocks = calloc(PROMPT, sizeof *blocks);
    double put[ROUNDS], sent[ROUNDS], found_rate[ROUNDS], plain[ROUNDS];
    make_ids(own, PROMPT * 256, 3, 0);
    server s = { 0 };
    server_start(&s, NULL);
    for (int r = 0; r < rounds; r++) {
        fixture f;
        mote__chain chain = { 0 };
        server_say(&s, "FLUSHALL");
        fixture_init(&f, PUBLISHED);
        snprintf(f.dir + strlen(f.dir), sizeof f.dir - strlen(f.dir), ",%s", url_of(s.port));
        must_open(&f);
        for (int i = 0; i < PROMPT; i++) {
            chain = mote__chain_next(&f.context, &chain, own + i * 256, 1);
            memcpy(all[i], chain.id, MOTE_STORE_ID);
            blocks[i] = mote__kv_block_new(&f.pool);
            content(mote__kv_block_here(blocks[i]), PUBLISHED, chain.id);
        }
        chain = (mote__chain){ 0 };
        double t = seconds_now();
        for (int i = 0; i < PROMPT; i++)
            mote__store_put(f.store, &f.context, &chain, own + i * 256, 1, &f.pool, blocks[i]);
        put[r] = (seconds_now() - t) * 1e6 / PROMPT;
        mote__tier_remote->flush(f.store->tier);
        sent[r] = (double)PROMPT * mote__slot_bytes(PUBLISHED) / (seconds_now() - t) / 1e6;
        assert_int_equal(counts_of(&f).remote_written, PROMPT);
        for (int i = 0; i < PROMPT; i++)
            mote__kv_block_unref(&f.pool, blocks[i]);
        end(&f);
        fixture_init(&f, PUBLISHED);
        snprintf(f.dir + strlen(f.dir), sizeof f.dir - strlen(f.dir), ",%s", url_of(s.port));
        must_open(&f);
        chain = (mote__chain){ 0 };
        t = seconds_now();
        size_t n = mote__store_match(f.store, &f.context, NULL, own, PROMPT * 256, &f.pool, blocks,
                                     &chain);
        found_rate[r] = (double)n * mote__slot_bytes(PUBLISHED) / (seconds_now() - t) / 1e6;
        assert_int_equal(n, PROMPT);
        for (int i = 0; i < PROMPT; i++)
            mote__kv_block_unref(&f.pool, blocks[i]);
        end(&f);
        plain[r] = plain_rate(&s, all);
    }
    server_stop(&s);
    const struct {
        const char *what;
        double *values;
    } rows[] = { { "a put, us", put },
                 { "sent, MB/s", sent },
                 { "found and checked, MB/s", found_rate },
                 { "plain hiredis GET, MB/s", plain } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qsort(rows[i].values, (size_t)rounds, sizeof(double), by_value);
        printf("%-26s median %7.1f (%.1f to %.1f)\n", rows[i].what, rows[i].values[rounds / 2],
               rows[i].values[0], rows[i].values[rounds - 1]);
    }
    free(own);
    free(blocks);
    return 0;
}

int main(int argc, char **argv)
{
    make_ids(ids, N * 256, 1, 0);
    if (argc > 1 && !strcmp(argv[1], "speed"))
        return speed(argc > 2 && atoi(argv[2]) > 0 && atoi(argv[2]) <= ROUNDS ? atoi(argv[2]) : 7);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls),
        cmocka_unit_test(slots_and_redirections),
#define WITH_SERVERS(f) cmocka_unit_test_teardown(f, servers_stop)
        WITH_SERVERS(round_trip),
        WITH_SERVERS(provenance),
        WITH_SERVERS(databases_and_ttl),
        WITH_SERVERS(log_in),
        WITH_SERVERS(absent),
        WITH_SERVERS(second_seed),
        WITH_SERVERS(killed_and_back),
        WITH_SERVERS(bad_values),
        WITH_SERVERS(full_server),
        WITH_SERVERS(cluster),
        WITH_SERVERS(liars),
        WITH_SERVERS(slow_server),
        WITH_SERVERS(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
