/* Linears on vectors, included once per instruction set. MXFP4: mx_body.h.
 *
 * Few rows (1-8, AVX2: 1-4): weights are streamed once and decoded in registers; several outputs
 * are computed together where they can share loads of the inputs, which stay in L1. More rows: 16
 * outputs at a time, K in blocks of 256 floats. A block is decoded once to fp32 in lane layout (16
 * KiB, so it stays in L1) and used for up to MANY_ROWS rows, whose partial sums are kept in the
 * scratch; it is multiplied in register tiles of TILE_O outputs times TILE_R rows. (Decoding whole
 * rows of weights first was slower: the decoded rows left L1, and writing them cost as much as 8
 * rows of arithmetic.) In both cases lane p of a sum gets its columns (kern.h) in ascending order.
 *
 * Scales of FP8: with few rows the inputs are multiplied by them, once for all outputs that share a
 * row of scales; with many rows the weights, once for all rows. Both products are exact, because
 * inputs are between 2^-80 and 2^80 and SCALE_RANGE limits the scales. Outputs with scales out of
 * that range, or with E8M0 codes 0 or 255, use the scalar function; no known checkpoint has
 * them. */

enum {
    /* outputs decoded at once */
    BLOCK_O = 16,
    /* vectors (16 floats) of K decoded at once */
    BLOCK_V = 16,
    GROUPS = BLOCK_O / TILE_O,
    /* partial sums of a register tile */
    TILE_FLOATS = TILE_O * TILE_R * 16,
    /* rows whose partial sums fit into the scratch (asserted below) */
    MANY_ROWS = 192,
    /* 80 + 38 + 8 (E4M3_UNIT) is still a normal float */
    SCALE_RANGE = 38,
};

/* Column vector i of the words v. F32, BF16, FP8 (unscaled, divided by E4M3_UNIT). */
INLINE void decode_words(const mote__wkind kind, vf out[4], vi v)
{
    if (kind == MOTE_W_F32) {
        out[0] = vf_bits(v);
    } else if (kind == MOTE_W_BF16) {
        out[0] = vf_bits(vi_sll(v, 16));
        out[1] = vf_bits(vi_and(v, vi_set((int32_t)0xffff0000)));
    } else {
        e4m3_columns(out, v);
    }
}

/* Half h of the words of a step, of which the first n (16: all) exist. */
INLINE vi step_words(const uint8_t *p, int h, size_t n)
{
    if (n == 16)
        return vi_load(p + h * VN * 4);
    size_t from = (size_t)(h * VN);
    return vi_load_n(p + h * VN * 4, n <= from ? 0 : n - from < VN ? n - from : VN);
}

/* The scales of a step of 64 columns, times E4M3_UNIT. s: its two codes; two: the second exists. */
INLINE vf fp8_scale(const uint8_t *s, int two, int h)
{
    const uint32_t unit = E4M3_UNIT_LOG2;
    return fp8_scale_vec((s[0] + unit) << 23, two ? (s[1] + unit) << 23 : 0, h);
}

/* Whether a scale of outputs [o0, o1) requires the scalar function. */
static int odd_scales(const mote__mat *m, size_t o0, size_t o1)
{
    uint8_t odd = 0;
    if (m->kind == MOTE_W_MXFP4)
        for (size_t o = o0; o < o1; o++)
            for (size_t i = 0; i < m->n_in / 32; i++)
                odd |= (uint8_t)(m->scale[o * m->scale_stride + i] + 1) < 2;
    if (m->kind == MOTE_W_FP8)
        for (size_t row = (m->scale_row0 + o0) / 32; row <= (m->scale_row0 + o1 - 1) / 32; row++)
            for (size_t i = 0; i < (m->n_in + 31) / 32; i++)
                odd |= (uint8_t)(m->scale[row * m->scale_stride + i] - (127 - SCALE_RANGE)) >
                       2 * SCALE_RANGE;
    return odd;
}

/* ---- few rows ---- */

/* One step of n words (16, fewer in the last step); acc: [output][row][half]. */
INLINE void few_step(const mote__wkind kind, const int n_o, const int n_r,
                     vf acc[4][FEW_ROWS][HALVES], const uint8_t *w, size_t row_bytes,
                     const float *x, size_t ldx, size_t n)
{
    const int g = kind == MOTE_W_FP8 ? 4 : kind == MOTE_W_BF16 ? 2 : 1;
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        vf c[4][4];
        UNROLL for (int o = 0; o < n_o; o++)
            decode_words(kind, c[o], step_words(w + (size_t)o * row_bytes, h, n));
        UNROLL for (int i = 0; i < g; i++) UNROLL for (int r = 0; r < n_r; r++)
        {
            vf xv = vf_keep(vf_load(x + (size_t)r * ldx + i * 16 + h * VN));
            UNROLL for (int o = 0; o < n_o; o++) acc[o][r][h] = vf_fma(c[o][i], xv, acc[o][r][h]);
        }
    }
}

