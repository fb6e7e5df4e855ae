/* The names of a checkpoint's tensors: one table per architecture that says what each name is,
 * which layers have it, and its published dtype and shape. Used to inspect, to plan, and to check a
 * checkpoint before loading it. Source: docs/tensors.md. */
#ifndef MOTE_FILE_NAMES_H
#define MOTE_FILE_NAMES_H

#include "file/config.h"
#include "file/safetensors.h"

typedef enum mote__tclass {
    MOTE_TC_EMBED,
    MOTE_TC_HEAD,
    MOTE_TC_NORM,
    MOTE_TC_ATTENTION,
    MOTE_TC_COMPRESSOR,
    MOTE_TC_INDEXER,
    MOTE_TC_HYPER,
    MOTE_TC_ROUTER,
    MOTE_TC_SHARED_EXPERT,
    MOTE_TC_FFN,
    MOTE_TC_EXPERT,
    MOTE_TC_ENGRAM_TABLE,
    MOTE_TC_ENGRAM,
    /* known, not loaded: draft layers; image parts; the router's bias for image tokens */
    MOTE_TC_MTP,
    MOTE_TC_VISION,
    MOTE_TC_IMAGE_BIAS,
    MOTE_TC_UNKNOWN,
    MOTE_TCLASSES
} mote__tclass;
/* What a tensor is within its layer, or within the model: the same in every family, one for each
 * row of a family's table. model/catalog.h says where the loaded model has it. */
typedef enum mote__tensor_id {
    MOTE_T_EMBED,
    MOTE_T_HEAD,
    MOTE_T_NORM,
    MOTE_T_ATTN_NORM,
    MOTE_T_FFN_NORM,
    MOTE_T_WQ_A,
    MOTE_T_WQ_B,
    MOTE_T_WKV,
    MOTE_T_WO_A,
    MOTE_T_WO_B,
    MOTE_T_Q_NORM,
    MOTE_T_KV_NORM,
    MOTE_T_SINK,
    MOTE_T_C_WKV,
    MOTE_T_C_GATE,
    MOTE_T_C_NORM,
    MOTE_T_I_WQ,
    MOTE_T_I_W,
    MOTE_T_I_WK,
    MOTE_T_I_NORM,
    MOTE_T_HC_ATTN_FN,
    MOTE_T_HC_ATTN_BASE,
    MOTE_T_HC_ATTN_SCALE,
    MOTE_T_HC_FFN_FN,
    MOTE_T_HC_FFN_BASE,
    MOTE_T_HC_FFN_SCALE,
    MOTE_T_GATE,
    MOTE_T_GATE_BIAS,
    MOTE_T_SHARED_W1,
    MOTE_T_SHARED_W2,
    MOTE_T_SHARED_W3,
    MOTE_T_EXPERT_W1,
    MOTE_T_EXPERT_W2,
    MOTE_T_EXPERT_W3,
    MOTE_T_ENGRAM_TABLE,
    MOTE_T_ENGRAM_WKV,
    MOTE_T_ENGRAM_Q,
    MOTE_T_ENGRAM_K,
    MOTE_T_WQ,
    MOTE_T_WK,
    MOTE_T_WV,
    MOTE_T_WO,
    MOTE_T_Q_BIAS,
    MOTE_T_K_BIAS,
    MOTE_T_V_BIAS,
    MOTE_T_K_NORM,
    MOTE_TENSOR_IDS
} mote__tensor_id;
const char *mote__tclass_name(mote__tclass cls); /* "embed", "attention", ... */

/* What plan adds up: all that every token uses; routed experts; Engram; and, not loaded: draft
 * layers, image parts, the rest. */
typedef enum mote__tgroup {
    MOTE_TG_DENSE,
    MOTE_TG_EXPERTS,
    MOTE_TG_ENGRAM,
    MOTE_TG_DRAFT,
    MOTE_TG_VISION,
    MOTE_TG_OTHER,
    MOTE_TGROUPS
} mote__tgroup;
mote__tgroup mote__tclass_group(mote__tclass cls);
const char *mote__tgroup_name(mote__tgroup group); /* "dense", "routed_experts", ... */
/* 0: known but of no use for text, or unknown */
int mote__tclass_is_loaded(mote__tclass cls);
/* The group that it is placed with; MOTE_WEIGHT_GROUPS: not loaded. */
mote_weight_group mote__tclass_placed(mote__tclass cls);

/* What `name` is; layer and expert (may be NULL) get its numbers or -1. With a config, a name that
 * the configuration has no place for (a layer too many, an indexer in a layer without one) is
 * unknown. Scales have the class of their weight. */
mote__tclass mote__tensor_class(const char *name, const mote__config *config, int *layer,
                                int *expert);

/* One tensor that a complete checkpoint of the configuration has. A linear may be stored otherwise
 * than published: the dtype in the file decides, and a scale is needed only where the weight is FP8
 * or packed FP4 (mote__expected_shape). */
typedef struct mote__expected {
    const char *name; /* valid during the call */
    mote__tensor_id id;
    mote__tclass cls;
    int layer, expert; /* or -1 */
    int is_scale;
    const char *weight;       /* is_scale: the name of its weight, else NULL */
    mote__dtype weight_dtype; /* as published, of that weight or of the tensor itself */
    unsigned n_dims;
    uint64_t dims[2]; /* of the values: [n] or [out, in] */
    unsigned dtypes;  /* bit set of mote__dtype that this version can load */
    /* as published */
    mote__dtype dtype;
    uint64_t shape[2];
    /* 0: a scale that is there only if its weight is stored otherwise */
    uint64_t n_bytes;
} mote__expected;

/* Calls back for every expected tensor: global ones first, then layer by layer. A non-zero answer
 * ends it and is returned. */
int mote__expected_tensors(const mote__config *config,
                           int (*each)(void *ctx, const mote__expected *e), void *ctx);

/* The shape that tensor `e` must have when its weight (or itself) is stored as `weight_dtype`; 0 if
 * it must not exist then (a scale beside an unquantised weight). */
int mote__expected_shape(uint64_t shape[2], const mote__expected *e, mote__dtype weight_dtype);

#endif
