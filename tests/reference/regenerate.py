#!/usr/bin/env python3
"""Write the tiny checkpoints and their golden vectors anew, from the seeds that golden-manifest.json records.

    python3 regenerate.py OUT_DIR [--all] [--stamp FILE]

OUT_DIR/checkpoints/NAME and OUT_DIR/golden/*.safetensors. The checkpoints must come out byte for byte (SHA-256 in the
manifest). Prompts are not searched for: make_golden.py did that once and noted the seed of each. Without --all only what
the tests read is made. Needs Debian's python3-numpy.
"""
import json
import multiprocessing
import os
import sys

import make_checkpoint
import make_golden
from make_golden import ABLATIONS, scenario, sha, store
from v41_reference import Model
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PLAIN = dict(main_kv="fp32", window_kv="fp32", index_kv="fp32")


def one_case(job):
    case, out = job
    folder = os.path.join(out, "checkpoints", case["config"])
    path = os.path.join(out, "golden", case["file"])
    vocab = json.load(open(os.path.join(folder, "config.json")))["text_config"]["vocab_size"]
    ids = np.random.default_rng(case["prompt_seed"]).integers(0, vocab, case["tokens"]).astype(np.int32)
    kind = case.get("kind")
    if kind == "ablation":
        rows = {f"{part}.{fmt}": Model(folder, **{part + "_kv": fmt}).session().forward(ids)[-8:] for part, fmt in ABLATIONS}
    elif kind == "trace":
        rows = {}
        Model(folder, case["mode"]).session().forward(ids, rows)
    else:
        plain = ".plainkv." in case["file"]
        m = Model(folder, "fp32", **PLAIN) if plain else Model(folder, case["mode"])
        rows, _ = scenario(m, ids, case.get("encreplay_cut"))
    shapes = store(path + ".tmp", {"ids": ids, **rows})
    want = {k: list(v) for k, v in case["tensors"].items()}
    if shapes != want:
        sys.exit(f"{case['file']}: shapes differ from the manifest: {shapes} {want}")
    os.replace(path + ".tmp", path)
    return case["file"]


def main(out, everything):
    manifest = json.load(open(os.path.join(HERE, "golden-manifest.json")))
    os.makedirs(os.path.join(out, "golden"), exist_ok=True)
    for name, files in manifest["checkpoints"].items():
        folder = os.path.join(out, "checkpoints", name)
        if not all(os.path.exists(os.path.join(folder, f)) and sha(os.path.join(folder, f)) == s for f, s in files.items()):
            make_checkpoint.write(name, folder)
        for f, s in files.items():
            if sha(os.path.join(folder, f)) != s:
                sys.exit(f"{name}/{f}: not the bytes that the manifest names")
    cases = [c for c in manifest["cases"] if everything or c["mode"] == "fp32" or c.get("kind") == "trace"]
    cases = [c for c in cases if not os.path.exists(os.path.join(out, "golden", c["file"]))]
    cases.sort(key=lambda c: -c["tokens"])
    with multiprocessing.Pool(min(len(cases), os.cpu_count() or 1) or 1) as pool:
        for f in pool.imap_unordered(one_case, [(c, out) for c in cases], chunksize=1):
            print(f, flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], "--all" in sys.argv[2:])
    if "--stamp" in sys.argv:
        open(sys.argv[sys.argv.index("--stamp") + 1], "w").close()
