/* The table keeps score x 2^now: a use at time t adds 2^(t / half_life), and nothing decays. Once a
 * layer's `now` reaches RESCALE, its row is multiplied by a power of two, which is exact: one pass
 * over the row in RESCALE half-lives.
 *
 * Drawing instead of an order: no list to keep at each use, and the lowest of 32 lies among the
 * lowest tenth of the slots in 97 cases of 100. */
#include <assert.h>
#include <math.h>

#include "base/err.h"
#include "model/score.h"

enum { RESCALE = 256 };

static size_t table_bytes(const mote__score *s)
{
    return s->n_layers * (s->n_experts * sizeof *s->scaled + sizeof *s->time);
}

int mote__score_init(mote__score *s, size_t n_layers, size_t n_experts, double half_life,
                     uint64_t seed, mote__meter *meter, mote_err *err)
{
    *s = (mote__score){ .n_layers = n_layers,
                        .n_experts = n_experts,
                        .half_life = half_life,
                        .random = seed,
                        .meter = meter };
    size_t n = mote__mul(n_layers, n_experts);
    if (!(half_life > 0) || !isfinite(half_life) || !n || n > UINT32_MAX)
        return mote__fail(err, MOTE_EINVAL,
                          "expert scores: %zu layers of %zu experts, half-life %g tokens", n_layers,
                          n_experts, half_life);
    s->scaled = mote__alloc(meter, MOTE_MEM_OTHER, table_bytes(s));
    if (!s->scaled)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu expert scores", n);
    s->time = (struct mote__score_time *)(void *)(s->scaled + n);
    for (size_t i = 0; i < n_layers; i++)
        s->time[i].factor = 1;
    return 0;
}

void mote__score_deinit(mote__score *s)
{
    mote__free(s->meter, MOTE_MEM_OTHER, s->scaled, table_bytes(s));
    *s = (mote__score){ 0 };
}

/* Fitted on generated traces: docs/results/experts.md. Much shorter is LRU, much longer keeps what
 * was used once and misses what is new. */
double mote__score_half_life(size_t n_slots, size_t uses_per_token)
{
    double tokens = (double)n_slots / (double)(uses_per_token ? uses_per_token : 1);
    return fmax(0.5, 2.5 * tokens - 1.5);
}

static void advance(mote__score *s, size_t layer, double half_lives)
{
    struct mote__score_time *t = &s->time[layer];
    t->now += half_lives;
    if (t->now >= RESCALE) {
        double whole = floor(t->now), factor = exp2(-whole); /* 0: nothing is left of a score */
        for (size_t i = 0; i < s->n_experts; i++)
            s->scaled[layer * s->n_experts + i] *= factor;
        t->now -= whole;
    }
    t->factor = exp2(-t->now);
}

void mote__score_use(mote__score *s, size_t layer, const uint16_t *ids, size_t n_rows,
                     size_t n_per_row, int is_prompt)
{
    assert(layer < s->n_layers);
    double *scaled = s->scaled + layer * s->n_experts;
    double step = 1 / (is_prompt ? MOTE_SCORE_PROMPT_TOKENS * s->half_life : s->half_life);
    advance(s, layer, (double)n_rows * step);
    for (size_t r = 0; r < n_rows; r++) {
        double weight = exp2(s->time[layer].now - (double)(n_rows - 1 - r) * step);
        for (size_t i = 0; i < n_per_row; i++) {
            assert(ids[r * n_per_row + i] < s->n_experts);
            scaled[ids[r * n_per_row + i]] += weight;
        }
    }
}

double mote__score_of(const mote__score *s, uint32_t key)
{
    return s->scaled[key] * s->time[key / s->n_experts].factor;
}

/* splitmix64 */
static uint64_t next_random(mote__score *s)
{
    uint64_t z = s->random += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static size_t draw(mote__score *s, size_t n) { return (size_t)((next_random(s) >> 32) * n >> 32); }

/* The lower of the victim so far (-1: none) and `slot`. */
static long lower(const mote__score *s, const uint32_t *keys, const uint8_t *kept, long victim,
                  size_t slot)
{
    if (kept[slot] ||
        (victim >= 0 && mote__score_of(s, keys[slot]) >= mote__score_of(s, keys[victim])))
        return victim;
    return (long)slot;
}

long mote__score_victim(mote__score *s, const uint32_t *keys, const uint8_t *kept, size_t n_slots)
{
    assert(n_slots <= UINT32_MAX);
    long victim = -1;
    size_t at = n_slots ? draw(s, n_slots) : 0;
    if (n_slots <= 2 * MOTE_SCORE_DRAWS) { /* as cheap as drawing */
        for (size_t i = 0; i < n_slots; i++)
            victim = lower(s, keys, kept, victim, (at + i) % n_slots);
        return victim;
    }
    for (size_t i = 0; i < MOTE_SCORE_DRAWS; i++, at = draw(s, n_slots))
        victim = lower(s, keys, kept, victim, at);
    /* nearly all are kept: whatever is not, from the last draw on */
    for (size_t i = 0; victim < 0 && i < n_slots; i++)
        if (!kept[(at + i) % n_slots])
            victim = (long)((at + i) % n_slots);
    return victim;
}

int mote__score_admit(const mote__score *s, uint32_t key, uint32_t victim, int is_prompt)
{
    return !is_prompt || mote__score_of(s, key) > mote__score_of(s, victim);
}
