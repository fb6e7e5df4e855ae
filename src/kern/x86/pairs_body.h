/* MXFP4 linears of published math (MOTE_W_MXFP4_BF16): BF16 inputs, pairs of products. Included once per instruction set, and
 * with PAIRS_HW once more where the processor has the instruction; without it a pair is two FMAs in the same order.
 *
 * A step is 16 words of 8 columns; vector s of a step holds the pairs (s, s + 4) of its words. One or two rows: weights are decoded in registers.
 * More: 16 outputs times PAIR_STEPS steps are decoded into L1 and serve all rows. */

#if defined(PAIRS_HW)
typedef vi pair_w;
enum { PAIR_VECS = 1, PAIR_STEPS = 4, PAIR_O = 4, PAIR_R = 3 };
/* pair vector s of words v as BF16: a permute looks at five bits, so the table is there twice */
INLINE pair_w pair_codes(vi v, int s)
{
    const __m256i once = _mm256_setr_epi16(0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, (short)0x8000, (short)0xbf00,
                                           (short)0xbf80, (short)0xbfc0, (short)0xc000, (short)0xc040, (short)0xc080, (short)0xc0c0);
    const vi table = _mm512_broadcast_i64x4(once);
    switch (s) {
    case 0: return _mm512_permutexvar_epi16(v, table);
    case 1: return _mm512_permutexvar_epi16(vi_srl(v, 4), table);
    case 2: return _mm512_permutexvar_epi16(vi_srl(v, 8), table);
    default: return _mm512_permutexvar_epi16(vi_srl(v, 12), table);
    }
}
INLINE vf pair_dot(vf t, pair_w w, vi x) { return _mm512_dpbf16_ps(t, (__m512bh)w, (__m512bh)x); }
INLINE void pair_store(float *p, pair_w w) { vi_store(p, w); }
INLINE pair_w pair_load(const float *p) { return vi_keep(vi_load(p)); }
#else
typedef struct pair_w { vf low, high; } pair_w;
enum { PAIR_VECS = 2, PAIR_STEPS = 2, PAIR_O = 2, PAIR_R = 2 };
INLINE pair_w pair_codes(vi v, int s) { return (pair_w){ vf_nibble(v, s), vf_nibble(v, s + 4) }; }
INLINE vf pair_dot(vf t, pair_w w, vi x)
{
    t = vf_fma(w.high, vf_bits(vi_and(x, vi_set((int32_t)0xffff0000))), t);
    return vf_fma(w.low, vf_bits(vi_sll(x, 16)), t);
}
INLINE void pair_store(float *p, pair_w w)
{
    vf_store(p, w.low);
    vf_store(p + 16, w.high);
}
INLINE pair_w pair_load(const float *p) { return (pair_w){ vf_load(p), vf_load(p + 16) }; }
#endif

enum { PAIR_BLOCK_O = 16, PAIR_GROUPS = PAIR_BLOCK_O / PAIR_O, PAIR_TILE = PAIR_O * PAIR_R * 16, PAIR_MANY_ROWS = 192, PAIR_AT_ONCE = 2 };
_Static_assert((PAIR_MANY_ROWS + PAIR_R) * PAIR_BLOCK_O * 16 <= MOTE_LINEAR_SCRATCH, "sums fit into the scratch");

INLINE vi pair_words(const uint8_t *w, size_t n_bytes, int h)
{
    size_t at = (size_t)h * VN * 4;
    return n_bytes >= 64 ? vi_load(w + at) : vi_load_n(w + at, n_bytes <= at ? 0 : n_bytes - at < VN * 4 ? (n_bytes - at) / 4 : VN);
}

INLINE vf pair_scale(const uint8_t *codes, size_t n_bytes, int h)
{
    uint32_t four = 0;
    if (n_bytes >= 64)
        four = load_u32(codes);
    else
        memcpy(&four, codes, n_bytes / 16);
    return mx_step_scale(four, h);
}

