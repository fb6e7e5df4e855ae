/* Causal attention over one key and value head: the same bits from every variant and for every
 * number of rows in a call, and agreement with a softmax in double. */
#include "kern/guard.h"

#include "kern/attend_dense.h"

/* The keys or the values of a cache: `heads` vectors per entry, in tiles at unrelated addresses. */
typedef struct side {
    const mote__kvfmt *f;
    size_t code_bytes, scale_bytes;
    uint8_t **codes, **scales;
    float *value;
} side;
typedef struct cache {
    side key, value;
    size_t heads, head, dim, n;
} cache;

static side make_side(rnd *r, guard *g, mote__kvfmt_id id, size_t heads, size_t dim, size_t n,
                      int style)
{
    side s = { .f = &mote__kvfmts[id] };
    size_t wide = heads * dim, tiles = (n + 63) / 64;
    s.code_bytes = mote__kvfmt_code_bytes(s.f, wide);
    s.scale_bytes = mote__kvfmt_scale_bytes(s.f, wide);
    s.codes = malloc(tiles * sizeof *s.codes);
    s.scales = malloc(tiles * sizeof *s.scales);
    s.value = malloc(n * wide * sizeof *s.value);
    fill_floats(r, s.value, n * wide, style);
    for (size_t t = 0; t < tiles; t++) {
        size_t in = n - t * 64 < 64 ? n - t * 64 : 64;
        s.codes[t] = guard_alloc(g, in * s.code_bytes);
        s.scales[t] = guard_alloc(g, in * s.scale_bytes);
        for (size_t j = 0; j < in; j++) {
            float *x = s.value + (t * 64 + j) * wide;
            s.f->encode(s.codes[t] + j * s.code_bytes, s.scales[t] + j * s.scale_bytes, x, wide);
            s.f->decode(x, s.codes[t] + j * s.code_bytes, s.scales[t] + j * s.scale_bytes, wide);
        }
    }
    return s;
}

static void free_side(side *s) { free(s->codes), free(s->scales), free(s->value); }

static void find(void *ctx, size_t tile, mote__kv_ref *key, mote__kv_ref *value)
{
    const cache *c = ctx;
    *key = (mote__kv_ref){ c->key.codes[tile] + c->head * c->key.code_bytes / c->heads,
                           c->key.scales[tile] + c->head * c->key.scale_bytes / c->heads };
    *value = (mote__kv_ref){ c->value.codes[tile] + c->head * c->value.code_bytes / c->heads,
                             c->value.scales[tile] + c->head * c->value.scale_bytes / c->heads };
}

/* the definition, in double: out and, for the bound, the sum of p |v| */
static void plain(double *out, double *spread, const float *q, const cache *c, size_t visible,
                  float scale)
{
    double *s = malloc(visible * sizeof *s), top = -INFINITY, total = 0;
    size_t wide = c->heads * c->dim;
    for (size_t j = 0; j < visible; j++) {
        s[j] = 0;
        for (size_t d = 0; d < c->dim; d++)
            s[j] += (double)q[d] * (double)c->key.value[j * wide + c->head * c->dim + d];
        s[j] *= (double)scale;
        top = fmax(top, s[j]);
    }
    memset(out, 0, c->dim * sizeof *out);
    memset(spread, 0, c->dim * sizeof *spread);
    for (size_t j = 0; j < visible; j++) {
        double p = exp(s[j] - top);
        total += p;
        for (size_t d = 0; d < c->dim; d++) {
            double v = (double)c->value.value[j * wide + c->head * c->dim + d];
            out[d] += p * v;
            spread[d] += p * fabs(v);
        }
    }
    for (size_t d = 0; d < c->dim; d++) {
        out[d] /= total;
        spread[d] /= total;
    }
    free(s);
}