/* A part of K: columns [k, k + n). first, last: whether it is the first or the last part. sums:
 * [output][row], kept from part to part. ahead: bytes to prefetch ahead, set by linear_few. */
typedef struct few_part {
    size_t k, n, ahead;
    int first, last;
    float *sums;
} few_part;

/* Outputs o..o+n_o-1 of n_r rows. x: the columns of the part, rows ldx floats apart; for FP8 the
 * output of scale_inputs. */
INLINE void few(const mote__wkind kind, const int n_o, const int n_r, const mote__mat *m, size_t o,
                const few_part *part, const float *x, size_t ldx, float *y, size_t ldy)
{
    const size_t g = mote__columns_per_word(kind), row_bytes = m->n_in / g * 4,
                 x_step = kind == MOTE_W_FP8 ? (size_t)n_r * 64 : 16 * g;
    const uint8_t *w = m->data + o * row_bytes + part->k / g * 4;
    const size_t ahead = within(part->ahead, w, m->data + m->n_out * row_bytes);
    vf acc[4][FEW_ROWS][HALVES];
    if (kind == MOTE_W_FP8)
        ldx = 64;
    UNROLL for (int i = 0; i < n_o; i++) UNROLL for (int r = 0; r < n_r;
                                                     r++) UNROLL for (int h = 0; h < HALVES; h++)
        acc[i][r][h] = part->first ? vf_zero() : vf_load(part->sums + (i * n_r + r) * 16 + h * VN);
    size_t left = part->n / g;
    for (; left >= 16; left -= 16, w += 64, x += x_step) {
        UNROLL for (int i = 0; i < n_o; i++)
        {
            prefetch(w, (size_t)i * row_bytes + ahead);
            if (n_r == 1) /* only memory bandwidth matters */
                prefetch_near(w, (size_t)i * row_bytes);
        }
        few_step(kind, n_o, n_r, acc, w, row_bytes, x, ldx, 16);
    }
    if (left)
        few_step(kind, n_o, n_r, acc, w, row_bytes, x, ldx, left);
    if (!part->last) {
        UNROLL for (int i = 0; i < n_o; i++) UNROLL for (int r = 0; r < n_r; r++)
            UNROLL for (int h = 0; h < HALVES; h++)
                vf_store(part->sums + (i * n_r + r) * 16 + h * VN, acc[i][r][h]);
        return;
    }
    vf all[16][HALVES];
    float to[16];
    UNROLL for (int i = 0; i < 16; i++) UNROLL for (int h = 0; h < HALVES; h++)
        all[i][h] = i < n_o * n_r ? acc[i / n_r][i % n_r][h] : vf_zero();
    lane_sums(to, all, n_o * n_r);
    UNROLL for (int i = 0; i < n_o * n_r; i++)
        y[(size_t)(i % n_r) * ldy + o + (size_t)(i / n_r)] = to[lane_sums_at(i)];
}

#define FEW(kind, n_o, n_r)                                                                    \
    static void few_##kind##_##n_o##_##n_r(const mote__mat *m, size_t o, const few_part *part, \
                                           const float *x, size_t ldx, float *y, size_t ldy)   \
    {                                                                                          \
        few(kind, n_o, n_r, m, o, part, x, ldx, y, ldy);                                       \
    }
typedef void few_fn(const mote__mat *m, size_t o, const few_part *part, const float *x, size_t ldx,
                    float *y, size_t ldy);
/* functions for one output and for several */
typedef struct few_row {
    few_fn *one, *several;
    size_t n_several;
} few_row;
#define FEW_BOTH(kind, n_o, n_r)                              \
    {                                                         \
        few_##kind##_1_##n_r, few_##kind##_##n_o##_##n_r, n_o \
    }
