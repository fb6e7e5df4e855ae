/* Attention of a query row: the same bits from every variant, and agreement with a softmax with a
 * sink in double. */
#include "kern/guard.h"

#include "kern/attend.h"

typedef struct rows {
    uint8_t *codes, *scales;
    mote__kv_ref *ref;
    float *value;
    size_t n;
    const mote__kvfmt *f;
} rows;

static rows make_rows(rnd *r, guard *g, size_t n, size_t dim, mote__kvfmt_id id, int style)
{
    const mote__kvfmt *f = &mote__kvfmts[id];
    size_t cb = mote__kvfmt_code_bytes(f, dim), sb = mote__kvfmt_scale_bytes(f, dim);
    rows k = { guard_alloc(g, n * cb),
               guard_alloc(g, n * sb),
               malloc((n + 1) * sizeof *k.ref),
               malloc((n * dim + 1) * sizeof *k.value),
               n,
               f };
    fill_floats(r, k.value, n * dim, style);
    for (size_t i = 0; i < n; i++) {
        f->encode(k.codes + i * cb, k.scales + i * sb, k.value + i * dim, dim);
        f->decode(k.value + i * dim, k.codes + i * cb, k.scales + i * sb, dim);
        k.ref[i] = (mote__kv_ref){ k.codes + i * cb, k.scales + i * sb };
    }
    return k;
}

static void free_rows(rows *k) { free(k->ref), free(k->value); }

/* out [dim] of one head in double; *spread: sum of p |v| / denominator, per channel, for the bound
 */
static void plain(double *out, double *spread, const mote__attend_args *a, size_t h, const rows *w,
                  const rows *m)
{
    size_t n = w->n + m->n, dim = a->dim;
    double *s = malloc((n + 1) * sizeof *s), top = -1e30, total = 0;
    for (size_t j = 0; j < n; j++) {
        const float *v = j < w->n ? w->value + j * dim : m->value + (j - w->n) * dim;
        s[j] = 0;
        for (size_t d = 0; d < dim; d++)
            s[j] += (double)a->q[h * dim + d] * (double)v[d];
        s[j] *= (double)a->scale;
        top = fmax(top, s[j]);
    }
    memset(out, 0, dim * sizeof *out);
    memset(spread, 0, dim * sizeof *spread);
    for (size_t j = 0; j < n; j++) {
        const float *v = j < w->n ? w->value + j * dim : m->value + (j - w->n) * dim;
        double p = exp(s[j] - top);
        total += p;
        for (size_t d = 0; d < dim; d++) {
            out[d] += p * (double)v[d];
            spread[d] += p * fabs((double)v[d]);
        }
    }
    total += exp((double)a->sink[h] - top);
    for (size_t d = 0; d < dim; d++) {
        out[d] /= total;
        spread[d] /= total;
    }
    free(s);
}

static void test_attend(void **state)
{
    static const size_t counts[] = { 0, 1, 2, 63, 64, 65, 127, 128, 129, 200 };
    for (uint64_t seed = 1; seed <= 150; seed++) {
        rnd r = { seed * 104729 };
        rnd_u64(&r);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        size_t dim = 128 * (1 + rnd_below(&r, 4)), heads = 1 + rnd_below(&r, 9);
        int style = rnd_below(&r, 3) ? NORMAL : (int)rnd_below(&r, FLOAT_STYLES);
        mote__kvfmt_id wf = (mote__kvfmt_id)rnd_below(&r, MOTE_KV_FORMATS),
                       mf = (mote__kvfmt_id)rnd_below(&r, MOTE_KV_FORMATS);
        rows w = make_rows(&r, &g, counts[rnd_below(&r, 9)], dim, wf, style);
        rows m = make_rows(&r, &g, counts[rnd_below(&r, 10)], dim, mf, style);
        float *q = guard_floats(&g, heads * dim), *sink = guard_floats(&g, heads),
              *want = guard_floats(&g, heads * dim);
        float *got = guard_floats(&g, heads * dim),
              *scratch = aligned_alloc(64, mote__attend_scratch(heads, dim) * 4 + 64);
        fill_floats(&r, q, heads * dim, style);
        fill_floats(&r, sink, heads, NORMAL);
        mote__attend_args a = { .q = q,
                                .n_heads = heads,
                                .dim = dim,
                                .window = w.ref,
                                .n_window = w.n,
                                .window_fmt = wf,
                                .main = m.ref,
                                .n_main = m.n,
                                .main_fmt = mf,
                                .sink = sink,
                                .scale = 1 / sqrtf((float)dim),
                                .published = (int)rnd_below(&r, 3) == 0 };
        a.out = want;
        mote__attend(mote__kern_at(0), &a, scratch);
        a.out = got;
        for (int level = 1; mote__kern_at(level); level++) {
            mote__attend(mote__kern_at(level), &a, scratch);
            check_same_f32(want, got, heads * dim,
                           "attend/%s seed=%llu heads=%zu dim=%zu window=%zu main=%zu style=%s",
                           mote__kern_at(level)->name, (unsigned long long)seed, heads, dim, w.n,
                           m.n, style_name[style]);
        }
        if (style == NORMAL) {
            double out[512], spread[512];
            for (size_t h = 0; h < heads; h++) {
                plain(out, spread, &a, h, &w, &m);
                for (size_t d = 0; d < dim; d++) {
                    /* A score is a sum of dim products of size |q||v| scale < 12 here; its error
                     * changes p by the same relative amount. Add n roundings of the weighted sum,
                     * and 2^-8 for BF16 probabilities. */
                    double bound = spread[d] *
                                       ((double)FLT_EPSILON *
                                            (12.0 * (double)(dim / 16 + 8) + (double)(w.n + m.n)) +
                                        (a.published ? 0x1p-8 : 0)) +
                                   1e-30;
                    if (!(fabs(out[d] - (double)want[h * dim + d]) <= bound))
                        fail_msg("attend/scalar seed=%llu [%zu,%zu]: %a, want %a within %a",
                                 (unsigned long long)seed, h, d, (double)want[h * dim + d], out[d],
                                 bound);
                }
            }
        }
        /* the previous contents of the scratch do not matter */
        memset(scratch, 0xff, mote__attend_scratch(heads, dim) * 4);
        mote__attend(mote__kern(), &a, scratch);
        check_same_f32(want, got, heads * dim, "attend with a dirty scratch seed=%llu",
                       (unsigned long long)seed);
        free(scratch);
        free_rows(&w), free_rows(&m);
        guard_free(&g);
    }
}

