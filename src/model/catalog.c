#include "model/catalog.h"

#include <stddef.h>

/* clang-format off */
#define ROW(id, form, group, owner, type, member)                         \
    [MOTE_T_##id] = { MOTE_FORM_##form, MOTE_GROUP_##group, MOTE_OF_##owner, \
                      offsetof(type, member) }
static const mote__catalog_row rows[MOTE_TENSOR_IDS] = {
    ROW(EMBED, TABLE, EMBED, MODEL, mote__weights, embed),
    ROW(HEAD, MATRIX, HEAD, MODEL, mote__weights, head),
    ROW(NORM, VECTOR, DENSE, MODEL, mote__weights, norm),
    ROW(ATTN_NORM, VECTOR, DENSE, LAYER, mote__layer_weights, attn_norm),
    ROW(FFN_NORM, VECTOR, DENSE, LAYER, mote__layer_weights, ffn_norm),
    ROW(WQ_A, MATRIX, DENSE, LAYER, mote__layer_weights, wq_a),
    ROW(WQ_B, MATRIX, DENSE, LAYER, mote__layer_weights, wq_b),
    ROW(WKV, MATRIX, DENSE, LAYER, mote__layer_weights, wkv),
    ROW(WO_A, MATRIX, DENSE, LAYER, mote__layer_weights, wo_a),
    ROW(WO_B, MATRIX, DENSE, LAYER, mote__layer_weights, wo_b),
    ROW(Q_NORM, VECTOR, DENSE, LAYER, mote__layer_weights, q_norm),
    ROW(KV_NORM, VECTOR, DENSE, LAYER, mote__layer_weights, kv_norm),
    ROW(SINK, VECTOR, DENSE, LAYER, mote__layer_weights, sink),
    ROW(C_WKV, MATRIX, DENSE, LAYER, mote__layer_weights, c_wkv),
    ROW(C_GATE, MATRIX, DENSE, LAYER, mote__layer_weights, c_gate),
    ROW(C_NORM, VECTOR, DENSE, LAYER, mote__layer_weights, c_norm),
    ROW(I_WQ, MATRIX, DENSE, LAYER, mote__layer_weights, i_wq),
    ROW(I_W, MATRIX, DENSE, LAYER, mote__layer_weights, i_w),
    ROW(I_WK, MATRIX, DENSE, LAYER, mote__layer_weights, i_wk),
    ROW(I_NORM, VECTOR, DENSE, LAYER, mote__layer_weights, i_norm),
    ROW(HC_ATTN_FN, MATRIX, DENSE, LAYER, mote__layer_weights, hc_attn.fn),
    ROW(HC_ATTN_BASE, VECTOR, DENSE, LAYER, mote__layer_weights, hc_attn.base),
    ROW(HC_ATTN_SCALE, VECTOR, DENSE, LAYER, mote__layer_weights, hc_attn.scale),
    ROW(HC_FFN_FN, MATRIX, DENSE, LAYER, mote__layer_weights, hc_ffn.fn),
    ROW(HC_FFN_BASE, VECTOR, DENSE, LAYER, mote__layer_weights, hc_ffn.base),
    ROW(HC_FFN_SCALE, VECTOR, DENSE, LAYER, mote__layer_weights, hc_ffn.scale),
    ROW(GATE, MATRIX, DENSE, LAYER, mote__layer_weights, gate),
    ROW(GATE_BIAS, VECTOR, DENSE, LAYER, mote__layer_weights, gate_bias),
    ROW(SHARED_W1, MATRIX, SHARED, LAYER, mote__layer_weights, shared.w1),
    ROW(SHARED_W2, MATRIX, SHARED, LAYER, mote__layer_weights, shared.w2),
    ROW(SHARED_W3, MATRIX, SHARED, LAYER, mote__layer_weights, shared.w3),
    ROW(EXPERT_W1, MATRIX, EXPERTS, EXPERT, mote__expert, w1),
    ROW(EXPERT_W2, MATRIX, EXPERTS, EXPERT, mote__expert, w2),
    ROW(EXPERT_W3, MATRIX, EXPERTS, EXPERT, mote__expert, w3),
    ROW(ENGRAM_TABLE, TABLE, ENGRAM, LAYER, mote__layer_weights, e_table),
    ROW(ENGRAM_WKV, MATRIX, DENSE, LAYER, mote__layer_weights, e_wkv),
    ROW(ENGRAM_Q, VECTOR, DENSE, LAYER, mote__layer_weights, e_qk),
    ROW(ENGRAM_K, FACTOR, DENSE, LAYER, mote__layer_weights, e_qk),
    ROW(WQ, MATRIX, DENSE, LAYER, mote__layer_weights, wq),
    ROW(WK, MATRIX, DENSE, LAYER, mote__layer_weights, wk),
    ROW(WV, MATRIX, DENSE, LAYER, mote__layer_weights, wv),
    ROW(WO, MATRIX, DENSE, LAYER, mote__layer_weights, wo),
    ROW(Q_BIAS, VECTOR, DENSE, LAYER, mote__layer_weights, q_bias),
    ROW(K_BIAS, VECTOR, DENSE, LAYER, mote__layer_weights, k_bias),
    ROW(V_BIAS, VECTOR, DENSE, LAYER, mote__layer_weights, v_bias),
    ROW(K_NORM, VECTOR, DENSE, LAYER, mote__layer_weights, k_norm),
};
/* clang-format on */

