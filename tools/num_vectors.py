#!/usr/bin/env python3
"""Writes tests/data/num/kvfmt.bin: cache vectors as the NumPy reference quantises them.

    python3 tools/num_vectors.py REFERENCE_DIR tests/data/num/kvfmt.bin

REFERENCE_DIR holds v41_reference.py. Per format, little-endian: name (16 bytes, zero-padded), u32 n, n inputs (f32),
n * code_bits / 8 bytes of codes, n / group bytes of scales, n values read back (f32).
"""
import struct
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import v41_reference as ref  # noqa: E402

F32 = np.float32
for g in (32, 64, 128):
    ref.QUANT[f"fp4-{g}"] = (g,) + ref.QUANT["fp4_g16_e4m3"][1:]
NAMES = {"fp4": "fp4_g16_e4m3", "mxfp4": "mxfp4_g32", "fp4-32": "fp4-32", "fp4-64": "fp4-64", "fp4-128": "fp4-128",
         "fp8": "fp8", "bf16": "bf16", "f32": "fp32"}


def inputs(seed):
    r = np.random.default_rng(seed)
    normal = r.standard_normal(128)
    spread = r.standard_normal(128) * 2.0 ** r.integers(-40, 30, 128)
    # ties: midpoints of E2M1 times a power of two, with the group's largest at 6 times it
    ties = r.choice([.25, .75, 1.25, 1.75, 2.5, 3.5, 5, 6, -.25, -2.5, -5], 128) * 2.0 ** r.integers(-3, 3)
    ties[::16] = 6 * np.abs(ties).max() / 6
    tiny = np.concatenate([np.zeros(32), r.standard_normal(32) * 1e-42, r.standard_normal(32) * 1e-38,
                           -np.abs(r.standard_normal(32)) * 1e-6])
    huge = r.standard_normal(128) * 1e4
    outlier = r.standard_normal(128) * 1e-2
    outlier[r.integers(0, 128, 4)] = 1e3
    return np.concatenate([normal, spread, ties, tiny, huge, outlier]).astype(F32)


with open(sys.argv[2], "wb") as f:
    for i, (name, fmt) in enumerate(NAMES.items()):
        x = inputs(i + 1)
        back = ref.qdq(x, fmt)
        if fmt in ref.QUANT:
            q, s = ref.quantise(x, fmt)
            q = q.reshape(-1)
            if fmt in ("mxfp4_g32", "fp8"):
                scales = ref.e8m0_encode(s)
            else:
                scales = ref.e4m3_encode(s)
            if fmt == "fp8":
                codes = ref.e4m3_encode(q)
            else:
                c = ref.e2m1_encode(q)
                codes = c[0::2] | c[1::2] << 4
        else:
            scales = np.zeros(0, np.uint8)
            codes = (back.view(np.uint32) >> 16).astype("<u2") if fmt == "bf16" else back
        f.write(struct.pack("<16sI", name.encode(), len(x)) + x.astype("<f4").tobytes() + codes.tobytes()
                + scales.astype(np.uint8).tobytes() + back.astype("<f4").tobytes())
