#!/usr/bin/env python3
"""A Llama-style checkpoint in NumPy, float32 throughout: logits that an engine's path for it can be held against.

    python3 llama_reference.py MODEL_DIR IDS.json OUT.safetensors      (IDS: BOS + heldout.txt; the first 65 are used)

OUT: ids [65], positions [8], logits [8, vocab] of those positions, and loss [64], the negative log-likelihood of ids 1 to 64.
Weights: BF16, or FP8 E4M3 with one E8M0 scale per 32 x 32 block (NAME_scale_inv). RoPE turns the first half of a head against the
second (the Hugging Face convention). Softmax and norms as written there; no cache, so nothing is rounded.
"""
import json
import os
import struct
import sys

from v41_reference import write_safetensors
import numpy as np

F32 = np.float32
POSITIONS = [0, 1, 2, 15, 31, 47, 63, 64]


def e4m3():
    c = np.arange(256)
    e, m = (c >> 3) & 15, c & 7
    v = np.where(e > 0, np.ldexp(1 + m / 8, e - 7), np.ldexp(m / 8, -6))
    return np.where(c > 127, -v, v).astype(F32)


def tensors(folder):
    """name -> float32 array; FP8 weights with their scales applied."""
    raw = {}
    for f in sorted(os.listdir(folder)):
        if f.startswith("model") and f.endswith(".safetensors"):
            with open(os.path.join(folder, f), "rb") as h:
                n = struct.unpack("<Q", h.read(8))[0]
                head, body = json.loads(h.read(n)), h.read()
            for k, t in head.items():
                if k != "__metadata__":
                    a, b = t["data_offsets"]
                    raw[k] = (t["dtype"], body[a:b], t["shape"])
    out, table = {}, e4m3()
    for k, (dt, b, shape) in raw.items():
        if dt == "BF16":
            out[k] = (np.frombuffer(b, np.uint16).astype(np.uint32) << 16).view(F32).reshape(shape)
        elif dt == "F32":
            out[k] = np.frombuffer(b, F32).reshape(shape)
        elif dt == "F8_E4M3":
            s = raw[k + "_scale_inv"]
            e = np.ldexp(F32(1), np.frombuffer(s[1], np.uint8).astype(int) - 127).reshape(s[2])
            e = np.repeat(np.repeat(e, 32, 0), 32, 1)[:shape[0], :shape[1]]
            out[k] = table[np.frombuffer(b, np.uint8)].reshape(shape) * e.astype(F32)
    return out


def forward(c, w, ids):
    d, nq, nk, eps = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"], F32(c["rms_norm_eps"])
    s = len(ids)
    freq = (1 / F32(c["rope_theta"]) ** (np.arange(0, d, 2, dtype=F32) / F32(d))).astype(F32)
    ang = np.arange(s, dtype=F32)[:, None] * freq
    cos, sin = np.cos(ang)[:, None], np.sin(ang)[:, None]

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name + ".weight"]

    def rotate(x):
        a, b = x[..., :d // 2], x[..., d // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    h = w["model.embed_tokens.weight"][ids]
    mask = np.triu(np.full((s, s), -np.inf, F32), 1)
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        lin = lambda x, n: x @ w[p + n + ".weight"].T
        t = norm(h, p + "input_layernorm")
        q = rotate(lin(t, "self_attn.q_proj").reshape(s, nq, d))
        k = np.repeat(rotate(lin(t, "self_attn.k_proj").reshape(s, nk, d)), nq // nk, 1)
        v = np.repeat(lin(t, "self_attn.v_proj").reshape(s, nk, d), nq // nk, 1)
        a = np.einsum("qhd,khd->hqk", q, k) * F32(d ** -0.5) + mask
        a = np.exp(a - a.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        h = h + lin(np.einsum("hqk,khd->qhd", a, v).reshape(s, nq * d), "self_attn.o_proj")
        t = norm(h, p + "post_attention_layernorm")
        g = lin(t, "mlp.gate_proj")
        h = h + lin(g / (1 + np.exp(-g)) * lin(t, "mlp.up_proj"), "mlp.down_proj")
    head = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return norm(h, "model.norm") @ head.T


def main(folder, ids_file, out):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        c = json.load(f)
    with open(ids_file) as f:
        ids = np.array(json.load(f)[:65], np.int32)
    y = forward(c, tensors(folder), ids)
    top = y.max(-1, keepdims=True)
    logp = y - top - np.log(np.exp((y - top).astype(np.float64)).sum(-1, keepdims=True))
    loss = -logp[np.arange(64), ids[1:]]
    write_safetensors(out, {"ids": ("I32", ids), "positions": ("I32", np.array(POSITIONS, np.int32)),
                            "logits": ("F32", np.ascontiguousarray(y[POSITIONS], F32)), "loss": ("F32", loss.astype(F32))})
    print(f"{folder}: mean loss of 64 ids {loss.mean():.5f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
