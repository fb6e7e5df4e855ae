/* What a stored state says must be what the same work says without a store, whatever else lies in
 * the store: modes x ways in which the tokens came x ways of restoring. Whenever
 * mote_session_restore says "exact", logits and decoding are compared bit for bit. And: blocks are
 * there while a prompt is still being read, in the queue, after a cancelled step, and never of a
 * step with damaged weights. */
#include "golden.h"

#include <pthread.h>
#include <unistd.h>

/* A sanitizer looks for faults of memory, which few episodes show; bits are compared in plain
 * builds. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EPISODES = 2, ALL_KINDS = 0 };
#else
enum { EPISODES = 14, ALL_KINDS = 1 };
#endif
enum { N = 640, SEQUENCES = 3, WARM = 3, STEPS = 3, ROWS = 48 };
static int32_t ids[SEQUENCES][N + STEPS];
static size_t vocab;
static char dir[64];

static mote_model *open_model(void)
{
    mote_model *m = model_open(golden_path("checkpoints/tiny-a"), MOTE_MATH_FP32, 1);
    static const size_t parts_at[SEQUENCES] = { 0, 256, 300 };
    rnd r = { 77 };
    vocab = m->net.config.vocab_size;
    m->chunk_rows = ROWS; /* many passes a prompt */
    for (size_t k = 0; k < SEQUENCES; k++)
        for (size_t i = 0; i < N + STEPS; i++)
            ids[k][i] = k && i < parts_at[k] ? ids[0][i] : (int32_t)rnd_below(&r, vocab);
    return m;
}

static mote_store *open_store(int fresh)
{
    mote_store *s;
    mote_err err;
    if (fresh) {
        strcpy(dir, "/tmp/mote-paths-XXXXXX");
        make_tree(dir);
    }
    if (mote_store_open(&s, dir, NULL, &err))
        fail_msg("%s", err.message);
    return s;
}

static mote_session *over(mote_model *m, mote_store *store, mote_prefill prefill)
{
    mote_err err;
    mote_session *s = session_open(m, NULL, prefill);
    if (mote_session_use_store(s, store, NULL, &err))
        fail_msg("%s", err.message);
    return s;
}

static mote_restored restore(mote_session *s, const int32_t *from, size_t n, mote_replay replay)
{
    mote_restored r;
    mote_err err;
    if (mote_session_restore(s, from, n, replay, &r, &err))
        fail_msg("%s", err.message);
    return r;
}

static void snapshot(mote_session *s)
{
    mote_err err;
    if (mote_session_snapshot(s, &err))
        fail_msg("%s", err.message);
}

/* Logits at the end and of STEPS more tokens. */
static float *answer(mote_session *s, const int32_t *of, size_t n)
{
    float *rows = malloc((STEPS + 1) * vocab * sizeof *rows);
    size_t first, n_rows;
    const float *x = mote_session_logits(s, &n_rows, &first);
    assert_int_equal(first + n_rows, n);
    memcpy(rows, x + (n_rows - 1) * vocab, vocab * sizeof *rows);
    for (size_t i = 0; i < STEPS; i++)
        memcpy(rows + (i + 1) * vocab, feed(s, of + n + i, 1, MOTE_LOGITS_LAST, NULL, NULL),
               vocab * sizeof *rows);
    return rows;
}

static int stop_at(void *ctx, size_t done, size_t all)
{
    (void)all;
    return done >= *(size_t *)ctx;
}

/* Feed up to n at once, or in pieces; now and then a step is cancelled on the way. */
static void feed_to(mote_session *s, const int32_t *from, size_t n, rnd *r, int pieces)
{
    size_t at = mote_session_length(s);
    do {
        size_t piece = pieces && n - at > 1 ? 1 + rnd_below(r, n - at) : n - at,
               stop = 1 + rnd_below(r, piece + 1);
        mote_feed f = { s, from + at, piece, MOTE_LOGITS_LAST };
        if (rnd_below(r, 4) == 0) {
            int rc = mote_run(s->model, &f, 1, stop_at, &stop, NULL);
            assert_true(rc == 0 || rc == MOTE_ECANCELED);
            assert_int_equal(mote_session_length(s), rc ? at : at + piece);
            at += rc ? 0 : piece;
            continue;
        }
        feed(s, from + at, piece, MOTE_LOGITS_LAST, NULL, NULL);
        at += piece;
    } while (at < n);
}

