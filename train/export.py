#!/usr/bin/env python3
"""Write a trained model as a checkpoint (published DeepSeek-V4.1-Flash layout, or Llama style for the dense twins); read one back.

    python3 export.py --model RUN/model.pt --data DATA --out CKPT [--shards 2]

Storage (as in the published checkpoint):
  F8_E4M3 + F8_E8M0 [out/32, in/32]   attn.wq_a wq_b wkv wo_a wo_b, indexer.wq_b, shared experts, engram.wkv
  I8 (two E2M1, even column low) + F8_E8M0 [out, in/32]   routed experts
  F8_E4M3 [rows, dim] + F8_E8M0 [rows, dim/32]            engram.embed
  F32                                 attn_sink, hc_*, ffn.gate.bias
  BF16                                embed, head, norms, ffn.gate.weight, compressor.wkv / wgate,
                                      indexer.wk / weights_proj, engram q_weight / k_weight
ffn.gate.weight is BF16: the published inference code widens it to fp32 for the product, and its only other
storage choice would be F32; training rounds it to bf16 whenever quantisation is on, so nothing is lost.
"""
import argparse
import json
import os
import shutil

import numpy as np
import torch

from config import Cfg, engram_multipliers, engram_primes
from llama import DenseCfg, dense_spec
from params import param_spec
from quant import (n_bf16_bits, n_bf16_value, n_dequant_fp8_block, n_dequant_fp8_rows, n_dequant_mxfp4,
                   n_quant_fp8_block, n_quant_fp8_rows, n_quant_mxfp4)
from shards import dump, read_shards, write_shards
from state import load_model

PLAIN = ("attn_sink", "q_weight", "k_weight", "gate.weight", "gate.bias", "embed.weight", "head.weight")


def public_name(name):
    """Internal parameter name -> published tensor name (weight part)."""
    last = name.split(".")[-1]
    if last.startswith("hc_") or name.endswith(PLAIN) and not name.endswith("engram.embed"):
        return name
    return name + ".weight"


def tensors_of(spec, state):
    """Yield (published name, dtype, raw array) in layer order, Engram tables last."""
    tables = []
    for name, (shape, kind, _) in spec.items():
        w = state[name]
        pub = public_name(name)
        if kind == "mx4":
            base = name.rsplit(".", 1)
            for e in range(shape[0]):
                q, s = n_quant_mxfp4(w[e])
                yield f"{base[0]}.{e}.{base[1]}.weight", "I8", q
                yield f"{base[0]}.{e}.{base[1]}.scale", "F8_E8M0", s
        elif kind == "fp8":
            q, s = n_quant_fp8_block(w)
            yield pub, "F8_E4M3", q
            yield pub[:-6] + "scale", "F8_E8M0", s
        elif kind == "table":
            tables.append((pub, w))
        elif kind == "bf16":
            yield pub, "BF16", n_bf16_bits(w)
        else:
            yield pub, "F32", np.ascontiguousarray(w, np.float32)
        if name.endswith("ffn.gate.weight"):
            bias = name[:-6] + "bias"
            yield bias, "F32", np.ascontiguousarray(state[bias], np.float32)
    for pub, w in tables:
        q, s = n_quant_fp8_rows(w)
        yield pub, "F8_E4M3", q
        yield pub[:-6] + "scale", "F8_E8M0", s


def root_config(text):
    return {"architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
            "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
            "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
                                    "weight_block_size": [32, 32], "scale_fmt": "ue8m0", "expert_dtype": "fp4"},
            "text_config": text}


def export(model, data, out, shards=2):
    """model: as state.load_model returns it. data: folder with tokenizer.json (None in tests)."""
    text = model["text"]
    state = {k: np.ascontiguousarray(v.float().numpy()) for k, v in model["state"].items()}
    if text["model_type"] == "llama":
        items, config = list(dense_tensors(dense_spec(DenseCfg(text)), state)), dense_root_config(text)
    else:
        items, config = list(tensors_of(param_spec(Cfg(text)), state)), root_config(text)
    total, sizes = write_shards(out, items, shards)
    dump(config, os.path.join(out, "config.json"))
    dump({"_from_model_config": True, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "do_sample": True,
          "temperature": 1.0, "top_p": 0.95}, os.path.join(out, "generation_config.json"))
    if data:
        for f in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(data, f), os.path.join(out, f))
    if text["model_type"] != "llama":
        engram_tables(text, np.asarray(model["token_map"], np.int32), out)
    return total, sizes


