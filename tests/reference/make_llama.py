#!/usr/bin/env python3
"""Write seeded random Llama-style checkpoints and what llama_reference.py computes on them.

    python3 make_llama.py OUT_DIR [--stamp FILE]

OUT_DIR/checkpoints/llama-NAME and OUT_DIR/llama/NAME.safetensors: ids, and logits under each cache. Needs Debian's python3-numpy.
"""
import json
import os
import sys

from llama_reference import Llama
from v41_reference import F32, bf16_round, e4m3_encode, e4m3_round, e8m0_encode, pow2_ceil, write_safetensors, _DT
import numpy as np  # after v41_reference, which sets the BLAS thread count

_DT["F16"] = np.uint16
TOKENS = 300                                               # more than a block of the cache, not a multiple of its tiles
PROMPT_SEED = 3                                            # one under which hardly a value lies next to a rounding boundary

# name: (seed, dtype of linears, config). Names and values differ on purpose: with and without head_dim, old and new keys.
MODELS = {
    "mha": (51001, "BF16", dict(model_type="llama", hidden_size=64, num_attention_heads=4, intermediate_size=96, vocab_size=128,
                                num_hidden_layers=3, rope_theta=500.0, rms_norm_eps=1e-5)),
    "gqa": (51002, "BF16", dict(model_type="llama", hidden_size=96, num_attention_heads=6, num_key_value_heads=2, head_dim=128,
                                intermediate_size=128, vocab_size=160, num_hidden_layers=2, rope_theta=10000.0, rms_norm_eps=1e-6,
                                attention_bias=False, mlp_bias=False, tie_word_embeddings=False, pretraining_tp=1,
                                rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                  original_max_position_embeddings=64))),
    "tied": (51003, "F32", dict(model_type="llama", hidden_size=40, num_attention_heads=2, num_key_value_heads=1,
                                intermediate_size=50, vocab_size=97, num_hidden_layers=2, rms_norm_eps=1e-6,
                                tie_word_embeddings=True, rope_scaling=None)),
    "fp8": (51004, "F8_E4M3", dict(model_type="llama", hidden_size=64, num_attention_heads=6, num_key_value_heads=3, head_dim=16,
                                   intermediate_size=96, vocab_size=128, num_hidden_layers=2, rope_theta=1000.0, rms_norm_eps=1e-6,
                                   quantization_config=dict(quant_method="fp8", weight_block_size=[32, 32], scale_fmt="ue8m0"),
                                   rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=64))),
    "mistral": (51005, "F16", dict(model_type="mistral", hidden_size=64, num_attention_heads=4, num_key_value_heads=4,
                                   intermediate_size=64, vocab_size=100, num_hidden_layers=2, rms_norm_eps=1e-5,
                                   sliding_window=None,
                                   rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=300.0))),
    "qwen2": (51006, "BF16", dict(model_type="qwen2", hidden_size=64, num_attention_heads=4, num_key_value_heads=2,
                                  intermediate_size=96, vocab_size=128, num_hidden_layers=2, rope_theta=1000.0, rms_norm_eps=1e-6,
                                  sliding_window=128, use_sliding_window=False, max_window_layers=2)),
    "qwen3": (51007, "BF16", dict(model_type="qwen3", hidden_size=64, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
                                  intermediate_size=96, vocab_size=128, num_hidden_layers=2, rope_theta=1000.0, rms_norm_eps=1e-6,
                                  attention_bias=False, sliding_window=None, layer_types=["full_attention"] * 2)),
}

# name in the file: (keys, values); a model gets those whose groups divide its heads
CACHES = {
    "f32": ("fp32", "fp32"), "bf16": ("bf16", "bf16"), "fp8": ("fp8", "fp8"), "fp4": ("fp4_g16_e4m3", "fp4_g16_e4m3"),
    "mxfp4": ("mxfp4_g32", "mxfp4_g32"), "fp4-32": ("fp4_g32_e4m3", "fp4_g32_e4m3"), "fp4-64": ("fp4_g64_e4m3", "fp4_g64_e4m3"),
    "fp4-128": ("fp4_g128_e4m3", "fp4_g128_e4m3"), "key=fp8,value=fp4": ("fp8", "fp4_g16_e4m3"), "value=mxfp4": ("bf16", "mxfp4_g32"),
}
GROUP = {"fp32": 1, "bf16": 1, "fp8": 32, "mxfp4_g32": 32, "fp4_g16_e4m3": 16, "fp4_g32_e4m3": 32, "fp4_g64_e4m3": 64, "fp4_g128_e4m3": 128}


