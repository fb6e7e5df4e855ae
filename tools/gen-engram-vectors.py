#!/usr/bin/env python3
"""Prints tests/data/engram/vectors.json: what NumPy gives for the generator and the hashes of src/model/engram_hash.c.

usage: tools/gen-engram-vectors.py > tests/data/engram/vectors.json       (needs NumPy)

`integers`: default_rng(seed).integers(0, bound, n, int64). `rows`: table rows of n-grams, straight from the definition in
docs/engram.md with NumPy's int64 arithmetic; token id t has class (t * a + b) % m, which for the last case runs far above the
class count, so that products wrap and hashes turn negative."""
import json

import numpy as np

np.seterr(over="ignore")


def primes_from(start, count):
    out, n = [], start
    while len(out) < count:
        if n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1)):
            out.append(n)
        n += 1
    return out


def rows(case):
    n, heads, tables, ids = case["max_ngram"], case["heads"], [], np.array(case["ids"])
    cls = lambda t: (np.asarray(t, np.int64) * case["a"] + case["b"]) % case["m"]
    flat = primes_from(case["vocab"], len(case["layers"]) * (n - 1) * heads)
    for i, layer in enumerate(case["layers"]):
        primes = flat[i * (n - 1) * heads:(i + 1) * (n - 1) * heads]
        bound = max(1, (2 ** 63 - 1) // case["compressed"] // 2)
        mult = np.random.default_rng(10007 * layer).integers(0, bound, n, np.int64) * 2 + 1
        out = []
        for pos in range(len(ids)):
            row, h, at = [], np.int64(0), 0
            for back in range(n):
                h = h ^ cls(ids[pos - back] if back <= pos else case["pad"]) * mult[back]
                for _ in range(heads if back else 0):
                    row.append(int(h % primes[at]) + sum(primes[:at]))
                    at += 1
            out.append(row)
        tables.append(out)
    return tables


seeds = [0, 1, 10007, 140098, 40028, 2 ** 32 - 1, 2 ** 32, 10007 * 2 ** 40]
bounds = [1, 2, 10, 1000003, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, 3 * 2 ** 61 // 2, 46539651064735, 2 ** 62 + 1, 2 ** 63 - 1]
integers = [{"seed": s, "bound": b, "values": np.random.default_rng(s).integers(0, b, 6, np.int64).tolist()}
            for s in seeds for b in bounds]
ids = [(i * i * 37 + i * 11) % 500 for i in range(12)]
cases = [
    {"layers": [1, 14], "max_ngram": 4, "heads": 8, "vocab": 16000000, "compressed": 99092, "pad": 2, "a": 7919, "b": 5, "m": 99092, "ids": ids},
    {"layers": [1, 4], "max_ngram": 3, "heads": 4, "vocab": 8192, "compressed": 3437, "pad": 2, "a": 31, "b": 1, "m": 3437, "ids": ids},
    {"layers": [7], "max_ngram": 4, "heads": 2, "vocab": 500, "compressed": 147, "pad": 3, "a": 123456789, "b": 77, "m": 2 ** 31 - 1, "ids": ids},
]
for c in cases:
    c["rows"] = rows(c)
print(json.dumps({"integers": integers, "rows": cases}))