def engram_tables(text, tm, out):
    """Derived data, for engines and for the NumPy reference; both follow from tokenizer.json and config.json."""
    tm.tofile(os.path.join(out, "engram_token_map.i32"))
    primes = engram_primes(text)
    flat = [[v for r in layer for v in r] for layer in primes]
    dump(dict(layer_ids=text["engram_layer_ids"], compressed_vocab_size=text["engram_compressed_vocab_size"],
              pad_id=int(tm[text["engram_pad_token_id"]]), primes=primes,
              offsets=[[sum(f[:i]) for i in range(len(f))] for f in flat], rows=[sum(f) for f in flat],
              multipliers=[[int(v) for v in m] for m in engram_multipliers(text)]),
         os.path.join(out, "engram_tables.json"), 1)


# -- reading -----------------------------------------------------------------------------------------
def import_checkpoint(folder):
    """Exported folder -> {"text", "token_map", "state", "meta"}: own dequantiser, values on their grids."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    if config["model_type"] == "llama":
        return dense_import(config, read_shards(folder))
    text, raw, used, state = config["text_config"], read_shards(folder), set(), {}

    def get(k):
        used.add(k)
        return raw[k]
    for name, (shape, kind, _) in param_spec(Cfg(text)).items():
        pub = public_name(name)
        if kind == "mx4":
            a, b = name.rsplit(".", 1)
            w = np.stack([n_dequant_mxfp4(get(f"{a}.{e}.{b}.weight"), get(f"{a}.{e}.{b}.scale")) for e in range(shape[0])])
        elif kind == "fp8":
            w = n_dequant_fp8_block(get(pub), get(pub[:-6] + "scale"))
        elif kind == "table":
            w = n_dequant_fp8_rows(get(pub), get(pub[:-6] + "scale"))
        elif kind == "bf16":
            w = n_bf16_value(get(pub))
        else:
            w = np.array(get(pub))
        state[name] = torch.from_numpy(np.ascontiguousarray(w, np.float32).reshape(shape))
        if name.endswith("ffn.gate.weight"):
            state[name[:-6] + "bias"] = torch.from_numpy(np.array(get(name[:-6] + "bias")))
    assert used == set(raw), sorted(set(raw) - used)[:5]
    tm = np.fromfile(os.path.join(folder, "engram_token_map.i32"), np.int32)
    return {"text": text, "token_map": torch.from_numpy(tm).long(), "state": state, "meta": {"from": "checkpoint"}}


# -- the dense twins ----------------------------------------------------------------------------------
def dense_root_config(text):
    return {**text, "dtype": "bfloat16", "torch_dtype": "bfloat16",
            "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
                                    "scale_fmt": "ue8m0"}}


def dense_tensors(spec, state):
    for name, (_, kind, _) in spec.items():
        if kind == "fp8":
            q, s = n_quant_fp8_block(state[name])
            yield name, "F8_E4M3", q
            yield name + "_scale_inv", "F8_E8M0", s
        else:
            yield name, "BF16", n_bf16_bits(state[name])


def dense_import(config, raw):
    text, state = {k: v for k, v in config.items() if k not in ("quantization_config", "dtype", "torch_dtype")}, {}
    for name, (shape, kind, _) in dense_spec(DenseCfg(text)).items():
        w = n_dequant_fp8_block(raw.pop(name), raw.pop(name + "_scale_inv")) if kind == "fp8" else n_bf16_value(raw.pop(name))
        state[name] = torch.from_numpy(np.ascontiguousarray(w, np.float32).reshape(shape))
    assert not raw, sorted(raw)[:5]
    return {"text": text, "token_map": torch.zeros(0, dtype=torch.long), "state": state, "meta": {"from": "checkpoint"}}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True, help="RUN/model.pt or RUN/state_full.pt")
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--shards", type=int, default=2)
    a = ap.parse_args()
    total, sizes = export(load_model(a.model), a.data, a.out, a.shards)
    print(f"exported {total:,} tensor bytes in shards of {[f'{s / 2 ** 20:.2f} MiB' for s in sizes]} to {a.out}")


if __name__ == "__main__":
    main()
