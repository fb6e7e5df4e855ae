#!/usr/bin/env python3
"""An exported checkpoint, read back and measured: perplexity by window and main-KV format, bounded replay, needle recall, samples.

    python3 evaluate.py --ckpt CKPT --data DATA [--lengths 1024,4096,8192,16384] [--needle 4096,16384] [--new 120] [--out FILE]

Recall: held-out book text with one needle hidden at a depth of 0, 25, 50, 75 or 100 % and asked for at the end; a needle counts as
recalled when greedy decoding gives every token of the answer. The needles are none of those trained on (needles_valid.npz).
"""
import argparse
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import tok as T
from config import Mode
from data import Text, load_meta
from export import import_checkpoint
from llama import Llama
from model import Model
from needle import NUMBERS, Bank, plant

DEPTHS = (0, 25, 50, 75, 100)


def load(ckpt, device):
    d = import_checkpoint(ckpt)
    kind = Llama if d["text"]["model_type"] == "llama" else Model
    m = kind(d["text"], d["token_map"].numpy(), device, torch.bfloat16 if "cuda" in str(device) else torch.float32, init=False)
    m.load_state(d["state"])
    return m


@torch.no_grad()
def hidden(m, ids, mode, seg=None):
    """[B,S] -> [B,S,d]; S padded to whole windows."""
    B, S = ids.shape
    pad = -S % m.cfg.sliding_window
    full = torch.cat([ids, ids.new_full((B, pad), 2)], 1) if pad else ids
    return m.forward(full, mode=mode, seg_start=seg)[0].view(B, S + pad, -1)[:, :S]


@torch.no_grad()
def nll(m, ids, mode, seg=None):
    """[B,S] ids -> [B,S-1] losses."""
    return torch.stack([F.cross_entropy(m.logits(h[:-1]), t[1:], reduction="none") for h, t in zip(hidden(m, ids, mode, seg), ids)])