/* A session that owes nothing to the store but writes into it: its way is random pieces, and what
 * it says is the truth. */
typedef struct truth {
    size_t k, n, n_pieces, origin;
    mote_prefill prefill;
    float *rows;
} truth;
static truth tell(mote_model *m, mote_store *store, rnd *r)
{
    truth t = { .k = rnd_below(r, SEQUENCES),
                .n = 1 + rnd_below(r, N),
                .n_pieces = 1 + rnd_below(r, 3),
                .prefill = (mote_prefill)rnd_below(r, 3) };
    mote_session *s = over(m, store, t.prefill);
    for (size_t i = 0, at = 0; at < t.n; i++) {
        size_t left = t.n - at, piece = i + 1 < t.n_pieces && left > 1
                                            ? 1 + rnd_below(r, rnd_below(r, 2) ? left - 1 : 12)
                                            : left;
        piece = piece < left ? piece : left;
        t.n_pieces = at + piece == t.n ? i + 1 : t.n_pieces;
        feed(s, ids[t.k] + at, piece, MOTE_LOGITS_LAST, NULL, NULL);
        at += piece;
        if (rnd_below(r, 2))
            snapshot(s);
        if (rnd_below(r, 6) == 0) { /* a mark is the state it was */
            mote_truncated cut;
            assert_int_equal(mote_session_mark(s, NULL), 0);
            feed(s, ids[(t.k + 1) % SEQUENCES], 1 + rnd_below(r, 40), MOTE_LOGITS_NONE, NULL, NULL);
            assert_int_equal(mote_session_truncate(s, at, MOTE_REPLAY_EXACT, &cut, NULL), 0);
            assert_int_equal(cut.length, at);
            if (at == t.n) { /* without logits now: the last token once more */
                mote_session_destroy(s);
                return (truth){ 0 };
            }
        }
    }
    t.origin = mote_session_origin(s);
    t.rows = answer(s, ids[t.k], t.n);
    if (rnd_below(r, 2))
        snapshot(s);
    mote_session_destroy(s);
    return t;
}

