/* Experts in slots: every bit that a layer sees is the file's, whatever the number of slots, the
 * order of reads, guesses and failures; every expert that is wanted comes once; logits of whole
 * passes equal those of mapped weights. */
#include "model/streamed.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "golden.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUNDS = 40 };
#else
enum { ROUNDS = 200 };
#endif

static mote_model *open_mapped(const char *path)
{
    mote_err err;
    mote_model *m;
    mote_model_params p = { .n_threads = 2, .weights = MOTE_WEIGHTS_MAP, .no_tokenizer = 1 };
    if (mote_model_open(&m, path, &p, &err))
        fail_msg("%s", err.message);
    return m;
}

/* ---- a reader that fails, reads short and is interrupted ---- */

static struct faults {
    pthread_mutex_t lock; /* reading threads come here side by side */
    rnd r;
    size_t n_calls, fail_at; /* calls; that one and all later ones fail (0: none) */
    int error, once;
    int unsteady;
} faults;

/* From the at-th read on (0: none) reads fail. */
static void fail_from(struct faults *f, size_t at)
{
    pthread_mutex_lock(&f->lock);
    f->fail_at = at;
    pthread_mutex_unlock(&f->lock);
}

enum what { READ, FAIL, INTERRUPT, SHORT };

/* What the next read does; in *n_bytes how much of `len` a short one brings. */
static enum what next_read(struct faults *f, size_t len, size_t *n_bytes)
{
    pthread_mutex_lock(&f->lock);
    size_t call = ++f->n_calls;
    enum what w = READ;
    if (f->fail_at && (f->once ? call == f->fail_at : call >= f->fail_at))
        w = FAIL;
    else if (f->unsteady && rnd_below(&f->r, 4) == 0)
        w = INTERRUPT;
    else if (f->unsteady && rnd_below(&f->r, 2))
        w = SHORT;
    *n_bytes = w == SHORT ? 1 + rnd_below(&f->r, len) : len;
    pthread_mutex_unlock(&f->lock);
    return w;
}

static ssize_t faulty(void *ctx, int fd, const struct iovec *iov, int n, off_t offset)
{
    struct faults *f = ctx;
    struct iovec part = iov[0];
    switch (next_read(f, part.iov_len, &part.iov_len)) {
    case FAIL: errno = f->error; return f->error ? -1 : 0;
    case INTERRUPT: errno = EINTR; return -1;
    case SHORT: return preadv(fd, &part, 1, offset);
    case READ: break;
    }
    return preadv(fd, iov, n, offset);
}

/* ---- experts against the mapped ones ---- */

static void same_matrix(const mote__mat *got, const mote__mat *want)
{
    static const size_t bits[MOTE_W_KINDS] = { 32, 16, 8, 4, 4 };
    assert_int_equal(got->kind, want->kind);
    assert_int_equal(got->n_out, want->n_out);
    assert_int_equal(got->n_in, want->n_in);
    assert_ptr_not_equal(got->data, want->data);
    assert_memory_equal(got->data, want->data, want->n_out * want->n_in * bits[want->kind] / 8);
    assert_int_equal(!got->scale, !want->scale);
    if (want->scale)
        assert_memory_equal(got->scale, want->scale,
                            (want->kind == MOTE_W_FP8 ? (want->n_out + 31) / 32 : want->n_out) *
                                want->scale_stride);
}

/* A layer wants random experts and takes some of them at a time; all come once. Returns what `next`
 * said last. */
