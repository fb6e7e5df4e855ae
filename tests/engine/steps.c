/* Steps, one pass each, through the public API: who waits for whom, what a failure costs, prompts
 * in pieces, and any order of push, step, drop, fork and truncate. */
#include "golden.h"

enum { N = 240, DECODED = 4 };
/* A sanitizer looks for faults of memory, which few seeds show; bits are compared in plain
 * builds. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PIECES = 9, ORDERS = 3, FEW = 1 };
#else
enum { PIECES = 45, ORDERS = 12, FEW = 0 };
#endif
static const char *const configs[] = { "checkpoints/tiny-a", "checkpoints/tiny-b",
                                       "checkpoints/tiny-c" };
enum { CONFIGS = 3 };
static size_t vocab;
static int32_t ids[N + 64];

static mote_model *open_config(size_t i)
{
    mote_model *m = model_open(golden_path(configs[i]), MOTE_MATH_FP32, 1);
    vocab = m->net.config.vocab_size;
    rnd r = { 177 + i };
    for (size_t k = 0; k < sizeof ids / sizeof ids[0]; k++)
        ids[k] = (int32_t)rnd_below(&r, vocab);
    return m;
}

static void push(mote_session *s, const int32_t *t, size_t n, size_t n_more)
{
    mote_err err;
    if (mote_session_push(s, t, n, n_more, MOTE_LOGITS_LAST, &err))
        fail_msg("%s", err.message);
}

static mote_stepped step(mote_session *s, size_t max_rows)
{
    mote_err err;
    mote_stepped r;
    mote_step_params p = { .max_rows = max_rows };
    if (mote_step(s->model, &s, 1, &p, &r, &err))
        fail_msg("%s", err.message);
    if (r.err.code)
        fail_msg("%s", r.err.message);
    return r;
}

static void same(const float *want, const float *got, const char *what, uint64_t seed)
{
    for (size_t i = 0; i < vocab; i++)
        if (memcmp(&want[i], &got[i], 4))
            fail_msg("%s, seed %llu: logit %zu is %.9g, not %.9g", what, (unsigned long long)seed,
                     i, (double)got[i], (double)want[i]);
}

/* The logits of the prompt's last token and of DECODED tokens behind it. Caller frees. */
static float *decoded(mote_session *s, const float *last, const int32_t *next)
{
    float *x = malloc((1 + DECODED) * vocab * sizeof *x);
    memcpy(x, last, vocab * sizeof *x);
    for (size_t i = 0; i < DECODED; i++)
        memcpy(x + (i + 1) * vocab, feed(s, next + i, 1, MOTE_LOGITS_LAST, NULL, NULL),
               vocab * sizeof *x);
    return x;
}

static float *in_one_piece(mote_model *m, mote_prefill prefill, size_t n)
{
    mote_session *s = session_open(m, NULL, prefill);
    float *x = decoded(s, feed(s, ids, n, MOTE_LOGITS_LAST, NULL, NULL), ids + n);
    mote_session_destroy(s);
    return x;
}

/* A prompt in any pieces, in passes of any size, forked and dropped on the way: one piece's bits.
 */
static void pieces(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < PIECES; seed++) {
        rnd r = { 1000 + seed };
        mote_model *m = open_config(seed % CONFIGS);
        mote_prefill prefill = (mote_prefill)(seed / CONFIGS % 3);
        size_t n = 2 + rnd_below(&r, N - DECODED - 2), before = rnd_below(&r, 3) ? 0 : n / 3;
        float *want = NULL;
        mote_session *s = session_open(m, NULL, prefill), *fork = NULL;
        if (before) { /* a prompt behind another one */
            mote_session *whole = session_open(m, NULL, prefill);
            feed(whole, ids, before, MOTE_LOGITS_NONE, NULL, NULL);
            want = decoded(whole,
                           feed(whole, ids + before, n - before, MOTE_LOGITS_LAST, NULL, NULL),
                           ids + n);
            mote_session_destroy(whole);
            feed(s, ids, before, MOTE_LOGITS_NONE, NULL, NULL);
        } else {
            want = in_one_piece(m, prefill, n);
        }
        size_t at = before;
        while (at < n) {
            size_t piece = 1 + rnd_below(&r, n - at), rows = 1 + rnd_below(&r, 60);
            push(s, ids + at, piece, n - at - piece);
            at += piece;
            while (rnd_below(&r, 5) && step(s, rows).n_rows)
                ;
            if (!fork && at < n && rnd_below(&r, 3) == 0) {
                assert_int_equal(mote_session_fork(&fork, s, NULL), 0);
                mote_session *t = s; /* go on with the copy, and drop what began */
                s = fork;
                fork = t;
                mote_session_drop(fork);
                assert_int_equal(mote_session_length(fork), before);
                assert_int_equal(mote_session_pending(fork), 0);
            }
        }
        assert_int_equal(mote_session_length(s), s->prompt.pending ? before : n);
        while (s->prompt.pending)
            step(s, 1 + rnd_below(&r, 60));
        size_t rows;
        const float *last = mote_session_logits(s, &rows, NULL);
        assert_int_equal(rows, 1);
        float *got = decoded(s, last, ids + n);
        for (size_t i = 0; i <= DECODED; i++)
            same(want + i * vocab, got + i * vocab, "pieces", seed);
        free(got);
        if (fork) { /* dropped in the middle: the same prompt again, whole */
            got = decoded(fork, feed(fork, ids + before, n - before, MOTE_LOGITS_LAST, NULL, NULL),
                          ids + n);
            for (size_t i = 0; i <= DECODED; i++)
                same(want + i * vocab, got + i * vocab, "after a drop", seed);
            free(got);
        }
        mote_session_destroy(fork);
        mote_session_destroy(s);
        free(want);
        mote_model_close(m);
    }
}

