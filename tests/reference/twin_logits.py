#!/usr/bin/env python3
"""What llama_reference.py computes on the first 65 ids of a text, for tests/engine/twins.c.

    python3 tests/reference/twin_logits.py models/twins/NAME IDS.json          (IDS: BOS and the text's ids)

Writes reference.safetensors into the folder: ids [65], positions [8], logits [8, vocab] of those positions, nothing of the cache rounded.
"""
import json
import os
import sys

from llama_reference import Llama
from v41_reference import write_safetensors
import numpy as np

POSITIONS = [0, 1, 2, 15, 31, 47, 63, 64]

if __name__ == "__main__":
    folder, ids_file = sys.argv[1:]
    with open(ids_file, encoding="utf-8") as f:
        ids = np.array(json.load(f)[:65], np.int32)
    logits = Llama(folder, key="fp32", value="fp32").forward(ids)
    write_safetensors(os.path.join(folder, "reference.safetensors"),
                      {"ids": ("I32", ids), "positions": ("I32", np.array(POSITIONS, np.int32)), "logits": ("F32", logits[POSITIONS])})
