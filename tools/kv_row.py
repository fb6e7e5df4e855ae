#!/usr/bin/env python3
"""Reads cache vectors as docs/format-kv.md describes them, with nothing but that page and Python's standard library.

    kv_row.py FORMAT CODES_HEX [SCALES_HEX]       print the values of a row
    kv_row.py --check docs/format-kv.md tests/data/num/kvfmt.bin
                                                  the page's examples and the reference's vectors decode as stated
"""
import struct
import sys

E2M1 = [0, .5, 1, 1.5, 2, 3, 4, 6]
FORMATS = {"fp4": (4, 16, "e4m3"), "fp4-32": (4, 32, "e4m3"), "fp4-64": (4, 64, "e4m3"), "fp4-128": (4, 128, "e4m3"),
           "mxfp4": (4, 32, "e8m0"), "fp8": (8, 32, "e8m0"), "bf16": (16, 0, None), "f32": (32, 0, None)}


def e2m1(c):
    return -E2M1[c & 7] if c & 8 else E2M1[c]


def e4m3(c):
    e, m = c >> 3 & 15, c & 7
    v = float("nan") if c & 127 == 127 else m * 2.0 ** -9 if e == 0 else (8 + m) * 2.0 ** (e - 10)
    return -v if c & 128 else v


def e8m0(c):
    return float("nan") if c == 255 else 2.0 ** (c - 127)


def read(fmt, codes, scales):
    bits, group, kind = FORMATS[fmt]
    if bits == 4:
        v = [e2m1(n) for b in codes for n in (b & 15, b >> 4)]
    elif bits == 8:
        v = [e4m3(b) for b in codes]
    elif bits == 16:
        v = [struct.unpack("<f", b"\0\0" + codes[i:i + 2])[0] for i in range(0, len(codes), 2)]
    else:
        v = [x[0] for x in struct.iter_unpack("<f", codes)]
    if group:
        assert len(scales) * group == len(v), "codes and scales do not fit together"
        s = [(e4m3 if kind == "e4m3" else e8m0)(b) for b in scales]
        v = [x * s[i // group] for i, x in enumerate(v)]
    return v


def check(page, vectors):
    fmt, seen = None, set()
    rows = {}
    for line in open(page, encoding="utf-8"):
        w = line.split()
        if len(w) > 2 and w[1] == "codes" and w[0] in FORMATS:
            fmt = w[0]
            rows[fmt] = [bytes.fromhex("".join(w[2:])), b"", None]
        elif fmt and len(w) > 1 and w[0] == "scales":
            rows[fmt][1] = bytes.fromhex("".join(w[1:]))
        elif fmt and len(w) > 1 and w[0] == "values":
            rows[fmt][2] = [float(x) for x in w[1:]]
    for fmt, (codes, scales, values) in rows.items():
        got = read(fmt, codes, scales)
        if values is not None:
            assert got == values, (fmt, got)
        top = max(len(got) / 16, 1e-9)
        for i, x in enumerate(got):                          # near the x_i that the page says were encoded
            want = (-1) ** i * (i + 1) / 16
            assert abs(x - want) <= top / (4 if FORMATS[fmt][0] == 4 else 16), (fmt, i, x, want)
        seen.add(fmt)
    assert seen >= {"fp4", "fp4-32", "mxfp4", "fp8", "bf16", "f32"}, seen
    data, at, n_formats = open(vectors, "rb").read(), 0, 0
    while at < len(data):
        name, n = struct.unpack_from("<16sI", data, at)
        fmt = name.rstrip(b"\0").decode()
        bits, group, _ = FORMATS[fmt]
        at += 20 + 4 * n
        codes = data[at:at + n * bits // 8]
        at += len(codes)
        scales = data[at:at + (n // group if group else 0)]
        at += len(scales)
        want = struct.unpack_from(f"<{n}f", data, at)
        at += 4 * n
        assert read(fmt, codes, scales) == list(want), fmt
        n_formats += 1
    assert n_formats == len(FORMATS)
    print(f"{len(rows)} examples and {n_formats} formats of vectors read as stated")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--check":
        check(sys.argv[2], sys.argv[3])
    elif len(sys.argv) in (3, 4) and sys.argv[1] in FORMATS:
        print(*read(sys.argv[1], bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3]) if len(sys.argv) == 4 else b""))
    else:
        sys.exit(__doc__)