static void paths(void **state)
{
    (void)state;
    const char *from = getenv("MOTE_SEED");
    uint64_t seed0 = from ? strtoull(from, NULL, 10) : 1;
    size_t n_exact[3] = { 0 }, n_other = 0, n_blocks = 0;
    mote_model *m = open_model();
    mote_store *store = open_store(1);
    for (uint64_t e = 0; e < EPISODES; e++) {
        rnd r = { (seed0 + e) * 0x9E3779B97F4A7C15ull + 1 };
        rnd_u64(&r);
        truth t = tell(m, store, &r);
        for (int w = 0; t.rows && w < WARM; w++) {
            mote_replay replay = (mote_replay)rnd_below(&r, 2);
            mote_session *s = over(m, store, t.prefill);
            if (t.n_pieces > 1) /* else: one step is what restoring takes for granted */
                assert_int_equal(mote_session_follow(s, t.origin, t.n, NULL), 0);
            mote_restored got = restore(s, ids[t.k], t.n, replay);
            assert_true(got.exact || replay == MOTE_REPLAY_BOUNDED);
            feed_to(s, ids[t.k], t.n, &r, (int)rnd_below(&r, 2));
            n_exact[t.prefill] += got.exact && got.from_snapshot;
            n_other += got.from_snapshot && !got.exact;
            n_blocks += got.reused_tokens && !got.from_snapshot;
            float *rows = answer(s, ids[t.k], t.n);
            if (got.exact && memcmp(rows, t.rows, (STEPS + 1) * vocab * sizeof *rows))
                fail_msg("seed %llu: prefill %d, %zu tokens in %zu pieces, origin %zu: %zu "
                         "reused%s, and other bits",
                         (unsigned long long)(seed0 + e), (int)t.prefill, t.n, t.n_pieces, t.origin,
                         got.reused_tokens, got.from_snapshot ? " from a snapshot" : "");
            if (got.exact)
                assert_int_equal(mote_session_origin(s) == t.origin || t.n < mote_session_length(s),
                                 1);
            free(rows);
            if (rnd_below(&r, 3) == 0)
                snapshot(s); /* also where it is not exact: it must be named so */
            mote_session_destroy(s);
        }
        if (t.rows) { /* another command: one token more, in one step */
            mote_session *cold = session_open(m, NULL, t.prefill), *s = over(m, store, t.prefill);
            const float *want = feed(cold, ids[t.k], t.n + 1, MOTE_LOGITS_LAST, NULL, NULL);
            mote_restored got = restore(s, ids[t.k], t.n + 1, (mote_replay)(e % 3 == 0));
            feed_to(s, ids[t.k], t.n + 1, &r, 1);
            n_exact[t.prefill] += got.exact && got.from_snapshot;
            n_other += got.from_snapshot && !got.exact;
            if (got.exact && memcmp(mote_session_logits(s, NULL, NULL), want, vocab * sizeof *want))
                fail_msg("seed %llu: prefill %d, %zu tokens at once: %zu reused, and other bits",
                         (unsigned long long)(seed0 + e), (int)t.prefill, t.n + 1,
                         got.reused_tokens);
            mote_session_destroy(cold);
            mote_session_destroy(s);
        }
        free(t.rows);
        if (e % 4 == 3) {
            mote_store_close(store);
            store = open_store(0);
        }
    }
    printf(
        "  exact from snapshots: %zu bounded, %zu exact, %zu full; %zu others, %zu from blocks\n",
        n_exact[0], n_exact[1], n_exact[2], n_other, n_blocks);
    /* so few episodes as a sanitizer gets need not meet every kind */
    assert_true(!ALL_KINDS || from ||
                (n_exact[0] && n_exact[1] && n_exact[2] && n_other && n_blocks));
    mote_store_close(store);
    mote_model_close(m);
    remove_tree(dir);
}

/* One step of N tokens, snapshots of all modes and origins in its way: each row says whether a
 * session of `prefill` may take a snapshot that `by` made after `at` tokens, in one step, and be
 * exact. Window 8. */
static void which_snapshots(void **state)
{
    (void)state;
    static const mote_prefill B = MOTE_PREFILL_BOUNDED, E = MOTE_PREFILL_EXACT,
                              F = MOTE_PREFILL_FULL;
    const struct {
        mote_prefill by, prefill;
        size_t at, n;
        int taken;
    } rows[] = {
        { B, B, 100, 108, 1 }, { B, B, 100, 107, 0 }, { E, B, 100, 108, 1 }, { F, B, 100, 107, 0 },
        { B, E, 100, 200, 0 }, { B, F, 100, 200, 0 }, { E, F, 100, 101, 1 }, { F, E, 100, 101, 1 },
        { B, F, 8, 20, 1 },    { B, E, 5, 6, 1 },     { F, B, 5, 7, 1 },     { B, B, 5, 100, 1 },
    };
    mote_model *m = open_model();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mote_store *store = open_store(1);
        mote_session *s = over(m, store, rows[i].by),
                     *cold = session_open(m, NULL, rows[i].prefill);
        feed(s, ids[0], rows[i].at, MOTE_LOGITS_NONE, NULL, NULL);
        snapshot(s);
        mote_session_destroy(s);
        s = over(m, store, rows[i].prefill);
        mote_restored got = restore(s, ids[0], rows[i].n, MOTE_REPLAY_EXACT);
        if (got.reused_tokens != (rows[i].taken ? rows[i].at : 0) || !got.exact)
            fail_msg("row %zu: %zu reused, exact %d", i, got.reused_tokens, got.exact);
        feed(s, ids[0] + got.reused_tokens, rows[i].n - got.reused_tokens, MOTE_LOGITS_LAST, NULL,
             NULL);
        feed(cold, ids[0], rows[i].n, MOTE_LOGITS_LAST, NULL, NULL);
        float *a = answer(s, ids[0], rows[i].n), *b = answer(cold, ids[0], rows[i].n);
        assert_memory_equal(a, b, (STEPS + 1) * vocab * sizeof *a);
        free(a);
        free(b);
        mote_session_destroy(s);
        mote_session_destroy(cold);
        mote_store_close(store);
        remove_tree(dir);
    }
    mote_model_close(m);
}

