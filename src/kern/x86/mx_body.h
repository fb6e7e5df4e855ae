/* MXFP4 linears on vectors: fixed-point inputs (kern/fixed.h) times codes; included once per
 * instruction set.
 *
 * A chunk of a row of weights is four loads of 64 bytes. After a transposition of words within 128
 * bits, one vector holds word j of all 16 groups. Its low and its high nibbles are converted to
 * bytes, code + 12, and multiplied by one byte of four integers of the inputs, for each of the
 * three limbs. So a lane sums one group, and scales are applied once per 24 byte dot products.
 *
 * Few rows (below MX_MANY_FROM): weights are decoded in registers. More rows: 16 outputs times
 * MX_CHUNKS chunks are decoded once into L1 and used for all rows, in register tiles of MX_O
 * outputs times MX_R rows, whose float sums are kept in the scratch. */

enum {
    MX_BLOCK_O = 16,
    MX_CHUNKS = 2,
    MX_GROUPS = MX_BLOCK_O / MX_O,
    MX_TILE_FLOATS = MX_O * MX_R * 16,
    MX_MANY_ROWS = 192, /* rows whose sums fit into the scratch */
};
_Static_assert(MX_MANY_ROWS *MX_BLOCK_O * 16 <= MOTE_LINEAR_SCRATCH, "sums fit into the scratch");

/* Words 0..3 of the groups of a chunk, lanes h*VN..h*VN+VN-1. n_bytes: rest of the row (256 or
 * more: the whole chunk exists). */
INLINE void mx_words(vi out[4], const uint8_t *w, size_t n_bytes, int h)
{
    UNROLL for (size_t i = 0; i < 4; i++)
    {
        size_t at = i * 64 + (size_t)h * VN * 4;
        out[i] = n_bytes >= 256 ? vi_load(w + at)
                                : vi_load_n(w + at, n_bytes <= at           ? 0
                                                    : n_bytes - at < VN * 4 ? (n_bytes - at) / 4
                                                                            : VN);
    }
    transpose_words(out);
}

/* The scales of lanes h*VN..h*VN+VN-1. codes: of the groups of a chunk, of which n exist. */
INLINE vf mx_chunk_scale(const uint8_t *codes, size_t n, int h)
{
    uint8_t some[16] = { 0 };
    if (n < 16) {
        memcpy(some, codes, n);
        codes = some;
    }
    return mx_lane_scale(codes, h);
}

/* Add one step to a sum. limb: the integer sums of the limbs, lowest first; x: the chunk of
 * inputs. */
INLINE vf mx_step(const vi limb[3], vf w_scale, const uint8_t *x, int h, vf sum)
{
    vi i = vi_sub(limb[0], vi_load(x + MOTE_FX_OFFSET + h * VN * 4));
    i = vi_add(i, vi_add(vi_sll(limb[1], 8), vi_sll(limb[2], 16)));
    vf unit = vf_load((const float *)(const void *)(x + MOTE_FX_SCALE + h * VN * 4));
    return vf_fma(vf_from_i(i), vf_mul(w_scale, unit), sum);
}

/* ---- few rows ---- */