/* A server's hour: seven sessions draw tokens while an eighth reads a long prompt. */
static void decoding_beside_a_prompt(void **state)
{
    (void)state;
    enum { SESSIONS = 8, ROWS = 12, TURNS = 200 / (ROWS - SESSIONS + 1) + 1 };
    mote_model *m = open_config(0);
    mote_session *s[SESSIONS], *alone[SESSIONS];
    mote_stepped r[SESSIONS];
    for (size_t i = 0; i < SESSIONS; i++) {
        s[i] = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
        alone[i] = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
        if (i) {
            feed(s[i], ids + i, 20, MOTE_LOGITS_NONE, NULL, NULL);
            feed(alone[i], ids + i, 20, MOTE_LOGITS_NONE, NULL, NULL);
        }
    }
    push(s[0], ids, 200, 0); /* first in the list, and yet not first served */
    mote_step_params p = { .max_rows = ROWS };
    size_t passes = 0;
    for (; s[0]->prompt.pending; passes++) {
        assert_true(passes < TURNS);
        const int32_t next = ids[(passes * 7) % N];
        for (size_t i = 1; i < SESSIONS; i++)
            push(s[i], &next, 1, 0);
        assert_int_equal(mote_step(m, s, SESSIONS, &p, r, NULL), 0);
        for (size_t i = 1; i < SESSIONS; i++) {
            assert_true(r[i].ready && r[i].n_rows == 1 && !r[i].err.code);
            same(feed(alone[i], &next, 1, MOTE_LOGITS_LAST, NULL, NULL),
                 mote_session_logits(s[i], NULL, NULL), "beside a prompt", passes);
        }
        assert_true(r[0].n_rows <= ROWS - (SESSIONS - 1) && r[0].n_rows > 0);
        assert_int_equal(r[0].all_rows, 200);
    }
    assert_true(r[0].ready && r[0].done_rows == 200);
    assert_int_equal(passes, 200 / (ROWS - SESSIONS + 1));
    same(feed(alone[0], ids, 200, MOTE_LOGITS_LAST, NULL, NULL),
         mote_session_logits(s[0], NULL, NULL), "the prompt", 0);
    for (size_t i = 0; i < SESSIONS; i++) {
        mote_session_destroy(s[i]);
        mote_session_destroy(alone[i]);
    }
    mote_model_close(m);
}

/* What decoding leaves of a pass is shared evenly by the prompts, wherever they are in the list. */
static void prompts_share(void **state)
{
    (void)state;
    static const struct {
        size_t max_rows, rows[4], want[4];
    } cases[] = {
        { 60, { 100, 10, 100, 100 }, { 17, 10, 17, 16 } },
        { 61, { 1, 20, 100, 100 }, { 1, 20, 20, 20 } },
        { 3, { 100, 100, 100, 100 }, { 1, 1, 1, 0 } },
        { 2, { 100, 1, 8, 8 }, { 0, 1, 1, 0 } },
        { 500, { 100, 9, 8, 100 }, { 100, 9, 8, 100 } },
    };
    mote_model *m = open_config(0);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        mote_session *s[4];
        mote_stepped r[4];
        mote_step_params p = { .max_rows = cases[c].max_rows };
        for (size_t i = 0; i < 4; i++) {
            s[i] = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
            push(s[i], ids, cases[c].rows[i], 0);
        }
        assert_int_equal(mote_step(m, s, 4, &p, r, NULL), 0);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(r[i].n_rows, cases[c].want[i]);
            assert_int_equal(r[i].ready, r[i].n_rows == cases[c].rows[i]);
            mote_session_destroy(s[i]);
        }
    }
    mote_model_close(m);
}

