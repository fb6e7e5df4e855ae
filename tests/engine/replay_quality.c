/* Not a test: prints what bounded encoder replay costs on the bundled model.
 *   build/tests/engine/replay-quality models/nano       (from the source root)
 * 1. Loss of the suffix after a hit at five cuts, against a cold run.
 * 2. Ten turns that each start from the store: every turn's replay stands on the approximations of
 * the ones before. */
#include "golden.h"

static double nll(const float *row, size_t n, int32_t id)
{
    double top = (double)row[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        top = fmax(top, (double)row[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)row[i] - top);
    return log(sum) + top - (double)row[id];
}

/* mean loss of ids[from .. to), predicted by a session that holds [0, from); the session goes on
 * with them */
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
    if (argc != 2)
        return fprintf(stderr, "usage: replay-quality MODEL\n"), 2;
    mote_model *m = model_open(argv[1], MOTE_MATH_FP32, 2);
    size_t vocab = m->net.config.vocab_size, n_ids;
    char path[4200];
    snprintf(path, sizeof path, "%s/heldout.txt", argv[1]);
    mote__map text;
    int32_t *ids;
    mote_err err;
    if (mote__map_open(&text, path, &err) ||
        mote_encode(m, (const char *)text.data, text.size, MOTE_ENCODE_BOS, &ids, &n_ids, &err))
        return fprintf(stderr, "%s\n", err.message), 1;

    printf("1. mean loss of the 1,024 tokens after a cut, decoder full; window %zu, %zu encoder "
           "layers\n",
           m->net.config.window, m->net.config.decoder_start);
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

    printf("2. ten turns of 512 tokens, each starting with a hit (windows forgotten, bounded "
           "replay)\n%6s %10s %10s %10s\n",
           "turn", "cold", "hits", "difference");
    mote_session *cold = session_open(m, NULL, MOTE_PREFILL_FULL),
                 *hit = session_open(m, NULL, MOTE_PREFILL_FULL);
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
    mote_free(ids);
    mote__map_close(&text);
    mote_model_close(m);
    return 0;
}
