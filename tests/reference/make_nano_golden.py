#!/usr/bin/env python3
"""Write nano-golden/nano.{fp32,plainkv}.n200.safetensors: logits of the bundled model on BOS + the first 199 ids of heldout.txt.

    python3 make_nano_golden.py MODEL_DIR IDS.json OUT_DIR      (IDS: BOS + heldout.txt)

fp32: default formats; plainkv: f32 caches. Kept: the last 40 rows of prefill, the last 8 of decoder replay and of encoder replay at a
cut of 128, and after each of the three 24 greedy steps with the last 4 rows.
"""
import json
import os
import sys

from make_golden import scenario, store
from v41_reference import Model
import numpy as np

folder, ids_file, out = sys.argv[1:]
ids = np.array(json.load(open(ids_file))[:200], np.int32)
for name, formats in (("fp32", {}), ("plainkv", dict(main_kv="fp32", window_kv="fp32", index_kv="fp32"))):
    res, _ = scenario(Model(folder, **formats), ids, 128)
    keep = {"prefill_logits": 40, "bounded_logits": 8, "encreplay_logits": 8}
    rows = {"ids": ids}
    for k, v in res.items():
        if "whole" not in k:
            rows[k] = v[-keep.get(k, len(v) if k.endswith("_ids") else 4):]
    print(name, store(os.path.join(out, f"nano.{name}.n200.safetensors"), rows))
