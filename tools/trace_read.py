#!/usr/bin/env python3
"""Reads a trace of experts as docs/format-trace.md describes it, with nothing but that page and Python's standard library.

    trace_read.py TRACE               one line a record: pass, prompt or decode, layer, session, and the rows' expert ids
    trace_read.py --sums TRACE        tokens and what each layer of a pass uses, as JSON: what `mote experts --json` counts
    trace_read.py --page docs/format-trace.md FILE
                                      write the page's worked example to FILE
"""
import json
import re
import struct
import sys


def read(data):
    """(header, records, cut bytes); a record is (prompt, begins_pass, layer, session, rows of ids)."""
    if len(data) < 32 or data[:8] != b"MOTEEXPT":
        raise ValueError("not a trace of experts")
    version, layers, experts, k, expert_bytes = struct.unpack_from("<IIIIQ", data, 8)
    if version != 1 or not 1 <= layers <= 4096 or not 1 <= experts <= 65535 or layers * experts > 1 << 22 or not 1 <= k <= min(256, experts):
        raise ValueError("header")
    at, records = 32, []
    while at + 12 <= len(data):
        flags, zero, layer, session, rows = struct.unpack_from("<BBHII", data, at)
        end = at + 12 + 2 * rows * k
        if end > len(data):
            break
        ids = struct.unpack_from(f"<{rows * k}H", data, at + 12)
        if flags > 3 or zero or layer >= layers or not rows or max(ids) >= experts or not (records or flags & 2):
            raise ValueError(f"record at byte {at}")
        records.append((flags & 1, flags >> 1, layer, session, [ids[i:i + k] for i in range(0, rows * k, k)]))
        at = end
    return (layers, experts, k, expert_bytes), records, len(data) - at


def sums(header, records, cut):
    tokens, uses, groups = [0, 0], [0, 0], []
    for prompt, begins, layer, _, rows in records:
        if begins or layer != groups[-1][0]:
            groups.append([layer, 0, set(), begins])
        group = groups[-1]
        group[1] |= prompt
        group[2].update(i for row in rows for i in row)
        if group[3]:
            tokens[prompt] += len(rows)
    for _, prompt, ids, _ in groups:
        uses[prompt] += len(ids)
    return {"layers": header[0], "experts": header[1], "experts_per_token": header[2], "expert_bytes": header[3],
            "prompt_tokens": tokens[1], "decode_tokens": tokens[0], "cut_bytes": cut,
            "prompt_uses": uses[1], "decode_uses": uses[0]}


def page_example(text):
    dump = re.findall(r"^[0-9a-f]{8}  ((?:[0-9a-f]{2}  ?){1,16})", text, re.M)
    return bytes.fromhex("".join(dump))


def main():
    args = sys.argv[1:]
    if len(args) == 3 and args[0] == "--page":
        with open(args[1], encoding="utf-8") as page, open(args[2], "wb") as out:
            out.write(page_example(page.read()))
        return
    if not args or len(args) > 2 or (len(args) == 2 and args[0] != "--sums"):
        sys.exit(__doc__)
    with open(args[-1], "rb") as f:
        header, records, cut = read(f.read())
    if len(args) == 2:
        print(json.dumps(sums(header, records, cut)))
        return
    n = -1
    for prompt, begins, layer, session, rows in records:
        n += begins
        print(n, "prompt" if prompt else "decode", layer, session, *(",".join(map(str, row)) for row in rows))


main()
