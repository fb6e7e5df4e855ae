"""safetensors files as the published checkpoint uses them: writing, reading, cutting into shards with an index."""
import json
import os
import struct

import numpy as np

NP = {"F32": np.float32, "BF16": np.uint16, "I8": np.int8, "F8_E4M3": np.uint8, "F8_E8M0": np.uint8}


def write_safetensors(path, items):
    head, off = {"__metadata__": {"format": "pt"}}, 0
    for name, dt, a in items:
        assert a.dtype == NP[dt], (name, dt, a.dtype)
        head[name] = {"dtype": dt, "shape": list(a.shape), "data_offsets": [off, off + a.nbytes]}
        off += a.nbytes
    blob = json.dumps(head, separators=(",", ":")).encode()
    blob += b" " * (-len(blob) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(blob)))
        f.write(blob)
        for _, _, a in items:
            f.write(np.ascontiguousarray(a).tobytes())
    return 8 + len(blob) + off


def read_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        body = f.read()
    head.pop("__metadata__", None)
    return {k: np.frombuffer(body, NP[e["dtype"]], (e["data_offsets"][1] - e["data_offsets"][0])
                             // np.dtype(NP[e["dtype"]]).itemsize, e["data_offsets"][0]).reshape(e["shape"])
            for k, e in head.items()}


def dump(obj, path, indent=2):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(obj, f, indent=indent, ensure_ascii=False)
        f.write("\n")


def write_shards(out, items, shards):
    """items: [(name, dtype, raw array)]. Shards of equal size, headers (about 100 bytes a tensor) counted in; and the index.
    Returns (bytes of tensors, bytes of each shard)."""
    os.makedirs(out, exist_ok=True)
    weight = [a.nbytes + 110 for _, _, a in items]
    goal, acc, cut = sum(weight) / shards, 0, [[] for _ in range(shards)]
    for it, w in zip(items, weight):
        cut[min(int((acc + w / 2) / goal), shards - 1)].append(it)
        acc += w
    wmap, sizes = {}, []
    for i, part in enumerate(cut):
        fn = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        sizes.append(write_safetensors(os.path.join(out, fn), part))
        wmap.update({n: fn for n, _, _ in part})
    total = sum(a.nbytes for _, _, a in items)
    dump({"metadata": {"total_size": total}, "weight_map": wmap}, os.path.join(out, "model.safetensors.index.json"), 0)
    return total, sizes


def read_shards(folder):
    with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as f:
        wmap = json.load(f)["weight_map"]
    raw = {}
    for fn in sorted(set(wmap.values())):
        raw.update(read_safetensors(os.path.join(folder, fn)))
    assert set(raw) == set(wmap), "index and shards disagree"
    return raw
