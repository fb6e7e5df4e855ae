/* Not a test: prints what bounded encoder replay costs on the bundled model, and what a stored prompt saves.
 *   build/tests/replay-quality models/nano [DIR]        (from the source root; DIR: where the store of the last part goes)
 * 1. Loss of the suffix after a hit at five cuts, against a cold run.
 * 2. Ten turns that each start from the store: every turn's replay stands on the approximations of the ones before.
 * 3. Time to the first token of a fully stored prompt against a cold run. */
#include <time.h>

#include "golden.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double nll(const float *row, size_t n, int32_t id)
{
    double top = (double)row[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        top = fmax(top, (double)row[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)row[i] - top);
    return log(sum) + top - (double)row[id];
}

/* mean loss of ids[from .. to), predicted by a session that holds [0, from); the session goes on with them */
static double loss_of(mote_session *s, const int32_t *ids, size_t from, size_t to, size_t vocab)
{
    double sum = 0;
    for (size_t at = from; at < to;) {
        size_t n = to - at < 256 ? to - at : 256, rows, first;
        const float *x = feed(s, ids + at, n, MOTE_LOGITS_ALL, &rows, &first);
        for (size_t r = 0; r < rows; r++)
            if (first + r + 1 > from && first + r + 1 < to)
                sum += nll(x + r * vocab, vocab, ids[first + r + 1]);
        at += n;
    }
    return sum / (double)(to - from - 1);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return fprintf(stderr, "usage: replay-quality MODEL [DIR]\n"), 2;
    mote_model *m = model_open(argv[1], MOTE_MATH_FP32, 2);
    size_t vocab = m->net.config.vocab_size, n_ids;
    char path[4200];
    snprintf(path, sizeof path, "%s/heldout.txt", argv[1]);
    mote__map text;
    int32_t *ids;
    mote_err err;
    if (mote__map_open(&text, path, &err) || mote_encode(m, (const char *)text.data, text.size, MOTE_ENCODE_BOS, &ids, &n_ids, &err))
        return fprintf(stderr, "%s\n", err.message), 1;

    printf("1. mean loss of the 1,024 tokens after a cut, decoder full; window %zu, %zu encoder layers\n", m->net.config.window,
           m->net.config.decoder_start);
    printf("%8s %10s %10s %10s\n", "cut", "cold", "bounded", "difference");
    static const size_t cuts[] = { 256, 1024, 4096, 8192, 16384 };
    double total = 0;
    for (size_t i = 0; i < 5; i++) {
        double loss[2];
        for (int bounded = 0; bounded < 2; bounded++) {
            mote_session *s = session_open(m, NULL, MOTE_PREFILL_FULL);
            feed(s, ids, cuts[i], MOTE_LOGITS_NONE, NULL, NULL);
            if (bounded)
                mote_session_forget_windows(s, MOTE_REPLAY_BOUNDED, NULL);
            loss[bounded] = loss_of(s, ids, cuts[i], cuts[i] + 1024, vocab);
            mote_session_destroy(s);
        }
        total += loss[1] - loss[0];
        printf("%8zu %10.5f %10.5f %+10.5f\n", cuts[i], loss[0], loss[1], loss[1] - loss[0]);
    }
    printf("    mean difference %+.5f\n\n", total / 5);

    printf("2. ten turns of 512 tokens, each starting with a hit (windows forgotten, bounded replay)\n%6s %10s %10s %10s\n", "turn", "cold", "hits",
           "difference");
    mote_session *cold = session_open(m, NULL, MOTE_PREFILL_FULL), *hit = session_open(m, NULL, MOTE_PREFILL_FULL);
    feed(cold, ids, 512, MOTE_LOGITS_NONE, NULL, NULL);
    feed(hit, ids, 512, MOTE_LOGITS_NONE, NULL, NULL);
    for (size_t turn = 1; turn <= 10; turn++) {
        size_t from = 512 * turn, to = from + 512;
        mote_session_forget_windows(hit, MOTE_REPLAY_BOUNDED, NULL);
        double a = loss_of(cold, ids, from, to, vocab), b = loss_of(hit, ids, from, to, vocab);
        printf("%6zu %10.5f %10.5f %+10.5f\n", turn, a, b, b - a);
    }
    mote_session_destroy(cold);
    mote_session_destroy(hit);

    if (argc > 2) {
        enum { N = 60000 };
        int32_t *many = malloc(N * sizeof *many);
        for (size_t i = 0; i < N; i++)
            many[i] = ids[i % n_ids];
        mote_store *store;
        if (mote_store_open(&store, argv[2], NULL, &err))
            return fprintf(stderr, "%s\n", err.message), 1;
        mote_session *s = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
        mote_session_use_store(s, store, NULL, &err);
        double t0 = now();
        feed(s, many, N, MOTE_LOGITS_LAST, NULL, NULL);
        double cold_s = now() - t0;
        mote_session_destroy(s);
        mote_store_close(store);
        printf("\n3. a prompt of %d tokens: cold %.2f s to the first logits\n", N, cold_s);
        for (int run = 0; run < 5; run++) {
            if (mote_store_open(&store, argv[2], NULL, &err))
                return fprintf(stderr, "%s\n", err.message), 1;
            s = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
            mote_session_use_store(s, store, NULL, &err);
            mote_restored r;
            t0 = now();
            mote_session_restore(s, many, N, MOTE_REPLAY_BOUNDED, &r, &err);
            double read_s = now() - t0;
            feed(s, many + r.reused_tokens, N - r.reused_tokens, MOTE_LOGITS_LAST, NULL, NULL);
            double all_s = now() - t0;
            printf("   stored: %zu tokens reused, %zu run again, %zu computed; read %.1f ms, all %.1f ms: %.0f times faster\n", r.reused_tokens,
                   r.replay_tokens, N - r.reused_tokens, 1e3 * read_s, 1e3 * all_s, cold_s / all_s);
            mote_session_destroy(s);
            mote_store_close(store);
        }
        free(many);
    }
    mote_free(ids);
    mote__map_close(&text);
    mote_model_close(m);
    return 0;
}