/* A chunk of n_bytes (the constant 256, or the rest of the row) of n_o outputs and n_r rows. */
INLINE void mx_few_chunk(const int n_o, const int n_r, vf sum[2][2][HALVES], const uint8_t *w,
                         size_t row_bytes, size_t n_bytes, const uint8_t *scale,
                         size_t scale_stride, const uint8_t *x, size_t ldx)
{
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        vi words[2][4], limb[2][2][3];
        UNROLL for (int a = 0; a < n_o; a++)
            mx_words(words[a], w + (size_t)a * row_bytes, n_bytes, h);
        UNROLL for (int part = 0; part < 4; part += VACC_WORDS)
        {
            vacc acc[2][2][3];
            UNROLL for (int a = 0; a < n_o; a++) UNROLL for (int r = 0; r < n_r; r++)
                UNROLL for (int l = 0; l < 3; l++) acc[a][r][l] = vacc_zero();
            UNROLL for (int i = 2 * part; i < 2 * (part + VACC_WORDS); i++)
            {
                vi c[2];
                UNROLL for (int a = 0; a < n_o; a++)
                    c[a] = mx_codes_of(i % 2 ? vi_srl(words[a][i / 2], 4) : words[a][i / 2]);
                UNROLL for (int r = 0; r < n_r; r++) UNROLL for (int l = 0; l < 3; l++)
                {
                    vi xv = vi_keep(vi_load(x + (size_t)r * ldx + (i * 3 + l) * 64 + h * VN * 4));
                    UNROLL for (int a = 0; a < n_o; a++)
                        acc[a][r][l] = vacc_add(acc[a][r][l], c[a], xv);
                }
            }
            UNROLL for (int a = 0; a < n_o; a++) UNROLL for (int r = 0; r < n_r; r++)
                UNROLL for (int l = 0; l < 3; l++)
            {
                vi s = vacc_finish(acc[a][r][l]);
                limb[a][r][l] = part ? vi_add(limb[a][r][l], s) : s;
            }
        }
        UNROLL for (int a = 0; a < n_o; a++)
        {
            vf s = mx_chunk_scale(scale + (size_t)a * scale_stride, n_bytes / 16, h);
            UNROLL for (int r = 0; r < n_r; r++)
                sum[a][r][h] = mx_step(limb[a][r], s, x + (size_t)r * ldx, h, sum[a][r][h]);
        }
    }
}

INLINE void mx_few(const int n_o, const int n_r, const mote__mat *m, size_t o, const uint8_t *xp,
                   size_t ldxp_bytes, float *y, size_t ldy)
{
    const size_t row_bytes = m->n_in / 2;
    const uint8_t *w = m->data + o * row_bytes, *scale = m->scale + o * m->scale_stride;
    vf sum[2][2][HALVES];
    UNROLL for (int a = 0; a < n_o; a++) UNROLL for (int r = 0; r < n_r; r++)
        UNROLL for (int h = 0; h < HALVES; h++) sum[a][r][h] = vf_zero();
    const uint8_t *block = w;
    size_t left = row_bytes, ask = within(AHEAD, w, m->data + m->n_out * row_bytes),
           all = ask + (size_t)n_o * row_bytes;
    for (; left >= 256; left -= 256, w += 256, scale += 16, xp += MOTE_FX_BYTES) {
        UNROLL for (int i = 0; i < 4 * n_o; i++) prefetch(block, ask + (size_t)i * 64);
        ask += 256 * (size_t)n_o;
        mx_few_chunk(n_o, n_r, sum, w, row_bytes, 256, scale, m->scale_stride, xp, ldxp_bytes);
    }
    if (left) {
        for (; ask < all; ask += 64)
            prefetch(block, ask);
        mx_few_chunk(n_o, n_r, sum, w, row_bytes, left, scale, m->scale_stride, xp, ldxp_bytes);
    }
    UNROLL for (int a = 0; a < n_o; a++) UNROLL for (int r = 0; r < n_r; r++)
    {
        float p[16];
        UNROLL for (int h = 0; h < HALVES; h++) vf_store(p + h * VN, sum[a][r][h]);
        y[(size_t)r * ldy + o + (size_t)a] = lane_sum(p);
    }
}

typedef void mx_few_fn(const mote__mat *m, size_t o, const uint8_t *xp, size_t ldxp_bytes, float *y,
                       size_t ldy);
#define MX_FEW(n_o, n_r)                                                              \
    static void mx_few_##n_o##_##n_r(const mote__mat *m, size_t o, const uint8_t *xp, \
                                     size_t ldxp_bytes, float *y, size_t ldy)         \
    {                                                                                 \
        mx_few(n_o, n_r, m, o, xp, ldxp_bytes, y, ldy);                               \
    }
MX_FEW(1, 1)
MX_FEW(1, 2)
MX_FEW(2, 1)
MX_FEW(2, 2)

