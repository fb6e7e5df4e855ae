/* Which experts stay in memory: a policy without I/O. It holds a score per expert, the number of
 * its uses with exponential decay over tokens, and picks what an expert that was read replaces. The
 * cache owns slots, pins and reads, and asks here.
 *
 *   score(t) = sum over uses at times u <= t of 2^-((t - u) / half_life)
 *
 * Each layer has its own time: the decoded tokens it ran for. So layers that are still to come in a
 * pass do not look older than those that are done. A prompt's token is a quarter of a decoded one,
 * so that a long prompt is remembered as a whole. Prompts teach and do not flush: their rows count
 * like others, but an expert that a prompt read enters only in place of one with a lower score.
 * What a decode step read always enters.
 *
 * The choice moves bytes, never results. Same calls and same seed: same choices (on one machine:
 * exp2 is the C library's). One thread. Nothing is allocated after init. */
#ifndef MOTE_MODEL_SCORE_H
#define MOTE_MODEL_SCORE_H

#include "base/mem.h"

typedef struct mote__score {
    /* [n_layers][n_experts] score times 2^now of the layer, so that time passes without touching
     * the table; owned */
    double *scaled;
    struct mote__score_time {
        double now;    /* half-lives since the layer's last rescale */
        double factor; /* 2^-now */
    } * time;          /* [n_layers], in the same memory */
    size_t n_layers, n_experts;
    double half_life; /* decoded tokens */
    uint64_t random;
    mote__meter *meter; /* borrowed, may be NULL */
} mote__score;

enum { MOTE_SCORE_PROMPT_TOKENS = 4 }; /* of a prompt, that take the time of one decoded */

/* A table of zeros. half_life > 0, in decoded tokens. 0, or MOTE_ENOMEM or MOTE_EINVAL. */
int mote__score_init(mote__score *s, size_t n_layers, size_t n_experts, double half_life,
                     uint64_t seed, mote__meter *meter, mote_err *err);
void mote__score_deinit(mote__score *s);

/* A half-life that fits a cache of n_slots experts where a token uses uses_per_token of them (all
 * layers). */
double mote__score_half_life(size_t n_slots, size_t uses_per_token);

/* The number of an expert in the table. */
static inline uint32_t mote__score_key(const mote__score *s, size_t layer, size_t expert)
{
    return (uint32_t)(layer * s->n_experts + expert);
}

/* n_rows consecutive tokens used experts of `layer`: ids[n_rows][n_per_row], the last row is the
 * latest. */
void mote__score_use(mote__score *s, size_t layer, const uint16_t *ids, size_t n_rows,
                     size_t n_per_row, int is_prompt);
/* Score after the last use of its layer. */
double mote__score_of(const mote__score *s, uint32_t key);

/* The slot to empty: the lowest score among a few slots drawn at random, or among all of a small
 * cache. keys[n_slots]: whose
 * expert a slot holds; kept[n_slots]: non-zero where it must stay (in use, being read, empty). A
 * slot that may be emptied is always found if there is one. -1: there is none. */
enum { MOTE_SCORE_DRAWS = 32 };
long mote__score_victim(mote__score *s, const uint32_t *keys, const uint8_t *kept, size_t n_slots);
/* 1: the expert that was just read takes the victim's place; 0: it is dropped after its use. */
int mote__score_admit(const mote__score *s, uint32_t key, uint32_t victim, int is_prompt);

#endif