/* Two modes say the same: both states are kept, each finds its own. */
static void both_are_kept(void **state)
{
    (void)state;
    mote_model *m = open_model();
    mote_store *store = open_store(1);
    static const mote_prefill modes[] = { MOTE_PREFILL_BOUNDED, MOTE_PREFILL_FULL };
    for (size_t i = 0; i < 2; i++) {
        mote_session *s = over(m, store, modes[i]);
        feed(s, ids[0], 300, MOTE_LOGITS_NONE, NULL, NULL);
        snapshot(s);
        mote_session_destroy(s);
    }
    mote__store_counts c;
    mote__store_flush(store, &c);
    assert_int_equal(c.written_snapshots, 2);
    for (size_t i = 0; i < 2; i++) {
        mote_session *s = over(m, store, modes[i]);
        assert_int_equal(
            mote_session_follow(s, modes[i] == MOTE_PREFILL_BOUNDED ? 292 : 0, 303, NULL), 0);
        mote_restored got = restore(s, ids[0], 303, MOTE_REPLAY_BOUNDED);
        assert_int_equal(got.reused_tokens, 300);
        assert_int_equal(got.exact, 1);
        assert_int_equal(mote_session_origin(s), modes[i] == MOTE_PREFILL_BOUNDED ? 292 : 0);
        mote_session_destroy(s);
    }
    mote_store_close(store);
    mote_model_close(m);
    remove_tree(dir);
}

/* A snapshot one token before the end of a prompt: the same prompt computes one token, and says the
 * same. */
static void the_same_prompt(void **state)
{
    (void)state;
    static const size_t lengths[] = { 2, 8, 257, 512 };
    mote_model *m = open_model();
    size_t window = m->net.config.window;
    for (int mode = 0; mode < 3; mode++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            size_t n = lengths[i];
            mote_store *store = open_store(1);
            mote_session *cold = session_open(m, NULL, (mote_prefill)mode);
            feed(cold, ids[0], n, MOTE_LOGITS_LAST, NULL, NULL);
            float *want = answer(cold, ids[0], n);
            mote_session_destroy(cold);
            for (int again = 0; again < 2; again++) {
                mote_session *s = over(m, store, (mote_prefill)mode);
                assert_int_equal(mote_session_follow(s, n > window ? n - window : 0, n, NULL), 0);
                mote_restored got = restore(s, ids[0], n, MOTE_REPLAY_EXACT);
                assert_int_equal(got.reused_tokens, again ? n - 1 : 0);
                assert_int_equal(got.from_snapshot, again);
                if (!again) {
                    feed(s, ids[0], n - 1, MOTE_LOGITS_NONE, NULL, NULL);
                    snapshot(s);
                }
                feed(s, ids[0] + n - 1, 1, MOTE_LOGITS_LAST, NULL, NULL);
                float *rows = answer(s, ids[0], n);
                assert_memory_equal(rows, want, (STEPS + 1) * vocab * sizeof *rows);
                free(rows);
                mote_session_destroy(s);
            }
            free(want);
            mote_store_close(store);
            remove_tree(dir);
        }
    mote_model_close(m);
}