INLINE void pair_few(const int n_o, const int n_r, const mote__mat *m, size_t o, const float *x, size_t ldx, float *y, size_t ldy)
{
    const size_t row_bytes = m->n_in / 2;
    const uint8_t *w = m->data + o * row_bytes, *scale = m->scale + o * m->scale_stride, *first = w;
    size_t ask = within(AHEAD, w, m->data + m->n_out * row_bytes);
    vf sum[2][2][HALVES];
    UNROLL for (int a = 0; a < n_o; a++)
        UNROLL for (int r = 0; r < n_r; r++)
            UNROLL for (int h = 0; h < HALVES; h++)
                sum[a][r][h] = vf_zero();
    for (size_t left = row_bytes; left; left -= left < 64 ? left : 64, w += 64, scale += 4, x += 64) {
        UNROLL for (int a = 0; a < n_o; a++)
            prefetch(first, ask + (size_t)a * 64);
        ask += 64 * (size_t)n_o;
        UNROLL for (int h = 0; h < HALVES; h++)
            UNROLL for (int a = 0; a < n_o; a++) {
                vi v = pair_words(w + (size_t)a * row_bytes, left, h);
                vf t[2], s = pair_scale(scale + (size_t)a * m->scale_stride, left, h);
                UNROLL for (int r = 0; r < n_r; r++)
                    t[r] = vf_zero();
                UNROLL for (int k = 0; k < 4; k++) {
                    pair_w c = pair_codes(v, k);
                    UNROLL for (int r = 0; r < n_r; r++)
                        t[r] = pair_dot(t[r], c, vi_load(x + (size_t)r * ldx + k * 16 + h * VN));
                }
                UNROLL for (int r = 0; r < n_r; r++)
                    sum[a][r][h] = vf_fma(t[r], s, sum[a][r][h]);
            }
    }
    UNROLL for (int a = 0; a < n_o; a++)
        UNROLL for (int r = 0; r < n_r; r++) {
            float p[16];
            UNROLL for (int h = 0; h < HALVES; h++)
                vf_store(p + h * VN, sum[a][r][h]);
            y[(size_t)r * ldy + o + (size_t)a] = lane_sum(p);
        }
}

typedef struct pair_block {
    _Alignas(64) float w[PAIR_BLOCK_O][PAIR_STEPS][4][PAIR_VECS * 16];
    _Alignas(64) float scale[PAIR_BLOCK_O][PAIR_STEPS][16];
} pair_block;

static void pair_decode(const mote__mat *m, size_t o0, size_t n_o, size_t s0, size_t n, pair_block *b)
{
    const size_t row_bytes = m->n_in / 2;
    for (size_t a = 0; a < n_o; a++)
        for (size_t s = 0; s < n; s++) {
            const size_t from = (s0 + s) * 64;
            UNROLL for (int h = 0; h < HALVES; h++) {
                vi v = pair_words(m->data + (o0 + a) * row_bytes + from, row_bytes - from, h);
                UNROLL for (int k = 0; k < 4; k++)
                    pair_store(b->w[a][s][k] + h * VN, pair_codes(v, k));
                vf_store(b->scale[a][s] + h * VN, pair_scale(m->scale + (o0 + a) * m->scale_stride + (s0 + s) * 4, row_bytes - from, h));
            }
        }
}

/* n steps for PAIR_O outputs and n_r rows; sums: [PAIR_O][PAIR_R][16] */
INLINE void pair_tile(const int n_r, const pair_block *b, size_t a0, size_t n, const float *x, size_t ldx, float *sums)
{
    UNROLL for (int h = 0; h < HALVES; h++) {
        vf sum[PAIR_O][PAIR_R];
        UNROLL for (int a = 0; a < PAIR_O; a++)
            UNROLL for (int r = 0; r < n_r; r++)
                sum[a][r] = vf_load(sums + (a * PAIR_R + r) * 16 + h * VN);
        for (size_t s = 0; s < n; s++) {
            vf t[PAIR_O][PAIR_R];
            UNROLL for (int a = 0; a < PAIR_O; a++)
                UNROLL for (int r = 0; r < n_r; r++)
                    t[a][r] = vf_zero();
            UNROLL for (int k = 0; k < 4; k++) {
                vi xv[PAIR_R];
                UNROLL for (int r = 0; r < n_r; r++)
                    xv[r] = vi_keep(vi_load(x + (size_t)r * ldx + s * 64 + (size_t)(k * 16 + h * VN)));
                UNROLL for (int a = 0; a < PAIR_O; a++) {
                    pair_w w = pair_load(b->w[a0 + (size_t)a][s][k] + h * VN);
                    UNROLL for (int r = 0; r < n_r; r++)
                        t[a][r] = pair_dot(t[a][r], w, xv[r]);
                }
            }
            UNROLL for (int a = 0; a < PAIR_O; a++) {
                vf scale = vf_load(b->scale[a0 + (size_t)a][s] + h * VN);
                UNROLL for (int r = 0; r < n_r; r++)
                    sum[a][r] = vf_fma(t[a][r], scale, sum[a][r]);
            }
        }
        UNROLL for (int a = 0; a < PAIR_O; a++)
            UNROLL for (int r = 0; r < n_r; r++)
                vf_store(sums + (a * PAIR_R + r) * 16 + h * VN, sum[a][r]);
    }
}

