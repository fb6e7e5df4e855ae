/* The table keeps score x 2^now: a use at token t adds 2^(t / half_life), and two entries compare
 * without decay. Once `now` reaches RESCALE, everything is multiplied by a power of two, which is
 * exact; one pass over the table in RESCALE half-lives.
 *
 * Drawing instead of an order: no list to keep at each use, and the lowest of 32 lies among the
 * lowest tenth of the slots in 97 cases of 100. */
#include <assert.h>
#include <math.h>

#include "base/err.h"
#include "model/score.h"

enum { RESCALE = 256 };

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
    s->scaled = mote__alloc(meter, MOTE_MEM_OTHER, n * sizeof *s->scaled);
    return s->scaled ? 0 : mote__fail(err, MOTE_ENOMEM, "out of memory for %zu expert scores", n);
}

void mote__score_deinit(mote__score *s)
{
    mote__free(s->meter, MOTE_MEM_OTHER, s->scaled, s->n_layers * s->n_experts * sizeof *s->scaled);
    *s = (mote__score){ 0 };
}

/* Fitted on generated traces: docs/results/experts.md. Much shorter is LRU, much longer keeps what
 * was used once and misses what is new. */
double mote__score_half_life(size_t n_slots, size_t uses_per_token)
{
    return 2.5 * (double)n_slots / (double)(uses_per_token ? uses_per_token : 1);
}

/* Half-lives that a token takes. */
static double step(const mote__score *s, int is_prompt)
{
    return 1 / (is_prompt ? MOTE_SCORE_PROMPT_TOKENS * s->half_life : s->half_life);
}

void mote__score_tick(mote__score *s, size_t n_tokens, int is_prompt)
{
    s->now += (double)n_tokens * step(s, is_prompt);
    if (s->now < RESCALE)
        return;
    double whole = floor(s->now), factor = exp2(-whole); /* 0 where nothing is left of a score */
    for (size_t i = 0; i < s->n_layers * s->n_experts; i++)
        s->scaled[i] *= factor;
    s->now -= whole;
}

void mote__score_use(mote__score *s, size_t layer, const uint16_t *ids, size_t n_rows,
                     size_t n_per_row, int is_prompt)
{
    assert(layer < s->n_layers);
    double *scaled = s->scaled + layer * s->n_experts;
    for (size_t r = 0; r < n_rows; r++) {
        double weight = exp2(s->now - (double)(n_rows - 1 - r) * step(s, is_prompt));
        for (size_t i = 0; i < n_per_row; i++) {
            assert(ids[r * n_per_row + i] < s->n_experts);
            scaled[ids[r * n_per_row + i]] += weight;
        }
    }
}

double mote__score_of(const mote__score *s, uint32_t key) { return s->scaled[key] * exp2(-s->now); }

/* splitmix64 */
static uint64_t next_random(mote__score *s)
{
    uint64_t z = s->random += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static size_t draw(mote__score *s, size_t n) { return (size_t)((next_random(s) >> 32) * n >> 32); }

long mote__score_victim(mote__score *s, const uint32_t *keys, const uint8_t *kept, size_t n_slots)
{
    assert(n_slots <= UINT32_MAX);
    long victim = -1;
    size_t at = 0;
    for (size_t i = 0; i < MOTE_SCORE_DRAWS && n_slots; i++) {
        at = draw(s, n_slots);
        if (!kept[at] && (victim < 0 || s->scaled[keys[at]] < s->scaled[keys[victim]]))
            victim = (long)at;
    }
    /* nearly all are kept: whatever is not, from the last draw on */
    for (size_t i = 0; victim < 0 && i < n_slots; i++) {
        size_t slot = (at + i) % n_slots;
        if (!kept[slot])
            victim = (long)slot;
    }
    return victim;
}

int mote__score_admit(const mote__score *s, uint32_t key, uint32_t victim, int is_prompt)
{
    return !is_prompt || s->scaled[key] > s->scaled[victim];
}
