/* Owns Engram's hashing: the bucket primes, the multipliers (NumPy's generator, bit for bit) and
 * the row numbers of n-grams. The rule and worked numbers: docs/engram.md. Where token classes come
 * from: text/engram_classes.c. */
#include "model/engram_hash.h"

#include <string.h>

/* ---- NumPy's default_rng ---- */

typedef unsigned __int128 u128;
typedef struct pcg64 {
    u128 state, inc;
} pcg64;

/* SeedSequence: a pool of 4 words, mixed from the seed's 32-bit words, little end first. */
typedef struct seed_hash {
    uint32_t constant, multiplier;
} seed_hash;

static uint32_t hash_word(seed_hash *h, uint32_t v)
{
    v ^= h->constant;
    h->constant *= h->multiplier;
    v *= h->constant;
    return v ^ v >> 16;
}

static uint32_t mix_words(uint32_t x, uint32_t y)
{
    uint32_t v = 0xCA01F9DDu * x - 0x4973F715u * y;
    return v ^ v >> 16;
}

static void seed_words(uint64_t out[4], uint64_t seed)
{
    /* seeds below 2^32 are one word of entropy, but the pool is padded with zeros either way */
    uint32_t entropy[4] = { (uint32_t)seed, (uint32_t)(seed >> 32) }, pool[4], words[8];
    seed_hash a = { 0x43B0D7E5u, 0x931E8875u }, b = { 0x8B51F9DDu, 0x58F38DEDu };
    for (int i = 0; i < 4; i++)
        pool[i] = hash_word(&a, entropy[i]);
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++)
            if (from != to)
                pool[to] = mix_words(pool[to], hash_word(&a, pool[from]));
    for (int i = 0; i < 8; i++)
        words[i] = hash_word(&b, pool[i % 4]);
    for (int i = 0; i < 4; i++)
        out[i] = words[2 * i] | (uint64_t)words[2 * i + 1] << 32;
}

static void pcg_step(pcg64 *g)
{
    static const u128 multiplier = (u128)0x2360ED051FC65DA4u << 64 | 0x4385DF649FCCF645u;
    g->state = g->state * multiplier + g->inc;
}

static uint64_t pcg_next(pcg64 *g) /* XSL-RR */
{
    pcg_step(g);
    uint64_t x = (uint64_t)(g->state >> 64) ^ (uint64_t)g->state;
    unsigned turn = (unsigned)(g->state >> 122);
    return x >> turn | x << (-turn & 63);
}

static void pcg_seed(pcg64 *g, uint64_t seed)
{
    uint64_t w[4];
    seed_words(w, seed);
    g->inc = ((u128)w[2] << 64 | w[3]) << 1 | 1;
    g->state = 0;
    pcg_step(g);
    g->state += (u128)w[0] << 64 | w[1];
    pcg_step(g);
}

/* Below 2^32 NumPy draws 32-bit halves, low half first, keeping the high half for the next draw. */
typedef struct halves {
    uint32_t kept;
    int has;
} halves;

static uint32_t pcg_next32(pcg64 *g, halves *h)
{
    if (h->has) {
        h->has = 0;
        return h->kept;
    }
    uint64_t v = pcg_next(g);
    h->kept = (uint32_t)(v >> 32);
    h->has = 1;
    return (uint32_t)v;
}

void mote__numpy_integers(int64_t *out, size_t n, uint64_t seed, int64_t bound)
{
    pcg64 g;
    halves h = { 0, 0 };
    pcg_seed(&g, seed);
    uint64_t top = bound > 0 ? (uint64_t)bound - 1 : 0; /* largest result */
    for (size_t i = 0; i < n; i++) {
        if (top == 0)
            out[i] = 0; /* draws nothing */
        else if (top == 0xFFFFFFFFu)
            out[i] = pcg_next32(&g, &h);
        else if (top < 0xFFFFFFFFu) {
            uint32_t range = (uint32_t)top + 1;
            uint64_t m = (uint64_t)pcg_next32(&g, &h) * range;
            if ((uint32_t)m < range)
                for (uint32_t threshold = (0xFFFFFFFFu - (uint32_t)top) % range;
                     (uint32_t)m < threshold;)
                    m = (uint64_t)pcg_next32(&g, &h) * range;
            out[i] = (int64_t)(m >> 32);
        } else {
            uint64_t range = top + 1;
            u128 m = (u128)pcg_next(&g) * range;
            if ((uint64_t)m < range)
                for (uint64_t threshold = (UINT64_MAX - top) % range; (uint64_t)m < threshold;)
                    m = (u128)pcg_next(&g) * range;
            out[i] = (int64_t)(m >> 64);
        }
    }
}

/* ---- primes ---- */

static uint64_t mul_mod(uint64_t a, uint64_t b, uint64_t m) { return (uint64_t)((u128)a * b % m); }

static uint64_t pow_mod(uint64_t base, uint64_t e, uint64_t m)
{
    uint64_t r = 1 % m;
    for (base %= m; e; e >>= 1, base = mul_mod(base, base, m))
        if (e & 1)
            r = mul_mod(r, base, m);
    return r;
}