#if defined(__AVX512F__)
#define FEW_KIND(kind) \
    FEW(kind, 1, 1)    \
    FEW(kind, 1, 2)    \
    FEW(kind, 1, 3)    \
    FEW(kind, 1, 4)    \
    FEW(kind, 1, 5)    \
    FEW(kind, 1, 6)    \
    FEW(kind, 1, 7)    \
    FEW(kind, 1, 8)    \
    FEW(kind, 4, 1)    \
    FEW(kind, 4, 2)    \
    FEW(kind, 4, 3)    \
    FEW(kind, 2, 4)    \
    FEW(kind, 2, 5)    \
    FEW(kind, 2, 6)    \
    FEW(kind, 2, 7)    \
    FEW(kind, 2, 8)
#define FEW_ROWS_OF(kind)                                                                          \
    {                                                                                              \
        FEW_BOTH(kind, 4, 1), FEW_BOTH(kind, 4, 2), FEW_BOTH(kind, 4, 3), FEW_BOTH(kind, 2, 4),    \
            FEW_BOTH(kind, 2, 5), FEW_BOTH(kind, 2, 6), FEW_BOTH(kind, 2, 7), FEW_BOTH(kind, 2, 8) \
    }
#else
#define FEW_KIND(kind) \
    FEW(kind, 1, 1)    \
    FEW(kind, 1, 2)    \
    FEW(kind, 1, 3)    \
    FEW(kind, 1, 4)    \
    FEW(kind, 2, 1)
#define FEW_ROWS_OF(kind)                                                                      \
    {                                                                                          \
        FEW_BOTH(kind, 2, 1), FEW_BOTH(kind, 1, 2), FEW_BOTH(kind, 1, 3), FEW_BOTH(kind, 1, 4) \
    }
#endif
FEW_KIND(MOTE_W_F32)
FEW_KIND(MOTE_W_BF16)
FEW_KIND(MOTE_W_FP8)
static const few_row few_rows[MOTE_W_KINDS][FEW_ROWS] = {
    [MOTE_W_F32] = FEW_ROWS_OF(MOTE_W_F32),
    [MOTE_W_BF16] = FEW_ROWS_OF(MOTE_W_BF16),
    [MOTE_W_FP8] = FEW_ROWS_OF(MOTE_W_FP8),
};

/* dst: columns [k, k + n) of n_rows rows, times the scales of output o, as [step of 64
 * columns][row][64]. */
static void scale_inputs(float *dst, const mote__mat *m, size_t o, size_t k, size_t n,
                         const float *xp, size_t n_rows, size_t ldxp)
{
    const uint8_t *scale = m->scale + (m->scale_row0 + o) / 32 * m->scale_stride + k / 32;
    for (size_t end = k + n; k < end; k += 64, scale += 2) {
        vf s[HALVES];
        UNROLL for (int h = 0; h < HALVES; h++) s[h] = fp8_scale(scale, m->n_in - k > 32, h);
        for (size_t r = 0; r < n_rows; r++, dst += 64)
            UNROLL for (size_t i = 0; i < 64; i += VN)
                vf_store(dst + i, vf_mul(vf_load(xp + r * ldxp + k + i), s[i / VN % HALVES]));
    }
}

/* n_rows <= FEW_ROWS. 32 outputs at a time; FP8: up to the end of a row of scales. For more than
 * FEW_WHOLE rows K is cut into parts whose inputs stay in L1 for all 32 outputs: L2 delivers 32
 * bytes per cycle, and eight rows would need all of them. Parts are of equal size if possible,
 * because each prefetches the next. */
enum { FEW_OUTPUTS = 32, FEW_WHOLE = 3, FEW_COLUMNS = 640, FEW_SUMS = FEW_OUTPUTS * FEW_ROWS * 16 };
static size_t part_columns(size_t n_in)
{
    if (n_in <= FEW_COLUMNS)
        return n_in;
    for (size_t n = FEW_COLUMNS; n > FEW_COLUMNS / 2; n -= 64)
        if (n_in % n == 0)
            return n;
    return FEW_COLUMNS;
}