/* What cannot be pushed changes nothing. */
static void refused(void **state)
{
    (void)state;
    mote_model *m = open_config(1);
    mote_err err;
    mote_session_params params = { .max_context = 50 };
    mote_session *s, *whole = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
    assert_int_equal(mote_session_create(&s, m, &params, NULL), 0);
    int32_t bad[] = { 1, (int32_t)vocab };
    assert_int_equal(mote_session_push(s, bad, 2, 0, MOTE_LOGITS_LAST, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "outside the vocabulary"));
    assert_int_equal(mote_session_push(s, ids, 0, 0, MOTE_LOGITS_LAST, &err), MOTE_EINVAL);
    assert_int_equal(mote_session_push(s, ids, 51, 0, MOTE_LOGITS_LAST, &err), MOTE_EFULL);
    assert_int_equal(mote_session_push(s, ids, 1, 50, MOTE_LOGITS_LAST, &err), MOTE_EFULL);
    assert_int_equal(mote_session_push(s, ids, 1, (size_t)-1, MOTE_LOGITS_LAST, &err), MOTE_EFULL);
    assert_int_equal(mote_session_pending(s), 0);
    mote__alloc_fail_at = 1;
    assert_int_equal(mote_session_push(s, ids, 40, 0, MOTE_LOGITS_LAST, &err), MOTE_ENOMEM);
    mote__alloc_fail_at = 0;
    assert_int_equal(mote_session_pending(s), 0);
    push(s, ids, 10, 30);
    /* not what was announced */
    assert_int_equal(mote_session_push(s, ids, 10, 30, MOTE_LOGITS_LAST, &err), MOTE_EINVAL);
    assert_int_equal(mote_session_push(s, ids, 31, 0, MOTE_LOGITS_LAST, &err), MOTE_EINVAL);
    assert_int_equal(mote_session_push(s, bad, 2, 28, MOTE_LOGITS_LAST, &err), MOTE_EINVAL);
    /* nothing that wants an idle session */
    assert_int_equal(mote_session_truncate(s, 0, MOTE_REPLAY_EXACT, NULL, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "pending prompt of 10 tokens"));
    assert_int_equal(mote_session_forget_windows(s, MOTE_REPLAY_EXACT, &err), MOTE_EINVAL);
    assert_int_equal(mote_session_follow(s, 0, 0, &err), MOTE_EINVAL);
    mote_feed f = { s, ids, 1, MOTE_LOGITS_LAST };
    assert_int_equal(mote_run(m, &f, 1, NULL, NULL, &err), MOTE_EINVAL);
    assert_int_equal(step(s, 0).n_rows, 10);
    assert_int_equal(step(s, 0).n_rows, 0); /* waits for tokens */
    assert_int_equal(mote_session_snapshot(s, &err), MOTE_EINVAL);
    push(s, ids + 10, 30, 0);
    assert_true(step(s, 0).ready);
    same(feed(whole, ids, 40, MOTE_LOGITS_LAST, NULL, NULL), mote_session_logits(s, NULL, NULL),
         "after refusals", 0);
    mote_session *twice[] = { s, s };
    mote_stepped r[2];
    assert_int_equal(mote_step(m, twice, 2, NULL, r, &err), MOTE_EINVAL);
    assert_int_equal(mote_step(m, twice, 1, NULL, NULL, &err), MOTE_EINVAL);
    assert_int_equal(mote_step(m, twice, 0, NULL, NULL, &err), 0);
    mote_session_destroy(s);
    mote_session_destroy(whole);
    mote_model_close(m);
}

