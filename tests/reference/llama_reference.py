#!/usr/bin/env python3
"""NumPy reference of Llama-style models (llama, mistral, qwen2, qwen3), batch size 1: the test oracle of the dense path.

Written from the published formulas; sums in float64, rounded to fp32. Keys (after the rotation) and values are quantised per
position and head as a cache would store them, and read back by every query, the position's own included.

    model = Llama("checkpoints/llama-gqa", key="fp8", value="fp4_g16_e4m3")
    logits = model.forward(ids)                            # [n, vocab]
"""
import json
import math
import os

from v41_reference import F32, F64, QUANT, dequant_fp8_blocks, e2m1_round, qdq, read_safetensors
import numpy as np  # after v41_reference, which sets the BLAS thread count

for _g in (32, 64, 128):                                   # longer groups follow fp4's rule
    QUANT.setdefault(f"fp4_g{_g}_e4m3", (_g, F32(6 * 2.0 ** -9), "e4m3", F32(6), e2m1_round))


class Llama:
    def __init__(self, folder, key="bf16", value="bf16"):
        with open(os.path.join(folder, "config.json")) as f:
            c = self.c = json.load(f)
        self.t = {}
        for name in sorted(os.listdir(folder)):
            if name.startswith("model") and name.endswith(".safetensors"):
                self.t.update(read_safetensors(os.path.join(folder, name)))
        self.key, self.value = key, value
        self.heads = c["num_attention_heads"]
        self.kv_heads = c.get("num_key_value_heads") or self.heads
        self.dim = c.get("head_dim") or c["hidden_size"] // self.heads

    # ---- weights -------------------------------------------------------------------------------
    def tensor(self, name):
        dtype, a = self.t[name]
        if dtype == "BF16":
            return (a.astype(np.uint32) << 16).view(F32)
        if dtype == "F16":
            return a.view(np.float16).astype(F32)
        if dtype == "F8_E4M3":
            stem = name[:-len(".weight")]
            scales = self.t.get(stem + ".weight_scale_inv") or self.t[stem + ".scale"]
            return dequant_fp8_blocks(a, scales[1])
        assert dtype == "F32", (name, dtype)
        return np.array(a, F32)

    def linear(self, x, stem):
        y = (x.astype(F64) @ self.tensor(stem + ".weight").T.astype(F64)).astype(F32)
        return y + self.tensor(stem + ".bias") if stem + ".bias" in self.t else y

    def norm(self, x, name):
        inv = 1 / np.sqrt((x.astype(F64) ** 2).mean(-1, keepdims=True) + self.c["rms_norm_eps"])
        return (x * inv * self.tensor(name)).astype(F32)

    # ---- RoPE ----------------------------------------------------------------------------------
    def frequencies(self):
        """(frequency of each pair, what cos and sin are multiplied by)"""
        rule = self.c.get("rope_parameters") or self.c.get("rope_scaling") or {}
        theta, dim = rule.get("rope_theta", self.c.get("rope_theta", 10000.0)), self.dim
        f = (1 / theta ** (np.arange(0, dim, 2) / dim)).astype(F32).astype(F64)
        kind = rule.get("rope_type", rule.get("type", "default"))
        if kind == "default":
            return f, 1.0
        factor = rule["factor"]
        if kind == "linear":
            return f / factor, 1.0
        original = rule["original_max_position_embeddings"]
        if kind == "llama3":
            low, high, wave = rule["low_freq_factor"], rule["high_freq_factor"], 2 * np.pi / f
            smooth = (original / wave - low) / (high - low)
            blend = (1 - smooth) * f / factor + smooth * f
            return np.where(wave > original / low, f / factor, np.where(wave < original / high, f, blend)), 1.0
        assert kind == "yarn", kind

        def correction(turns):
            return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        low = max(math.floor(correction(rule.get("beta_fast", 32))), 0)
        high = min(math.ceil(correction(rule.get("beta_slow", 1))), dim - 1)
        ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
        scale = rule.get("attention_factor") or (0.1 * math.log(factor) + 1 if factor > 1 else 1.0)
        return f / factor * ramp + f * (1 - ramp), scale

    def rotate(self, x, positions):
        """x [n, heads, dim]; feature i turns with feature i + dim/2"""
        f, scale = self.frequencies()
        angle = (positions[:, None].astype(F32) * f.astype(F32)).astype(F64)[:, None, :]
        cos, sin, half = np.cos(angle) * scale, np.sin(angle) * scale, self.dim // 2
        a, b = x[..., :half].astype(F64), x[..., half:].astype(F64)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(F32)

    # ---- layers --------------------------------------------------------------------------------
    def attention(self, x, p):
        n, group = len(x), self.heads // self.kv_heads
        q = self.linear(x, p + "q_proj").reshape(n, self.heads, self.dim)
        k = self.linear(x, p + "k_proj").reshape(n, self.kv_heads, self.dim)
        v = self.linear(x, p + "v_proj").reshape(n, self.kv_heads, self.dim)
        if p + "q_norm.weight" in self.t:
            q, k = self.norm(q, p + "q_norm.weight"), self.norm(k, p + "k_norm.weight")
        at = np.arange(n)
        q, k = self.rotate(q, at), self.rotate(k, at)
        k, v = qdq(k, self.key).astype(F64), qdq(v, self.value).astype(F64)
        out = np.empty((n, self.heads, self.dim), F32)
        future = at[None, :] > at[:, None]
        for h in range(self.heads):
            s = q[:, h].astype(F64) @ k[:, h // group].T / math.sqrt(self.dim)
            s[future] = -np.inf
            w = np.exp(s - s.max(-1, keepdims=True))
            out[:, h] = (w / w.sum(-1, keepdims=True)) @ v[:, h // group]
        return self.linear(out.reshape(n, -1), p + "o_proj")

    def ffn(self, x, p):
        g = self.linear(x, p + "gate_proj").astype(F64)
        return self.linear((g / (1 + np.exp(-g)) * self.linear(x, p + "up_proj")).astype(F32), p + "down_proj")

    def forward(self, ids):
        embed = self.tensor("model.embed_tokens.weight")
        h = embed[np.asarray(ids)]
        for l in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{l}."
            h = h + self.attention(self.norm(h, p + "input_layernorm.weight"), p + "self_attn.")
            h = h + self.ffn(self.norm(h, p + "post_attention_layernorm.weight"), p + "mlp.")
        head = embed if self.c.get("tie_word_embeddings") else self.tensor("lm_head.weight")
        return (self.norm(h, "model.norm.weight").astype(F64) @ head.T.astype(F64)).astype(F32)
