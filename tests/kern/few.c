/* Linears of 1 to 9 rows, where weights are decoded in registers: every E4M3 code in every column,
 * and shapes around the sizes at which kernels cut K and outputs. Bit for bit against the scalar
 * kernel, or against the exact product. */
#include "kern/guard.h"

#include "kern/kern.h"
#include "kern/lanes.h"

enum { MOST_ROWS = 9, SCRATCH_BYTES = MOTE_LINEAR_SCRATCH * 4 };

/* Only one column of x is not zero, so an output is one exact product: codes of +-0 give +0, 0x7f
 * and 0xff give NaN. */
static void test_every_code(void **state)
{
    enum { CODES = 256, COLUMNS = 128 };
    static uint8_t data[CODES * COLUMNS], scale[CODES / 32 * COLUMNS / 32];
    static float x[MOST_ROWS][COLUMNS], xp[MOST_ROWS][COLUMNS], y[MOST_ROWS][CODES];
    float *scratch = aligned_alloc(64, SCRATCH_BYTES);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i / COLUMNS);
    for (size_t i = 0; i < sizeof scale; i++)
        /* all scales that vector kernels accept */
        scale[i] = (uint8_t)(127 - 38 + i * 76 / (sizeof scale - 1));
    mote__mat m = { MOTE_W_FP8, CODES, COLUMNS, data, scale, COLUMNS / 32, 0 };
    for (int level = 0; mote__kern_at(level); level++)
        for (size_t n_rows = 1; n_rows <= MOST_ROWS; n_rows++)
            for (size_t first = 0; first < COLUMNS; first++) {
                memset(x, 0, sizeof x);
                for (size_t r = 0; r < n_rows; r++) {
                    x[r][(first + r) % COLUMNS] = r % 2 ? -1.25f : 3;
                    mote__arrange(MOTE_W_FP8, xp[r], x[r], COLUMNS);
                }
                mote__kern_at(level)->linear(&m, 0, CODES, xp[0], n_rows, COLUMNS, y[0], CODES,
                                             scratch);
                for (size_t r = 0; r < n_rows; r++)
                    for (size_t o = 0; o < CODES; o++) {
                        const size_t k = (first + r) % COLUMNS;
                        float want = 0 +
                                     x[r][k] * mote__e4m3_value[o] *
                                         mote__e8m0_decode(scale[o / 32 * (COLUMNS / 32) + k / 32]);
                        if (mote__f32_bits(y[r][o]) != mote__f32_bits(want) &&
                            !(isnan(y[r][o]) && isnan(want)))
                            fail_msg("%s rows=%zu row %zu code %02zx column %zu: %a, want %a",
                                     mote__kern_at(level)->name, n_rows, r, o, k, (double)y[r][o],
                                     (double)want);
                    }
            }
    free(scratch);
}

static void fill(rnd *r, mote__wkind kind, uint8_t *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (kind == MOTE_W_F32) {
            float f = rnd_unit(r);
            memcpy(data + 4 * i, &f, 4);
        } else if (kind == MOTE_W_BF16) {
            uint16_t h = mote__bf16_encode(rnd_unit(r));
            memcpy(data + 2 * i, &h, 2);
        } else {
            data[i] = (uint8_t)(rnd_u64(r) >> 32);
            data[i] ^= (data[i] & 0x7f) == 0x7f;
        }
}

static void test_rows(void **state)
{
    static const size_t
        ins[] = { 0, 4, 60, 64, 68, 124, 636, 640, 644, 1280, 1284, 1408, 2048, 2308 },
        outs[] = { 1, 3, 4, 31, 37, 70 };
    float *scratch = aligned_alloc(64, SCRATCH_BYTES);
    rnd r = { 11 };
    for (mote__wkind kind = MOTE_W_F32; kind <= MOTE_W_FP8; kind++)
        for (size_t i = 0; i < sizeof ins / sizeof *ins; i++)
            for (size_t j = 0; j < sizeof outs / sizeof *outs; j++) {
                const size_t n_in = ins[i], n_out = outs[j],
                             ldxp = mote__arranged_size(kind, n_in) + 16, stride = (n_in + 31) / 32;
                const size_t scale_row0 = rnd_below(&r, 40),
                             n_scales = (scale_row0 + n_out + 31) / 32 * stride;
                guard g = { .at_end = (int)rnd_below(&r, 2) };
                uint8_t *data = guard_alloc(&g, n_out * n_in / mote__columns_per_word(kind) * 4),
                        *scale = guard_alloc(&g, n_scales);
                float *x = guard_floats(&g, n_in), *xp = guard_floats(&g, MOST_ROWS * ldxp);
                float *want = guard_floats(&g, MOST_ROWS * n_out),
                      *got = guard_floats(&g, MOST_ROWS * n_out);
                fill(&r, kind, data, n_out * n_in);
                for (size_t k = 0; k < n_scales; k++)
                    scale[k] = (uint8_t)(110 + rnd_below(&r, 30));
                for (size_t row = 0; row < MOST_ROWS; row++) {
                    fill_floats(&r, x, n_in, NORMAL);
                    mote__arrange(kind, xp + row * ldxp, x, n_in);
                }
                mote__mat m = { kind, n_out, n_in, data, scale, stride, scale_row0 };
                mote__kern_at(0)->linear(&m, 0, n_out, xp, MOST_ROWS, ldxp, want, n_out, scratch);
                for (int level = 1; mote__kern_at(level); level++)
                    for (size_t n_rows = 1; n_rows <= MOST_ROWS; n_rows++) {
                        for (size_t k = 0; k < n_rows * n_out; k++)
                            got[k] = 12345;
                        mote__kern_at(level)->linear(&m, 0, n_out, xp, n_rows, ldxp, got, n_out,
                                                     scratch);
                        check_same_f32(want, got, n_rows * n_out,
                                       "%s kind=%d n_out=%zu n_in=%zu rows=%zu",
                                       mote__kern_at(level)->name, (int)kind, n_out, n_in, n_rows);
                    }
                guard_free(&g);
            }
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_code),
                                        cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