static void mx_linear_few(const mote__mat *m, size_t o0, size_t o1, const uint8_t *xp,
                          size_t n_rows, size_t ldxp_bytes, float *y, size_t ldy)
{
    static mx_few_fn *const few_of[2][2] = { { mx_few_1_1, mx_few_1_2 },
                                             { mx_few_2_1, mx_few_2_2 } };
    for (size_t r = 0; r < n_rows; r += 2)
        for (size_t o = o0; o < o1;) {
            size_t n = o1 - o < 2 ? 1 : 2;
            few_of[n - 1][n_rows - r > 1](m, o, xp + r * ldxp_bytes, ldxp_bytes, y + r * ldy, ldy);
            o += n;
        }
}

/* ---- many rows ---- */

typedef struct mx_block {
    _Alignas(64) uint8_t codes[MX_BLOCK_O][MX_CHUNKS][8][64];
    _Alignas(64) float scale[MX_BLOCK_O][MX_CHUNKS][16];
} mx_block;

/* Decode chunks [c0, c0 + n) of outputs [o0, o0 + n_o). */
static void mx_decode(const mote__mat *m, size_t o0, size_t n_o, size_t c0, size_t n, mx_block *b)
{
    const size_t row_bytes = m->n_in / 2;
    for (size_t a = 0; a < n_o; a++)
        for (size_t c = 0; c < n; c++) {
            const size_t from = (c0 + c) * 256;
            const uint8_t *w = m->data + (o0 + a) * row_bytes + from,
                          *scale = m->scale + (o0 + a) * m->scale_stride + (c0 + c) * 16;
            UNROLL for (int h = 0; h < HALVES; h++)
            {
                vi words[4];
                mx_words(words, w, row_bytes - from, h);
                UNROLL for (int j = 0; j < 4; j++)
                {
                    vi_store(b->codes[a][c][2 * j] + h * VN * 4, mx_codes_of(words[j]));
                    vi_store(b->codes[a][c][2 * j + 1] + h * VN * 4,
                             mx_codes_of(vi_srl(words[j], 4)));
                }
                vf_store(b->scale[a][c] + h * VN,
                         mx_chunk_scale(scale, (row_bytes - from) / 16, h));
            }
        }
}

/* n chunks for MX_O outputs and n_r rows. sums: [MX_O][MX_R][16], read and written. */
INLINE void mx_tile(const int n_r, const mx_block *b, size_t a0, size_t n, const uint8_t *x,
                    size_t ldxp_bytes, float *sums)
{
    for (size_t c = 0; c < n; c++, x += MOTE_FX_BYTES)
        UNROLL for (int h = 0; h < HALVES; h++)
        {
            vi limb[MX_O][MX_R][3];
            UNROLL for (int part = 0; part < 4; part += VACC_WORDS)
            {
                vacc acc[MX_O][MX_R][3];
                UNROLL for (int a = 0; a < MX_O; a++) UNROLL for (int r = 0; r < n_r; r++)
                    UNROLL for (int l = 0; l < 3; l++) acc[a][r][l] = vacc_zero();
                UNROLL for (int i = 2 * part; i < 2 * (part + VACC_WORDS); i++)
                {
                    vi w[MX_O];
                    UNROLL for (int a = 0; a < MX_O; a++)
                        w[a] = vi_keep(vi_load(b->codes[a0 + (size_t)a][c][i] + h * VN * 4));
                    UNROLL for (int r = 0; r < n_r; r++) UNROLL for (int l = 0; l < 3; l++)
                    {
                        vi xv = vi_keep(
                            vi_load(x + (size_t)r * ldxp_bytes + (i * 3 + l) * 64 + h * VN * 4));
                        UNROLL for (int a = 0; a < MX_O; a++)
                            acc[a][r][l] = vacc_add(acc[a][r][l], w[a], xv);
                    }
                }
                UNROLL for (int a = 0; a < MX_O; a++) UNROLL for (int r = 0; r < n_r; r++)
                    UNROLL for (int l = 0; l < 3; l++)
                {
                    vi s = vacc_finish(acc[a][r][l]);
                    limb[a][r][l] = part ? vi_add(limb[a][r][l], s) : s;
                }
            }
            UNROLL for (int a = 0; a < MX_O; a++) UNROLL for (int r = 0; r < n_r; r++)
            {
                float *to = sums + (a * MX_R + r) * 16 + h * VN;
                vf_store(to, mx_step(limb[a][r], vf_load(b->scale[a0 + (size_t)a][c] + h * VN),
                                     x + (size_t)r * ldxp_bytes, h, vf_load(to)));
            }
        }
}