const mote__catalog_row *mote__catalog(mote__tensor_id id) { return &rows[id]; }

void *mote__catalog_member(mote__weights *w, mote__tensor_id id, size_t layer, size_t expert)
{
    const mote__catalog_row *r = &rows[id];
    void *base = r->owner == MOTE_OF_MODEL   ? (void *)w
                 : r->owner == MOTE_OF_LAYER ? (void *)&w->layers[layer]
                                             : (void *)&w->layers[layer].experts[expert];
    return (char *)base + r->at;
}

mote_weight_group mote__catalog_group(const mote__weights *w, mote__tensor_id id)
{
    mote_weight_group g = rows[id].group;
    return g == MOTE_GROUP_SHARED && !w->n_experts ? MOTE_GROUP_DENSE : g;
}

size_t mote__mat_code_bytes(const mote__mat *m)
{
    static const size_t bits[MOTE_W_KINDS] = { 32, 16, 8, 4, 4 };
    return m->n_out * m->n_in * bits[m->kind] / 8;
}

size_t mote__mat_scale_bytes(const mote__mat *m, mote__form form)
{
    if (!m->scale)
        return 0;
    return (m->kind == MOTE_W_FP8 && form == MOTE_FORM_MATRIX ? (m->n_out + 31) / 32 : m->n_out) *
           m->scale_stride;
}

size_t mote__expert_bytes(const mote__expert *x)
{
    const mote__mat *const m[] = { &x->w1, &x->w2, &x->w3 };
    size_t n = 0;
    for (int i = 0; i < 3; i++)
        n += mote__mat_code_bytes(m[i]) + mote__mat_scale_bytes(m[i], MOTE_FORM_MATRIX);
    return n;
}

void mote__weights_each(mote__weights *w, unsigned groups,
                        void (*each)(void *ctx, mote__tensor_id id, mote__mat *m), void *ctx)
{
    for (int i = 0; i < MOTE_TENSOR_IDS; i++) {
        mote__tensor_id id = (mote__tensor_id)i;
        if (rows[i].form > MOTE_FORM_TABLE || !(groups >> mote__catalog_group(w, id) & 1))
            continue;
        size_t n_layers = rows[i].owner == MOTE_OF_MODEL ? 1 : w->n_layers,
               n_experts = rows[i].owner == MOTE_OF_EXPERT ? w->n_experts : 1;
        for (size_t l = 0; l < n_layers; l++)
            for (size_t e = 0; e < n_experts; e++) {
                mote__mat *m = mote__catalog_member(w, id, l, e);
                if (m->data)
                    each(ctx, id, m);
            }
    }
}