typedef struct watch {
    mote_store *store;
    size_t stop;
    int late;
} watch;
static int look(void *ctx, size_t done, size_t all)
{
    watch *w = ctx;
    mote__store_counts c;
    (void)all;
    mote__store_get_counts(w->store, &c);
    w->late |= c.put_blocks != done / MOTE_BLOCK_TOKENS;
    return done >= w->stop;
}

/* Blocks are offered pass by pass; a step that is cancelled keeps them, and the next one goes on
 * there, also in bounded prefill. */
static void while_reading(void **state)
{
    (void)state;
    mote_model *m = open_model();
    for (int mode = 0; mode < 3; mode++) {
        mote_store *store = open_store(1);
        mote_session *s = over(m, store, (mote_prefill)mode),
                     *cold = session_open(m, NULL, (mote_prefill)mode);
        watch w = { store, 540, 0 };
        mote_feed f = { s, ids[0], N, MOTE_LOGITS_LAST };
        assert_int_equal(mote_run(m, &f, 1, look, &w, NULL), MOTE_ECANCELED);
        assert_false(w.late);
        assert_int_equal(mote_session_length(s), 0);
        mote_session_destroy(s);
        mote_store_close(store);
        store = open_store(0);
        s = over(m, store, (mote_prefill)mode);
        mote_restored got = restore(s, ids[0], N, MOTE_REPLAY_EXACT);
        assert_int_equal(got.reused_tokens, 512);
        feed(s, ids[0] + 512, N - 512, MOTE_LOGITS_LAST, NULL, NULL);
        feed(cold, ids[0], N, MOTE_LOGITS_LAST, NULL, NULL);
        float *a = answer(s, ids[0], N), *b = answer(cold, ids[0], N);
        assert_memory_equal(a, b, (STEPS + 1) * vocab * sizeof *a);
        free(a);
        free(b);
        mote_session_destroy(s);
        mote_session_destroy(cold);
        mote_store_close(store);
        remove_tree(dir);
    }
    mote_model_close(m);
}

/* A cancelled step leaves the session as it was: what comes next says what it would have said. */
static void cancelled(void **state)
{
    (void)state;
    static const struct {
        size_t before, cancelled, then;
    } rows[] = { { 100, 300, 300 }, { 100, 300, 3 }, { 101, 200, 7 }, { 0, 200, 50 } };
    mote_model *m = open_model();
    for (int mode = 0; mode < 3; mode++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            mote_session *a = session_open(m, NULL, (mote_prefill)mode),
                         *b = session_open(m, NULL, (mote_prefill)mode);
            size_t at = rows[i].before, n = at + rows[i].then, stop = 60;
            mote_session *both[] = { a, b };
            for (int k = 0; k < 2 && at; k++)
                feed(both[k], ids[0], at, MOTE_LOGITS_NONE, NULL, NULL);
            mote_feed f = { a, ids[1], rows[i].cancelled, MOTE_LOGITS_NONE };
            for (int twice = 0; twice < 2; twice++)
                assert_int_equal(mote_run(m, &f, 1, stop_at, &stop, NULL), MOTE_ECANCELED);
            for (int k = 0; k < 2; k++)
                feed(both[k], ids[0] + at, n - at, MOTE_LOGITS_LAST, NULL, NULL);
            assert_int_equal(mote_session_origin(a), mote_session_origin(b));
            float *x = answer(a, ids[0], n), *y = answer(b, ids[0], n);
            assert_memory_equal(x, y, (STEPS + 1) * vocab * sizeof *x);
            free(x);
            free(y);
            mote_session_destroy(a);
            mote_session_destroy(b);
        }
    mote_model_close(m);
}

static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;
static int held_sync(void *ctx, int fd)
{
    pthread_mutex_lock(&disk);
    pthread_mutex_unlock(&disk);
    return mote__store_io_system.sync(ctx, fd);
}

/* Sessions of one process see each other's blocks and snapshots at once, while not one of them has
 * reached the disk; so does a session of another handle of the same model. */
