/* What the store's tests share: scratch directories, a pool of small blocks, and blocks whose every
 * byte follows from their identity, so that a wrong one cannot pass for a right one. */
#ifndef MOTE_TESTS_STORE_COMMON_H
#define MOTE_TESTS_STORE_COMMON_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "store/slot.h"
#include "test.h"

/* Snapshots whose windows began at 0. */
static inline mote__store_put_result mote__store_put_snapshot(
    mote__store *s, const mote__store_context *c, const mote__chain *chain, const int32_t *ids,
    size_t n, int exact, const void *blob, size_t n_blob)
{
    mote__snapshot snap = { .chain = *chain,
                            .n_tokens = n,
                            .exact = exact,
                            .blob = (void *)(uintptr_t)blob,
                            .blob_bytes = n_blob };
    return mote__store_keep_snapshot(s, c, &snap, ids);
}

static inline int mote__store_find_snapshot(mote__store *s, const mote__store_context *c,
                                            const int32_t *ids, size_t n, int exact_only,
                                            mote__snapshot *out)
{
    return mote__store_seek_snapshot(
        s, c, ids, n, &(mote__snapshot_want){ .exact_only = exact_only, .any_origin = 1 }, out);
}

typedef struct fixture {
    char dir[256];
    mote__kv_pool pool;
    mote__store_context context;
    mote__store *store;
    mote_store_params params;
    mote__store_tuning tuning;
    _Atomic int64_t now;
    char log[4096]; /* lines so far */
    pthread_mutex_t log_mutex;
} fixture;

static inline void test_log(void *ctx, const char *line)
{
    fixture *f = ctx;
    pthread_mutex_lock(&f->log_mutex);
    size_t n = strlen(f->log);
    snprintf(f->log + n, sizeof f->log - n, "%s\n", line);
    pthread_mutex_unlock(&f->log_mutex);
}
static inline int64_t test_now(void *ctx) { return ((fixture *)ctx)->now; }

static inline void remove_dir(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(dir);
}

static inline void scratch_dir(char dir[256])
{
    const char *base = getenv("TMPDIR");
    snprintf(dir, 256, "%s/mote-store-XXXXXX", base && strlen(base) < 200 ? base : "/tmp");
    if (!mkdtemp(dir))
        fail_msg("mkdtemp: %s", strerror(errno));
    rmdir(dir); /* the store makes it */
}

static inline void make_context(mote__store_context *c, size_t block_bytes, const char *name_space)
{
    static const uint8_t fingerprint[32] = { 1, 2, 3, 4 };
    mote__store_context_desc d = { .fingerprint = fingerprint,
                                   .kv = "main=fp4,index=mxfp4,window=fp8",
                                   .math = "fp32",
                                   .name_space = name_space,
                                   .block_bytes = block_bytes,
                                   .block_tokens = MOTE_BLOCK_TOKENS,
                                   .geometry = "2/2,20/1" };
    mote_err err;
    if (mote__store_context_init(c, &d, &err))
        fail_msg("%s", err.message);
}

static inline void fixture_pool(fixture *f, size_t block_bytes)
{
    mote__kv_layout l = { .n_sources = 0,
                          .block_bytes = block_bytes,
                          .part_bytes = { block_bytes } };
    mote__kv_pool_init(&f->pool, &l, NULL);
    make_context(&f->context, block_bytes, "test");
}

static inline int fixture_open(fixture *f)
{
    mote_err err = { 0 };
    f->params.log = test_log;
    f->params.log_ctx = f;
    f->tuning.now = test_now;
    f->tuning.now_ctx = f;
    int rc = mote__store_open(&f->store, f->dir, &f->params, &f->tuning, &err);
    if (rc)
        test_log(f, err.message);
    return rc;
}
static inline void fixture_init(fixture *f, size_t block_bytes)
{
    *f = (fixture){ .now = 1000000 };
    pthread_mutex_init(&f->log_mutex, NULL);
    scratch_dir(f->dir);
    fixture_pool(f, block_bytes);
}
static inline void must_open(fixture *f)
{
    if (fixture_open(f))
        fail_msg("%s", f->log);
}
static inline void reopen(fixture *f)
{
    mote_store_close(f->store);
    must_open(f);
}
static inline void fixture_end(fixture *f)
{
    mote_store_close(f->store);
    f->store = NULL;
    mote__kv_pool_deinit(&f->pool);
    remove_dir(f->dir);
}

