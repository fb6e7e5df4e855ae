/* A store beside the steps: a restore in slices, a probe, and sessions that are restored, saved,
 * made and forked on one thread while another steps others (ThreadSanitizer runs this). */
#include "golden.h"

#include <pthread.h>

enum { N = 1400, TURNS = 24 };
static int32_t ids[N];
static size_t vocab;
static char dir[64];
static mote_model *model;
static mote_store *store;

static void open_all(void)
{
    mote_err err;
    rnd r = { 5 };
    model = model_open(golden_path("checkpoints/tiny-a"), MOTE_MATH_FP32, 1);
    vocab = model->net.config.vocab_size;
    for (size_t i = 0; i < N; i++)
        ids[i] = (int32_t)rnd_below(&r, vocab);
    strcpy(dir, "/tmp/mote-beside-XXXXXX");
    make_tree(dir);
    if (mote_store_open(&store, dir, NULL, &err))
        fail_msg("%s", err.message);
}

static void close_all(void)
{
    mote_store_close(store);
    assert_int_equal(mote_model_close(model), 0);
    remove_tree(dir);
}

static mote_session *over(void)
{
    mote_err err;
    mote_session *s = session_open(model, NULL, MOTE_PREFILL_BOUNDED);
    if (mote_session_use_store(s, store, NULL, &err))
        fail_msg("%s", err.message);
    return s;
}

/* Compute n tokens, and save the state where `snapshot` says so. */
static void keep(size_t n, size_t snapshot)
{
    mote_session *s = over();
    if (snapshot)
        feed(s, ids, snapshot, MOTE_LOGITS_NONE, NULL, NULL);
    if (snapshot)
        assert_int_equal(mote_session_snapshot(s, NULL), 0);
    feed(s, ids + snapshot, n - snapshot, MOTE_LOGITS_NONE, NULL, NULL);
    mote_session_destroy(s);
}

static void same_session(mote_session *a, mote_session *b)
{
    size_t n = mote_session_length(a);
    assert_int_equal(mote_session_length(b), n);
    const float *x = feed(a, ids + n, 1, MOTE_LOGITS_LAST, NULL, NULL),
                *y = feed(b, ids + n, 1, MOTE_LOGITS_LAST, NULL, NULL);
    assert_memory_equal(x, y, vocab * sizeof *x);
}

