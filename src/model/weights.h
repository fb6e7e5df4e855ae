/* The tensors of a checkpoint, found by their published names, checked against the configuration,
 * and left where they lie in the mapped files. Small vectors are copied to fp32. */
#ifndef MOTE_MODEL_WEIGHTS_H
#define MOTE_MODEL_WEIGHTS_H

#include "base/mem.h"
#include "file/safetensors.h"
#include "kern/kern.h"
#include "model/layer_plan.h"

typedef struct mote__expert {
    mote__mat w1, w2, w3;
} mote__expert; /* gate, down, up */

typedef struct mote__hc {
    mote__mat fn;
    float *base, *scale;
} mote__hc;

typedef struct mote__layer_weights {
    float *attn_norm, *ffn_norm, *q_norm, *kv_norm, *sink;
    mote__mat wq_a, wq_b, wkv, wo_a, wo_b;
    mote__mat c_wkv, c_gate, i_wk; /* KV sources (c_gate: ratio above 1) */
    float *c_norm, *i_norm;
    mote__mat i_wq, i_w; /* index sources */
    mote__hc hc_attn, hc_ffn;
    mote__mat gate;
    float *gate_bias;
    mote__expert *experts; /* [n_routed_experts] */
    mote__expert shared;   /* a dense layer's only one */
    /* dense layers: attn_norm, ffn_norm, shared, and these; q_norm is one head's then. NULL where
     * the family has none */
    mote__mat wq, wk, wv, wo;
    float *q_bias, *k_bias, *v_bias, *k_norm;
    /* Engram layers */
    mote__mat e_table; /* [rows][head_dim] E4M3, scale [rows][head_dim/32] E8M0 */
    mote__mat e_wkv;
    float *e_qk; /* [hc][hidden] q_weight * k_weight */
} mote__layer_weights;

typedef struct mote__weights {
    mote__checkpoint *ckpt; /* owned */
    mote__mat embed, head;
    float *norm;
    mote__layer_weights *layers;
    size_t n_layers, n_experts;
    /* the fp32 copies and tables above */
    struct mote__owned {
        void *ptr;
        size_t bytes;
    } * owned;
    size_t n_owned, cap_owned;
    uint64_t n_parameters, used_bytes; /* of the tensors that are used */
    /* by group: of used_bytes, what its tensors take (vectors are dense); where its matrices are */
    uint64_t group_bytes[MOTE_WEIGHT_GROUPS];
    mote_weights placed[MOTE_WEIGHT_GROUPS];
    /* of the matrices that were copied (model/place.h), owned; NULL: none was */
    void *copy;
    size_t copy_bytes;
    uint64_t copied_bytes;   /* of used_bytes, what the copy stands for */
    uint64_t streamed_bytes; /* of used_bytes, what is read from the files instead */
    mote__meter *meter;
} mote__weights;

/* folder: the checkpoint. Takes nothing but the published layout of the configuration's
 * architecture: all that the names' table has for it (file/names.h); every missing tensor, wrong
 * dtype or shape is named. All groups are mapped. */
int mote__weights_open(mote__weights *w, const char *folder, const mote__config *config,
                       mote__meter *meter, mote_err *err);
void mote__weights_close(mote__weights *w);
/* Memory that lives as long as w does, or NULL. */
void *mote__weights_own(mote__weights *w, size_t bytes);

#endif