/* no entries: zeros; a sink of -inf: plain softmax; a sink of +inf: zeros */
static void test_sink(void **state)
{
    rnd r = { 4 };
    guard g = { .at_end = 1 };
    enum { DIM = 128 };
    rows w = make_rows(&r, &g, 1, DIM, MOTE_KV_F32, NORMAL);
    float q[DIM], out[DIM], sink = 0,
                            *scratch = aligned_alloc(64, mote__attend_scratch(1, DIM) * 4);
    fill_floats(&r, q, DIM, NORMAL);
    mote__attend_args a = { .q = q,
                            .n_heads = 1,
                            .dim = DIM,
                            .window_fmt = MOTE_KV_F32,
                            .main_fmt = MOTE_KV_FP4,
                            .sink = &sink,
                            .scale = 1,
                            .out = out };
    mote__attend(mote__kern(), &a, scratch);
    for (int d = 0; d < DIM; d++)
        assert_true(out[d] == 0);
    a.window = w.ref;
    a.n_window = 1;
    sink = -INFINITY;
    mote__attend(mote__kern(), &a, scratch);
    assert_memory_equal(out, w.value, sizeof out); /* one entry, weight 1 */
    sink = 1e30f;
    mote__attend(mote__kern(), &a, scratch);
    for (int d = 0; d < DIM; d++)
        assert_true(out[d] == 0);
    free(scratch);
    free_rows(&w);
    guard_free(&g);
}

/* Published math: probabilities are rounded to BF16 in the product with the values but not in the
 * denominator. Channel 1 depends on the second entry only, whose probability is exp(-0.7) times the
 * first's. */
static void test_published(void **state)
{
    enum { DIM = 128 };
    float q[DIM] = { 1, 0.3f }, value[2][DIM] = { { 1 }, { 0, 1 } }, out[DIM], sink = -INFINITY;
    float *scratch = aligned_alloc(64, mote__attend_scratch(1, DIM) * 4);
    mote__kv_ref ref[2] = { { (const uint8_t *)value[0], NULL },
                            { (const uint8_t *)value[1], NULL } };
    mote__attend_args a = { .q = q,
                            .n_heads = 1,
                            .dim = DIM,
                            .window = ref,
                            .n_window = 1,
                            .window_fmt = MOTE_KV_F32,
                            .main = ref + 1,
                            .n_main = 1,
                            .main_fmt = MOTE_KV_F32,
                            .sink = &sink,
                            .scale = 1,
                            .out = out };
    float p = mote__exp_f32(0.3f - 1), total = (float)(1 + (double)p);
    assert_true(mote__bf16_round(p) != p);
    for (a.published = 0; a.published < 2; a.published++)
        for (int level = 0; mote__kern_at(level); level++) {
            mote__attend(mote__kern_at(level), &a, scratch);
            assert_true(out[0] == 1 / total);
            assert_true(out[1] == (a.published ? mote__bf16_round(p) : p) / total);
        }
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_attend), cmocka_unit_test(test_sink),
                                        cmocka_unit_test(test_published) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