static void mx_tile_rows(size_t n_r, const mx_block *b, size_t a0, size_t n, const uint8_t *x,
                         size_t ldxp_bytes, float *sums)
{
    if (n_r == MX_R)
        mx_tile(MX_R, b, a0, n, x, ldxp_bytes, sums);
    else
        mx_tile(1, b, a0, n, x, ldxp_bytes, sums);
}
_Static_assert(MX_R <= 2, "tiles have one row or MX_R");

/* Outputs o0..o0+n_o-1, n_o <= MX_BLOCK_O, of n_rows <= MX_MANY_ROWS rows. sums: [tile of
 * rows][MX_GROUPS][MX_TILE_FLOATS]. */
static void mx_linear_block(const mote__mat *m, size_t o0, size_t n_o, const uint8_t *xp,
                            size_t n_rows, size_t ldxp_bytes, float *y, size_t ldy, float *sums)
{
    const size_t n_chunks = (m->n_in + MOTE_FX_COLUMNS - 1) / MOTE_FX_COLUMNS,
                 groups = (n_o + MX_O - 1) / MX_O;
    mx_block b;
    /* missing outputs of the last tile are computed and not stored */
    if (n_o % MX_O)
        memset(&b, 0, sizeof b);
    memset(sums, 0, (n_rows + MX_R - 1) / MX_R * MX_GROUPS * MX_TILE_FLOATS * sizeof *sums);
    for (size_t c = 0; c < n_chunks; c += MX_CHUNKS) {
        const size_t n = n_chunks - c < MX_CHUNKS ? n_chunks - c : MX_CHUNKS;
        mx_decode(m, o0, n_o, c, n, &b);
        float *to = sums;
        for (size_t r = 0; r < n_rows; r += MX_R, to += MX_GROUPS * MX_TILE_FLOATS)
            for (size_t q = 0; q < groups; q++)
                mx_tile_rows(n_rows - r < MX_R ? n_rows - r : MX_R, &b, q * MX_O, n,
                             xp + r * ldxp_bytes + c * MOTE_FX_BYTES, ldxp_bytes,
                             to + q * MX_TILE_FLOATS);
    }
    for (size_t i = 0; i < n_o; i++) {
        const float *from = sums + i / MX_O * MX_TILE_FLOATS + i % MX_O * MX_R * 16;
        for (size_t r = 0; r < n_rows; r++)
            y[r * ldy + o0 + i] = lane_sum(from + r / MX_R * MX_GROUPS * MX_TILE_FLOATS +
                                           r % MX_R * 16);
    }
}

static void mx_linear(const mote__mat *m, size_t o0, size_t o1, const float *xp, size_t n_rows,
                      size_t ldxp, float *y, size_t ldy, float *scratch)
{
    const uint8_t *x = (const uint8_t *)xp;
    const size_t ldxp_bytes = ldxp * sizeof(float);
    if (n_rows < MX_MANY_FROM) {
        mx_linear_few(m, o0, o1, x, n_rows, ldxp_bytes, y, ldy);
        return;
    }
    for (size_t r = 0; r < n_rows; r += MX_MANY_ROWS)
        for (size_t o = o0; o < o1; o += MX_BLOCK_O)
            mx_linear_block(m, o, o1 - o < MX_BLOCK_O ? o1 - o : MX_BLOCK_O, x + r * ldxp_bytes,
                            n_rows - r < MX_MANY_ROWS ? n_rows - r : MX_MANY_ROWS, ldxp_bytes,
                            y + r * ldy, ldy, scratch);
}