/* Miller-Rabin; the first twelve primes as bases decide every 64-bit number. */
static int is_prime(uint64_t n)
{
    static const uint8_t bases[] = { 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37 };
    if (n < 2)
        return 0;
    for (size_t i = 0; i < sizeof bases; i++)
        if (n % bases[i] == 0)
            return n == bases[i];
    uint64_t d = n - 1;
    unsigned twos = 0;
    for (; d % 2 == 0; d /= 2)
        twos++;
    for (size_t i = 0; i < sizeof bases; i++) {
        uint64_t x = pow_mod(bases[i], d, n);
        if (x == 1 || x == n - 1)
            continue;
        unsigned r = 1;
        for (; r < twos && x != n - 1; r++)
            x = mul_mod(x, x, n);
        if (x != n - 1)
            return 0;
    }
    return 1;
}

/* ---- tables ---- */

static int check(const mote__config *c, mote_err *err)
{
    if (c->engram_max_ngram < 2 || c->engram_max_ngram > MOTE_ENGRAM_MAX_NGRAM)
        return mote__fail(err, MOTE_EUNSUPPORTED,
                          "engram_max_ngram_size is %zu, supported are 2 to %d",
                          c->engram_max_ngram, MOTE_ENGRAM_MAX_NGRAM);
    if (c->engram_heads < 1 || c->engram_heads > MOTE_ENGRAM_MAX_HEADS)
        return mote__fail(err, MOTE_EUNSUPPORTED, "engram_n_heads is %zu, supported are 1 to %d",
                          c->engram_heads, MOTE_ENGRAM_MAX_HEADS);
    if (c->engram_vocab < 1 || c->engram_vocab > UINT64_C(1) << 48)
        return mote__fail(err, MOTE_EFORMAT, "engram_vocab_size is %llu, out of range",
                          (unsigned long long)c->engram_vocab);
    if (c->engram_compressed_vocab < 1 || c->engram_compressed_vocab > INT32_MAX)
        return mote__fail(err, MOTE_EFORMAT, "engram_compressed_vocab_size is %zu, out of range",
                          c->engram_compressed_vocab);
    if (c->n_engram_layers > MOTE_MAX_ENGRAM)
        return mote__fail(err, MOTE_EUNSUPPORTED, "%zu Engram layers, at most %d are supported",
                          c->n_engram_layers, MOTE_MAX_ENGRAM);
    return MOTE_OK;
}

int mote__engram_tables(mote__engram_table *tables, const mote__config *c, mote_err *err)
{
    int rc = c->n_engram_layers ? check(c, err) : MOTE_OK;
    if (rc || !c->n_engram_layers)
        return rc;
    int64_t bound = INT64_MAX / (int64_t)c->engram_compressed_vocab / 2;
    bound = bound > 0 ? bound : 1;
    /* The published search restarts at engram_vocab for every layer and order and skips primes
     * handed out before; since all of those lie below the last one, walking on from it finds the
     * same. */
    uint64_t candidate = c->engram_vocab;
    for (size_t l = 0; l < c->n_engram_layers; l++) {
        mote__engram_table *t = &tables[l];
        memset(t, 0, sizeof *t);
        size_t n = (c->engram_max_ngram - 1) * c->engram_heads;
        for (size_t i = 0; i < n; i++, candidate++) {
            while (!is_prime(candidate))
                candidate++;
            t->primes[i] = candidate;
            t->offsets[i] = t->n_rows;
            t->n_rows += candidate;
        }
        mote__numpy_integers(t->multipliers, c->engram_max_ngram,
                             UINT64_C(10007) * c->engram_layers[l], bound);
        for (size_t i = 0; i < c->engram_max_ngram; i++)
            t->multipliers[i] = t->multipliers[i] * 2 + 1;
        if (t->n_rows != c->engram_rows[l])
            return mote__fail(
                err, MOTE_EFORMAT,
                "engram_num_embeddings of layer %zu is %llu, its hash tables have %llu rows",
                c->engram_layers[l], (unsigned long long)c->engram_rows[l],
                (unsigned long long)t->n_rows);
    }
    return MOTE_OK;
}

void mote__engram_rows(uint64_t *rows, const mote__engram_table *t, const mote__config *c,
                       const int32_t *map, const int32_t *ids, size_t pos)
{
    uint64_t hash = 0;
    for (size_t back = 0, i = 0; back < c->engram_max_ngram; back++) {
        int32_t id = back <= pos ? ids[pos - back] : c->engram_pad_token;
        /* wraps, as NumPy's int64 does */
        hash ^= (uint64_t)(int64_t)map[id] * (uint64_t)t->multipliers[back];
        for (size_t head = 0; back && head < c->engram_heads; head++, i++) {
            /* NumPy's % takes the divisor's sign: a negative hash still gives a row in [0, prime)
             */
            int64_t r = (int64_t)hash % (int64_t)t->primes[i];
            rows[i] = t->offsets[i] + (uint64_t)(r < 0 ? r + (int64_t)t->primes[i] : r);
        }
    }
}
