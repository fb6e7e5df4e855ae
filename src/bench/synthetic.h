/* A model of the published shapes without a checkpoint: one layer of each role with random weights,
 * all roles sharing one set of 64 experts (384 router outputs, expert e computes with e % 64 or
 * with what mote__synthetic_spread says), and sequences whose cache is full of random valid bytes.
 * Nothing it says makes sense; what it costs is what a real token costs.
 *
 * Roles, with the number of layers that each stands for in the published model of 40:
 *   window 2 | full, ratio 2: 3 | full, ratio 1, makes candidates: 1 | reindex: 4 | reuse: 30
 * Beside the layers: publishing the decoder's KV 1, Engram lookups 2, the embedding and the head 1.
 */
#ifndef MOTE_BENCH_SYNTHETIC_H
#define MOTE_BENCH_SYNTHETIC_H

#include "bench/bench.h"
#include "model/cpu/pass.h"
#include "model/layer.h"

typedef enum mote__stage {
    /* = the layers, in order */
    MOTE_STAGE_WINDOW,
    MOTE_STAGE_FULL2,
    MOTE_STAGE_FULL1,
    MOTE_STAGE_REINDEX,
    MOTE_STAGE_REUSE,
    MOTE_STAGE_PUBLISH,
    MOTE_STAGE_ENGRAM,
    MOTE_STAGE_EMBED,
    MOTE_STAGE_HEAD,
    MOTE_STAGES
} mote__stage;
enum { MOTE_SYNTHETIC_LAYERS = MOTE_STAGE_REUSE + 1, MOTE_SYNTHETIC_EXPERTS = 64 };
extern const char *const mote__stage_name[MOTE_STAGES];
/* how often the published model of 40 layers has it */
extern const double mote__stage_count[MOTE_STAGES];

typedef struct mote__synthetic {
    mote__net net; /* made by hand: weights.ckpt is NULL */
    mote__pass pass;
    mote__meter meter;
    mote__kv_pool kv_pool;
    uint8_t *memory; /* matrices, owned */
    size_t memory_bytes;
    float *vectors; /* norms, biases; owned */
    size_t vector_floats;
    mote__layer_weights layers[MOTE_SYNTHETIC_LAYERS];
    mote__expert *experts; /* [layers][n_routed_experts], owned */
    mote__expert set[MOTE_SYNTHETIC_EXPERTS];
    size_t n_set, next_expert;
    /* of one row; experts and attention not included */
    double dense_bytes[MOTE_STAGES], dense_flops[MOTE_STAGES];
    double expert_bytes, expert_flops;
    int open;
} mote__synthetic;

/* thin: hidden and low-rank widths of 32, so that a layer's time is that of its cache. */
int mote__synthetic_open(mote__bench *b, mote__synthetic *s, mote__bench_env *env, int thin);
void mote__synthetic_close(mote__synthetic *s);

/* A sequence with a random cache for n_tokens; from: NULL, or a sequence whose cache it shares up
 * to n_tokens - 1. */
typedef struct mote__synthetic_seq {
    mote__seq seq;
    int32_t *ids;
    size_t n_tokens;
} mote__synthetic_seq;
int mote__synthetic_seq_open(mote__bench *b, mote__synthetic *s, mote__synthetic_seq *q,
                             size_t n_tokens, uint64_t seed, const mote__synthetic_seq *from);
void mote__synthetic_seq_close(mote__synthetic_seq *q);
/* As if `held` tokens had been fed. */
void mote__synthetic_seq_at(mote__synthetic_seq *q, size_t held);

/* One pass of n new rows of each sequence from position `held` on; adds to seconds[]. decoder_rows:
 * how many of the last rows of each go through the decoder's roles. layers: how many run. logits:
 * of the last row of each, [n_seqs][vocab]; NULL: no head. union_experts (may be NULL): different
 * experts that each layer's rows picked, of 384; union_read: of those in memory. */
int mote__synthetic_pass(mote__synthetic *s, mote__synthetic_seq **seqs, size_t n_seqs, size_t held,
                         size_t n, size_t decoder_rows, size_t layers, float *logits,
                         double *seconds, size_t *union_experts, size_t *union_read);
/* Give the experts that the last pass picked in `layer` places of their own in the set, as far as
 * it goes. */
void mote__synthetic_spread(mote__synthetic *s, size_t layer);

#endif
