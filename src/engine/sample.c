/* Sampling: temperature, then top-k, top-p and min-p on the sorted probabilities, then one draw
 * from a seeded generator. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

typedef struct candidate {
    float logit;
    int32_t id;
    double p;
} candidate;

struct mote_sampler {
    mote_sample_params params;
    uint64_t state[4]; /* xoshiro256**, Blackman and Vigna 2018; seeded by splitmix64 */
    candidate *list;
    size_t capacity;
};

static uint64_t splitmix(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static uint64_t rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }

static uint64_t next(uint64_t s[4])
{
    uint64_t result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

int mote_sampler_create(mote_sampler **out, const mote_sample_params *p, mote_err *err)
{
    *out = NULL;
    int rc = MOTE_CHECK_RESERVED(p, "mote_sample_params", err);
    if (rc)
        return rc;
    if (!(p->temperature >= 0) || isinf(p->temperature))
        return mote__fail(err, MOTE_EINVAL, "temperature %g: expected 0 or more",
                          (double)p->temperature);
    if (!(p->top_p >= 0 && p->top_p <= 1))
        return mote__fail(err, MOTE_EINVAL, "top_p %g: expected 0 to 1", (double)p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return mote__fail(err, MOTE_EINVAL, "min_p %g: expected 0 to 1", (double)p->min_p);
    if (p->top_k < 0)
        return mote__fail(err, MOTE_EINVAL, "top_k %d: expected 0 or more", p->top_k);
    mote_sampler *s = calloc(1, sizeof *s);
    if (!s)
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    s->params = *p;
    uint64_t seed = p->seed;
    for (int i = 0; i < 4; i++)
        s->state[i] = splitmix(&seed);
    *out = s;
    return 0;
}

void mote_sampler_destroy(mote_sampler *s)
{
    if (!s)
        return;
    free(s->list);
    free(s);
}

/* larger logit first, then the smaller id */
static int by_logit(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int find_best(const float *logits, size_t n, int32_t *best, double *log_sum, mote_err *err)
{
    *best = -1;
    for (size_t i = 0; i < n; i++) {
        if (isnan(logits[i]))
            return mote__fail(err, MOTE_EINVAL, "logit %zu is not a number", i);
        if (*best < 0 || logits[i] > logits[*best])
            *best = (int32_t)i;
    }
    if (n == 0 || isinf(logits[*best]))
        return mote__fail(err, MOTE_EINVAL,
                          "no token can be chosen: the largest logit is not finite");
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)logits[*best]);
    *log_sum = log(sum) + (double)logits[*best];
    return 0;
}

int mote_sampler_next(mote_sampler *s, const float *logits, size_t vocab, int32_t *id,
                      float *logprob, mote_err *err)
{
    double log_sum;
    int rc = find_best(logits, vocab, id, &log_sum, err);
    if (rc)
        return rc;
    const mote_sample_params *p = &s->params;
    if (p->temperature > 0) {
        if (vocab > s->capacity) {
            candidate *list = realloc(s->list, vocab * sizeof *list);
            if (!list)
                return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu candidates", vocab);
            s->list = list;
            s->capacity = vocab;
        }
        float top = logits[*id];
        size_t n = 0;
        for (size_t i = 0; i < vocab; i++) {
            double weight = exp(((double)logits[i] - (double)top) / (double)p->temperature);
            /* min-p and what can never be drawn go before sorting, which keeps the sorted list
             * short */
            if (weight >= (double)p->min_p && weight > 1e-12)
                s->list[n++] = (candidate){ logits[i], (int32_t)i, weight };
        }
        qsort(s->list, n, sizeof *s->list, by_logit);
        if (p->top_k && (size_t)p->top_k < n)
            n = (size_t)p->top_k;
        double sum = 0, kept = 0;
        for (size_t i = 0; i < n; i++)
            sum += s->list[i].p;
        size_t m = 0;
        /* the smallest set that reaches top_p */
        while (m < n && (m == 0 || kept < (double)p->top_p * sum))
            kept += s->list[m++].p;
        double u = (double)(next(s->state) >> 11) * 0x1p-53 * kept;
        size_t i = 0;
        while (i + 1 < m && u >= s->list[i].p)
            u -= s->list[i++].p;
        *id = s->list[i].id;
    }
    if (logprob)
        *logprob = (float)((double)logits[*id] - log_sum);
    return 0;
}

int mote_top_logprobs(const float *logits, size_t vocab, size_t n, int32_t *ids, float *logprobs,
                      mote_err *err)
{
    int32_t best;
    double log_sum;
    int rc = find_best(logits, vocab, &best, &log_sum, err);
    if (rc)
        return rc;
    if (n > vocab)
        return mote__fail(err, MOTE_EINVAL, "%zu logprobs asked of a vocabulary of %zu", n, vocab);
    size_t have = 0; /* insertion into a short sorted list */
    for (size_t i = 0; i < vocab; i++) {
        if (have == n && (n == 0 || !(logits[i] > logits[ids[n - 1]])))
            continue;
        size_t at = have < n ? have++ : n - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = (int32_t)i;
    }
    for (size_t i = 0; i < n; i++)
        logprobs[i] = (float)((double)logits[ids[i]] - log_sum);
    return 0;
}