static void test_attend(void **state)
{
    (void)state;
    static const size_t starts[] = { 0, 1, 31, 63, 64, 65, 127, 190 };
    for (uint64_t seed = 1; seed <= 120; seed++) {
        rnd r = { seed * 7919 };
        rnd_u64(&r);
        guard g = { .at_end = (int)rnd_below(&r, 2) };
        mote__kvfmt_id kf = (mote__kvfmt_id)rnd_below(&r, MOTE_KV_FORMATS),
                       vf = (mote__kvfmt_id)rnd_below(&r, MOTE_KV_FORMATS);
        size_t group_k = mote__kvfmts[kf].group, group_v = mote__kvfmts[vf].group,
               unit = group_k > group_v ? group_k : group_v;
        size_t dim = unit ? unit * (1 + rnd_below(&r, 256 / unit)) : 2 * (1 + rnd_below(&r, 40));
        size_t group = 1 + rnd_below(&r, rnd_below(&r, 4) ? 5 : 40),
               rows = 1 + rnd_below(&r, mote__dense_rows(group)), pos = starts[rnd_below(&r, 8)];
        int style = rnd_below(&r, 3) ? NORMAL : (int)rnd_below(&r, FLOAT_STYLES);
        cache c = { .heads = 1 + rnd_below(&r, 3), .dim = dim, .n = pos + rows };
        c.head = rnd_below(&r, c.heads);
        c.key = make_side(&r, &g, kf, c.heads, dim, c.n, style);
        c.value = make_side(&r, &g, vf, c.heads, dim, c.n, style);
        size_t wide = group * dim + rnd_below(&r, 9), floats = (rows - 1) * wide + group * dim;
        float *q = guard_floats(&g, floats), *want = guard_floats(&g, floats),
              *got = guard_floats(&g, floats);
        float *scratch = aligned_alloc(64, mote__dense_scratch(group, dim) * 4 / 64 * 64 + 64);
        fill_floats(&r, q, floats, style);
        mote__dense_args a = { .q = q,
                               .ldq = wide,
                               .n_rows = rows,
                               .n_heads = group,
                               .dim = dim,
                               .pos = pos,
                               .key = { kf, c.key.code_bytes, c.key.scale_bytes },
                               .value = { vf, c.value.code_bytes, c.value.scale_bytes },
                               .tile = find,
                               .ctx = &c,
                               .scale = 1 / sqrtf((float)dim),
                               .published = rnd_below(&r, 3) == 0,
                               .ldo = wide };
        memset(want, 0, floats * 4);
        memset(got, 0, floats * 4);
        a.out = want;
        mote__attend_dense(mote__kern_at(0), &a, scratch);
        a.out = got;
        for (int level = 1; mote__kern_at(level); level++) {
            memset(scratch, 0xff, mote__dense_scratch(group, dim) * 4);
            mote__attend_dense(mote__kern_at(level), &a, scratch);
            check_same_f32(want, got, floats,
                           "attend_dense/%s seed=%llu rows=%zu heads=%zu dim=%zu pos=%zu style=%s",
                           mote__kern_at(level)->name, (unsigned long long)seed, rows, group, dim,
                           pos, style_name[style]);
        }
        for (size_t k = 0; k < rows; k++) { /* row by row */
            mote__dense_args one = a;
            one.q += k * wide;
            one.out += k * wide;
            one.pos += k;
            one.n_rows = 1;
            mote__attend_dense(mote__kern(), &one, scratch);
        }
        check_same_f32(want, got, floats, "attend_dense one row at a time seed=%llu",
                       (unsigned long long)seed);
        for (size_t k = 0; style == NORMAL && k < rows; k++)
            for (size_t h = 0; h < group; h++) {
                double out[256], spread[256];
                plain(out, spread, q + k * wide + h * dim, &c, pos + k + 1, a.scale);
                for (size_t d = 0; d < dim; d++) {
                    /* as in attend.c: the error of a score of size below 12, n roundings of the
                     * mix, BF16 probabilities */
                    double bound = spread[d] * ((double)FLT_EPSILON *
                                                    (12.0 * (double)(dim / 16 + 8) + (double)c.n) +
                                                (a.published ? 0x1p-8 : 0)) +
                                   1e-30,
                           x = (double)want[k * wide + h * dim + d];
                    if (!(fabs(out[d] - x) <= bound))
                        fail_msg("attend_dense/scalar seed=%llu row %zu head %zu [%zu]: %a, want "
                                 "%a within %a",
                                 (unsigned long long)seed, k, h, d, x, out[d], bound);
                }
            }
        free(scratch);
        free_side(&c.key), free_side(&c.value);
        guard_free(&g);
    }
}

/* With one visible entry the result is its value, for any score. */
static void test_first(void **state)
{
    (void)state;
    enum { DIM = 64 };
    rnd r = { 9 };
    guard g = { .at_end = 1 };
    cache c = { .heads = 1,
                .dim = DIM,
                .n = 1,
                .key = make_side(&r, &g, MOTE_KV_BF16, 1, DIM, 1, NORMAL),
                .value = make_side(&r, &g, MOTE_KV_FP8, 1, DIM, 1, NORMAL) };
    float q[DIM], out[DIM],
        *scratch = aligned_alloc(64, mote__dense_scratch(1, DIM) * 4 / 64 * 64 + 64);
    fill_floats(&r, q, DIM, NORMAL);
    mote__dense_args a = { .q = q,
                           .ldq = DIM,
                           .n_rows = 1,
                           .n_heads = 1,
                           .dim = DIM,
                           .key = { MOTE_KV_BF16, 2 * DIM, 0 },
                           .value = { MOTE_KV_FP8, DIM, DIM / 32 },
                           .tile = find,
                           .ctx = &c,
                           .scale = 100,
                           .out = out,
                           .ldo = DIM };
    mote__attend_dense(mote__kern(), &a, scratch);
    assert_memory_equal(out, c.value.value, sizeof out);
    free(scratch);
    free_side(&c.key), free_side(&c.value);
    guard_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_attend),
                                        cmocka_unit_test(test_first) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