static long use_layer(mote__experts *e, const mote__weights *w, rnd *r, size_t layer)
{
    uint32_t ids[64];
    int32_t rows[64];
    mote__ready_expert ready[64];
    size_t n = 0, left;
    uint64_t seen = 0;
    size_t likely = 1 + rnd_below(r, 3);
    for (uint32_t i = 0; i < w->n_experts; i++)
        if (rnd_below(r, 4) < likely) {
            rows[n] = (int32_t)i;
            ids[n++] = i;
        }
    if (!n)
        return 0;
    int in_order = (int)rnd_below(r, 2);
    e->ops->routed(e, layer, rows, n, 1, (int)rnd_below(r, 2));
    assert_int_equal(e->ops->want(e, layer, ids, n, in_order), 0);
    if (rnd_below(r, 2)) {
        uint32_t guesses[4];
        for (size_t i = 0; i < 4; i++)
            guesses[i] = (uint32_t)rnd_below(r, w->n_experts);
        e->ops->guess(e, rnd_below(r, w->n_layers), guesses, 4);
    }
    for (left = n; left;) {
        long k = e->ops->next(e, ready, 1 + rnd_below(r, n));
        if (k < 0) {
            e->ops->drop(e);
            return k;
        }
        assert_true(k > 0 && (size_t)k <= left);
        for (long i = 0; i < k; i++) {
            uint32_t id = ready[i].id;
            size_t at = 0;
            while (at < n && ids[at] != id)
                at++;
            assert_true(at < n && !(seen >> id & 1));
            assert_true(!in_order || at == n - left + (size_t)i);
            seen |= (uint64_t)1 << id;
            const mote__expert *want = &w->layers[layer].experts[id], *got = ready[i].weights;
            same_matrix(&got->w1, &want->w1);
            same_matrix(&got->w2, &want->w2);
            same_matrix(&got->w3, &want->w3);
        }
        e->ops->release(e, ready, (size_t)k);
        left -= (size_t)k;
    }
    return 0;
}

static mote__streamed *open_slots(mote_model *m, size_t n_slots, mote__reads_engine engine,
                                  int with_faults)
{
    mote_err err;
    mote__streamed *s;
    size_t slot_bytes, n;
    assert_int_equal(mote__streamed_slot_bytes(&m->net.weights, &slot_bytes, &n), 0);
    mote__streamed_params p = { .budget_bytes = n_slots * slot_bytes,
                                .n_per_token = m->net.config.n_experts_per_token,
                                .seed = n_slots,
                                .reads = { .engine = engine } };
    if (with_faults) {
        p.reads.preadv = faulty;
        p.reads.preadv_ctx = &faults;
    }
    if (mote__streamed_open(&s, &m->net.weights, &p, &m->meter, &err))
        fail_msg("%s", err.message);
    return s;
}

static void every_bit(void **state)
{
    (void)state;
    static const mote__reads_engine engines[] = { MOTE_READS_RING, MOTE_READS_THREADS,
                                                  MOTE_READS_PLAIN };
    const char *models[] = { "checkpoints/tiny-a", "checkpoints/tiny-b", "checkpoints/tiny-c" };
    uint64_t hits = 0, guessed = 0, guesses = 0;
    for (size_t i = 0; i < 3; i++) {
        mote_model *m = open_mapped(golden_path(models[i]));
        const mote__weights *w = &m->net.weights;
        assert_true(w->n_experts <= 64);
        size_t all = w->n_layers * w->n_experts;
        for (size_t k = 0; k < 9; k++) {
            rnd r = { 100 * i + k + 1 };
            size_t n_slots = k < 3 ? 8 : 8 + rnd_below(&r, all);
            faults = (struct faults){ .lock = PTHREAD_MUTEX_INITIALIZER,
                                      .r = { k + 1 },
                                      .unsteady = k % 2 };
            mote__streamed *s = open_slots(m, n_slots, engines[k % 3], k >= 6);
            mote__streamed_stats st;
            for (size_t round = 0; round < ROUNDS; round++)
                assert_int_equal(use_layer(mote__streamed_experts(s), w, &r, round % w->n_layers),
                                 0);
            mote__streamed_get_stats(s, &st);
            assert_int_equal(st.n_wanted, st.n_hits + st.n_guessed + st.n_read);
            assert_true(st.n_slots <= all && st.n_slots >= 8);
            if (st.n_slots == all) /* nothing is read twice */
                assert_true(st.n_read + st.n_guesses <= all);
            else
                assert_true(st.n_read > 0);
            hits += st.n_hits;
            guessed += st.n_guessed;
            guesses += st.n_guesses;
            mote__streamed_close(s);
        }
        mote_model_close(m);
    }
    assert_true(hits > 1000 && guesses > 100 && guessed > 10);
}

