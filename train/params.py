"""The parameters of the published architecture: name -> (shape, storage kind in the checkpoint, initialisation).

kind: fp8 (E4M3 + E8M0 per 32x32), mx4 (E2M1 + E8M0 per 32 inputs), table (E4M3 + E8M0 per 32), bf16, f32
init: float = normal std, complex = constant, "ones", "zeros", or ("hc", layer)
"""
import math

import torch


def param_spec(c):
    s = {}
    d, H, D, n, L = c.hidden_size, c.num_attention_heads, c.head_dim, c.hc_mult, c.num_hidden_layers
    res = (2 * L) ** -0.5

    def mat(name, o, i, kind, gain=1.0):
        s[name] = ((o, i), kind, gain * i ** -0.5)
    s["embed.weight"] = ((c.vocab_size, d), "bf16", 0.5)
    for l in range(L):
        p, r = f"layers.{l}.", c.ratio[l]
        a, f = p + "attn.", p + "ffn."
        if l in c.engram_layer_ids:
            g = p + "engram."
            rows = c.engram_num_embeddings[c.engram_layer_ids.index(l)]
            s[g + "embed"] = ((rows, c.engram_head_dim), "table", 0.1)
            mat(g + "wkv", d * (n + 1), c.cols * c.engram_head_dim, "fp8")
            s[g + "q_weight"] = ((n, d), "bf16", "ones")
            s[g + "k_weight"] = ((n, d), "bf16", "ones")
        for part in ("attn", "ffn"):
            s[p + f"hc_{part}_fn"] = (((2 + n) * n, n * d), "f32", (n * d) ** -0.5)
            s[p + f"hc_{part}_base"] = (((2 + n) * n,), "f32", ("hc", l))
            s[p + f"hc_{part}_scale"] = ((3,), "f32", 0.1 + 0j)          # constant 0.1
        s[p + "attn_norm"] = ((d,), "bf16", "ones")
        s[p + "ffn_norm"] = ((d,), "bf16", "ones")
        mat(a + "wq_a", c.q_lora_rank, d, "fp8")
        s[a + "q_norm"] = ((c.q_lora_rank,), "bf16", "ones")
        mat(a + "wq_b", H * D, c.q_lora_rank, "fp8")
        mat(a + "wkv", D, d, "fp8")
        s[a + "kv_norm"] = ((D,), "bf16", "ones")
        s[a + "attn_sink"] = ((H,), "f32", "zeros")
        mat(a + "wo_a", c.o_groups * c.o_lora_rank, H * D // c.o_groups, "fp8")
        mat(a + "wo_b", d, c.o_groups * c.o_lora_rank, "fp8", 2 * res)
        if l in c.kv_src:
            mat(a + "compressor.wkv", D, d, "bf16")
            if r > 1:
                mat(a + "compressor.wgate", D, d, "bf16", 0.5)
            s[a + "compressor.norm"] = ((D,), "bf16", "ones")
        if l in c.idx_src:
            mat(a + "indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank, "fp8")
            mat(a + "indexer.weights_proj", c.index_n_heads, d, "bf16")
        if l in c.kv_src:
            mat(a + "indexer.wk", c.index_head_dim, D, "bf16")
            s[a + "indexer.k_norm"] = ((c.index_head_dim,), "bf16", "ones")
        E, i = c.n_routed_experts, c.moe_intermediate_size
        s[f + "gate.weight"] = ((E, d), "bf16", d ** -0.5)
        s[f + "experts.w1"] = ((E, i, d), "mx4", d ** -0.5)
        s[f + "experts.w2"] = ((E, d, i), "mx4", 2 * res * i ** -0.5)
        s[f + "experts.w3"] = ((E, i, d), "mx4", d ** -0.5)
        mat(f + "shared_experts.w1", i, d, "fp8")
        mat(f + "shared_experts.w2", d, i, "fp8", 2 * res)
        mat(f + "shared_experts.w3", i, d, "fp8")
    s["norm"] = ((d,), "bf16", "ones")
    s["head.weight"] = ((c.vocab_size, d), "bf16", 0.01)
    return s


def init_tensor(shape, how, gen, c):
    if how == "ones":
        return torch.ones(shape)
    if how == "zeros":
        return torch.zeros(shape)
    if isinstance(how, complex):
        return torch.full(shape, how.real)
    if isinstance(how, tuple):
        # pre: even blend of the copies; post: 1; comb: mostly the identity; noise breaks the symmetry
        n = c.hc_mult
        base = torch.cat([torch.full((n,), -math.log(n - 1)), torch.zeros(n), (3 * torch.eye(n)).flatten()])
        return base + 0.3 * torch.randn(shape, generator=gen)
    return torch.randn(shape, generator=gen) * how
