#!/usr/bin/env python3
"""plan's sums against lists of tensors made here, for each family, as the published code of each model creates them: names, shapes and
bytes, added one by one without a formula. Parameters must also equal the published numbers, if there are any. Caches are simulated
token by token. Pictures and pages are parsed: every figure is inside its picture, and all have the numbers of the text.

usage: plan_sums.py MOTE SOURCE_ROOT"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

MOTE, ROOT = sys.argv[1], sys.argv[2]
TMP = tempfile.mkdtemp(prefix="mote-plan-")
failures = []


def expect(good, what):
    if not good:
        failures.append(what)
        print("FAIL", what)


def data(name):
    with open(os.path.join(ROOT, "tests", "data", "config", name + ".json")) as f:
        return json.load(f)


def mote(config, *args):
    path = os.path.join(TMP, "config.json")
    with open(path, "w") as f:
        json.dump(config, f)
    return subprocess.run([MOTE, "plan", path, *args], capture_output=True, text=True, timeout=60)


def plan(config, *args):
    r = mote(config, "--json", *args)
    if r.returncode:
        raise SystemExit(f"{args}: {r.stderr}")
    return json.loads(r.stdout)


# ---- lists of tensors: (class, layer, shape, bytes a value, is it multiplied); parts of a quantised one count no values ------------

class Model:
    def __init__(self):
        self.rows = []

    def add(self, cls, layer, shape, size, product=None, values=True):
        self.rows.append((cls, layer, shape, size, len(shape) == 2 if product is None else product, values))

    @staticmethod
    def count(shape):
        n = 1
        for s in shape:
            n *= s
        return n

    def sums(self, what):
        out = {}
        for cls, _, shape, size, _, values in self.rows:
            n = self.count(shape)
            out[cls] = out.get(cls, 0) + (n * size if what == "bytes" else n if values else 0)
        return {k: int(v) for k, v in out.items() if v}


def up(a, b):
    return -(-a // b)


def linear(m, cls, layer, out, inn, q=None):
    """One matrix in the layout of the quantisation."""
    if q is None:
        m.add(cls, layer, (out, inn), 2)
    elif q["how"] == "fp8":
        m.add(cls, layer, (out, inn), 1)
        m.add(cls, layer, (up(out, q["block"]), up(inn, q["block"])), q["scale"], False, False)
    elif q["how"] == "mxfp4":
        m.add(cls, layer, (out, inn), 0.5)
        m.add(cls, layer, (out, inn // 32), 1, False, False)
    elif q["how"] in ("awq", "gptq"):                         # int32 words of 8 codes
        m.add(cls, layer, (out, inn), 0.5)
        m.add(cls, layer, (inn // 128, out // 8), 4, False, False)
        m.add(cls, layer, (inn // 128, out), 2, False, False)
        if q["how"] == "gptq":
            m.add(cls, layer, (inn,), 4, False, False)


def llama_like(c, q=None):
    m, h, v, kind = Model(), c["hidden_size"], c["vocab_size"], c["model_type"]
    heads, kv = c["num_attention_heads"], c.get("num_key_value_heads") or c["num_attention_heads"]
    d = c.get("head_dim") or h // heads
    m.add("embed", -1, (v, h), 2, False)
    if not c.get("tie_word_embeddings"):
        m.add("head", -1, (v, h), 2)
    m.add("dense", -1, (h,), 2)
    experts = c.get("num_local_experts") or c.get("num_experts") or c.get("n_routed_experts") or 0
    for l in range(c["num_hidden_layers"]):
        for _ in range(2):
            m.add("dense", l, (h,), 2)
        for out, inn in ((heads * d, h), (kv * d, h), (kv * d, h), (h, heads * d)):
            linear(m, "dense", l, out, inn, q)
        if kind.startswith("qwen2"):
            for n in (heads * d, kv * d, kv * d):
                m.add("dense", l, (n,), 2)
        if kind.startswith("qwen3"):
            for _ in range(2):
                m.add("dense", l, (d,), 2)
        if experts and l >= c.get("first_k_dense_replace", 0):
            w = c.get("moe_intermediate_size") or c["intermediate_size"]
            m.add("dense", l, (experts, h), 2)
            for _ in range(experts):
                for out, inn in ((w, h), (w, h), (h, w)):
                    linear(m, "routed_experts", l, out, inn, q)
            shared = c.get("shared_expert_intermediate_size") or c.get("n_shared_experts", 0) * w
            for out, inn in ((shared, h), (shared, h), (h, shared)) if shared else ():
                linear(m, "dense", l, out, inn, q)
            if c.get("shared_expert_intermediate_size"):
                m.add("dense", l, (1, h), 2)
        else:
            w = c["intermediate_size"]
            for out, inn in ((w, h), (w, h), (h, w)):
                linear(m, "dense", l, out, inn, q)
    return m


def mla(c):
    q = {"how": "fp8", "block": 128, "scale": 4} if "quantization_config" in c else None
    m, h, v = Model(), c["hidden_size"], c["vocab_size"]
    heads, rank, kv = c["num_attention_heads"], c.get("q_lora_rank"), c["kv_lora_rank"]
    nope, rope, vd = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    m.add("embed", -1, (v, h), 2, False)
    m.add("head", -1, (v, h), 2)
    m.add("dense", -1, (h,), 2)
    n, drafts = c["num_hidden_layers"], c.get("num_nextn_predict_layers", 0)
    for l in range(n + drafts):
        dense, routed = ("draft", "draft") if l >= n else ("dense", "routed_experts")
        for shape in ((h,), (h,), (kv,)) + (((rank,),) if rank else ()):
            m.add(dense, l, shape, 2)
        for out, inn in ((rank, h), (heads * (nope + rope), rank)) if rank else ((heads * (nope + rope), h),):
            linear(m, dense, l, out, inn, q)
        linear(m, dense, l, kv + rope, h, q)
        linear(m, dense, l, heads * (nope + vd), kv, q)
        linear(m, dense, l, h, heads * vd, q)
        if "index_head_dim" in c:
            ih, idim = c["index_n_heads"], c["index_head_dim"]
            linear(m, dense, l, ih * idim, rank, q)
            linear(m, dense, l, idim, h, q)
            m.add(dense, l, (ih, h), 2)
            m.add(dense, l, (idim,), 2)
            m.add(dense, l, (idim,), 2)
        if l >= c["first_k_dense_replace"]:
            w, e = c["moe_intermediate_size"], c["n_routed_experts"]
            m.add(dense, l, (e, h), 2)
            if c["model_type"] != "deepseek_v2":
                m.add(dense, l, (e,), 4)
            for _ in range(e):
                for out, inn in ((w, h), (w, h), (h, w)):
                    linear(m, routed, l, out, inn, q)
            s = c["n_shared_experts"] * w
            for out, inn in ((s, h), (s, h), (h, s)):
                linear(m, dense, l, out, inn, q)
        else:
            w = c["intermediate_size"]
            for out, inn in ((w, h), (w, h), (h, w)):
                linear(m, dense, l, out, inn, q)
        if l >= n:
            for shape in ((h,), (h,), (h,), (h, 2 * h), (v, h), (v, h)):
                m.add("draft", l, shape, 2)
    return m


def v41(root):
    c, m = root["text_config"], Model()
    h, v, hd, heads = c["hidden_size"], c["vocab_size"], c["head_dim"], c["num_attention_heads"]
    fp8 = {"how": "fp8", "block": 32, "scale": 1}
    m.add("embed", -1, (v, h), 2, False)
    m.add("head", -1, (v, h), 2)
    m.add("dense", -1, (h,), 2)
    n, ranks = c["num_hidden_layers"], c["o_groups"] * c["o_lora_rank"]
    for l in range(n + c["num_nextn_predict_layers"]):
        draft = l >= n
        dense, routed = ("draft", "draft") if draft else ("dense", "routed_experts")
        m.add("kv" if l == c["kv_source_layer_ids"][-1] else dense, l, (h,), 2)       # attn_norm, whose output its keys are made of
        for size in (h, c["q_lora_rank"], hd):
            m.add(dense, l, (size,), 2)
        m.add(dense, l, (heads,), 4)
        for out, inn in ((c["q_lora_rank"], h), (heads * hd, c["q_lora_rank"]), (hd, h), (ranks, heads * hd // c["o_groups"]), (h, ranks)):
            linear(m, dense, l, out, inn, fp8)
        if l in c["kv_source_layer_ids"]:
            kv = "kv" if l == c["kv_source_layer_ids"][-1] else "dense"
            m.add(kv, l, (hd, h), 2)
            m.add(kv, l, (hd,), 2)
            m.add(kv, l, (c["index_head_dim"], hd), 2)
            m.add(kv, l, (c["index_head_dim"],), 2)
            if c["compress_ratios"][l] > 1:
                m.add(kv, l, (hd, h), 2)
        if l in c["index_source_layer_ids"]:
            linear(m, dense, l, c["index_n_heads"] * c["index_head_dim"], c["q_lora_rank"], fp8)
            m.add(dense, l, (c["index_n_heads"], h), 2)
        hc = c["hc_mult"]
        for _ in range(2):
            m.add(dense, l, ((2 + hc) * hc, hc * h), 4)
            m.add(dense, l, ((2 + hc) * hc,), 4)
            m.add(dense, l, (3,), 4)
        e, w = c["dspark_n_routed_experts"] if draft else c["n_routed_experts"], c["moe_intermediate_size"]
        m.add(dense, l, (e, h), 2)
        m.add(dense, l, (e,), 4)
        m.add("draft" if draft else "other", l, (e,), 4)      # bias_vl
        for _ in range(e):
            for out, inn in ((w, h), (w, h), (h, w)):
                linear(m, routed, l, out, inn, {"how": "mxfp4"})
        for out, inn in ((w, h), (w, h), (h, w)):
            linear(m, dense, l, out, inn, fp8)
        if l in c["engram_layer_ids"]:
            rows, dim = c["engram_num_embeddings"][c["engram_layer_ids"].index(l)], c["engram_head_dim"]
            m.add("table", l, (rows, dim), 1, False)
            m.add("table", l, (rows, dim // 32), 1, False, False)
            linear(m, "engram", l, h * (hc + 1), (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"] * dim, fp8)
            for _ in range(2):
                m.add("engram", l, (hc, h), 2)
    rank = c["dspark_markov_rank"]
    linear(m, "draft", -1, h, len(c["dspark_target_layer_ids"]) * h, fp8)
    for shape in ((h,), (h,), (v, rank), (v, rank), (1, h + rank)):
        m.add("draft", -1, shape, 2)
    o = root["vision_config"]
    d, w, side = o["hidden_size"], o["intermediate_size"], o["patch_size"]
    for _ in range(o["num_hidden_layers"]):
        for shape in ((d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (2 * w, d), (d, w)):
            m.add("vision", -1, shape, 2)
    patches = o["downsample_ratio"] ** 2
    for shape in ((d, 3 * side * side), (d,), (d,), (h, d * patches), (h,), (h, h), (h,), (h,), (h,), (h,)):
        m.add("vision", -1, shape, 2)
    return m


def used(m, c, token, layers, tied=False, n_layers=None):
    """Values and bytes that a token uses: dense weights of the layers, top k of E experts, a row of the embedding, its Engram rows."""
    values = size_all = products = expert = 0
    k, e = c.get("num_experts_per_tok", 0), c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts") or 1
    for cls, layer, shape, size, product, counts in m.rows:
        n = Model.count(shape)
        if cls in ("draft", "vision", "other") or (n_layers is not None and layer >= n_layers):
            continue
        last = token == "answer"
        if cls == "embed":
            n = n if tied and last else shape[1]
            product = tied and last
        elif cls == "table":
            n = shape[1] * (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"]
        elif cls == "routed_experts":
            n = n * k / e
        if not last and not (cls == "embed" or 0 <= layer < layers or cls == "kv" and layer == layers):
            continue
        if counts:
            values += n
            products += n if product else 0
        size_all += n * size
        expert += n * size if cls == "routed_experts" else 0
    return round(values), round(size_all), round(2 * products), round(expert)


FOLD = {"embed": "dense", "head": "dense", "kv": "dense", "table": "engram"}


def compare(name, config, m, published=None, use=None, args=()):
    j = plan(config, *args)
    for key, what in (("parameters", "values"), ("weights", "bytes")):
        mine = {}
        for cls, n in m.sums(what).items():
            mine[FOLD.get(cls, cls)] = mine.get(FOLD.get(cls, cls), 0) + n
        theirs = {k: v for k, v in j[key].items() if v and k != "total"}
        expect(theirs == mine, f"{name} {key}: {theirs}, the list has {mine}")
        expect(j[key]["total"] == sum(mine.values()), f"{name}: total of {key}")
    loaded = sum(j["parameters"][k] for k in ("dense", "routed_experts", "engram"))
    expect(j["n_parameters"] == loaded and published in (None, loaded), f"{name}: {j['n_parameters']}, published {published}")
    if use:
        for token in ("prompt", "answer"):
            t = j["token"][token]
            have = (t["active_parameters"], t["weight_bytes"], t["weight_flops"], t["expert_bytes"])
            expect(have == use(token), f"{name} {token}: {have}, the list has {use(token)}")
    return j


def dense_use(m, c, tied=False):
    n = c["num_hidden_layers"]
    return lambda token: used(m, c, token, n, tied, n)


def check_weights():
    known = {"llama-3-8b": 8030261248, "mistral-7b-v0.1": 7241732096, "mistral-7b-v0.3": 7248023552, "qwen2.5-7b": 7615616512,
             "qwen3-8b": 8190735360, "deepseek-67b": 67425001472}
    for name, n in known.items():
        c = data(name)
        m = llama_like(c)
        compare(name, c, m, n, dense_use(m, c))
    small = dict(data("qwen2.5-7b"), hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                 num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True)
    m = llama_like(small)
    compare("qwen2.5-0.5b, tied", small, m, 494032768, dense_use(m, small, True))
    base = {"torch_dtype": "bfloat16", "max_position_embeddings": 32768}
    moes = {
        "mixtral-8x7b": (46702792704, dict(base, model_type="mixtral", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                         num_attention_heads=32, num_key_value_heads=8, vocab_size=32000, num_local_experts=8, num_experts_per_tok=2)),
        "qwen3-30b-a3b": (30532122624, dict(base, model_type="qwen3_moe", hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768,
                          num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128, vocab_size=151936, num_experts=128,
                          num_experts_per_tok=8, decoder_sparse_step=1, mlp_only_layers=[])),
        "qwen1.5-moe-a2.7b": (14315784192, dict(base, model_type="qwen2_moe", hidden_size=2048, intermediate_size=5632, num_hidden_layers=24,
                              moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_attention_heads=16, vocab_size=151936,
                              num_key_value_heads=16, num_experts=60, num_experts_per_tok=4, decoder_sparse_step=1)),
        "deepseek-moe-16b": (16375728128, dict(base, model_type="deepseek", hidden_size=2048, intermediate_size=10944, moe_intermediate_size=1408,
                             num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=16, vocab_size=102400, n_routed_experts=64,
                             n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, moe_layer_freq=1)),
    }
    for name, (n, c) in moes.items():
        m = llama_like(c)
        compare(name, c, m, n, dense_use(m, c))
    # quantised: as many parameters; bytes as int32 words, zeros, scales and indices have them
    c = data("qwen2.5-7b")
    for how, size in (("awq", 5570747392), ("gptq", 5575277568)):
        q = dict(c, quantization_config={"quant_method": how, "bits": 4, "group_size": 128, "zero_point": True})
        j = compare(how, q, llama_like(c, {"how": how}), 7615616512)
        expect(j["weights"]["total"] == size, f"{how}: {j['weights']['total']}")
    for q in ({"quant_method": "bitsandbytes", "load_in_4bit": True}, {"quant_method": "gguf"}, {}):
        j = plan(dict(c, quantization_config=q))
        expect(j["n_parameters"] == 7615616512 and j["weights"] is None and "quantization" in j["weights_note"], str(q))
        expect(j["token"]["answer"]["active_parameters"] > 7e9 and j["token"]["answer"]["weight_bytes"] is None, str(q))
    j = plan(dict(c, quantization_config={"quant_method": "fp8", "activation_scheme": "dynamic"}))
    table = 2 * 152064 * 3584
    linears = 28 * (2 * 3584 * 3584 + 2 * 512 * 3584 + 3 * 18944 * 3584)
    rest = 28 * (3584 + 2 * 512 + 2 * 3584) + 3584
    expect(j["weights"]["total"] == 2 * table + linears + 28 * 7 * 4 + 2 * rest, f"fp8 a tensor: {j['weights']['total']}")
    # MLA
    lite = dict(base, model_type="deepseek_v2", hidden_size=2048, intermediate_size=10944, moe_intermediate_size=1408, num_hidden_layers=27,
                num_attention_heads=16, num_key_value_heads=16, vocab_size=102400, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
                first_k_dense_replace=1, moe_layer_freq=1, kv_lora_rank=512, q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64,
                v_head_dim=128)
    v3 = data("deepseek-v3")
    v32 = dict(v3, model_type="deepseek_v32", index_n_heads=64, index_head_dim=128, index_topk=2048)
    k2 = dict(v3, model_type="kimi_k2", n_routed_experts=384, num_attention_heads=64, first_k_dense_replace=1, vocab_size=163840,
              num_nextn_predict_layers=0)
    for name, c, n in (("deepseek-v2-lite", lite, 15706484224), ("deepseek-v2", data("deepseek-v2"), 235741434880),
                       ("deepseek-v3", v3, 671026419200), ("deepseek-v3.2", v32, 671026419200 + 61 * 13959424), ("kimi-k2", k2, None)):
        m = mla(c)
        j = compare(name, c, m, n, dense_use(m, c))
    # with a draft layer and its copies of embedding and head: what is known as 685 B
    expect(plan(v3)["parameters"]["total"] == 684489845504, "V3 with its draft layer")
    # V4.1: the published sums of the checkpoint's index and of the model's page
    root = data("v41-flash")
    c, m = root["text_config"], v41(root)
    j = compare("v4.1-flash", root, m, 748494669424, lambda token: used(m, c, token, 20))
    expect(j["weights"]["total"] == 510286023000 and j["parameters"]["total"] == 763205315794, f"{j['weights']} {j['parameters']}")
    expect(7.5e9 < j["token"]["prompt"]["active_parameters"] < 8.5e9 and 15.5e9 < j["token"]["answer"]["active_parameters"] < 16.5e9, "8 B and 16 B")
    flat = plan(data("v41-flash-flat"))
    for key in ("dense", "routed_experts", "engram", "draft"):
        expect(flat["weights"][key] <= j["weights"][key] and (key == "draft" or flat["weights"][key] == j["weights"][key]), f"flat: {key}")


# ---- caches, token by token -----------------------------------------------------------------------------------------------------------

def follow(layers, ctx):
    """layers: (bytes of an entry, tokens per entry, window or None). Bytes after ctx tokens."""
    held = [[] for _ in layers]
    for t in range(1, ctx + 1):
        for kept, (size, ratio, window) in zip(held, layers):
            if t % ratio == 0:
                kept.append(size)
            if window and len(kept) > window:
                kept.pop(0)
    return sum(map(sum, held))


def check_caches():
    ctxs = [1, 3, 255, 300, 301, 700]
    text = ",".join(map(str, ctxs))
    mistral = dict(data("mistral-7b-v0.1"), sliding_window=300, num_hidden_layers=4)
    mixed = dict(data("qwen2.5-7b"), use_sliding_window=True, sliding_window=300, max_window_layers=3, num_hidden_layers=5)
    listed = dict(mistral, layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"])
    off = dict(mixed, use_sliding_window=False)
    untold = {k: v for k, v in mixed.items() if k != "use_sliding_window"}
    late = {k: v for k, v in mixed.items() if k != "max_window_layers"}
    v3 = dict(data("deepseek-v3"), num_hidden_layers=4)
    v32 = dict(v3, model_type="deepseek_v32", index_n_heads=64, index_head_dim=128, index_topk=2048)
    m, q = 8 * 128 * 2 * 2, 4 * 128 * 2 * 2                    # keys and values of a layer
    rows = (
        ("mistral", mistral, (), [(m, 1, 300)] * 4), ("mixed", mixed, (), [(q, 1, None)] * 3 + [(q, 1, 300)] * 2),
        ("listed", listed, (), [(m, 1, None), (m, 1, 300), (m, 1, 300), (m, 1, None)]), ("off", off, (), [(q, 1, None)] * 5),
        ("untold", untold, (), [(q, 1, None)] * 5), ("late", late, (), [(q, 1, None)] * 5), ("null", dict(mistral, sliding_window=None), (), [(m, 1, None)] * 4),
        ("mistral fp8", mistral, ("--kv", "fp8"), [(8 * 2 * (128 + 4), 1, 300)] * 4),
        ("v3", v3, (), [(576 * 2, 1, None)] * 4), ("v3.2", v32, (), [(576 * 2 + 132, 1, None)] * 4),
        ("v3.2 fp4", v32, ("--kv", "fp4"), [(576 // 2 + 36 + 132, 1, None)] * 4),
        ("v3.2 index", v32, ("--kv", "index=bf16"), [(576 * 2 + 256, 1, None)] * 4),
    )
    for name, c, args, layers in rows:
        j = plan(c, "--ctx", text, *args)
        for row in j["contexts"]:
            mine = follow(layers, row["ctx"])
            expect(row["total_bytes"] == mine, f"{name} at {row['ctx']}: {row['total_bytes']}, followed {mine}")
            parts = sum(row[p + "_bytes"] for p in j["part_names"])
            expect(parts == row["global_bytes"] and row["global_bytes"] + row["window_bytes"] == row["total_bytes"], f"{name}: parts")
        expect(j["bytes_per_token"] == sum(s / r for s, r, _ in layers), f"{name}: {j['bytes_per_token']} a token")
        expect(j["global_bytes_per_token"] == sum(s / r for s, r, w in layers if not w), f"{name}: {j['global_bytes_per_token']} after")
        expect(j["window_bytes_per_token"] == j["bytes_per_token"] - j["global_bytes_per_token"], f"{name}: windows' rate")
        expect(sum(s["bytes_per_token"] for s in j["sources"]) == j["bytes_per_token"], f"{name}: sources")
    # V4.1: entries and windows; a window is there whole
    c = data("v41-flash")
    for row in plan(c, "--ctx", text)["contexts"]:
        expect(row["global_bytes"] == follow([(356, 2, None)] * 3 + [(356, 1, None)], row["ctx"]), f"V4.1 at {row['ctx']}")
        expect(row["window_bytes"] == 40 * 128 * 528, "V4.1: windows")
    # operations and reads of an answer at one context, written out
    n, j = 700, plan(c, "--ctx", "700")
    row, attended = j["contexts"][0], 0
    for l in range(40):
        ratio = c["text_config"]["compress_ratios"][l]
        attended += min(n, 128) + (min(512, n // ratio) if ratio else 0)
    scored = sum(n // (2 if l < 20 else 1) for l in (2, 8, 14, 20, 24, 28, 32, 36))
    expect(row["answer_flops"] == j["token"]["answer"]["weight_flops"] + 4 * 64 * 512 * attended + 2 * 32 * 128 * scored, "V4.1: operations")
    reads = 40 * 128 * 528 + 288 * (18 * min(512, 350) + 20 * 512) + 68 * scored
    expect(row["answer_cache_read_bytes"] == reads, f"V4.1: reads {row['answer_cache_read_bytes']}, {reads}")
    m7 = plan(data("llama-3-8b"), "--ctx", "1000")
    row = m7["contexts"][0]
    expect(row["answer_flops"] == m7["token"]["answer"]["weight_flops"] + 4 * 32 * 128 * 32 * 1000 and row["answer_cache_read_bytes"] == 131072000, "llama")


# ---- checkpoints: the tensors decide, whatever they are packed in -------------------------------------------------------------------

def write(folder, config, tensors):
    """tensors: name -> (dtype, shape); all zeros."""
    size = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "F8_E4M3": 1, "I8": 1, "F8_E8M0": 1, "U8": 1}
    os.makedirs(folder, exist_ok=True)
    header, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        n = Model.count(shape) * size[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    blob = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(blob)) + blob + bytes(at))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    return at, 8 + len(blob)


def of_folder(folder):
    r = subprocess.run([MOTE, "plan", folder, "--json"], capture_output=True, text=True, timeout=60)
    expect(r.returncode == 0, r.stderr)
    return json.loads(r.stdout)


def check_checkpoints():
    folder = os.path.join(TMP, "folder")
    h, w, v, kv = 256, 512, 320, 128
    base = {"model_type": "qwen2", "hidden_size": h, "intermediate_size": w, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": v, "max_position_embeddings": 512, "torch_dtype": "float16", "rms_norm_eps": 1e-6}
    linears = {"self_attn.q_proj": (h, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h), "self_attn.o_proj": (h, h),
               "mlp.gate_proj": (w, h), "mlp.up_proj": (w, h), "mlp.down_proj": (h, w)}

    def common():
        t = {"model.embed_tokens.weight": ("F16", (v, h)), "lm_head.weight": ("F16", (v, h)), "model.norm.weight": ("F16", (h,))}
        for l in range(2):
            for n in ("input_layernorm", "post_attention_layernorm"):
                t[f"model.layers.{l}.{n}.weight"] = ("F16", (h,))
            for n, size in (("q", h), ("k", kv), ("v", kv)):
                t[f"model.layers.{l}.self_attn.{n}_proj.bias"] = ("F16", (size,))
        return t

    def packed(how, out, inn):
        if how == "awq":
            return {"qweight": ("I32", (inn, out // 8)), "qzeros": ("I32", (inn // 128, out // 8)), "scales": ("F16", (inn // 128, out))}
        if how == "gptq":
            return {"qweight": ("I32", (inn // 8, out)), "qzeros": ("I32", (inn // 128, out // 8)), "scales": ("F16", (inn // 128, out)),
                    "g_idx": ("I32", (inn,))}
        if how == "compressed-tensors":
            return {"weight_packed": ("I32", (out, inn // 8)), "weight_scale": ("BF16", (out, inn // 128)), "weight_shape": ("I64", (2,))}
        if how == "fp8":
            return {"weight": ("F8_E4M3", (out, inn)), "weight_scale": ("F32", (1,))}
        return {"weight": ("U8", (out * inn // 2, 1)), "weight.absmax": ("F32", (out * inn // 64,)), "weight.quant_map": ("F32", (16,)),
                "weight.quant_state.bitsandbytes__nf4": ("U8", (70,))}

    want = plan(base)["n_parameters"]
    group = {"weights": {"num_bits": 4, "strategy": "group", "group_size": 128, "symmetric": True}}
    for how, more in (("awq", {"bits": 4, "group_size": 128}), ("gptq", {"bits": 4, "group_size": 128}), ("bitsandbytes", {"load_in_4bit": True}),
                      ("compressed-tensors", {"format": "pack-quantized", "config_groups": {"group_0": group}}), ("fp8", {"activation_scheme": "dynamic"})):
        t = common()
        for l in range(2):
            for name, (out, inn) in linears.items():
                for tail, row in packed(how, out, inn).items():
                    t[f"model.layers.{l}.{name}.{tail}"] = row
        config = dict(base, quantization_config=dict(more, quant_method=how))
        size, head = write(folder, config, t)
        j = of_folder(folder)
        expect((j["weights_source"], j["n_parameters"], j["weights"]["total"], j["header_bytes"]) == ("checkpoint", want, size, head),
               f"{how}: {j['weights_source']} {j['n_parameters']} {j['weights']} {j['header_bytes']}, {want} {size} {head}")
        g = plan(config)
        told = g["weights"] and not g["runs"]                 # what mote runs has scales of its own kind
        expect(g["n_parameters"] == want and (not told or g["weights"]["total"] == size), f"{how}: {g['weights']}, {size}")
        expect(j["token"]["answer"]["weight_flops"] == plan(base)["token"]["answer"]["weight_flops"], f"{how}: operations")
    # a draft layer behind the last is not loaded, in a checkpoint as in the geometry
    c = dict(data("deepseek-v3"), hidden_size=256, intermediate_size=256, moe_intermediate_size=128, n_routed_experts=4, num_experts_per_tok=2,
             num_attention_heads=2, num_hidden_layers=2, first_k_dense_replace=1, vocab_size=128, kv_lora_rank=128, q_lora_rank=128)
    del c["quantization_config"]
    t = {"model.embed_tokens.weight": ("BF16", (128, 256)), "lm_head.weight": ("BF16", (128, 256)), "model.norm.weight": ("BF16", (256,))}
    for l in range(3):
        p = f"model.layers.{l}."
        rows = {"input_layernorm": (256,), "post_attention_layernorm": (256,), "self_attn.q_a_proj": (128, 256), "self_attn.q_a_layernorm": (128,),
                "self_attn.q_b_proj": (2 * 192, 128), "self_attn.kv_a_proj_with_mqa": (192, 256), "self_attn.kv_a_layernorm": (128,),
                "self_attn.kv_b_proj": (2 * 256, 128), "self_attn.o_proj": (256, 256)}
        if l == 0:
            rows.update({"mlp.gate_proj": (256, 256), "mlp.up_proj": (256, 256), "mlp.down_proj": (256, 256)})
        else:
            rows["mlp.gate"] = (4, 256)
            t[p + "mlp.gate.e_score_correction_bias"] = ("F32", (4,))
            for who in [f"experts.{e}" for e in range(4)] + ["shared_experts"]:
                rows.update({f"mlp.{who}.gate_proj": (128, 256), f"mlp.{who}.up_proj": (128, 256), f"mlp.{who}.down_proj": (256, 128)})
        if l == 2:
            rows.update({"enorm": (256,), "hnorm": (256,), "shared_head.norm": (256,), "eh_proj": (256, 512), "embed_tokens": (128, 256),
                         "shared_head.head": (128, 256)})
        t.update({p + name + ".weight": ("BF16", shape) for name, shape in rows.items()})
    write(folder, c, t)
    j, g = of_folder(folder), plan(c)
    for key in ("weights", "parameters", "token"):
        expect(j[key] == g[key] and j["weights"]["draft"] > 0, f"draft: {key} {j[key]} {g[key]}")
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    os.rmdir(folder)


def check_memory():
    c = data("v41-flash")
    j = plan(c, "--ram", "64G", "--disk", "2G", "--ctx", "4K")
    r, w = j["ram"], j["weights"]
    row = r["mapped"]["contexts"][0]
    expect((r["bytes"], r["source"], r["available_bytes"], r["disk_bytes_per_second"]) == (64 << 30, "given", None, 2 << 30), str(r)[:300])
    room = (64 << 30) - row["held_bytes"]
    t = j["token"]["answer"]
    there = room - (t["weight_bytes"] - t["expert_bytes"])
    missing = t["expert_bytes"] * (1 - there / w["routed_experts"]) + 2 * 24 * 2 * 4096
    expect(row["page_bytes"] == room and row["experts_in_memory_bytes"] == there, str(row))
    expect(abs(row["answer_disk_bytes"] - missing) < 2 and abs(row["answer_disk_seconds"] - missing / (2 << 30)) < 1e-6, f"{row} {missing}")
    chunk = w["routed_experts"] / 2 * (1 - there / w["routed_experts"])
    expect(abs(row["prompt_chunk_disk_bytes"] - chunk) < 2, f"{row} {chunk}")
    expect("streamed" not in r and r["resident"]["limited_by"] == "weights", str(r)[:300])
    for size, answer in (("1T", 0), ("1G", t["weight_bytes"])):
        row = plan(c, "--ram", size, "--ctx", "4K")["ram"]["mapped"]["contexts"][0]
        expect(row["answer_disk_bytes"] == answer, f"{size}: {row}")
    row = plan(c, "--ram", "1M", "--ctx", "4K")["ram"]["mapped"]["contexts"][0]
    expect(row["page_bytes"] is None and row["answer_disk_bytes"] is None, str(row))
    # this machine's memory unless told otherwise
    r = plan(c)["ram"]
    total = next(int(line.split()[1]) * 1024 for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    expect(r["source"] in ("machine", "control group") and 0 < r["bytes"] <= total and r["available_bytes"] <= r["bytes"], str(r)[:300])
    expect("of this machine (" in mote(c).stdout or "of this control group (" in mote(c).stdout, "text: whose memory")
    # what mote does not run is not promised
    expect(plan(data("deepseek-v3"), "--ram", "64G")["ram"]["mapped"]["contexts"] is None, "V3: paging")
    expect("paged" not in mote(data("deepseek-v3"), "--ram", "64G").stdout, "V3: paging in the text")


# ---- text, pages and pictures say the same --------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def inside(path):
    """Every figure of the picture is inside it, in x and y; groups are translated in y."""
    text = open(path, encoding="utf-8").read()
    expect("nan" not in text.lower().replace("ynan", "") and "inf" not in re.sub(r"[a-z]*info?r[a-z]*", "", text.lower()), f"{path}: nan or inf")
    root = ElementTree.fromstring(text)
    width, height = float(root.get("width")), float(root.get("height"))
    seen = 0
    for g in root.findall(SVG + "g"):
        down = float(re.match(r"translate\(0 ([0-9.]+)\)", g.get("transform")).group(1))
        for o in g.iter():
            box = None
            get = lambda k: float(o.get(k))
            if o.tag == SVG + "rect":
                box = (get("x"), get("y"), get("x") + get("width"), get("y") + get("height"))
                expect(get("width") >= 0 and get("height") >= 0, f"{path}: a rectangle turned inside out")
            elif o.tag == SVG + "line":
                box = (min(get("x1"), get("x2")), min(get("y1"), get("y2")), max(get("x1"), get("x2")), max(get("y1"), get("y2")))
            elif o.tag == SVG + "text":
                w = 6.9 * len(o.text or "")
                x = get("x") - {"start": 0, "middle": w / 2, "end": w}[o.get("text-anchor")]
                box = (x, get("y") - 11, x + w, get("y"))
            if box:
                seen += 1
                good = box[0] >= -1 and box[2] <= width + 1 and box[1] + down >= -1 and box[3] + down <= height + 1
                expect(good, f"{path}: {o.tag[len(SVG):]} '{o.text or ''}' at {box} leaves {width} x {height}")
    return seen


def leaves(o):
    if isinstance(o, dict):
        for v in o.values():
            yield from leaves(v)
    elif isinstance(o, list):
        for v in o:
            yield from leaves(v)
    else:
        yield o


def bytes_text(v):
    u = 0
    while v >= 1024 and u < 6:
        v /= 1024
        u += 1
    return f"{v:.{0 if u == 0 and v == int(v) else 2 if v < 10 else 1}f} {['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'][u]}"


def check_words():
    """Each table of the text is in the page, cell by cell; each number of both is in the JSON."""
    svg, html = os.path.join(TMP, "p.svg"), os.path.join(TMP, "p.html")
    v32 = dict(data("deepseek-v3"), model_type="deepseek_v32", index_n_heads=64, index_head_dim=128, index_topk=2048)
    rows = [(n, data(n)) for n in ("v41-flash", "v41-flash-flat", "mistral-7b-v0.1", "deepseek-v4-flash", "llama-3-8b", "deepseek-v3", "tiny-a")]
    rows += [("v3.2", v32), ("mixed", dict(data("qwen2.5-7b"), use_sliding_window=True, sliding_window=4096, max_window_layers=20)),
             ("bnb", dict(data("qwen2.5-7b"), quantization_config={"quant_method": "bitsandbytes"}))]
    for name, c in rows:
        for ctx in ("1", "1073741824", ",".join(str(1000 * i) for i in range(1, 100))):
            args = ("--ctx", ctx, "--ram", "64G", "--disk", "1G", "--svg", svg, "--html", html)
            r = mote(c, *args)
            expect(r.returncode == 0, f"{name} {ctx}: {r.stderr}")
            expect(inside(svg) > 20, f"{name}: an empty picture")
            expect(all(len(line) <= 80 for line in r.stdout.splitlines()[1:] if "sums only" not in line and not line.startswith("  '")),
                   f"{name}: {[line for line in r.stdout.splitlines()[1:] if len(line) > 80]}")
            expect(not re.search(r"(?i)\bnan\b|\binf\b", r.stdout), f"{name}: nan or inf")
            page = open(html, encoding="utf-8").read()
            body = ElementTree.fromstring(page[page.index("<html"):])
            cells = {t.text for t in body.iter("td")}
            j = plan(c, *args[:6])
            # the formats: same words, same numbers, in all three
            keys = [p + "_bytes_per_token" for p in j["part_names"]] + ["bytes_per_token"]
            for f in j["formats"]:
                line = next((x.split() for x in r.stdout[r.stdout.index("With other formats"):].splitlines() if x.split()[:1] == [f["option"]]), [])
                shown = [f"{f[k]:,}" if f[k] == int(f[k]) and f[k] >= 1000 else f"{f[k]:.7g}" for k in keys]
                expect(line[1:4] == shown and set(shown) | {f["option"]} <= cells, f"{name} {f['option']}: {line} {shown}")
                if f["option"] != "published" and ctx == "1":
                    other = plan(c, "--kv", f["option"])
                    expect([other[k] for k in keys] == [f[k] for k in keys], f"{name}: --kv {f['option']} means something else")
            # sizes of the text are sizes of the JSON, and stand in the page
            known = {bytes_text(v) for v in leaves(j) if isinstance(v, (int, float)) and not isinstance(v, bool) and v >= 0}
            sizes = set(re.findall(r"\d[\d,.]* (?:[KMGTPE]i)?B\b(?!ack)", r.stdout[r.stdout.index("\nCache of one"):].split("\nWith other")[0]))
            expect(sizes <= known, f"{name}: {sizes - known} are not in the JSON")
            every = " ".join(body.itertext())
            expect(all(s in every for s in sizes), f"{name}: {[s for s in sizes if s not in every]} are not in the page")
    text = mote(data("mistral-7b-v0.1")).stdout
    expect("131,072" in text and "up to 4,096 tokens" in text and "nothing more" in text and not re.search(r"together +0\b", text), text[:900])
    text = mote(data("v41-flash")).stdout
    expect("551.6 B backbone + 196.9 B Engram" in text and "experts, embed, engram streamed" in text and "475.2 GiB" in text, text[:600])


def check_absurd():
    c = data("qwen2.5-7b")
    most = dict(c, model_type="qwen2_moe", hidden_size=1 << 20, intermediate_size=1 << 20, num_hidden_layers=1024, num_attention_heads=1024,
                num_key_value_heads=1024, head_dim=512, vocab_size=1 << 24, num_experts=65536, num_experts_per_tok=65536, moe_intermediate_size=1 << 20)
    r = mote(most)
    expect(r.returncode == 1 and "2^63" in r.stderr and r.stderr.count("\n") == 1, str(r))
    # just as large, but for the experts: sums that still fit
    j = plan(dict(most, num_experts=0, num_experts_per_tok=0), "--ctx", "1073741824", "--kv", "f32")
    row = j["contexts"][0]
    expect(row["global_bytes"] == 1024 * (1 << 19) * 2 * 4 * (1 << 30) == row["total_bytes"], str(row))
    for change, words in (({"num_hidden_layers": 0}, "'num_hidden_layers' is 0"), ({"num_hidden_layers": 1 << 40}, "num_hidden_layers"),
                          ({"num_key_value_heads": 0}, "'num_key_value_heads' is 0"), ({"head_dim": 0}, "'head_dim' is 0"),
                          ({"hidden_size": -1}, "'hidden_size' is -1"), ({"vocab_size": 1e300}, "vocab_size"),
                          ({"num_experts": 4, "num_experts_per_tok": 5}, "'num_experts_per_tok' is 5, of 4"),
                          ({"max_position_embeddings": 0}, "max_position_embeddings")):
        r = mote(dict(c, **change))
        expect(r.returncode == 1 and words in r.stderr and r.stderr.count("\n") == 1, f"{change}: {r}")
    expect(plan(dict(c, num_hidden_layers=28.0))["n_parameters"] == 7615616512, "28.0 layers")


for check in (check_weights, check_checkpoints, check_caches, check_memory, check_words, check_absurd):
    check()
for name in os.listdir(TMP):
    os.remove(os.path.join(TMP, name))
os.rmdir(TMP)
print(f"{len(failures)} failures")
sys.exit(bool(failures))
