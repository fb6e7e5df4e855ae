/* Sampling: what each filter keeps, that draws follow the probabilities, that a seed repeats, and
 * what is refused. */
#include <math.h>

#include "base/err.h"
#include "test.h"

static void count(size_t *hits, size_t vocab, const float *logits, mote_sample_params p, size_t n)
{
    mote_sampler *s;
    mote_err err;
    memset(hits, 0, vocab * sizeof *hits);
    if (mote_sampler_create(&s, &p, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++) {
        int32_t id;
        assert_int_equal(mote_sampler_next(s, logits, vocab, &id, NULL, &err), 0);
        hits[id]++;
    }
    mote_sampler_destroy(s);
}

static void filters(void **state)
{
    (void)state;
    enum { N = 20000 };
    const double p[5] = { 0.4, 0.3, 0.15, 0.1, 0.05 };
    float logits[5];
    for (int i = 0; i < 5; i++)
        logits[i] = (float)log(p[i]);
    size_t hits[5];
    count(hits, 5, logits, (mote_sample_params){ .temperature = 1, .top_p = 1, .seed = 1 }, N);
    for (int i = 0; i < 5; i++)
        assert_true(fabs((double)hits[i] / N - p[i]) < 5 * sqrt(p[i] * (1 - p[i]) / N));
    /* squares them */
    count(hits, 5, logits, (mote_sample_params){ .temperature = 0.5f, .top_p = 1, .seed = 2 }, N);
    assert_true(fabs((double)hits[0] / N - 0.16 / 0.285) < 0.02);
    count(hits, 5, logits,
          (mote_sample_params){ .temperature = 1, .top_p = 1, .top_k = 2, .seed = 3 }, N);
    assert_true(hits[2] + hits[3] + hits[4] == 0 && fabs((double)hits[0] / N - 4.0 / 7) < 0.02);
    /* two reach 0.7 */
    count(hits, 5, logits, (mote_sample_params){ .temperature = 1, .top_p = 0.69f, .seed = 4 }, N);
    assert_true(hits[1] > 0 && hits[2] + hits[3] + hits[4] == 0);
    /* of 0.4: 0.12 */
    count(hits, 5, logits,
          (mote_sample_params){ .temperature = 1, .top_p = 1, .min_p = 0.3f, .seed = 5 }, N);
    assert_true(hits[2] > 0 && hits[3] + hits[4] == 0);
    /* the likeliest alone */
    count(hits, 5, logits, (mote_sample_params){ .temperature = 9, .top_p = 0, .seed = 6 }, 50);
    assert_int_equal(hits[0], 50);
    const float equal[3] = { 1, 1, 1 };
    /* greedy: the smallest id wins a tie */
    count(hits, 3, equal, (mote_sample_params){ .temperature = 0, .top_p = 1 }, 10);
    assert_int_equal(hits[0], 10);
}

static void repeats(void **state)
{
    (void)state;
    float logits[100];
    rnd r = { 8 };
    for (int i = 0; i < 100; i++)
        logits[i] = rnd_unit(&r);
    int32_t first[50], id;
    float lp;
    for (int run = 0; run < 2; run++) {
        mote_sampler *s;
        mote_sample_params p = { .temperature = 1, .top_p = 0.9f, .seed = 99 };
        assert_int_equal(mote_sampler_create(&s, &p, NULL), 0);
        for (int i = 0; i < 50; i++) {
            assert_int_equal(mote_sampler_next(s, logits, 100, &id, &lp, NULL), 0);
            if (run)
                assert_int_equal(first[i], id);
            first[i] = id;
        }
        mote_sampler_destroy(s);
    }
    double sum = 0;
    for (int i = 0; i < 100; i++)
        sum += exp((double)logits[i]);
    assert_true(fabs((double)lp - ((double)logits[id] - log(sum))) < 1e-5);
    int32_t ids[100];
    float lps[100];
    assert_int_equal(mote_top_logprobs(logits, 100, 100, ids, lps, NULL), 0);
    for (int i = 1; i < 100; i++)
        assert_true(lps[i - 1] >= lps[i] && ids[i - 1] != ids[i]);
    assert_int_equal(mote_top_logprobs(logits, 100, 101, ids, lps, NULL), MOTE_EINVAL);
}

static void refusals(void **state)
{
    (void)state;
    static const mote_sample_params bad[] = {
        { .temperature = -1, .top_p = 1 },
        { .temperature = NAN, .top_p = 1 },
        { .temperature = INFINITY, .top_p = 1 },
        { .temperature = 1, .top_p = -0.1f },
        { .temperature = 1, .top_p = 1.5f },
        { .temperature = 1, .top_p = 1, .min_p = -0.1f },
        { .temperature = 1, .top_p = 1, .top_k = -1 },
    };
    mote_sampler *s;
    mote_err err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(mote_sampler_create(&s, &bad[i], &err), MOTE_EINVAL);
    const mote_sample_params good = { .temperature = 1, .top_p = 1 };
    assert_int_equal(mote_sampler_create(&s, &good, &err), 0);
    int32_t id;
    const float nan_logit[2] = { 1, NAN }, none[2] = { -INFINITY, -INFINITY };
    assert_int_equal(mote_sampler_next(s, nan_logit, 2, &id, NULL, &err), MOTE_EINVAL);
    assert_int_equal(mote_sampler_next(s, none, 2, &id, NULL, &err), MOTE_EINVAL);
    assert_int_equal(mote_sampler_next(s, none, 0, &id, NULL, &err), MOTE_EINVAL);
    mote_sampler_destroy(s);
    mote_sampler_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(filters), cmocka_unit_test(repeats),
                                        cmocka_unit_test(refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