static void linear_few(const mote__mat *m, size_t o0, size_t o1, const float *xp, size_t n_rows,
                       size_t ldxp, float *y, size_t ldy, float *scratch)
{
    const few_row *f = &few_rows[m->kind][n_rows - 1];
    const size_t g = mote__columns_per_word(m->kind),
                 columns = n_rows > FEW_WHOLE ? part_columns(m->n_in) : m->n_in;
    const size_t row_bytes = m->n_in / g * 4, block_bytes = f->n_several * row_bytes;
    for (size_t from = o0, end; from < o1; from = end) {
        size_t most = m->kind == MOTE_W_FP8 ? FEW_OUTPUTS - (m->scale_row0 + from) % 32
                                            : FEW_OUTPUTS;
        end = o1 - from < most ? o1 : from + most;
        size_t k = 0;
        /* runs once even if there are no columns; the sum is then 0 */
        do {
            few_part part = { k,
                              m->n_in - k < columns ? m->n_in - k : columns,
                              0,
                              k == 0,
                              m->n_in - k <= columns,
                              scratch };
            /* the next part of these outputs, or the first part of the next ones */
            if (columns < m->n_in)
                part.ahead = part.last ? FEW_OUTPUTS * row_bytes - k / g * 4 : columns / g * 4;
            else if (block_bytes) /* the same offset in a later block */
                part.ahead = (AHEAD + block_bytes - 1) / block_bytes * block_bytes;
            const float *x = xp + k;
            if (m->kind == MOTE_W_FP8) {
                scale_inputs(scratch + FEW_SUMS, m, from, k, part.n, xp, n_rows, ldxp);
                x = scratch + FEW_SUMS;
            }
            for (size_t o = from, n; o < end; o += n, part.sums += n * n_rows * 16) {
                n = end - o < f->n_several ? 1 : f->n_several;
                (n > 1 ? f->several : f->one)(m, o, &part, x, ldxp, y, ldy);
            }
        } while ((k += columns) < m->n_in);
    }
}

/* ---- many rows ---- */

/* A decoded block of K: [output][vector][16] */
typedef struct block {
    _Alignas(64) float w[BLOCK_O][BLOCK_V * 16];
} block;

/* Decode vectors [v0, v0 + n_v) of outputs [o0, o0 + n). v0 is a multiple of BLOCK_V, so blocks
 * begin and end at steps. */
INLINE void decode_block(const mote__wkind kind, const mote__mat *m, size_t o0, size_t n, size_t v0,
                         size_t n_v, block *b)
{
    const size_t g = mote__columns_per_word(kind), words = m->n_in / g, s0 = v0 / g,
                 n_steps = n_v / g;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *w = m->data + ((o0 + i) * words + s0 * 16) * 4, *scale = m->scale;
        if (kind == MOTE_W_FP8)
            scale += (m->scale_row0 + o0 + i) / 32 * m->scale_stride + s0 * 2;
        for (size_t s = 0; s < n_steps; s++) {
            const size_t left = words - (s0 + s) * 16 < 16 ? words - (s0 + s) * 16 : 16;
            float *dst = b->w[i] + s * g * 16;
            UNROLL for (int h = 0; h < HALVES; h++)
            {
                vf c[4], sv = vf_zero();
                decode_words(kind, c, step_words(w + s * 64, h, left));
                if (kind == MOTE_W_FP8)
                    sv = fp8_scale(scale + s * 2, left > 8, h);
                UNROLL for (size_t k = 0; k < g; k++)
                    vf_store(dst + k * 16 + h * VN, kind == MOTE_W_FP8 ? vf_mul(c[k], sv) : c[k]);
            }
        }
    }
}

static void decode_any(const mote__mat *m, size_t o0, size_t n, size_t v0, size_t n_v, block *b)
{
    switch (m->kind) {
    case MOTE_W_BF16: decode_block(MOTE_W_BF16, m, o0, n, v0, n_v, b); break;
    case MOTE_W_FP8: decode_block(MOTE_W_FP8, m, o0, n, v0, n_v, b); break;
    default: decode_block(MOTE_W_F32, m, o0, n, v0, n_v, b); break;
    }
}

/* n_v vectors of K for TILE_O outputs and n_r rows. sums: [TILE_O][TILE_R][16], read and written.
 */
INLINE void tile(const int n_r, const float *w, size_t n_v, const float *x, size_t ldxp,
                 float *sums)
{
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        vf acc[TILE_O][TILE_R];
        UNROLL for (int o = 0; o < TILE_O; o++) UNROLL for (int r = 0; r < n_r; r++)
            acc[o][r] = vf_load(sums + (o * TILE_R + r) * 16 + h * VN);
        for (size_t k = 0; k < n_v; k++) {
            vf xv[TILE_R];
            UNROLL for (int r = 0; r < n_r; r++)
                xv[r] = vf_load(x + (size_t)r * ldxp + k * 16 + (size_t)(h * VN));
            UNROLL for (int o = 0; o < TILE_O; o++)
            {
                vf wv = vf_keep(vf_load(w + ((size_t)o * BLOCK_V + k) * 16 + (size_t)(h * VN)));
                UNROLL for (int r = 0; r < n_r; r++) acc[o][r] = vf_fma(wv, xv[r], acc[o][r]);
            }
        }
        UNROLL for (int o = 0; o < TILE_O; o++) UNROLL for (int r = 0; r < n_r; r++)
            vf_store(sums + (o * TILE_R + r) * 16 + h * VN, acc[o][r]);
    }
}