/* A row that is not finite costs its own session: the embedding of one token is damaged. */
static void not_finite(void **state)
{
    (void)state;
    for (size_t c = 0; c < CONFIGS; c++) {
        mote_model *m = open_config(c);
        size_t n = 60;
        float *want = in_one_piece(m, MOTE_PREFILL_BOUNDED, n);
        mote__mat *e = &m->net.weights.embed;
        int32_t bad = ids[0];
        for (int again = 1; again;) { /* a token that the good prompt does not hold */
            again = 0;
            for (size_t i = 0; i < n + DECODED; i++)
                again |= ids[i] == bad;
            bad = again ? (bad + 1) % (int32_t)vocab : bad;
        }
        size_t item = e->kind == MOTE_W_F32 ? 4 : 2, bytes = e->n_in * e->n_out * item;
        uint8_t *copy = malloc(bytes);
        memcpy(copy, e->data, bytes);
        memset(copy + (size_t)bad * m->net.config.hidden_size * item, 0xff, item);
        e->data = copy;
        mote_session *good = session_open(m, NULL, MOTE_PREFILL_BOUNDED),
                     *hurt = session_open(m, NULL, MOTE_PREFILL_BOUNDED), *both[] = { hurt, good };
        feed(hurt, ids, 5, MOTE_LOGITS_NONE, NULL, NULL);
        mote_stepped r[2];
        mote_step_params p = { .max_rows = 40 };
        push(hurt, &bad, 1, 0);
        push(good, ids, n, 0);
        assert_int_equal(mote_step(m, both, 2, &p, r, NULL), 0);
        assert_int_equal(r[0].err.code, MOTE_EFORMAT);
        assert_non_null(strstr(r[0].err.message, "position 5 are not finite"));
        assert_false(r[0].ready);
        assert_int_equal(r[1].err.code, 0);
        assert_int_equal(mote_session_length(hurt), 5);
        assert_int_equal(mote_session_pending(hurt), 0);
        while (good->prompt.pending)
            step(good, 0);
        float *got = decoded(good, mote_session_logits(good, NULL, NULL), ids + n);
        for (size_t i = 0; i <= DECODED; i++)
            same(want + i * vocab, got + i * vocab, "beside damage", c);
        free(got);
        /* and the one that was hurt goes on as if nothing had been */
        got = decoded(hurt, feed(hurt, ids + 5, n - 5, MOTE_LOGITS_LAST, NULL, NULL), ids + n);
        mote_session *clean = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
        feed(clean, ids, 5, MOTE_LOGITS_NONE, NULL, NULL);
        free(want);
        want = decoded(clean, feed(clean, ids + 5, n - 5, MOTE_LOGITS_LAST, NULL, NULL), ids + n);
        for (size_t i = 0; i <= DECODED; i++)
            same(want + i * vocab, got + i * vocab, "after damage", c);
        free(got);
        free(want);
        mote_session_destroy(clean);
        mote_session_destroy(good);
        mote_session_destroy(hurt);
        mote_model_close(m);
        free(copy);
    }
}

/* The n-th allocation of a step fails, for every n: the call fails and nothing ran, or prompts that
 * took part were dropped; the others, and all when they try again, give the same bits. */
static void no_memory(void **state)
{
    (void)state;
    int whole = 0, passes = 0;
    for (long at = 1; at < 60; at += FEW ? 4 : 1) {
        mote_model *m = open_config(2);
        float *want = in_one_piece(m, MOTE_PREFILL_BOUNDED, 100);
        mote__pass_shrink(&m->pass);
        mote_session *s[] = { session_open(m, NULL, MOTE_PREFILL_BOUNDED),
                              session_open(m, NULL, MOTE_PREFILL_BOUNDED) };
        for (int i = 0; i < 2; i++)
            push(s[i], ids, 100, 0);
        mote_stepped r[2] = { 0 };
        mote_step_params p = { .max_rows = 80 };
        mote__alloc_fail_at = at;
        int rc = mote_step(m, s, 2, &p, r, NULL);
        long left = mote__alloc_fail_at;
        mote__alloc_fail_at = 0;
        whole += rc != 0;
        passes += r[0].err.code != 0;
        if (rc) {
            assert_int_equal(rc, MOTE_ENOMEM);
            assert_int_equal(mote_session_pending(s[0]), 100);
        } else if (r[0].err.code) {
            assert_int_equal(r[0].err.code, MOTE_ENOMEM);
            assert_int_equal(mote_session_pending(s[0]), 0);
        }
        for (int i = 0; i < 2; i++) {
            if (!s[i]->prompt.pending)
                push(s[i], ids, 100, 0);
            while (s[i]->prompt.pending)
                step(s[i], 0);
            float *got = decoded(s[i], mote_session_logits(s[i], NULL, NULL), ids + 100);
            for (size_t k = 0; k <= DECODED; k++)
                same(want + k * vocab, got + k * vocab, "without memory", (uint64_t)at);
            free(got);
            mote_session_destroy(s[i]);
        }
        free(want);
        mote_model_close(m);
        if (left > 0) /* it was not reached */
            break;
    }
    assert_true(whole + passes > 0);
}

/* Any order of everything. In full prefill the logits depend on the tokens alone. */
struct held { /* what a session must hold */
    mote_session *s;
    int32_t t[N];
    size_t n, pending, announced;
};

