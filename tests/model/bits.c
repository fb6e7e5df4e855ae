/* Placement changes speed, never results: the same logits, bit for bit, however a prompt is cut,
 * whoever shares the step, and whatever runs it; and the exact modes equal a full pass. */
#include "golden.h"

enum { N = 97, STEPS = 12 };
/* How much of the slow grids runs: all of it in plain builds, where the bits are compared; under a
 * sanitizer, which looks for faults of memory, one config and every third point. */
#ifdef __SANITIZE_ADDRESS__
enum { GRID_FIRST = 1, GRID_END = 2, GRID_EVERY = 3 };
#else
enum { GRID_FIRST = 0, GRID_END = 3, GRID_EVERY = 1 };
#endif
static const char *const configs[] = { "checkpoints/tiny-a", "checkpoints/tiny-b",
                                       "checkpoints/tiny-c" };
static size_t vocab;
static int32_t ids[512];

static mote_model *open_config(size_t i, int threads)
{
    mote_model *m = model_open(golden_path(configs[i]), MOTE_MATH_FP32, threads);
    vocab = m->net.config.vocab_size;
    rnd r = { 77 + i };
    for (size_t k = 0; k < sizeof ids / sizeof ids[0]; k++)
        ids[k] = (int32_t)rnd_below(&r, vocab);
    return m;
}

static void same(const float *want, const float *got, size_t n, const char *what,
                 const char *config, size_t arg)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&want[i], &got[i], 4))
            fail_msg("%s, %s %zu: value %zu of row %zu is %.9g, not %.9g", config, what, arg,
                     i % vocab, i / vocab, (double)got[i], (double)want[i]);
}

/* logits of a full pass over n tokens, all rows; caller frees */
static float *full_pass(mote_model *m, size_t n)
{
    mote_session *s = session_open(m, NULL, MOTE_PREFILL_FULL);
    size_t rows;
    const float *x = feed(s, ids, n, MOTE_LOGITS_ALL, &rows, NULL);
    assert_int_equal(rows, n);
    float *copy = malloc(n * vocab * sizeof *copy);
    memcpy(copy, x, n * vocab * sizeof *copy);
    mote_session_destroy(s);
    return copy;
}

static void chunks(void **state)
{
    (void)state;
    for (size_t c = 0; c < 3; c++) {
        mote_model *m = open_config(c, 1);
        float *want = full_pass(m, N);
        static const size_t sizes[] = { 1, 7, 64, N };
        for (size_t k = 0; k < 4; k++) {
            /* pieces given by the caller */
            mote_session *s = session_open(m, NULL, MOTE_PREFILL_FULL);
            for (size_t at = 0; at < N; at += sizes[k]) {
                size_t n = N - at < sizes[k] ? N - at : sizes[k], rows;
                const float *x = feed(s, ids + at, n, MOTE_LOGITS_ALL, &rows, NULL);
                assert_int_equal(rows, n);
                same(want + at * vocab, x, n * vocab, "pieces of", configs[c], sizes[k]);
            }
            mote_session_destroy(s);
            /* passes cut by the engine */
            size_t usual = m->chunk_rows;
            m->chunk_rows = sizes[k];
            float *got = full_pass(m, N);
            same(want, got, N * vocab, "passes of", configs[c], sizes[k]);
            free(got);
            m->chunk_rows = usual;
        }
        free(want);
        mote_model_close(m);
    }
}

/* published math rounds, but alike in prefill and decode, for any cut and any threads */
static void published_math(void **state)
{
    (void)state;
    for (size_t c = 0; c < 3; c++) {
        float *want = NULL;
        for (int threads = 1; threads <= 2; threads++) {
            mote_model *m = model_open(golden_path(configs[c]), MOTE_MATH_PUBLISHED, threads);
            vocab = m->net.config.vocab_size;
            for (size_t k = 0; k < N; k++)
                ids[k] = (int32_t)((k * k + 3 * k) % vocab);
            float *got = full_pass(m, N);
            if (want)
                same(want, got, N * vocab, "published math, threads", configs[c], (size_t)threads);
            mote_session *s = session_open(m, NULL, MOTE_PREFILL_FULL);
            for (size_t at = 0; at < N; at++)
                same(got + at * vocab, feed(s, ids + at, 1, MOTE_LOGITS_LAST, NULL, NULL), vocab,
                     "published math, decoding", configs[c], at);
            mote_session_destroy(s);
            free(want);
            want = got;
            mote_model_close(m);
        }
        free(want);
    }
}