typedef void tile_fn(const float *w, size_t n_v, const float *x, size_t ldxp, float *sums);
#define TILE(n_r)                                                                                \
    static void tile_##n_r(const float *w, size_t n_v, const float *x, size_t ldxp, float *sums) \
    {                                                                                            \
        tile(n_r, w, n_v, x, ldxp, sums);                                                        \
    }
TILE(1)
TILE(2)
TILE(3)
#if defined(__AVX512F__)
TILE(4)
TILE(5)
TILE(6)
static tile_fn *const tiles[TILE_R] = { tile_1, tile_2, tile_3, tile_4, tile_5, tile_6 };
#else
static tile_fn *const tiles[TILE_R] = { tile_1, tile_2, tile_3 };
#endif

_Static_assert((MANY_ROWS + TILE_R) / TILE_R * GROUPS * TILE_FLOATS <= MOTE_LINEAR_SCRATCH,
               "sums fit into the scratch");

/* Outputs o0..o0+n_o-1, n_o <= BLOCK_O, of n_rows <= MANY_ROWS rows. sums: [tile of
 * rows][GROUPS][TILE_FLOATS]. */
static void linear_block(const mote__mat *m, size_t o0, size_t n_o, const float *xp, size_t n_rows,
                         size_t ldxp, float *y, size_t ldy, float *sums)
{
    const size_t n_v = mote__arranged_size(m->kind, m->n_in) / 16,
                 groups = (n_o + TILE_O - 1) / TILE_O;
    /* divide rows equally: 8 rows are 4 + 4, not 6 + 2 */
    const size_t n_shares = (n_rows + TILE_R - 1) / TILE_R,
                 share = (n_rows + n_shares - 1) / n_shares;
    block b;
    /* missing outputs of the last tile are computed and not stored */
    if (n_o % TILE_O)
        memset(&b, 0, sizeof b);
    memset(sums, 0, n_shares * GROUPS * TILE_FLOATS * sizeof *sums);
    for (size_t v = 0; v < n_v; v += BLOCK_V) {
        const size_t n = n_v - v < BLOCK_V ? n_v - v : BLOCK_V;
        decode_any(m, o0, n_o, v, n, &b);
        float *to = sums;
        for (size_t r = 0; r < n_rows; r += share, to += GROUPS * TILE_FLOATS)
            for (size_t q = 0; q < groups; q++)
                tiles[(n_rows - r < share ? n_rows - r : share) - 1](b.w[q * TILE_O], n,
                                                                     xp + r * ldxp + v * 16, ldxp,
                                                                     to + q * TILE_FLOATS);
    }
    for (size_t i = 0; i < n_o; i++) {
        const float *from = sums + i / TILE_O * TILE_FLOATS + i % TILE_O * TILE_R * 16;
        for (size_t r = 0; r < n_rows; r += share, from += GROUPS * TILE_FLOATS)
            for (size_t k = 0; k < share && r + k < n_rows; k++)
                y[(r + k) * ldy + o0 + i] = lane_sum(from + k * 16);
    }
}

static void linear(const mote__mat *m, size_t o0, size_t o1, const float *xp, size_t n_rows,
                   size_t ldxp, float *y, size_t ldy, float *scratch)
{
    if (o0 >= o1 || n_rows == 0)
        return;
    if (odd_scales(m, o0, o1))
        mote__linear_scalar(m, o0, o1, xp, n_rows, ldxp, y, ldy, scratch);
    else if (m->kind == MOTE_W_MXFP4)
        mx_linear(m, o0, o1, xp, n_rows, ldxp, y, ldy, scratch);
    else if (n_rows <= FEW_ROWS &&
             (m->kind != MOTE_W_FP8 || n_rows * (m->n_in + 128) + FEW_SUMS <= MOTE_LINEAR_SCRATCH))
        linear_few(m, o0, o1, xp, n_rows, ldxp, y, ldy, scratch);
    else
        for (size_t r = 0; r < n_rows; r += MANY_ROWS)
            for (size_t o = o0; o < o1; o += BLOCK_O)
                linear_block(m, o, o1 - o < BLOCK_O ? o1 - o : BLOCK_O, xp + r * ldxp,
                             n_rows - r < MANY_ROWS ? n_rows - r : MANY_ROWS, ldxp, y + r * ldy,
                             ldy, scratch);
}