/* Slices of any size fill the session as one call does, and as the probe said. */
static void slices(void **state)
{
    (void)state;
    static const struct {
        size_t kept, snapshot, prompt;
    } cases[] = {
        { 1300, 0, 1399 }, { 1300, 520, 1399 }, { 1300, 1290, 1399 },
        { 700, 690, 695 }, { 300, 0, 1399 },    { 200, 100, 1399 },
        { 0, 0, 1000 },    { 1300, 0, 100 },    { 1300, 1290, 1300 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_all();
        if (cases[i].kept)
            keep(cases[i].kept, cases[i].snapshot);
        mote_store_close(store); /* all on disk */
        assert_int_equal(mote_store_open(&store, dir, NULL, NULL), 0);
        for (size_t most = 1; most < 2000; most = most * 4 + 300)
            for (int exact = 0; exact < 2; exact++) {
                mote_replay replay = exact ? MOTE_REPLAY_EXACT : MOTE_REPLAY_BOUNDED;
                mote_session *whole = over(), *sliced = over();
                mote_restored want, got;
                mote_probed probed;
                mote_restore *r;
                size_t n = cases[i].prompt, calls = 1;
                assert_int_equal(mote_store_probe(whole, ids, n, &probed, NULL), 0);
                assert_int_equal(mote_session_restore(whole, ids, n, replay, &want, NULL), 0);
                assert_int_equal(mote_restore_create(&r, sliced, ids, n, replay, NULL), 0);
                for (; mote_restore_next(r, most, &got, NULL) == 1; calls++)
                    assert_int_equal(mote_session_length(sliced), 0);
                mote_restore_destroy(r);
                assert_int_equal(got.reused_tokens, want.reused_tokens);
                assert_int_equal(got.replay_tokens, want.replay_tokens);
                assert_int_equal(got.from_snapshot, want.from_snapshot);
                assert_int_equal(got.exact, want.exact);
                /* a call brings no more blocks than it may */
                assert_true(calls >= want.reused_tokens / 256 / (most < 256 ? 1 : most / 256));
                size_t blocks = cases[i].kept < n ? cases[i].kept : n;
                assert_int_equal(probed.tokens, blocks / 256 * 256);
                assert_int_equal(probed.exact_tokens, probed.tokens);
                assert_int_equal(probed.snapshot_tokens, cases[i].snapshot && cases[i].snapshot < n
                                                             ? cases[i].snapshot
                                                             : 0);
                if (want.reused_tokens && want.reused_tokens < n)
                    same_session(whole, sliced);
                mote_session_destroy(whole);
                /* left in the middle, the session is empty and can be used */
                mote_session *left = over();
                assert_int_equal(mote_restore_create(&r, left, ids, n, replay, NULL), 0);
                mote_restore_next(r, 1, NULL, NULL);
                mote_restore_destroy(r);
                if (mote_session_length(left) == 0)
                    feed(left, ids, 20, MOTE_LOGITS_NONE, NULL, NULL);
                mote_session_destroy(left);
                mote_session_destroy(sliced);
            }
        close_all();
    }
}

static void refused(void **state)
{
    (void)state;
    open_all();
    mote_err err;
    mote_probed probed;
    mote_restore *r;
    mote_session *s = session_open(model, NULL, MOTE_PREFILL_BOUNDED);
    assert_int_equal(mote_store_probe(s, ids, 10, &probed, &err), MOTE_EINVAL);
    assert_int_equal(mote_restore_create(&r, s, ids, 10, MOTE_REPLAY_EXACT, &err), MOTE_EINVAL);
    assert_null(r);
    assert_int_equal(mote_model_close(model), MOTE_EINVAL); /* a session is left */
    mote_session_destroy(s);
    s = over();
    assert_int_equal(mote_session_push(s, ids, 10, 0, MOTE_LOGITS_LAST, NULL), 0);
    assert_int_equal(mote_restore_create(&r, s, ids, 10, MOTE_REPLAY_EXACT, &err), MOTE_EINVAL);
    mote_session_destroy(s);
    mote_restore_destroy(NULL);
    close_all();
}

static _Atomic int done;

static void *restores(void *ctx)
{
    (void)ctx;
    for (size_t turn = 0; turn < TURNS; turn++) {
        mote_session *s = over(), *copy;
        mote_restore *r;
        mote_restored got;
        size_t n = 300 + turn * 40;
        if (mote_restore_create(&r, s, ids, n, MOTE_REPLAY_BOUNDED, NULL))
            break;
        while (mote_restore_next(r, 256, &got, NULL) == 1)
            ;
        mote_restore_destroy(r);
        if (got.from_snapshot)
            mote_session_snapshot(s, NULL);
        if (!mote_session_fork(&copy, s, NULL)) {
            mote_session_push(copy, ids + got.reused_tokens, 1, 0, MOTE_LOGITS_LAST, NULL);
            mote_session_destroy(copy);
        }
        mote_session_destroy(s);
    }
    atomic_store(&done, 1);
    return NULL;
}

static void beside_steps(void **state)
{
    (void)state;
    open_all();
    keep(1300, 520);
    mote_session *s[2] = { over(), session_open(model, NULL, MOTE_PREFILL_BOUNDED) },
                 *alone = session_open(model, NULL, MOTE_PREFILL_BOUNDED);
    atomic_store(&done, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, restores, NULL), 0);
    size_t at = 0;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(mote_session_push(s[i], ids + i, 600, 0, MOTE_LOGITS_LAST, NULL), 0);
    while (!atomic_load(&done) || s[1]->prompt.pending) {
        mote_stepped r[2];
        mote_step_params p = { .max_rows = 24 };
        assert_int_equal(mote_step(model, s, 2, &p, r, NULL), 0);
        assert_int_equal(r[0].err.code, 0);
        assert_int_equal(r[1].err.code, 0);
        if (r[0].ready) {
            mote_session_destroy(s[0]);
            s[0] = over();
            assert_int_equal(
                mote_session_push(s[0], ids + 2 + at++ % 50, 600, 0, MOTE_LOGITS_LAST, NULL), 0);
        }
    }
    pthread_join(thread, NULL);
    const float *want = feed(alone, ids + 1, 600, MOTE_LOGITS_LAST, NULL, NULL);
    assert_memory_equal(want, mote_session_logits(s[1], NULL, NULL), vocab * sizeof *want);
    for (size_t i = 0; i < 2; i++)
        mote_session_destroy(s[i]);
    mote_session_destroy(alone);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(slices), cmocka_unit_test(refused),
                                        cmocka_unit_test(beside_steps) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