static void in_the_queue(void **state)
{
    (void)state;
    mote_model *m = open_model(), *twin = open_model();
    mote__store_io io = mote__store_io_system;
    mote_store *store;
    mote_err err;
    io.sync = held_sync;
    strcpy(dir, "/tmp/mote-paths-XXXXXX");
    make_tree(dir);
    if (mote__store_open(&store, dir, NULL, &(mote__store_tuning){ .io = &io }, &err))
        fail_msg("%s", err.message);
    pthread_mutex_lock(&disk); /* the writer waits */
    mote_session *s = over(m, store, MOTE_PREFILL_FULL);
    feed(s, ids[0], 600, MOTE_LOGITS_NONE, NULL, NULL);
    snapshot(s);
    mote_session *others[8];
    for (size_t i = 0; i < 8; i++) {
        others[i] = over(i == 7 ? twin : m, store, MOTE_PREFILL_FULL);
        mote_restored got = restore(others[i], ids[i % 2], 610,
                                    i % 2 ? MOTE_REPLAY_EXACT : MOTE_REPLAY_BOUNDED);
        /* the other sequence has the first block in common, and the second from whoever computed it
         * first */
        assert_int_equal(got.reused_tokens, i % 2 == 0 ? 600 : i == 1 ? 256 : 512);
        assert_int_equal(got.from_snapshot, i % 2 == 0);
        assert_true(got.exact);
        assert_true((others[i]->seq.kv.blocks[0] == s->seq.kv.blocks[0]) ==
                    (i != 7)); /* shared, not copied */
        assert_memory_equal(mote__kv_block_here(others[i]->seq.kv.blocks[0]),
                            mote__kv_block_here(s->seq.kv.blocks[0]), s->context.block_bytes);
        feed(others[i], ids[i % 2] + got.reused_tokens, 610 - got.reused_tokens, MOTE_LOGITS_LAST,
             NULL, NULL);
    }
    pthread_mutex_unlock(&disk);
    float *want = NULL;
    for (size_t i = 0; i < 8; i += 2) {
        float *rows = answer(others[i], ids[0], 610);
        if (want)
            assert_memory_equal(rows, want, (STEPS + 1) * vocab * sizeof *rows);
        free(want);
        want = rows;
    }
    free(want);
    /* and while the writer is at work, block by block: nothing is missed between the queue and the
     * index */
    for (size_t i = 0; i < 20; i++) {
        int32_t fresh[512];
        memcpy(fresh, ids[2], sizeof fresh);
        fresh[0] = (int32_t)i;
        mote_session *a = over(m, store, MOTE_PREFILL_FULL), *b = over(m, store, MOTE_PREFILL_FULL);
        feed(a, fresh, 512, MOTE_LOGITS_NONE, NULL, NULL);
        for (size_t spin = 0; spin < i * 4000; spin++)
            __asm__ volatile("");
        assert_int_equal(restore(b, fresh, 512, MOTE_REPLAY_EXACT).reused_tokens, 512);
        mote_session_destroy(a);
        mote_session_destroy(b);
    }
    for (size_t i = 0; i < 8; i++)
        mote_session_destroy(others[i]);
    mote_session_destroy(s);
    mote_store_close(store);
    mote_model_close(m);
    mote_model_close(twin);
    remove_tree(dir);
}

/* Windows that a bounded replay made stay approximate when a mark brings them back, though no KV
 * followed the replay. */