static void threads_and_levels(void **state)
{
    (void)state;
    for (size_t c = GRID_FIRST; c < GRID_END; c++) {
        mote_model *m = open_config(c, 1);
        float *want = full_pass(m, N);
        mote_model_close(m);
        static const int threads[] = { 2, 5 };
        for (size_t t = 0; t < 2; t++) {
            m = open_config(c, threads[t]);
            float *got = full_pass(m, N);
            same(want, got, N * vocab, "threads", configs[c], (size_t)threads[t]);
            free(got);
            mote_model_close(m);
        }
        for (int level = 0; level < 3; level++) {
            const mote__kern_ops *kern = mote__kern_at(level);
            if (!kern)
                continue;
            m = open_config(c, 1);
            m->net.kern = kern;
            float *got = full_pass(m, N);
            same(want, got, N * vocab, kern->name, configs[c], (size_t)level);
            free(got);
            mote_model_close(m);
        }
        free(want);
    }
}

/* Few rows at a long context are cut into parts by entry: the selection must not notice. */
static void long_context_threads(void **state)
{
    (void)state;
    enum { LONG = 4200 };
    mote_model *m = open_config(2, 1);
    assert_null(m->tokenizer);
    int32_t *many = malloc(LONG * sizeof *many);
    m->net.config.max_context = LONG + 8;
    for (size_t k = 0; k < LONG; k++)
        many[k] = ids[k % 509 % 512];
    float *want = NULL;
    for (int t = 1; t <= 3; t += 2) {
        if (t > 1) {
            mote_model_close(m);
            m = open_config(2, t);
            m->net.config.max_context = LONG + 8;
        }
        mote_session *s = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
        feed(s, many, LONG - 4, MOTE_LOGITS_NONE, NULL, NULL);
        for (size_t k = LONG - 4; k < LONG; k++) {
            const float *x = feed(s, many + k, 1, MOTE_LOGITS_LAST, NULL, NULL);
            if (t == 1 && k == LONG - 1) {
                want = malloc(vocab * sizeof *want);
                memcpy(want, x, vocab * sizeof *want);
            } else if (k == LONG - 1)
                same(want, x, vocab, "threads at a long context", configs[2], (size_t)t);
        }
        mote_session_destroy(s);
    }
    free(want);
    free(many);
    mote_model_close(m);
}

static void company(void **state)
{
    (void)state;
    for (size_t c = 0; c < 3; c++) {
        mote_model *m = open_config(c, 2);
        float *want = full_pass(m, N + STEPS);
        mote_session *s[3];
        for (int i = 0; i < 3; i++)
            s[i] = session_open(m, i == 1 ? "bf16" : NULL,
                                i == 2 ? MOTE_PREFILL_BOUNDED : MOTE_PREFILL_FULL);
        mote_feed f[3] = { { s[0], ids, N, MOTE_LOGITS_ALL },
                           { s[1], ids + 31, 50, MOTE_LOGITS_LAST },
                           { s[2], ids + 7, 77, MOTE_LOGITS_ALL } };
        mote_err err;
        assert_int_equal(mote_step(m, f, 3, NULL, NULL, &err), 0);
        same(want, mote_session_logits(s[0], NULL, NULL), N * vocab, "beside others", configs[c],
             0);
        for (size_t k = 0; k < STEPS; k++) {
            mote_feed g[3] = { { s[2], ids + k, 1, MOTE_LOGITS_LAST },
                               { s[0], ids + N + k, 1, MOTE_LOGITS_LAST },
                               { s[1], ids + 2 * k, 3, MOTE_LOGITS_NONE } };
            assert_int_equal(mote_step(m, g, 3, NULL, NULL, &err), 0);
            same(want + (N + k) * vocab, mote_session_logits(s[0], NULL, NULL), vocab,
                 "decoding beside others", configs[c], k);
        }
        for (int i = 0; i < 3; i++)
            mote_session_destroy(s[i]);
        free(want);
        mote_model_close(m);
    }
}

/* `s` holds n tokens of ids and its last logits are those of a full pass; so is what it decodes
 * next. */
static void follows(mote_session *s, const float *want, size_t n, const char *what,
                    const char *config)
{
    same(want + (n - 1) * vocab, mote_session_logits(s, NULL, NULL), vocab, what, config, n);
    for (size_t k = 0; k < STEPS; k++) {
        const float *x = feed(s, ids + n + k, 1, MOTE_LOGITS_LAST, NULL, NULL);
        same(want + (n + k) * vocab, x, vocab, what, config, n + k);
    }
}