static void pair_block_rows(const mote__mat *m, size_t o0, size_t n_o, const float *x, size_t n_rows, size_t ldx, float *y, size_t ldy,
                            float *sums)
{
    const size_t n_steps = (m->n_in + 127) / 128, groups = (n_o + PAIR_O - 1) / PAIR_O;
    pair_block b;
    if (n_o % PAIR_O)                                        /* outputs that do not exist are computed all the same */
        memset(&b, 0, sizeof b);
    memset(sums, 0, (n_rows + PAIR_R - 1) / PAIR_R * PAIR_GROUPS * PAIR_TILE * sizeof *sums);
    for (size_t s = 0; s < n_steps; s += PAIR_STEPS) {
        const size_t n = n_steps - s < PAIR_STEPS ? n_steps - s : PAIR_STEPS;
        pair_decode(m, o0, n_o, s, n, &b);
        float *to = sums;
        for (size_t r = 0; r < n_rows; r += PAIR_R, to += PAIR_GROUPS * PAIR_TILE)
            for (size_t q = 0; q < groups; q++) {
                const float *from = x + r * ldx + s * 64;
                switch (n_rows - r < PAIR_R ? n_rows - r : PAIR_R) {
                case 1: pair_tile(1, &b, q * PAIR_O, n, from, ldx, to + q * PAIR_TILE); break;
                case 2: pair_tile(2, &b, q * PAIR_O, n, from, ldx, to + q * PAIR_TILE); break;
                default: pair_tile(PAIR_R, &b, q * PAIR_O, n, from, ldx, to + q * PAIR_TILE); break;
                }
            }
    }
    for (size_t i = 0; i < n_o; i++) {
        const float *from = sums + i / PAIR_O * PAIR_TILE + i % PAIR_O * PAIR_R * 16;
        for (size_t r = 0; r < n_rows; r++)
            y[r * ldy + o0 + i] = lane_sum(from + r / PAIR_R * PAIR_GROUPS * PAIR_TILE + r % PAIR_R * 16);
    }
}

static void pair_few_11(const mote__mat *m, size_t o, const float *x, size_t ldx, float *y, size_t ldy) { pair_few(1, 1, m, o, x, ldx, y, ldy); }
static void pair_few_12(const mote__mat *m, size_t o, const float *x, size_t ldx, float *y, size_t ldy) { pair_few(1, 2, m, o, x, ldx, y, ldy); }
static void pair_few_21(const mote__mat *m, size_t o, const float *x, size_t ldx, float *y, size_t ldy) { pair_few(2, 1, m, o, x, ldx, y, ldy); }
static void pair_few_22(const mote__mat *m, size_t o, const float *x, size_t ldx, float *y, size_t ldy) { pair_few(2, 2, m, o, x, ldx, y, ldy); }

static void linear_pairs(const mote__mat *m, size_t o0, size_t o1, const float *x, size_t n_rows, size_t ldx, float *y, size_t ldy,
                         float *scratch)
{
    uint8_t odd = 0;                                         /* E8M0 codes that are no plain exponent */
    for (size_t o = o0; o < o1; o++)
        for (size_t i = 0; i < m->n_in / 32; i++)
            odd |= (uint8_t)(m->scale[o * m->scale_stride + i] + 1) < 2;
    if (odd) {
        mote__linear_scalar(m, o0, o1, x, n_rows, ldx, y, ldy, scratch);
        return;
    }
    if (n_rows <= PAIR_AT_ONCE) {
        for (size_t o = o0, n; n_rows && o < o1; o += n) {
            n = o1 - o < 2 ? 1 : 2;
            (n == 1 ? n_rows == 1 ? pair_few_11 : pair_few_12 : n_rows == 1 ? pair_few_21 : pair_few_22)(m, o, x, ldx, y, ldy);
        }
        return;
    }
    for (size_t r = 0; r < n_rows; r += PAIR_MANY_ROWS)
        for (size_t o = o0; o < o1; o += PAIR_BLOCK_O)
            pair_block_rows(m, o, o1 - o < PAIR_BLOCK_O ? o1 - o : PAIR_BLOCK_O, x + r * ldx,
                            n_rows - r < PAIR_MANY_ROWS ? n_rows - r : PAIR_MANY_ROWS, ldx, y + r * ldy, ldy, scratch);
}
