#!/usr/bin/env python3
"""What export and data preparation rest on, NumPy only: the number formats, safetensors files, planted needles, shipped twins.

    /usr/bin/python3 train/tests/test_formats.py
"""
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(ROOT, "tests", "reference")]
import v41_reference as R
import numpy as np

import needle
import needle_words
import quant as Q
import shards


def values():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(20000) * 10.0 ** rng.uniform(-4, 3, 20000)
    return np.concatenate([x, Q.E4M3_TABLE[np.isfinite(Q.E4M3_TABLE)], [.25, .75, 1.25, 1.75, 2.5, 3.5, 5, 7, -5, 0, 448, 460, 2 ** -10]]).astype(np.float32)


def test_e4m3_is_the_nearest_value():
    x = values()
    got = Q.E4M3_TABLE[Q.n_e4m3(x)]
    grid = np.sort(Q.E4M3_TABLE[np.isfinite(Q.E4M3_TABLE)])
    c = np.clip(x, -448, 448)
    assert np.array_equal(np.abs(c - got), np.abs(c[:, None] - grid[None]).min(1))
    codes = np.array([k for k in range(256) if k & 127 != 127], np.uint8)
    assert np.array_equal(Q.n_e4m3(Q.E4M3_TABLE[codes]), codes)


def test_e2m1_ties_go_to_even_codes():
    for x, want in {.25: 0, .75: 1, 1.25: 1, 1.75: 2, 2.5: 2, 3.5: 4, 5: 4, 7: 6, -2.5: -2}.items():
        assert Q.E2M1_TABLE[Q.n_e2m1(np.array([x]))][0] == want, x


def test_weights_agree_with_the_reference():
    w = np.random.default_rng(2).standard_normal((96, 160)).astype(np.float32) * .3
    w[3] = 0
    rows = Q.n_dequant_fp8_rows(*Q.n_quant_fp8_rows(w))
    assert np.array_equal(rows, R.qdq(w, "fp8"))
    assert np.array_equal(Q.n_dequant_mxfp4(*Q.n_quant_mxfp4(w)), R.qdq(w, "mxfp4_g32"))


def test_quantising_twice_changes_nothing():
    w = np.random.default_rng(3).standard_normal((70, 100)).astype(np.float32)         # blocks cut at both edges
    c, s = Q.n_quant_fp8_block(w)
    y = Q.n_dequant_fp8_block(c, s)
    c2, s2 = Q.n_quant_fp8_block(y)
    assert s.shape == (3, 4) and np.array_equal(Q.n_dequant_fp8_block(c2, s2), y)
    w = w[:, :96]
    c, s = Q.n_quant_mxfp4(w)
    y = Q.n_dequant_mxfp4(c, s)
    assert c.shape == (70, 48) and np.array_equal(Q.n_dequant_mxfp4(*Q.n_quant_mxfp4(y)), y)
    assert np.array_equal(c[:, 0].view(np.uint8) & 15, Q.n_e2m1(w[:, 0] / Q.n_e8m0_value(s[:, 0])))      # even column low


def test_shards_round_trip():
    rng = np.random.default_rng(4)
    items = [(f"t{i}", dt, rng.integers(0, 100, (i + 1, 8)).astype(shards.NP[dt])) for i, dt in enumerate(shards.NP)]
    with tempfile.TemporaryDirectory() as d:
        total, sizes = shards.write_shards(d, items, 2)
        got = shards.read_shards(d)
        assert total == sum(a.nbytes for _, _, a in items) and len(sizes) == 2 and min(sizes) > 100
    assert set(got) == {n for n, _, _ in items} and all(np.array_equal(got[n], a) for n, _, a in items)


def test_needles_lie_where_they_are_said_to():
    class Chars:
        @staticmethod
        def encode_many(texts):
            return [[ord(c) for c in t] for t in texts]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "n.npz")
        np.savez(path, **needle.make_bank(Chars, 50, 1))
        bank = needle.Bank(path)
        a, b = needle.make_bank(Chars, 50, 1), needle.make_bank(Chars, 50, 2)
    assert np.array_equal(a["ids"], bank.ids) and not np.array_equal(a["ids"], b["ids"][:len(a["ids"])])
    book = np.full(4000, ord("."), np.uint16)
    for seed in range(20):
        body, mark = needle.window(book, bank, np.random.default_rng(seed), 1500)
        assert len(body) == len(mark) == 1500
        text = "".join(map(chr, body))
        answers = "".join(c if m else "\0" for c, m in zip(text, mark)).split("\0")
        for x in filter(None, answers):
            assert text.count(x.strip(" .").split(" pounds")[0]) >= 2, (seed, x)       # said before it is asked for


def test_no_evaluated_surname_is_planted():
    """`mote eval --needle` asks for people of whom training planted nothing."""
    with open(os.path.join(ROOT, "src", "lab", "needle_text.c"), encoding="utf-8") as f:
        source = f.read()
    lists = re.findall(r"const (?:people|names)\[\] = \{(.*?)\};", source, re.S)
    assert len(lists) == 2
    last = {full.split()[1] for part in lists for full in re.findall(r'"(\w+ \w+)"', part)}
    assert last == needle_words.UNSEEN, last ^ needle_words.UNSEEN
    planted = set()
    maker = needle.Maker(np.random.default_rng(3), sorted(w.lower() for w in last) + ["river", "candle"])
    for _ in range(3000):
        planted |= set(" ".join(needle.make(maker)[1:]).replace(".", " ").replace("?", " ").split())
    assert len(planted) > 3000 and not planted & last, planted & last


def test_a_window_asks_each_thing_once():
    class Words:
        @staticmethod
        def encode_many(texts):
            return [[0] * len(t.split()) for t in texts]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "n.npz")
        np.savez(path, **needle.make_bank(Words, 400, 1))
        bank = needle.Bank(path)
    bank.key[:] = np.arange(400) % 7                                         # seven questions in all
    bank.get = lambda i: i
    for seed in range(50):
        keys = bank.key[bank.draw(np.random.default_rng(seed), 40)]
        assert 1 <= len(keys) <= 7 and len(set(keys)) == len(keys)


def test_shipped_twins_are_on_their_grids():
    for name in ("mha", "gqa"):
        raw = shards.read_shards(os.path.join(ROOT, "models", "twins", name))
        fp8 = [n for n in raw if n + "_scale_inv" in raw]
        assert len(fp8) == 8 * 7
        for n in fp8:
            y = Q.n_dequant_fp8_block(raw[n], raw[n + "_scale_inv"])
            assert np.isfinite(y).all() and np.array_equal(Q.n_dequant_fp8_block(*Q.n_quant_fp8_block(y)), y), n


if __name__ == "__main__":
    for name, f in list(globals().items()):
        if name.startswith("test_"):
            f()
            print("ok", name)
