/* A cache of expert slots replayed over a trace, under one policy or another: what hits, what is
 * read. No time and no bytes: counts. */
#ifndef MOTE_LAB_EXPERT_REPLAY_H
#define MOTE_LAB_EXPERT_REPLAY_H

#include "lab/expert_trace.h"

typedef enum lab_policy {
    LAB_POLICY_LRU,        /* the one unused for longest gives way; all that is read enters */
    LAB_POLICY_LRU_RANDOM, /* a random one of those 8 % of the slots unused for longest */
    LAB_POLICY_SCORE,      /* model/score.h */
    LAB_POLICY_OPTIMUM,    /* the fewest misses in decode that are possible at all: it knows what
                              comes, and may drop what it read (Belady) */
    LAB_POLICIES
} lab_policy;
extern const char *const lab_policy_names[LAB_POLICIES]; /* "lru", ... */

typedef struct lab_replay_params {
    size_t n_slots;
    double half_life; /* LAB_POLICY_SCORE: tokens; 0: mote__score_half_life */
    uint64_t seed;
} lab_replay_params;

/* In a pass and layer, each expert counts once: it is read once for all rows. */
typedef struct lab_replay_result {
    size_t prompt_tokens, decode_tokens;
    size_t prompt_uses, prompt_misses, decode_uses, decode_misses;
} lab_replay_result;

int lab_replay(lab_replay_result *r, const lab_trace *t, lab_policy policy,
               const lab_replay_params *params, mote_err *err);

#endif