static void exact_prefill(void **state)
{
    (void)state;
    for (size_t c = GRID_FIRST; c < GRID_END; c++) {
        mote_model *m = open_config(c, 1);
        float *want = full_pass(m, 300);
        size_t w = m->net.config.window;
        const size_t lengths[] = { 1, 2, w - 1, w, w + 1, 2 * w + 3, 97, 200, 280 };
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i += GRID_EVERY) {
            static const size_t passes[] = { 512, 13 };
            for (size_t k = 0; k < 2; k++) {
                m->chunk_rows = passes[k];
                mote_session *s = session_open(m, NULL, MOTE_PREFILL_EXACT);
                feed(s, ids, lengths[i], MOTE_LOGITS_LAST, NULL, NULL);
                follows(s, want, lengths[i], "exact prefill", configs[c]);
                mote_session_destroy(s);
                /* the same in two feeds: the second goes on from live windows */
                s = session_open(m, NULL, MOTE_PREFILL_EXACT);
                size_t half = lengths[i] / 2;
                if (half)
                    feed(s, ids, half, MOTE_LOGITS_NONE, NULL, NULL);
                feed(s, ids + half, lengths[i] - half, MOTE_LOGITS_LAST, NULL, NULL);
                follows(s, want, lengths[i], "exact prefill in two", configs[c]);
                mote_session_destroy(s);
            }
            m->chunk_rows = 512;
        }
        free(want);
        mote_model_close(m);
    }
}

/* The rows the first decoder layer runs over, by the formula of the issue: W + (D - 2)(W - 1),
 * inputs W + (D - 1)(W - 1). */
static void cone_is_smallest(void **state)
{
    (void)state;
    mote_model *m = open_config(1, 1);
    size_t w = m->net.config.window, d = m->net.config.n_layers - m->net.config.decoder_start;
    mote_session *s = session_open(m, NULL, MOTE_PREFILL_EXACT);
    mote__schedule k = mote__schedule_make(s, 400);
    assert_int_equal(k.begin, 0);
    assert_int_equal(400 - k.decoder_begin, w + (d - 1) * (w - 1));
    assert_int_equal(k.decoder_apex, 399);
    const mote__config kept = m->net.config;
    m->net.config.window = 128; /* published size */
    m->net.config.n_layers = 40;
    m->net.config.decoder_start = 20;
    k = mote__schedule_make(s, 100000);
    assert_int_equal(100000 - k.decoder_begin, 2541);
    s->live = 0;
    s->n_ids = s->n_kv = 50000;
    s->replay = MOTE_REPLAY_EXACT;
    /* suffix longer than the decoder's cone: only windows are rebuilt */
    k = mote__schedule_make(s, 50000);
    /* inputs of layer 0; it queries 19 * 127 = 2413 of them */
    assert_int_equal(50000 - k.begin, 20 * 127);
    assert_int_equal(k.encoder_apex, 50000);
    k = mote__schedule_make(s, 0); /* a fully cached prompt */
    assert_int_equal(50000 - k.begin, 2541 + 20 * 127);
    s->prefill = MOTE_PREFILL_BOUNDED;
    k = mote__schedule_make(s, 0);
    assert_int_equal(50000 - k.begin, 128 + 20 * 127);
    s->replay = MOTE_REPLAY_BOUNDED;
    k = mote__schedule_make(s, 0);
    assert_int_equal(50000 - k.begin, 128);
    assert_int_equal(50000 - k.decoder_begin, 128);
    m->net.config = kept;
    s->live = 1;
    s->n_ids = s->n_kv = 0;
    mote_session_destroy(s);
    mote_model_close(m);
}

