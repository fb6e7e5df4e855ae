/* Whatever happens to sessions over one store (restored, fed in pieces, saved, cut back, forked, in
 * the company of approximate ones), an exact session says at each position what one full pass over
 * the same tokens says, bit for bit. Random walks, repeatable by their seed. */
#include "golden.h"

#include <unistd.h>

/* A sanitizer looks for faults of memory, which few episodes show; bits are compared in plain
 * builds. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EPISODES = 3 };
#else
enum { EPISODES = 25 };
#endif
enum { N = 1100, SEQUENCES = 4, MOVES = 7 };
static int32_t ids[SEQUENCES][N];
static float *want[SEQUENCES]; /* [N][vocab], of a full pass */
static size_t vocab;
static char dir[64];

static mote_session *open_over(mote_model *m, mote_store *store, mote_prefill prefill)
{
    mote_err err;
    mote_session *s = session_open(m, NULL, prefill);
    if (mote_session_use_store(s, store, NULL, &err))
        fail_msg("%s", err.message);
    return s;
}

/* Feed up to `to`, in pieces or at once; an exact session's last row is checked. */
static void feed_to(mote_session *s, size_t k, size_t to, rnd *r, int exact, uint64_t seed)
{
    size_t at = mote_session_length(s);
    do {
        size_t n = to - at, rows = 0, first = 0;
        if (n > 1 && rnd_below(r, 2))
            n = 1 + rnd_below(r, n < 300 ? n : 300);
        const float *x = feed(s, ids[k] + at, n, MOTE_LOGITS_LAST, &rows, &first);
        at += n;
        assert_int_equal(mote_session_length(s), at);
        assert_memory_equal(mote_session_tokens(s), ids[k], at * sizeof(int32_t));
        if (exact && (rows != 1 || first != at - 1 ||
                      memcmp(x, want[k] + (at - 1) * vocab, vocab * sizeof *x)))
            fail_msg("seed %llu: sequence %zu, position %zu is not what a full pass says",
                     (unsigned long long)seed, k, at - 1);
    } while (at < to);
}

static void episode(mote_model *m, mote_store *store, uint64_t seed)
{
    rnd r = { seed * 0x9E3779B97F4A7C15ull + 1 };
    rnd_u64(&r);
    int exact = rnd_below(&r, 3) != 0;
    size_t k = rnd_below(&r, SEQUENCES), n = 1 + rnd_below(&r, N);
    mote_replay replay = exact ? MOTE_REPLAY_EXACT : MOTE_REPLAY_BOUNDED;
    mote_session *s = open_over(m, store, exact ? MOTE_PREFILL_EXACT : MOTE_PREFILL_BOUNDED);
    mote_restored got;
    mote_err err;
    if (mote_session_restore(s, ids[k], n, replay, &got, &err))
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
    assert_true(!exact || got.exact);
    feed_to(s, k, n, &r, exact, seed);
    for (int move = 0; move < MOVES; move++) {
        size_t length = mote_session_length(s);
        switch (rnd_below(&r, 5)) {
        case 0:
        case 1:
            if (length < N)
                feed_to(s, k, length + 1 + rnd_below(&r, N - length < 200 ? N - length : 200), &r,
                        exact, seed);
            break;
        case 2:
            if (mote_session_snapshot(s, &err))
                fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
            if (rnd_below(&r, 2) && mote_session_mark(s, &err))
                fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
            break;
        case 3: {
            mote_truncated cut;
            size_t to = rnd_below(&r, length + 1);
            if (mote_session_truncate(s, to, replay, &cut, &err))
                fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
            assert_true(cut.length <= to);
            /* the walk goes on along another sequence with the same beginning, as an edited turn
             * does */
            for (size_t other = 0; other < SEQUENCES; other++)
                if (rnd_below(&r, 2) && !memcmp(ids[other], ids[k], cut.length * sizeof(int32_t)))
                    k = other;
            size_t next = cut.length + 1 + rnd_below(&r, 300);
            feed_to(s, k, next < N ? next : N, &r, exact, seed);
            break;
        }
        default: {
            mote_session *copy;
            if (mote_session_fork(&copy, s, &err))
                fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
            /* either may go on; the other ends */
            if (rnd_below(&r, 2)) {
                mote_session *t = s;
                s = copy;
                copy = t;
            }
            mote_session_destroy(copy);
        }
        }
    }
    mote_session_destroy(s);
}

static void walks(void **state)
{
    (void)state;
    const char *from = getenv("MOTE_SEED");
    uint64_t seed0 = from ? strtoull(from, NULL, 10) : 1;
    static const char *const models[] = { "checkpoints/tiny-a", "checkpoints/tiny-b" };
    for (size_t c = 0; c < sizeof models / sizeof *models; c++) {
        mote_model *m = model_open(golden_path(models[c]), MOTE_MATH_FP32, 2);
        vocab = m->net.config.vocab_size;
        /* sequences that part at the edges of blocks and in between */
        static const size_t parts_at[SEQUENCES] = { 0, 256, 517, 768 };
        rnd r = { 9 + c };
        for (size_t k = 0; k < SEQUENCES; k++) {
            for (size_t i = 0; i < N; i++)
                ids[k][i] = k && i < parts_at[k] ? ids[0][i] : (int32_t)rnd_below(&r, vocab);
            mote_session *s = session_open(m, NULL, MOTE_PREFILL_FULL);
            size_t rows;
            const float *x = feed(s, ids[k], N, MOTE_LOGITS_ALL, &rows, NULL);
            assert_int_equal(rows, N);
            want[k] = malloc(N * vocab * sizeof *x);
            memcpy(want[k], x, N * vocab * sizeof *x);
            mote_session_destroy(s);
        }
        strcpy(dir, "/tmp/mote-random-XXXXXX");
        make_tree(dir);
        mote_store *store = NULL;
        mote_err err;
        for (uint64_t e = 0; e < EPISODES; e++) {
            if (!store && mote_store_open(&store, dir, NULL, &err))
                fail_msg("%s", err.message);
            episode(m, store, seed0 + e);
            /* as often from disk as while the writer is at work */
            if (e % 4 == 3) {
                mote_store_close(store);
                store = NULL;
            }
        }
        mote_store_close(store);
        mote_model_close(m);
        for (size_t k = 0; k < SEQUENCES; k++)
            free(want[k]);
        remove_tree(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(walks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
