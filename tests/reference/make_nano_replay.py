#!/usr/bin/env python3
"""Write nano-golden/nano.plainkv.replay.safetensors: encoder replay of the bundled model after cuts at 256 and 512.

    python3 make_nano_replay.py MODEL_DIR IDS.json OUT.safetensors      (IDS: BOS + heldout.txt; the first 540 are used)

For each cut P: a session that knows the global KV of the first P tokens replays its windows (bounded), runs the rest with bounded
decoder prefill; the last 4 rows of logits are kept. KV formats f32, so that results can be compared closely.
"""
import json
import sys

from v41_reference import Model, write_safetensors
import numpy as np

folder, ids_file, out = sys.argv[1:]
ids = json.load(open(ids_file))[:540]
m = Model(folder, main_kv="fp32", window_kv="fp32", index_kv="fp32")
donor = m.session()
for a in range(0, len(ids), 128):
    donor.encode(ids[a:a + 128])
t = {"ids": ("I32", np.array(ids, np.int32))}
for cut in (256, 512):
    s = m.session_from_prefix(donor, cut)
    s.replay_encoder()
    logits, _ = s.prefill_bounded(ids[cut:])
    t[f"cut{cut}"] = ("F32", np.ascontiguousarray(logits[-4:], np.float32))
write_safetensors(out, t)