static void marks_keep_provenance(void **state)
{
    (void)state;
    mote_model *m = open_model();
    mote_store *store = open_store(1);
    mote_session *s = over(m, store, MOTE_PREFILL_BOUNDED);
    feed(s, ids[0], 256, MOTE_LOGITS_NONE, NULL, NULL);
    mote_session_destroy(s);
    s = over(m, store, MOTE_PREFILL_BOUNDED);
    mote_restored got = restore(s, ids[0], 256, MOTE_REPLAY_BOUNDED);
    assert_int_equal(got.reused_tokens, 256);
    assert_int_equal(got.exact, 0);
    feed(s, NULL, 0, MOTE_LOGITS_LAST, NULL, NULL);
    assert_int_equal(mote_session_mark(s, NULL), 0);
    feed(s, ids[0] + 256, 5, MOTE_LOGITS_NONE, NULL, NULL);
    assert_int_equal(mote_session_truncate(s, 256, MOTE_REPLAY_EXACT, NULL, NULL), 0);
    feed(s, ids[0] + 256, 300, MOTE_LOGITS_NONE, NULL, NULL);
    assert_int_equal(s->chain.n_blocks, 2);
    assert_int_equal(s->chain.n_exact, 1);
    mote_session_destroy(s);
    /* and a mark before windows began anew brings back windows that began earlier */
    s = over(m, store, MOTE_PREFILL_BOUNDED);
    feed(s, ids[1], 5, MOTE_LOGITS_NONE, NULL, NULL);
    assert_int_equal(mote_session_mark(s, NULL), 0);
    feed(s, ids[1] + 5, 95, MOTE_LOGITS_NONE, NULL, NULL);
    assert_int_equal(mote_session_origin(s), 92);
    assert_int_equal(mote_session_truncate(s, 5, MOTE_REPLAY_EXACT, NULL, NULL), 0);
    assert_int_equal(mote_session_origin(s), 0);
    mote_session_destroy(s);
    mote_store_close(store);
    mote_model_close(m);
    remove_tree(dir);
}

/* What damaged weights make is found out at the logits; nothing of it may be in the store by then.
 */
static void damaged_weights(void **state)
{
    (void)state;
    static float nan_norm[4096];
    mote_err err;
    for (size_t i = 0; i < 4096; i++)
        nan_norm[i] = NAN;
    mote_model *m = open_model();
    mote_store *store = open_store(1);
    mote_session *s = over(m, store, MOTE_PREFILL_BOUNDED);
    float *right = m->net.weights.layers[2].ffn_norm;
    m->net.weights.layers[2].ffn_norm = nan_norm;
    mote_feed f = { s, ids[0], N, MOTE_LOGITS_LAST };
    assert_int_equal(mote_run(m, &f, 1, NULL, NULL, &err), MOTE_EFORMAT);
    assert_non_null(strstr(err.message, "the weights are damaged"));
    mote__store_counts c;
    mote__store_get_counts(store, &c);
    assert_int_equal(c.put_blocks, 0);
    m->net.weights.layers[2].ffn_norm = right;
    mote_session_destroy(s);
    mote_store_close(store);
    mote_model_close(m);
    remove_tree(dir);
}

static void arguments(void **state)
{
    (void)state;
    mote_model *m = open_model();
    mote_session *s = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
    mote_err err;
    assert_int_equal(mote_session_follow(s, 10, 10, &err), MOTE_EINVAL);
    assert_int_equal(mote_session_follow(s, 10, 100, &err), 0);
    feed(s, ids[0], 60, MOTE_LOGITS_NONE, NULL, NULL);
    assert_int_equal(mote_session_origin(s), 10);
    assert_int_equal(mote_session_follow(s, 0, 10, &err), MOTE_EINVAL);
    feed(s, ids[0] + 60, 41, MOTE_LOGITS_NONE, NULL, NULL); /* beyond what was agreed */
    assert_int_equal(mote_session_origin(s), 93);
    mote_session_destroy(s);
    s = session_open(m, NULL, MOTE_PREFILL_FULL);
    assert_int_equal(mote_session_follow(s, 10, 100, &err), 0);
    feed(s, ids[0], 60, MOTE_LOGITS_NONE, NULL, NULL);
    assert_int_equal(mote_session_origin(s), 0);
    mote_session_destroy(s);
    mote_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths),           cmocka_unit_test(which_snapshots),
        cmocka_unit_test(both_are_kept),   cmocka_unit_test(the_same_prompt),
        cmocka_unit_test(while_reading),   cmocka_unit_test(cancelled),
        cmocka_unit_test(in_the_queue),    cmocka_unit_test(marks_keep_provenance),
        cmocka_unit_test(damaged_weights), cmocka_unit_test(arguments)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