def perplexity(m, text, lengths, formats, tokens, bpt, say):
    say(f"{'tokens':>7s} {'main KV':>8s} {'loss':>8s} {'ppl':>8s} {'bits/byte':>10s} {'last 512':>9s} {'replayed':>9s} {'windows':>8s}")
    W, dev, published = m.cfg.sliding_window, m.device, not isinstance(m, Llama)
    for L in lengths:
        starts = text.fixed(max(2, tokens // L), L)
        B = max(1, 32768 // L) if dev.type == "cuda" else 1
        for fmt in formats if published else ["bf16"]:
            mode, tot, end, rep, n, tail = Mode(quant=True, main=fmt), 0.0, 0.0, 0.0, 0, min(512, L // 2)
            for i in range(0, len(starts), B):
                ids = torch.from_numpy(text.cut(starts[i:i + B], L)[0]).to(dev)
                x = nll(m, ids, mode)
                tot, end, n = tot + x.mean(1).sum().item(), end + x[:, -tail:].mean(1).sum().item(), n + len(ids)
                if published and fmt == formats[0]:
                    s = L - tail - W
                    seg = torch.where(torch.arange(L + -L % W, device=dev) >= s, s, 0).expand(len(ids), -1)
                    rep += nll(m, ids, mode, seg)[:, -tail:].mean(1).sum().item()
            v = tot / n
            say(f"{L:7d} {fmt:>8s} {v:8.4f} {math.exp(v):8.2f} {v / math.log(2) / bpt:10.4f} {end / n:9.4f} "
                f"{rep / n if rep else math.nan:9.4f} {n:8d}")


@torch.no_grad()
def recall(m, text, bank, lengths, count, fmt, say):
    say(f"\nneedle recall, main KV {fmt}, {count} needles a depth (share of answers fully recalled; numbers alone)")
    say(f"{'tokens':>7s} " + " ".join(f"{d:>5d} %" for d in DEPTHS) + "     all  numbers")
    mode = Mode(quant=True, main=fmt)
    for L in lengths:
        rng, hits, nums = np.random.default_rng([77, L]), [], []
        B = max(1, min(count, 32768 // L)) if m.device.type == "cuda" else 1
        starts = text.fixed(64, L)
        for depth in DEPTHS:
            ok = []
            for i in range(0, count, B):
                rows, spans, forms = [], [], []
                for j in range(i, min(count, i + B)):
                    k = int(rng.integers(bank.count))
                    s, q, a = bank.get(k)
                    room = L - 1 - len(s) - len(q) - len(a)
                    book = text.t[starts[(j * 7 + depth) % len(starts)]:][:room]
                    body, mark = plant(book, [(room * depth // 100, s, False), (room, q, False), (room, a, True)])
                    rows.append(np.concatenate([[0], body]))
                    spans.append(np.flatnonzero(mark))                      # body position p is predicted from row position p
                    forms.append(int(bank.form[k]))
                ids = torch.from_numpy(np.stack(rows).astype(np.int64)).to(m.device)
                for h, row, sp, form in zip(hidden(m, ids, mode), ids, spans, forms):
                    sp = torch.from_numpy(sp).to(m.device)
                    hit = bool((m.logits(h[sp]).argmax(-1) == row[sp + 1]).all())
                    ok.append(hit)
                    if form in NUMBERS:
                        nums.append(hit)
            hits.append(np.mean(ok))
        say(f"{L:7d} " + " ".join(f"{h * 100:7.1f}" for h in hits) + f" {np.mean(hits) * 100:7.1f} {np.mean(nums) * 100:8.1f}")


@torch.no_grad()
def generate(m, prompts, new, temperature=0.0, seed=0, top_p=0.95):
    """prompts: id lists of one length. Greedy when the temperature is 0."""
    g = torch.Generator(device=m.device).manual_seed(seed)
    ids = torch.tensor(prompts, device=m.device)
    for _ in range(new):
        lg = m.logits(hidden(m, ids, Mode(quant=True))[:, -1])
        if temperature <= 0:
            nxt = lg.argmax(-1)
        else:
            p, order = torch.softmax(lg / temperature, -1).sort(-1, descending=True)
            p = torch.where(p.cumsum(-1) - p < top_p, p, torch.zeros_like(p))
            nxt = order.gather(1, torch.multinomial(p, 1, generator=g)).squeeze(1)
        ids = torch.cat([ids, nxt[:, None]], 1)
    return ids.tolist()


def samples(m, text, tk, new, say):
    held = [[0] + text.t[s:s + 255].tolist() for s in text.fixed(4, 256)]
    own = [[[0] + tk.encode(p)] for p in ("It was a dark and stormy night; ", "“My dear sir,” said the old gentleman, ", "static int ", "話說")]
    for prompts in [held] + own:
        for temp in (0.0, 0.8):
            for p, o in zip(prompts, generate(m, prompts, new, temp)):
                say(f"\n--- temperature {temp}\n{tk.decode(p[1:][-100:])}\n>>>{tk.decode(o[len(p):])}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ckpt", required=True)
    ap.add_argument("--data", required=True)
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--lengths", default="1024,4096,8192,16384")
    ap.add_argument("--tokens", type=int, default=131072, help="held-out tokens a length")
    ap.add_argument("--formats", default="g16,fp8,bf16")
    ap.add_argument("--needle", default="1024,4096,16384")
    ap.add_argument("--needles", type=int, default=40, help="a depth")
    ap.add_argument("--new", type=int, default=0, help="tokens a sample; 0: no samples")
    ap.add_argument("--out")
    a = ap.parse_args()
    t0, lines = time.time(), []

    def say(s=""):
        print(s, flush=True)
        lines.append(s)
        if a.out:                                                            # whole each time: a time limit may cut this short
            with open(a.out, "w", encoding="utf-8") as f:
                f.write("\n".join(lines) + "\n")
    m, text = load(a.ckpt, a.device), Text(a.data, "valid")
    by = load_meta(a.data)["data"]["valid"]
    split = lambda s: [int(v) for v in s.split(",") if v]
    perplexity(m, text, split(a.lengths), a.formats.split(","), a.tokens, by["bytes"] / by["tokens"], say)
    if a.needle:
        bank = Bank(os.path.join(a.data, "needles_valid.npz"))
        for fmt in (a.formats.split(",")[0], a.formats.split(",")[-1]) if not isinstance(m, Llama) else ["bf16"]:
            recall(m, text, bank, split(a.needle), a.needles, fmt, say)
    if a.new:
        samples(m, text, T.load(os.path.join(a.ckpt, "tokenizer.json")), a.new, say)
    say(f"\n{time.time() - t0:.0f} s")


if __name__ == "__main__":
    main()