static void exact_replay(void **state)
{
    (void)state;
    for (size_t c = GRID_FIRST; c < GRID_END; c++) {
        mote_model *m = open_config(c, 1);
        float *want = full_pass(m, 300);
        size_t multiple = m->net.config.prefix_multiple;
        static const size_t cuts[] = { 4, 40, 96, 200, 256 }, more[] = { 0, 1, 9, 40 };
        for (size_t i = 0; i < 5; i++)
            for (size_t j = 0; j < 4; j++)
                for (int full = 0; full < 2; full++) {
                    if ((i + j) % GRID_EVERY || cuts[i] % multiple ||
                        cuts[i] + more[j] + STEPS > 300)
                        continue;
                    mote_session *s = session_open(m, NULL,
                                                   full ? MOTE_PREFILL_FULL : MOTE_PREFILL_EXACT);
                    feed(s, ids, cuts[i], MOTE_LOGITS_NONE, NULL, NULL);
                    mote_err err;
                    assert_int_equal(mote_session_forget_windows(s, MOTE_REPLAY_EXACT, &err), 0);
                    size_t rows, first;
                    const float *x = feed(s, ids + cuts[i], more[j],
                                          full ? MOTE_LOGITS_ALL : MOTE_LOGITS_LAST, &rows, &first);
                    size_t n = cuts[i] + more[j];
                    assert_int_equal(first + rows, n);
                    if (full && more[j])
                        assert_int_equal(first, cuts[i]);
                    same(want + first * vocab, x, rows * vocab, "exact replay, rows", configs[c],
                         n);
                    for (size_t k = 0; k < STEPS; k++)
                        same(want + (n + k) * vocab,
                             feed(s, ids + n + k, 1, MOTE_LOGITS_LAST, NULL, NULL), vocab,
                             "after exact replay", configs[c], n + k);
                    mote_session_destroy(s);
                }
        free(want);
        mote_model_close(m);
    }
}

static void fork_truncate_mark(void **state)
{
    (void)state;
    for (size_t c = GRID_FIRST; c < GRID_END; c++) {
        mote_model *m = open_config(c, 1);
        float *want = full_pass(m, 320);
        mote_err err;
        mote_truncated t;
        mote_session *s = session_open(m, NULL, MOTE_PREFILL_FULL), *f;
        /* one full block and an odd tail */
        feed(s, ids, 261, MOTE_LOGITS_LAST, NULL, NULL);
        assert_int_equal(mote_session_fork(&f, s, &err), 0);
        assert_ptr_equal(f->seq.kv.blocks[0], s->seq.kv.blocks[0]);
        assert_ptr_not_equal(f->seq.kv.blocks[1], s->seq.kv.blocks[1]);
        static const int32_t other[] = { 5, 4, 3, 2, 1, 9, 8, 7 };
        /* the fork goes its own way ... */
        feed(f, other, 8, MOTE_LOGITS_LAST, NULL, NULL);
        /* ... and the original does not notice */
        for (size_t k = 0; k < STEPS; k++)
            same(want + (261 + k) * vocab, feed(s, ids + 261 + k, 1, MOTE_LOGITS_LAST, NULL, NULL),
                 vocab, "after a fork", configs[c], k);
        mote_session_destroy(s);
        /* a mark makes truncation exact, also at an odd position inside a group */
        assert_int_equal(mote_session_mark(f, &err), 0);
        size_t at = mote_session_length(f);
        float *first = malloc(2 * vocab * sizeof *first);
        memcpy(first, feed(f, ids, 2, MOTE_LOGITS_ALL, NULL, NULL), 2 * vocab * sizeof *first);
        feed(f, ids + 2, 40, MOTE_LOGITS_NONE, NULL, NULL);
        assert_int_equal(mote_session_truncate(f, at + 1, MOTE_REPLAY_BOUNDED, &t, &err), 0);
        assert_int_equal(t.length, at);
        assert_int_equal(t.windows, MOTE_WINDOWS_MARK);
        same(first, feed(f, ids, 2, MOTE_LOGITS_ALL, NULL, NULL), 2 * vocab, "after a mark",
             configs[c], at);
        free(first);
        mote_session_destroy(f);
        /* without one: rounded down, exact replay, then the same as never having gone further */
        s = session_open(m, NULL, MOTE_PREFILL_FULL);
        feed(s, ids, 300, MOTE_LOGITS_NONE, NULL, NULL);
        assert_int_equal(mote_session_truncate(s, 151, MOTE_REPLAY_EXACT, &t, &err), 0);
        assert_int_equal(t.length,
                         151 / m->net.config.prefix_multiple * m->net.config.prefix_multiple);
        assert_int_equal(t.windows, MOTE_WINDOWS_REPLAY);
        assert_true(t.replay_tokens > 0);
        size_t rows, from;
        const float *x = feed(s, ids + t.length, 160 - t.length, MOTE_LOGITS_ALL, &rows, &from);
        assert_int_equal(from, t.length);
        same(want + from * vocab, x, rows * vocab, "after truncation", configs[c], from);
        /* a shared full block that is cut in the middle is copied, not changed */
        assert_int_equal(mote_session_fork(&f, s, &err), 0);
        mote_session_destroy(f);
        mote_session_destroy(s);
        s = session_open(m, NULL, MOTE_PREFILL_FULL);
        feed(s, ids, 256, MOTE_LOGITS_NONE, NULL, NULL);
        assert_int_equal(mote_session_fork(&f, s, &err), 0);
        assert_int_equal(mote_session_truncate(f, 100, MOTE_REPLAY_EXACT, &t, &err), 0);
        feed(f, other, 8, MOTE_LOGITS_LAST, NULL, NULL);
        assert_ptr_not_equal(f->seq.kv.blocks[0], s->seq.kv.blocks[0]);
        for (size_t k = 0; k < STEPS; k++)
            same(want + (256 + k) * vocab, feed(s, ids + 256 + k, 1, MOTE_LOGITS_LAST, NULL, NULL),
                 vocab, "beside a cut fork", configs[c], k);
        mote_session_destroy(f);
        mote_session_destroy(s);
        free(want);
        mote_model_close(m);
    }
}

