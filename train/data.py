"""Training batches as a pure function of (seed, step): a resumed run and a rerun see the same text in the same order.

Windows are cut inside one document and always start with BOS, as a prompt does; a share of them carries needles (needle.py).
"""
import json
import os
import queue
import threading

import numpy as np
import torch

from needle import Bank, window

ANSWER_WEIGHT = 4.0


class Text:
    """One split: token ids, document bounds."""

    def __init__(self, folder, split):
        self.t = np.fromfile(os.path.join(folder, f"{split}.u16"), np.uint16)
        self.docs = np.load(os.path.join(folder, f"{split}_docs.npy"))
        self.n = len(self.t)

    def fixed(self, count, size):
        """Starts of at most `count` evenly spread windows, each inside one document where that is long enough."""
        starts = [s for a, b in zip(self.docs[:-1], self.docs[1:]) for s in range(a + 1, max(a + 2, b - size), size)]
        pick = np.linspace(0, len(starts) - 1, min(count, len(starts))).round().astype(int)
        return np.clip([starts[i] for i in sorted(set(pick))], 1, max(1, self.n - size))

    def cut(self, starts, size):
        """ids, labels [B,size] as int64 arrays: BOS first."""
        body = np.stack([np.resize(self.t[s:s + size], size) for s in starts]).astype(np.int64)
        return np.concatenate([np.zeros_like(body[:, :1]), body[:, :-1]], 1), body


def segments(rng, B, S, W, mean, share=0.5):
    """Random decoder segments: per sequence none, or boundaries about every `mean` tokens.
    Returns seg_start [B,S] and the mask of positions that carry a loss: the first W - 1 of a segment only rebuild its window."""
    cut = (rng.random((B, S)) < 1.0 / mean) & (rng.random((B, 1)) < share)
    pos = np.arange(S)
    seg = np.maximum.accumulate(np.where(cut, pos, 0), 1)
    return seg.astype(np.int32), (pos - seg >= W - 1) | (seg == 0)


class Batches:
    def __init__(self, folder, seed, needle_share):
        self.text, self.bank = Text(folder, "train"), Bank(os.path.join(folder, "needles.npz"))
        self.seed, self.share = seed, needle_share

    def make(self, step, B, S, W, replay, kl_rows):
        """dict of arrays: ids, labels, weights [B,S], seg [B,S] or None, rows (query rows of the indexer loss)."""
        rng, t = np.random.default_rng([self.seed, step]), self.text
        ids = np.zeros((B, S), np.int64)
        labels, weights = np.empty((B, S), np.int64), np.ones((B, S), np.float32)
        for b in range(B):
            d = int(np.searchsorted(t.docs, rng.integers(t.n), side="right")) - 1
            lo, hi = int(t.docs[d]) + 1, int(t.docs[d + 1])
            start = lo if rng.random() < 0.02 else lo + int(rng.integers(max(hi - S - lo, 0) + 1))
            start = min(max(start, 1), max(1, t.n - S))
            body = t.t[start:start + S]
            if len(body) < S:
                body = np.resize(body, S)
            if rng.random() < self.share:
                body, mark = window(body, self.bank, rng, S)
                weights[b, mark] = ANSWER_WEIGHT
            labels[b] = body
            ids[b, 1:] = body[:-1]
        seg = None
        if replay:
            seg, keep = segments(rng, B, S, W, min(512, S // 2))
            labels[~keep] = -100
        m = max(4, min(S - 1, kl_rows // B))
        rows = np.sort(rng.permutation(S)[:m]) if kl_rows else None
        return dict(ids=ids, labels=labels, weights=weights, seg=seg, rows=rows)


def to_device(batch, device):
    def move(a):
        if a is None:
            return None
        t = torch.from_numpy(a)
        return t.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else t
    return {k: move(v) for k, v in batch.items()}


class Ahead:
    """Makes the next batches in a thread. `plan(step)` gives make()'s arguments; order and content do not depend on timing."""

    def __init__(self, batches, plan, first, last):
        self.q = queue.Queue(maxsize=4)

        def work():
            for step in range(first, last):
                self.q.put((step, batches.make(step, *plan(step))))
        threading.Thread(target=work, daemon=True).start()

    def get(self, step):
        s, b = self.q.get()
        assert s == step
        return b


def load_meta(folder):
    with open(os.path.join(folder, "meta.json"), encoding="utf-8") as f:
        return json.load(f)
