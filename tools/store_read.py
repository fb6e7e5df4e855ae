#!/usr/bin/env python3
"""An independent reader of a store directory or an export, after docs/format-store.md. It shares no code with mote.

    store_read.py DIR|FILE [--json]

Reads segments, slots and snapshots (not the SQLite index), checks every checksum and identity, and lists what is whole. Status 1 if
something that says it is a slot, a segment or a snapshot is not whole. Needs nothing but Python's library.
"""
import hashlib
import json
import os
import re
import struct
import sys

TABLE = []
for _b in range(256):
    for _ in range(8):
        _b = _b >> 1 ^ 0x82F63B78 if _b & 1 else _b >> 1
    TABLE.append(_b)


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = c >> 8 ^ TABLE[(c ^ b) & 255]
    return c ^ 0xFFFFFFFF


def u32(d, at):
    return struct.unpack_from("<I", d, at)[0]


def u64(d, at):
    return struct.unpack_from("<Q", d, at)[0]


class Bad(Exception):
    pass


def need(ok, what):
    if not ok:
        raise Bad(what)


def frame(d, magic):
    need(len(d) >= 512 and d[:8] == magic, "magic")
    need(u32(d, 8) == 1, "version")
    need(u32(d, 12) == crc32c(d[:12] + b"\0\0\0\0" + d[16:]), "checksum")


def label(d):
    return d[128:320].split(b"\0")[0].decode("ascii", "replace")


def slot_bytes(payload):
    return (512 + 1024 + payload + 4095) // 4096 * 4096


def identity(context, approximate, parent, ids):
    tag = b"mote block".ljust(16, b"\0")
    return hashlib.sha256(tag + struct.pack("<II", 1, approximate) + context + parent + ids).digest()[:16]


def read_slot(d):
    frame(d, b"MOTESLT1")
    payload = u32(d, 20)
    need(u32(d, 16) == len(d) == slot_bytes(payload), "size")
    need(u32(d, 24) == 256 and u32(d, 28) <= 1 and not any(d[56:64]) and not any(d[320:512]), "header")
    need(not any(d[1536 + payload:]), "padding")
    n_blocks, parent = u64(d, 48), d[80:96]
    need(n_blocks >= 1 and (n_blocks == 1) == (not any(parent)), "parent")
    need(d[64:80] == identity(d[96:128], u32(d, 28), parent, d[512:1536]), "identity")
    return {"id": d[64:80].hex(), "parent": parent.hex() if n_blocks > 1 else None, "tokens": 256 * n_blocks,
            "provenance": "approximate" if u32(d, 28) else "exact", "generation": u64(d, 32), "payload_bytes": payload,
            "created": u64(d, 40), "context": d[96:128].hex(), "label": label(d), "ids": list(struct.unpack_from("<256i", d, 512)),
            "payload_sha256": hashlib.sha256(d[1536:1536 + payload]).hexdigest()}


def read_snapshot(d):
    frame(d, b"MOTESNP1")
    blob, n_tail, n_blocks, n_exact, approximate = u64(d, 16), u32(d, 24), u64(d, 32), u64(d, 48), u32(d, 28)
    need(n_tail < 256 and 512 + 4 * n_tail + blob == len(d), "size")
    need(approximate <= 1 and n_exact <= n_blocks and not any(d[60:64]) and not any(d[336:512]), "header")
    tag = b"mote snapshot".ljust(16, b"\0")
    tail = d[512:512 + 4 * n_tail]
    key = hashlib.sha256(tag + struct.pack("<III", 1, approximate, n_tail) + d[96:128] + d[320:336] + d[80:96] + tail).digest()[:16]
    key = key[:12] + struct.pack("<I", u32(key, 12) ^ u32(d, 56))
    need(key == d[64:80], "identity")
    return {"id": d[64:80].hex(), "on": d[80:96].hex() if n_blocks else None, "tokens": 256 * n_blocks + n_tail,
            "provenance": "approximate" if approximate else "exact", "exact_blocks": n_exact, "origin": u32(d, 56), "bytes": len(d), "created": u64(d, 40),
            "context": d[96:128].hex(), "label": label(d), "tail": list(struct.unpack(f"<{n_tail}i", tail))}


class Result:
    def __init__(self):
        self.blocks, self.snapshots, self.damaged = [], [], []

    def take(self, into, where, read, data, **more):
        try:
            into.append({**read(data), **more})
        except Bad as e:
            self.damaged.append(f"{where}: {e}")


def read_dir(path, r):
    for name in sorted(os.listdir(path)):
        full = os.path.join(path, name)
        m = re.fullmatch(r"seg-([0-9a-f]{8})\.mote", name)
        if m:
            with open(full, "rb") as f:
                page, number = f.read(4096), int(m[1], 16)
                try:
                    frame(page, b"MOTESEG1")
                    need(len(page) == 4096 and not any(page[28:]), "size")
                    size, payload = u32(page, 20), u32(page, 24)
                    need(u32(page, 16) == number and size == slot_bytes(payload), "header")
                except Bad as e:
                    r.damaged.append(f"{name}: {e}")
                    continue
                slot = 0
                while len(d := f.read(size)) == size:
                    if d[:8] == b"MOTESLT1":                 # anything else was never written, or given back
                        r.take(r.blocks, f"{name} slot {slot}", read_slot, d, segment=number, slot=slot)
                    slot += 1
        m = re.fullmatch(r"snap-([0-9a-f]{32})\.mote", name)
        if m:
            with open(full, "rb") as f:
                r.take(r.snapshots, name, read_snapshot, f.read())


def read_export(path, r):
    with open(path, "rb") as f:
        head = f.read(32)
        need(len(head) == 32 and head[:8] == b"MOTEKVX1" and u32(head, 8) == 1 and u32(head, 28) == crc32c(head[:28]), "header of the file")
        n = 0
        while True:
            h = f.read(32)
            need(len(h) == 32 and h[:4] == b"MREC" and u32(h, 28) == crc32c(h[:28]) and u32(h, 24) == 0, f"header of record {n}")
            kind, size, before = u32(h, 4), u64(h, 8), u64(h, 16)
            need(before == n, f"record {n} is missing")
            if kind == 0:
                need(size == 0, "end record")
                return
            d = f.read(size)
            need(len(d) == size and kind in (1, 2), f"record {n}")
            r.take(r.blocks if kind == 1 else r.snapshots, f"record {n}", read_slot if kind == 1 else read_snapshot, d)
            n += 1


def main():
    paths = [a for a in sys.argv[1:] if not a.startswith("--")]
    if len(paths) != 1:
        sys.exit(__doc__)
    r = Result()
    try:
        (read_dir if os.path.isdir(paths[0]) else read_export)(paths[0], r)
    except Bad as e:
        r.damaged.append(str(e))
    if "--json" in sys.argv:
        json.dump({"blocks": r.blocks, "snapshots": r.snapshots, "damaged": r.damaged}, sys.stdout)
        print()
    else:
        for b in r.blocks:
            print(f"block {b['id']} on {b['parent'] or '-'} {b['tokens']} tokens {b['provenance']} [{b['label']}]")
        for s in r.snapshots:
            print(f"snapshot {s['id']} on {s['on'] or '-'} {s['tokens']} tokens {s['provenance']} {s['bytes']} bytes")
        for d in r.damaged:
            print(f"damaged: {d}")
    sys.exit(1 if r.damaged else 0)


main()