/* The content that belongs to an identity. */
static inline void content(uint8_t *dst, size_t n, const uint8_t *id)
{
    rnd r;
    memcpy(&r.s, id, 8);
    r.s |= 1;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t v = rnd_u64(&r);
        memcpy(dst + i, &v, n - i < 8 ? n - i : 8);
    }
}
static inline int is_content(const uint8_t *p, size_t n, const uint8_t *id)
{
    rnd r;
    memcpy(&r.s, id, 8);
    r.s |= 1;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t v = rnd_u64(&r);
        if (memcmp(p + i, &v, n - i < 8 ? n - i : 8))
            return 0;
    }
    return 1;
}

/* Token ids of prompt `seed`: prompts are equal up to token `shared` and differ after it (shared 0:
 * from the start). */
static inline void make_ids(int32_t *ids, size_t n, uint64_t seed, size_t shared)
{
    rnd a = { 77 }, b = { seed * 2 + 1 };
    for (size_t i = 0; i < n; i++) {
        int32_t common = (int32_t)rnd_below(&a, 129280), own = (int32_t)rnd_below(&b, 129280);
        ids[i] = i < shared ? common : own;
    }
}

/* Put blocks [chain->n_blocks, n) of ids; exact up to block n_exact. */
static inline void put_blocks(fixture *f, const mote__store_context *c, mote__kv_pool *pool,
                              mote__chain *chain, const int32_t *ids, size_t n, size_t n_exact)
{
    while (chain->n_blocks < n) {
        mote__kv_block *b = mote__kv_block_new(pool);
        assert_non_null(b);
        int exact = chain->n_blocks < n_exact;
        mote__chain next = mote__chain_next(c, chain, ids + chain->n_blocks * 256, exact);
        content(mote__kv_block_here(b), c->block_bytes, next.id);
        mote__store_put(f->store, c, chain, ids + chain->n_blocks * 256, exact, pool, b);
        assert_memory_equal(chain->id, next.id, 16);
        mote__kv_block_unref(pool, b);
    }
}
static inline void put_prompt(fixture *f, const int32_t *ids, size_t n_blocks)
{
    mote__chain chain = { 0 };
    put_blocks(f, &f->context, &f->pool, &chain, ids, n_blocks, n_blocks);
    mote__store_flush(f->store, NULL);
}

/* Match from the root; every block that comes back must be the right one. Returns the number of
 * blocks. */
static inline size_t match_checked(mote__store *s, const mote__store_context *c,
                                   mote__kv_pool *pool, const int32_t *ids, size_t n_ids,
                                   const mote__store_want *want, mote__chain *chain)
{
    mote__kv_block **blocks = calloc(n_ids / 256 + 1, sizeof *blocks);
    mote__chain own = { 0 };
    chain = chain ? chain : &own;
    *chain = (mote__chain){ 0 };
    size_t n = mote__store_match(s, c, want, ids, n_ids, pool, blocks, chain);
    mote__chain at = { 0 };
    int wrong = n != chain->n_blocks;
    for (size_t i = 0; i < n; i++) {
        at = mote__chain_next(c, &at, ids + i * 256, i < chain->n_exact);
        wrong |= !is_content(mote__kv_block_here(blocks[i]), c->block_bytes, at.id);
        mote__kv_block_unref(pool, blocks[i]);
    }
    wrong |= n && memcmp(at.id, chain->id, 16);
    free(blocks);
    if (wrong)
        fail_msg("a wrong block was served");
    return n;
}
static inline size_t match_n(fixture *f, const int32_t *ids, size_t n_ids)
{
    return match_checked(f->store, &f->context, &f->pool, ids, n_ids, NULL, NULL);
}

typedef int (*store_function)(mote_store *store, char **json, mote_err *err);
static inline json_t *store_json(int rc, char *text, mote_err *err)
{
    if (rc)
        fail_msg("%s", err->message);
    json_t *o = json_loads(text, 0, NULL);
    mote_free(text);
    assert_non_null(o);
    return o;
}
static inline json_int_t number_of(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    if (!json_is_integer(v))
        fail_msg("no number '%s'", key);
    return json_integer_value(v);
}
static inline json_int_t ask(mote__store *s, store_function f, const char *key)
{
    char *text = NULL;
    mote_err err = { 0 };
    int rc = f(s, &text, &err);
    json_t *o = store_json(rc, text, &err);
    json_int_t n = number_of(o, key);
    json_decref(o);
    return n;
}
static inline json_int_t verify_n(mote__store *s, int rebuild, const char *key)
{
    char *text = NULL;
    mote_err err = { 0 };
    int rc = mote_store_verify_json(s, rebuild, &text, &err);
    json_t *o = store_json(rc, text, &err);
    json_int_t n = number_of(o, key);
    json_decref(o);
    return n;
}

#endif