/* A read that fails once is tried again; one that fails for good fails its layer, names the file
 * and the place, and leaves all else as it was. */
static void failures(void **state)
{
    (void)state;
    mote_model *m = open_mapped(golden_path("checkpoints/tiny-b"));
    const mote__weights *w = &m->net.weights;
    for (size_t at = 1; at < 40; at++) {
        for (int once = 0; once < 2; once++) {
            rnd r = { at };
            faults = (struct faults){ .lock = PTHREAD_MUTEX_INITIALIZER,
                                      .error = at % 2 ? EIO : 0,
                                      .once = once };
            mote__streamed *s = open_slots(m, 9, MOTE_READS_PLAIN, 1);
            mote__experts *e = mote__streamed_experts(s);
            fail_from(&faults, at);
            long rc = 0;
            for (size_t round = 0; round < 30 && !rc; round++)
                rc = use_layer(e, w, &r, round % w->n_layers);
            if (faults.error && once) { /* past the page cache, then through it, then again */
                assert_int_equal(rc, 0);
            } else if (!once) {
                assert_int_equal(rc, faults.error ? MOTE_EIO : MOTE_EFORMAT);
                assert_non_null(strstr(mote__streamed_fault(s)->message, ".safetensors: "));
                assert_non_null(strstr(mote__streamed_fault(s)->message, " of layer "));
            }
            fail_from(&faults, 0);
            for (size_t round = 0; round < 30; round++)
                assert_int_equal(use_layer(e, w, &r, round % w->n_layers), 0);
            mote__streamed_close(s);
        }
    }
    mote_model_close(m);
}

/* ---- whole passes ---- */

static void logits(void **state)
{
    (void)state;
    enum { N = 90, MORE = 12 };
    const char *models[] = { "checkpoints/tiny-a", "checkpoints/tiny-b", "checkpoints/tiny-c" };
    for (size_t i = 0; i < 4; i++) {
        mote_model *m = open_mapped(i == 3 ? source_path("models/nano") : golden_path(models[i]));
        size_t vocab = m->net.config.vocab_size, row = vocab * sizeof(float);
        int32_t ids[N + MORE];
        rnd r = { i + 1 };
        for (size_t k = 0; k < N + MORE; k++)
            ids[k] = (int32_t)rnd_below(&r, vocab);
        float *want = malloc((MORE + 1) * row);
        for (size_t turn = 0; turn < 4; turn++) {
            mote__streamed *s = turn ? open_slots(m, 8 + 9 * (turn - 1), MOTE_READS_AUTO, turn == 3)
                                     : NULL;
            faults = (struct faults){ .lock = PTHREAD_MUTEX_INITIALIZER,
                                      .r = { 5 },
                                      .unsteady = 1 };
            if (s)
                m->net.experts = mote__streamed_experts(s);
            mote_session *session = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
            for (size_t k = 0; k <= MORE; k++) {
                const float *got = feed(session, k ? ids + N + k - 1 : ids, k ? 1 : N,
                                        MOTE_LOGITS_LAST, NULL, NULL);
                if (!turn)
                    memcpy(want + k * vocab, got, row);
                else
                    assert_memory_equal(got, want + k * vocab, row);
            }
            mote_session_destroy(session);
            mote__streamed_close(s);
            m->net.experts = &m->net.resident.base;
        }
        free(want);
        mote_model_close(m);
    }
}

static void too_few(void **state)
{
    (void)state;
    mote_model *m = open_mapped(golden_path("checkpoints/tiny-b"));
    mote__streamed *s = (void *)m;
    mote_err err;
    mote__streamed_params p = { .budget_bytes = 4096 };
    assert_int_equal(mote__streamed_open(&s, &m->net.weights, &p, &m->meter, &err), MOTE_EINVAL);
    assert_null(s);
    assert_non_null(strstr(err.message, "4096 bytes"));
    mote_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit),
        cmocka_unit_test(failures),
        cmocka_unit_test(logits),
        cmocka_unit_test(too_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
