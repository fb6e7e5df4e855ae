/* Teacher-forced loss of one window of tokens, and its distance to a base format: both sessions
 * advance chunk by chunk, so that only a chunk's logits exist at a time. */
#include <math.h>
#include <string.h>

#include "engine/engine.h"
#include "base/clock.h"

static double log_sum_exp(const float *x, size_t n, int32_t *best)
{
    size_t top = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[top])
            top = i;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)x[top]);
    *best = (int32_t)top;
    return log(sum) + (double)x[top];
}

/* KL(base || x) of two rows of logits */
static double divergence(const float *base, double base_lse, const float *x, double lse, size_t n)
{
    double kl = 0;
    for (size_t i = 0; i < n; i++) {
        double lp = (double)base[i] - base_lse;
        kl += exp(lp) * (lp - ((double)x[i] - lse));
    }
    return kl;
}

struct rows {
    const float *x, *y;
    size_t vocab;
    const int32_t *targets;
    mote_score *scores;
};

static void score_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    const struct rows *s = ctx;
    for (size_t r = begin; r < end; r++) {
        const float *x = s->x + r * s->vocab, *y = s->y ? s->y + r * s->vocab : NULL;
        int32_t best, base_best;
        double lse = log_sum_exp(x, s->vocab, &best);
        mote_score score = { .loss = lse - (double)x[s->targets[r]],
                             .kl = (double)NAN,
                             .best = best };
        if (y) {
            double base_lse = log_sum_exp(y, s->vocab, &base_best);
            score.kl = divergence(y, base_lse, x, lse, s->vocab);
            score.same_top1 = best == base_best;
        }
        s->scores[r] = score;
    }
}

void mote_score_rows(mote_model *m, const float *logits, const float *base, size_t n_rows,
                     const int32_t *targets, mote_score *scores)
{
    struct rows s = { logits, base, m->net.config.vocab_size, targets, scores };
    mote__threads_for(m->net.threads, n_rows, 1, score_rows, &s);
}

int mote_eval_window(mote_model *m, const int32_t *ids, size_t n_ids, const char *kv,
                     const char *base_kv, mote_run_progress progress, void *progress_ctx,
                     mote_eval_result *result, mote_err *err)
{
    enum { CHUNK = 256 };
    mote_score scores[CHUNK];
    size_t agree = 0;
    memset(result, 0, sizeof *result);
    if (n_ids < 2)
        return mote__fail(err, MOTE_EINVAL, "a window of %zu tokens predicts nothing", n_ids);
    mote_session_params params = { .kv = kv, .prefill = MOTE_PREFILL_FULL },
                        base_params = { .kv = base_kv, .prefill = MOTE_PREFILL_FULL };
    mote_session *s = NULL, *base = NULL;
    int rc = mote_session_create(&s, m, &params, err);
    if (!rc && base_kv)
        rc = mote_session_create(&base, m, &base_params, err);
    double loss = 0, kl = 0, seconds = 0;
    for (size_t at = 0; at < n_ids && !rc; at += CHUNK) {
        size_t n = n_ids - at < CHUNK ? n_ids - at : CHUNK, rows, first;
        double t0 = mote__clock_s();
        mote_feed f = { s, ids + at, n, MOTE_LOGITS_ALL },
                  b = { base, ids + at, n, MOTE_LOGITS_ALL };
        if ((rc = mote_run(m, &f, 1, NULL, NULL, err)))
            break;
        seconds += mote__clock_s() - t0;
        if (base && (rc = mote_run(m, &b, 1, NULL, NULL, err)))
            break;
        const float *x = mote_session_logits(s, &rows, &first),
                    *y = base ? mote_session_logits(base, NULL, NULL) : NULL;
        rows = at + rows < n_ids ? rows : rows - 1; /* the last row predicts nothing */
        mote_score_rows(m, x, y, rows, ids + at + 1, scores);
        for (size_t r = 0; r < rows; r++) {
            loss += scores[r].loss;
            if (y) {
                kl += scores[r].kl;
                agree += scores[r].same_top1;
            }
        }
        mote_memory mem;
        mote_session_get_memory(s, &mem);
        size_t held = mem.total + atomic_load(&m->meter.bytes[MOTE_MEM_SCRATCH]);
        result->peak_bytes = held > result->peak_bytes ? held : result->peak_bytes;
        if (progress && progress(progress_ctx, at + n, n_ids))
            rc = mote__fail(err, MOTE_ECANCELED, "cancelled after %zu of %zu tokens", at + n,
                            n_ids);
    }
    if (!rc) {
        size_t n = n_ids - 1;
        result->n_predicted = n;
        result->mean_loss = loss / (double)n;
        result->perplexity = exp(result->mean_loss);
        result->kl = base ? kl / (double)n : (double)NAN;
        result->top1_agreement = base ? (double)agree / (double)n : (double)NAN;
        result->kv_bytes_per_token = mote_session_kv_bytes_per_token(s, NULL);
        result->prefill_tokens_per_s = (double)n_ids / seconds;
    }
    mote_session_destroy(base);
    mote_session_destroy(s);
    return rc;
}
