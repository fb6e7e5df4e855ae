#!/usr/bin/env python3
"""Texts -> token arrays: {train,valid}.u16, {train,valid}_docs.npy, needles.npz, needles_valid.npz, meta.json, tokenizer files.

    python3 prepare.py --texts TEXTS --tokenizer tokenizer.json --out DATA

Every document is stored as BOS tokens EOS; *_docs.npy holds the start of each document and the end. Held-out documents are those
named in VALID.txt. Without --tokenizer one of --vocab entries is trained on the training texts.
"""
import argparse
import collections
import json
import os
import re
import shutil
import time

import numpy as np

import needle
import tok as T


HERE = os.path.dirname(os.path.abspath(__file__))
NEEDLES, NEEDLE_SEED = 200000, 11
COMMON = 4000                                                                # words of the books that facts may be made of


def split(folder):
    """(training files, held-out files), sorted by name."""
    files = sorted(f for f in os.listdir(folder) if f.endswith(".txt") and f != "VALID.txt")
    with open(os.path.join(HERE, "VALID.txt"), encoding="utf-8") as f:
        held = {l.split("\t")[0].strip() for l in f if l.strip()}
    path = lambda names: [os.path.join(folder, n) for n in names]
    return path([f for f in files if f not in held]), path([f for f in files if f in held])


def read(f):
    with open(f, encoding="utf-8", errors="replace", newline="") as h:
        return h.read().replace("\r\n", "\n").lstrip("\ufeff")


def chunks(text, size=60000):
    """Cut where a line break is followed by visible text: never inside a pre-token, so ids do not change."""
    a, n = 0, len(text)
    while a < n:
        b = n
        if n - a > size:
            m = re.compile(r"\n(?=\S)").search(text, a + size)
            b = m.end() if m else n
        yield text[a:b]
        a = b


def common_words(texts):
    """The most frequent words of 4 to 9 small letters, in alphabetical order."""
    count = collections.Counter()
    for t in texts:
        count.update(re.findall(r"\b[a-z]{4,9}\b", t))
    return sorted(w for w, _ in count.most_common(COMMON))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--texts", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--vocab", type=int, default=4096)
    ap.add_argument("--tokenizer", help="use this tokenizer.json instead of training one")
    ap.add_argument("--backend", choices=["auto", "hf", "py"], default="auto")
    ap.add_argument("--needles", type=int, default=NEEDLES, help="facts to be planted; a twentieth as many for evaluation")
    a = ap.parse_args()
    t0 = time.time()
    os.makedirs(a.out, exist_ok=True)
    train, valid = split(a.texts)
    docs = {f: read(f) for f in train + valid}
    print(f"{len(train)} training and {len(valid)} held-out documents, "
          f"{sum(len(docs[f].encode()) for f in docs) / 1e6:.1f} MB  [{time.time() - t0:.1f} s]", flush=True)

    path = os.path.join(a.out, "tokenizer.json")
    backend = a.backend
    if backend == "auto":
        try:
            import tokenizers  # noqa: F401
            backend = "hf"
        except ImportError:
            backend = "py"
    if a.tokenizer:
        shutil.copy(a.tokenizer, path)
    else:
        it = (c for f in train for c in chunks(docs[f]))
        vocab, merges = (T.train_hf if backend == "hf" else T.train_py)(it, a.vocab)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(T.tokenizer_json(vocab, merges), f, ensure_ascii=False, indent=1)
            f.write("\n")
    tok = T.load(path, backend)
    print(f"tokenizer: {tok.size} ids, backend {backend}  [{time.time() - t0:.1f} s]", flush=True)
    assert tok.size == a.vocab, f"the tokenizer has {tok.size} ids, not {a.vocab}"
    assert [tok.name(i) for i in range(3)] == T.BASE_SPECIAL
    cmap, classes = T.compressed_map(tok)
    if backend == "hf":
        other, n = T.compressed_map_hf(tok)
        if other != cmap:
            bad = [i for i in range(tok.size) if other[i] != cmap[i]]
            print(f"WARNING: Engram classes differ from the HF normalisers' at {len(bad)} ids, first "
                  f"{[tok.name(i) for i in bad[:5]]}; using the HF ones")
            cmap, classes = other, n
        else:
            print(f"Engram classes agree with the HF normalisers: {classes}")

    info = {}
    for name, files in (("train", train), ("valid", valid)):
        cs, owner = [], []
        for i, f in enumerate(files):
            for c in chunks(docs[f]):
                cs.append(c)
                owner.append(i)
        per, step = [[np.array([0], np.uint16)] for _ in files], 128
        for j in range(0, len(cs), step):
            for k, ids in enumerate(tok.encode_many(cs[j:j + step])):
                per[owner[j + k]].append(np.asarray(ids, np.uint16))
        arr, starts = [], [0]
        for parts in per:
            d = np.concatenate(parts + [np.array([1], np.uint16)])
            arr.append(d)
            starts.append(starts[-1] + len(d))
        flat = np.concatenate(arr)
        flat.tofile(os.path.join(a.out, f"{name}.u16"))
        np.save(os.path.join(a.out, f"{name}_docs.npy"), np.array(starts, np.int64))
        by = sum(len(docs[f].encode()) for f in files)
        info[name] = dict(tokens=int(len(flat)), bytes=by, docs=len(files), files=[os.path.basename(f) for f in files])
        print(f"{name}: {len(flat):,} tokens, {by / len(flat):.3f} bytes a token  [{time.time() - t0:.1f} s]", flush=True)
    s = docs[valid[0]][2000:6000]
    assert tok.decode(tok.encode(s)) == s, "decode(encode(text)) is not the text"
    words = common_words(docs[f] for f in train)
    for name, count, seed in (("needles", a.needles, NEEDLE_SEED), ("needles_valid", a.needles // 20, NEEDLE_SEED + 1)):
        np.savez(os.path.join(a.out, f"{name}.npz"), **needle.make_bank(tok, count, seed, words))
    with open(os.path.join(a.out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(T.tokenizer_config(65536), f, ensure_ascii=False, indent=2)
        f.write("\n")
    with open(os.path.join(a.out, "meta.json"), "w", encoding="utf-8") as f:
        json.dump(dict(token_map=cmap, classes=classes, tokenizer_size=tok.size, data=info), f)
    print(f"prepared {a.out} in {time.time() - t0:.1f} s")


if __name__ == "__main__":
    main()