static void check_logits(mote_model *m, const struct held *h, uint64_t seed)
{
    mote_session *fresh = session_open(m, NULL, MOTE_PREFILL_FULL);
    same(feed(fresh, h->t, h->n, MOTE_LOGITS_LAST, NULL, NULL),
         mote_session_logits(h->s, NULL, NULL), "any order", seed);
    mote_session_destroy(fresh);
}

static void any_order(void **state)
{
    (void)state;
    enum { SESSIONS = 4, OPS = 200, LIMIT = 90 };
    size_t n_ready = 0, n_marks = 0, n_cut = 0, n_dropped = 0;
    for (uint64_t seed = 0; seed < ORDERS; seed++) {
        rnd r = { 9000 + seed };
        mote_model *m = open_config(seed % CONFIGS);
        struct held h[SESSIONS] = { 0 };
        for (size_t i = 0; i < SESSIONS; i++)
            h[i].s = session_open(m, NULL, MOTE_PREFILL_FULL);
        for (size_t op = 0; op < OPS; op++) {
            struct held *x = &h[rnd_below(&r, SESSIONS)];
            int idle = !x->s->prompt.pending;
            size_t what = rnd_below(&r, 10);
            if (what < 4 && (idle || x->announced) && x->n + x->pending + x->announced < LIMIT) {
                size_t room = idle ? 1 + rnd_below(&r, LIMIT - x->n) : x->announced;
                size_t n = 1 + rnd_below(&r, room);
                for (size_t i = 0; i < n; i++)
                    x->t[x->n + x->pending + i] = (int32_t)rnd_below(&r, vocab);
                push(x->s, x->t + x->n + x->pending, n, room - n);
                x->pending += n;
                x->announced = room - n;
            } else if (what < 8) {
                mote_session *list[SESSIONS];
                mote_stepped stepped[SESSIONS];
                size_t of[SESSIONS], n = 0;
                for (size_t i = 0; i < SESSIONS; i++)
                    if (rnd_below(&r, 3)) {
                        of[n] = i;
                        list[n++] = h[i].s;
                    }
                mote_step_params p = { .max_rows = 1 + rnd_below(&r, 50) };
                assert_int_equal(mote_step(m, list, n, &p, stepped, NULL), 0);
                for (size_t i = 0; i < n; i++) {
                    assert_int_equal(stepped[i].err.code, 0);
                    if (!stepped[i].ready)
                        continue;
                    struct held *y = &h[of[i]];
                    assert_int_equal(y->announced, 0);
                    y->n += y->pending;
                    y->pending = 0;
                    check_logits(m, y, seed);
                    n_ready++;
                    if (y->s->live && rnd_below(&r, 2)) {
                        assert_int_equal(mote_session_mark(y->s, NULL), 0);
                        n_marks++;
                    }
                }
            } else if (what == 8 && rnd_below(&r, 2)) {
                n_dropped += !idle;
                mote_session_drop(x->s);
                x->pending = x->announced = 0;
            } else if (what == 8 && idle && x->n) {
                mote_truncated t;
                assert_int_equal(mote_session_truncate(x->s, rnd_below(&r, x->n + 1),
                                                       MOTE_REPLAY_EXACT, &t, NULL),
                                 0);
                x->n = t.length;
                n_cut++;
            } else {
                struct held *y = &h[rnd_below(&r, SESSIONS)];
                if (y == x)
                    continue;
                mote_session *copy;
                assert_int_equal(mote_session_fork(&copy, x->s, NULL), 0);
                assert_int_equal(copy->n_marks, x->s->n_marks);
                mote_session_destroy(y->s);
                *y = *x;
                y->s = copy;
            }
            for (size_t i = 0; i < SESSIONS; i++) {
                assert_int_equal(mote_session_length(h[i].s), h[i].n);
                assert_int_equal(mote_session_pending(h[i].s), h[i].pending);
                assert_memory_equal(mote_session_tokens(h[i].s), h[i].t, h[i].n * sizeof(int32_t));
            }
        }
        for (size_t i = 0; i < SESSIONS; i++)
            mote_session_destroy(h[i].s);
        mote_model_close(m);
    }
    printf("  %zu prompts finished, %zu marks, %zu cuts, %zu dropped\n", n_ready, n_marks, n_cut,
           n_dropped);
    assert_true(FEW || n_ready > 30);
    assert_true(FEW || (n_marks > 5 && n_cut > 3 && n_dropped > 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces),        cmocka_unit_test(decoding_beside_a_prompt),
        cmocka_unit_test(prompts_share), cmocka_unit_test(refused),
        cmocka_unit_test(not_finite),    cmocka_unit_test(no_memory),
        cmocka_unit_test(any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
