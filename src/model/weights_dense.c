/* The tensors of a Llama-style model, by the names that its checkpoints use (docs/tensors.md). */
#include <stdio.h>

#include "model/weights_load.h"

static void load_layer(mote__loader *ld, mote__layer_weights *L)
{
    const mote__config *c = ld->c;
    size_t d = c->hidden_size, inter = c->moe_intermediate_size, q = c->n_heads * c->head_dim,
           kv = c->n_kv_heads * c->head_dim;
    L->attn_norm = mote__load_vector(ld, "input_layernorm.weight", d, 0);
    L->ffn_norm = mote__load_vector(ld, "post_attention_layernorm.weight", d, 0);
    L->wq = mote__load_matrix(ld, "self_attn.q_proj", q, d);
    L->wk = mote__load_matrix(ld, "self_attn.k_proj", kv, d);
    L->wv = mote__load_matrix(ld, "self_attn.v_proj", kv, d);
    L->wo = mote__load_matrix(ld, "self_attn.o_proj", d, q);
    if (c->qkv_bias) {
        L->q_bias = mote__load_vector(ld, "self_attn.q_proj.bias", q, 0);
        L->k_bias = mote__load_vector(ld, "self_attn.k_proj.bias", kv, 0);
        L->v_bias = mote__load_vector(ld, "self_attn.v_proj.bias", kv, 0);
    }
    if (c->qk_norm) {
        L->q_norm = mote__load_vector(ld, "self_attn.q_norm.weight", c->head_dim, 0);
        L->k_norm = mote__load_vector(ld, "self_attn.k_norm.weight", c->head_dim, 0);
    }
    L->shared.w1 = mote__load_matrix(ld, "mlp.gate_proj", inter, d);
    L->shared.w3 = mote__load_matrix(ld, "mlp.up_proj", inter, d);
    L->shared.w2 = mote__load_matrix(ld, "mlp.down_proj", d, inter);
}

void mote__load_dense(mote__loader *ld)
{
    const mote__config *c = ld->c;
    mote__weights *w = ld->w;
    w->embed = mote__load_plain(ld, "model.embed_tokens", ".weight", c->vocab_size, c->hidden_size);
    w->head = c->tied_embeddings ? w->embed
                                 : mote__load_matrix(ld, "lm_head", c->vocab_size, c->hidden_size);
    w->norm = mote__load_vector(ld, "model.norm.weight", c->hidden_size, 0);
    for (size_t l = 0; l < c->n_layers && !ld->rc; l++) {
        char prefix[40];
        snprintf(prefix, sizeof prefix, "model.layers.%zu.", l);
        ld->prefix = prefix;
        load_layer(ld, &w->layers[l]);
    }
    ld->prefix = "";
}