static int stop_at_once(void *ctx, size_t done, size_t all)
{
    (void)done;
    (void)all;
    return ++*(int *)ctx == 2;
}

static void cancelled_step(void **state)
{
    (void)state;
    mote_model *m = open_config(1, 1);
    float *want = full_pass(m, 300);
    mote_err err;
    for (int exact = 0; exact < 2; exact++) {
        mote_session *s = session_open(m, NULL, MOTE_PREFILL_EXACT);
        feed(s, ids, 101, MOTE_LOGITS_NONE, NULL, NULL);
        m->chunk_rows = 16;
        int calls = 0;
        mote_feed f = { s, ids + 101, 99, MOTE_LOGITS_LAST };
        assert_int_equal(mote_step(m, &f, 1, stop_at_once, &calls, &err), MOTE_ECANCELED);
        assert_int_equal(mote_session_length(s), 101);
        feed(s, ids + 101, 99, MOTE_LOGITS_LAST, NULL, NULL);
        follows(s, want, 200, "after a cancelled step", configs[1]);
        mote_session_destroy(s);
    }
    free(want);
    mote_model_close(m);
}

static void refusals(void **state)
{
    (void)state;
    mote_model *m = open_config(0, 1);
    mote_err err;
    mote_session_params p = { .max_context = 10 };
    mote_session *s;
    assert_int_equal(mote_session_create(&s, m, &p, &err), 0);
    mote_feed f = { s, ids, 11, MOTE_LOGITS_LAST };
    assert_int_equal(mote_step(m, &f, 1, NULL, NULL, &err), MOTE_EFULL);
    assert_non_null(strstr(err.message, "context is full"));
    f.n_ids = 10;
    assert_int_equal(mote_step(m, &f, 1, NULL, NULL, &err), 0);
    f.n_ids = 1;
    assert_int_equal(mote_step(m, &f, 1, NULL, NULL, &err), MOTE_EFULL);
    int32_t bad = (int32_t)vocab;
    mote_session *u = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
    f = (mote_feed){ u, &bad, 1, MOTE_LOGITS_LAST };
    assert_int_equal(mote_step(m, &f, 1, NULL, NULL, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "outside the vocabulary"));
    bad = -1;
    assert_int_equal(mote_step(m, &f, 1, NULL, NULL, &err), MOTE_EINVAL);
    mote_feed twice[2] = { { u, ids, 1, MOTE_LOGITS_LAST }, { u, ids, 1, MOTE_LOGITS_LAST } };
    assert_int_equal(mote_step(m, twice, 2, NULL, NULL, &err), MOTE_EINVAL);
    f = (mote_feed){ u, ids, 0, MOTE_LOGITS_LAST };
    assert_int_equal(mote_step(m, &f, 1, NULL, NULL, &err), MOTE_EINVAL);
    mote_session_destroy(u);
    mote_session_destroy(s);
    mote_model_close(m);
}

int main(void)
{
#if defined(__SANITIZE_THREAD__) /* ten times slower: what has several threads at work */
    const struct CMUnitTest threaded[] = { cmocka_unit_test(threads_and_levels),
                                           cmocka_unit_test(company) };
    return cmocka_run_group_tests(threaded, NULL, NULL);
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks),
        cmocka_unit_test(published_math),
        cmocka_unit_test(threads_and_levels),
        cmocka_unit_test(long_context_threads),
        cmocka_unit_test(company),
        cmocka_unit_test(exact_prefill),
        cmocka_unit_test(exact_replay),
        cmocka_unit_test(fork_truncate_mark),
        cmocka_unit_test(cancelled_step),
        cmocka_unit_test(refusals),
        cmocka_unit_test(cone_is_smallest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