class Builder:
    def __init__(self, seed, dtype):
        self.rng, self.dtype, self.t = np.random.default_rng(seed), dtype, {}

    def put(self, name, x, dtype=None):
        dtype = dtype or ("BF16" if self.dtype == "F8_E4M3" else self.dtype)
        if dtype == "BF16":
            self.t[name] = (dtype, (bf16_round(x).view(np.uint32) >> 16).astype(np.uint16))
        elif dtype == "F16":
            self.t[name] = (dtype, x.astype(np.float16).view(np.uint16))
        else:
            self.t[name] = (dtype, x.astype(F32))

    def normal(self, *shape, std=1.0, mean=0.0):
        return (self.rng.standard_normal(shape) * std + mean).astype(F32)

    def norm(self, name, n):
        self.put(name, self.normal(n, std=.1, mean=1))

    def linear(self, stem, out, inp, gain=1.0):
        w = self.normal(out, inp, std=gain / inp ** .5)
        if self.dtype != "F8_E4M3":
            return self.put(stem + ".weight", w)
        rows, cols = -(-out // 32), -(-inp // 32)          # the last tiles may be cut
        padded = np.zeros((rows * 32, cols * 32), F32)
        padded[:out, :inp] = w
        tiles = padded.reshape(rows, 32, cols, 32)
        s = pow2_ceil(np.maximum(np.abs(tiles).max((1, 3)), F32(1e-4)) * (F32(1) / F32(448)))
        q = e4m3_round(tiles / s[:, None, :, None]).reshape(padded.shape)[:out, :inp]
        self.t[stem + ".weight"] = ("F8_E4M3", e4m3_encode(q))
        self.t[stem + ".weight_scale_inv"] = ("F8_E8M0", e8m0_encode(s))


def build(name):
    seed, dtype, config = MODELS[name]
    c = dict(architectures=["ForCausalLM"], hidden_act="silu", max_position_embeddings=2048, bos_token_id=0, eos_token_id=1, **config)
    b, d, heads = Builder(seed, dtype), c["hidden_size"], c["num_attention_heads"]
    kv = c.get("num_key_value_heads", heads)
    dim, inter = c.get("head_dim", d // heads), c["intermediate_size"]
    b.put("model.embed_tokens.weight", b.normal(c["vocab_size"], d))
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        b.norm(p + "input_layernorm.weight", d)
        b.norm(p + "post_attention_layernorm.weight", d)
        for stem, out, inp, gain in (("self_attn.q_proj", heads * dim, d, 1.4), ("self_attn.k_proj", kv * dim, d, 1.2),
                                     ("self_attn.v_proj", kv * dim, d, 1.0), ("self_attn.o_proj", d, heads * dim, .5),
                                     ("mlp.gate_proj", inter, d, 1.2), ("mlp.up_proj", inter, d, 1.0),
                                     ("mlp.down_proj", d, inter, .4)):
            b.linear(p + stem, out, inp, gain)
            if c["model_type"] == "qwen2" and stem[-6] in "qkv":
                b.put(p + stem + ".bias", b.normal(out, std=.5))
        if c["model_type"] == "qwen3":
            b.norm(p + "self_attn.q_norm.weight", dim)
            b.norm(p + "self_attn.k_norm.weight", dim)
    b.norm("model.norm.weight", d)
    if not c.get("tie_word_embeddings"):
        b.put("lm_head.weight", b.normal(c["vocab_size"], d, std=2 / d ** .5))
    return c, b.t, dim


def main(out):
    os.makedirs(os.path.join(out, "llama"), exist_ok=True)
    for name in MODELS:
        c, tensors, dim = build(name)
        folder = os.path.join(out, "checkpoints", "llama-" + name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(c, f, indent=1)
        write_safetensors(os.path.join(folder, "model.safetensors"),
                          dict(sorted(tensors.items(), key=lambda kv: (-kv[1][1].itemsize, kv[0]))), {"format": "pt"})
        ids = np.random.default_rng(PROMPT_SEED).integers(0, c["vocab_size"], TOKENS).astype(np.int32)
        rows = {"ids": ("I32", ids)}
        for cache, (key, value) in CACHES.items():
            if dim % GROUP[key] == 0 and dim % GROUP[value] == 0:
                rows[cache] = ("F32", Llama(folder, key, value).forward(ids))
        path = os.path.join(out, "llama", name + ".safetensors")
        write_safetensors(path + ".tmp", rows)
        os.replace(path + ".tmp", path)
        print(name, ", ".join(list(rows)[1:]), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1])
    if "--stamp" in sys.argv:
        open(sys.argv[sys.argv.index("--stamp") + 1], "w").close()
