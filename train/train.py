#!/usr/bin/env python3
"""Train a model on prepared data. The schedule runs over tokens, never over time: the same seed is the same run.

    python3 train.py --arch nano --data DATA --out RUN [--tokens 160e6] [--seed 1] [--minutes 9]

A step is 65,536 tokens; f = the share of all tokens already seen:
    f < --dense-to          windows of 1,024 tokens, attention over all compressed entries, indexers learn
    then                    windows of --seq, attention over the indexer's top-k
    f >= --replay-from      half of the windows have the decoder's window attention cut at random segment starts
    f >= --quant-from       weights and KV caches on their storage grids (straight-through gradients)
    f >= 1 - --long-frac    windows of --long-seq
    f >= 1 - --last-frac    every other step one of --last-seq
    learning rate           warm-up, constant, linear decay from --decay-from to 2 %
After --minutes (0: none) the exact state is left in RUN and the next call with the same arguments continues it; model.pt appears
in RUN when all tokens are seen. metrics.tsv: step, f, tokens, loss, indexer loss, held-out loss, tokens a second.
"""
import argparse
import math
import os
import sys
import time

T0 = time.time()
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
import torch

import kernels
from config import ARCHS, Mode
from data import Ahead, Batches, Text, load_meta, to_device
from kernels import log, setup_compile
from llama import Llama
from model import Model
from optim import Optimizers
from state import load_full, save_full, save_model

DENSE_SEQ = 1024


class Trainer:
    def __init__(self, a):
        self.a, self.dev = a, torch.device(a.device)
        os.makedirs(a.out, exist_ok=True)
        torch.manual_seed(a.seed)
        torch.set_float32_matmul_precision("high")
        meta = load_meta(a.data)
        self.batches, self.valid = Batches(a.data, a.seed, a.needles), Text(a.data, "valid")
        make, self.kv = ARCHS[a.arch]
        text = make(meta["classes"])
        dtype = torch.bfloat16 if self.dev.type == "cuda" else torch.float32
        self.published = text["model_type"] != "llama"
        self.m = (Model if self.published else Llama)(text, meta["token_map"], self.dev, dtype, seed=a.seed)
        self.W, self.N = self.m.cfg.sliding_window, a.batch * a.seq
        self.total = int(a.tokens) // self.N
        self.opt = Optimizers(self.m, a.lr, a.adam_lr, a.wd)
        self.step, self.imb = 0, None
        full = os.path.join(a.out, "state_full.pt")
        if os.path.exists(full):
            self.step = load_full(full, self.m, self.opt)
            log(f"continuing {full} at step {self.step}")
        log(f"{a.arch}: {self.m.num_params() / 1e6:.2f} M parameters, {self.batches.text.n / 1e6:.1f} M training tokens, "
            f"{self.total} steps of {self.N} tokens = {self.total * self.N / self.batches.text.n:.2f} passes, seed {a.seed}, {self.dev}")
        self.tsv = open(os.path.join(a.out, "metrics.tsv"), "a", encoding="utf-8")

    # -- the schedule ------------------------------------------------------------------------------------
    def phase(self, step):
        """(window length, mode, whether segments are cut) of a step."""
        a, f = self.a, step / self.total
        dense = f < a.dense_to
        last = f >= 1 - a.last_frac and step % 2 == 0
        S = min(DENSE_SEQ, a.seq) if dense else a.last_seq if last else a.long_seq if f >= 1 - a.long_frac else a.seq
        return S, Mode(dense=dense, quant=f >= a.quant_from, kv=self.kv), f >= a.replay_from

    def lr_scale(self, step):
        f = step / self.total
        up = min(1.0, (step + 1) / self.a.warmup)
        down = 1.0 if f < self.a.decay_from else 1 - 0.98 * (f - self.a.decay_from) / (1 - self.a.decay_from)
        return up * down

    def plan(self, step):
        S, _, replay = self.phase(step)
        return self.N // S, S, self.W, replay and self.published, self.a.kl_rows if self.published else 0

    # -- one step -----------------------------------------------------------------------------------------
    def gradients(self, step, batch):
        _, mode, _ = self.phase(step)
        b = to_device(batch, self.dev)
        swap = self.m.swapped() if mode.quant else None
        if swap:
            swap.__enter__()
        try:
            ce, kl = self.m.loss(b["ids"], b["labels"], b["weights"], mode=mode, seg_start=b["seg"], kl_rows=b["rows"], count=True)
            (ce + self.a.kl * kl if kl is not None else ce).backward()
        finally:
            if swap:
                swap.__exit__()
        return ce.detach(), (kl if kl is not None else torch.zeros_like(ce)).detach()

    def update(self, step):
        scale = self.lr_scale(step)
        norm = self.opt.step(scale, self.a.clip)
        self.imb = self.m.update_bias(self.a.bias_rate * scale)
        return norm

    def evaluate(self, mode, S=None, count=32):
        """Mean loss over fixed held-out windows. Gradients stay on (and unused), so training's compiled functions are reused."""
        S = S or self.a.seq
        B = self.N // S
        starts = self.valid.fixed(count, S)
        tot, n = 0.0, 0
        swap = self.m.swapped() if mode.quant else None
        if swap:
            swap.__enter__()
        try:
            for i in range(0, len(starts), B):
                part = list(starts[i:i + B])
                ids, lab = self.valid.cut(part + [part[0]] * (B - len(part)), S)
                lab[len(part):] = -100
                k = int((lab >= 0).sum())
                tot += float(self.m.loss(torch.from_numpy(ids).to(self.dev), torch.from_numpy(lab).to(self.dev), mode=mode)[0].detach()) * k
                n += k
        finally:
            if swap:
                swap.__exit__()
        return tot / max(n, 1)

    # -- start-up -----------------------------------------------------------------------------------------
    def warm(self):
        """Compile every phase still to come, on batches that training never sees, and compare compiled with eager."""
        kernels.selfcheck(self.dev)
        setup_compile(self.a.compile and self.published)
        seen = {}
        for s in range(self.step, self.total):
            seen.setdefault(repr(self.phase(s)), s)
        for s in seen.values():
            t = time.time()
            ce = self.gradients(s, self.batches.make(self.total + s, *self.plan(s)))[0].item()
            self.forget()
            torch.cuda.synchronize()
            log(f"warm-up of step {s}, {self.phase(s)}: loss {ce:.3f}, {time.time() - t:.1f} s, "
                f"peak {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB")
        if kernels.STATE.compile:
            mode = self.phase(s)[1]
            got = self.evaluate(mode, count=1)
            kernels.STATE.compile = False
            with torch.no_grad():
                want = self.evaluate(mode, count=1)
            kernels.STATE.compile = abs(got - want) < 0.02 * abs(want)
            log(f"compiled against eager loss: {got:.4f} / {want:.4f} -> compile {'on' if kernels.STATE.compile else 'OFF'}")

    def forget(self):
        for p in self.m.parameters():
            p.grad = None
        if self.published:
            self.m.load.zero_()

    # -- the run --------------------------------------------------------------------------------------------
    def run(self):
        a = self.a
        sys.setswitchinterval(5e-4)                                          # the thread that makes batches shall not hold up this one
        if self.dev.type == "cuda":
            self.warm()
        start, end = time.time(), T0 + a.minutes * 60 if a.minutes else math.inf
        log(f"start-up took {start - T0:.0f} s")
        ahead = Ahead(self.batches, self.plan, self.step, self.total)
        acc, t_log, n_log, t_save = [], start, self.step, start
        while self.step < self.total and time.time() < end:
            ce, kl = self.gradients(self.step, ahead.get(self.step))
            acc.append((ce, kl, self.update(self.step)))
            self.step += 1
            if self.step % a.log_every == 0 or self.step == self.total:
                c, k, g = (torch.stack([x[i] for x in acc]).mean().item() for i in range(3))
                t = time.time()
                rate = (self.step - n_log) * self.N / (t - t_log)
                S, mode, replay = self.phase(self.step - 1)
                log(f"step {self.step}/{self.total} loss {c:.4f} kl {k:.4f} gnorm {g:.2f} lr x{self.lr_scale(self.step - 1):.3f} "
                    f"{rate / 1e3:.1f} ktok/s S {S}{' dense' if mode.dense else ''}{' replay' if replay else ''}"
                    f"{' quant' if mode.quant else ''}" + (f" worst expert x{self.imb.max().item():.2f}" if self.imb is not None else ""))
                if not math.isfinite(c):
                    sys.exit("the loss is not finite")
                self.put(f"{c:.4f}", f"{k:.4f}", "", f"{rate:.0f}")
                acc, t_log, n_log = [], time.time(), self.step
            if self.step % a.eval_every == 0:
                mode = self.phase(self.step - 1)[1]
                v = self.evaluate(Mode(quant=mode.quant, kv=mode.kv))
                log(f"  held-out {v:.4f} (perplexity {math.exp(min(v, 20)):.2f}) at step {self.step}")
                self.put("", "", f"{v:.4f}", "")
            if time.time() - t_save > a.save_every:
                save_full(os.path.join(a.out, "state_full.pt"), self.m, self.opt, self.step)
                t_save = time.time()
        if self.step < self.total:
            save_full(os.path.join(a.out, "state_full.pt"), self.m, self.opt, self.step)
            log(f"stopped at step {self.step} of {self.total}; the same command continues")
            return
        v = self.evaluate(Mode(quant=True, kv=self.kv))
        self.put("", "", f"{v:.4f}", "")
        save_model(os.path.join(a.out, "model.pt"), self.m, dict(step=self.step, args=vars(a), heldout=v))
        peak = torch.cuda.max_memory_allocated() / 2 ** 30 if self.dev.type == "cuda" else 0
        log(f"done: {self.step} steps, {self.step * self.N / 1e6:.1f} M tokens, {time.time() - start:.0f} s in this call, held-out "
            f"{v:.4f} (perplexity {math.exp(min(v, 20)):.2f}), peak {peak:.1f} GiB")

    def put(self, loss, kl, valid, rate):
        self.tsv.write(f"{self.step}\t{self.step / self.total:.4f}\t{self.step * self.N}\t{loss}\t{kl}\t{valid}\t{rate}\n")
        self.tsv.flush()


def arguments(argv=None):
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--arch", choices=sorted(ARCHS), required=True)
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--tokens", type=float, default=160e6)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--minutes", type=float, default=0, help="stop after this long, start-up included; 0: never")
    ap.add_argument("--batch", type=int, default=16, help="windows of --seq in a step")
    ap.add_argument("--seq", type=int, default=4096)
    ap.add_argument("--long-seq", type=int, default=16384)
    ap.add_argument("--long-frac", type=float, default=0.15)
    ap.add_argument("--last-seq", type=int, default=65536)
    ap.add_argument("--last-frac", type=float, default=0.0)
    ap.add_argument("--dense-to", type=float, default=0.2)
    ap.add_argument("--replay-from", type=float, default=0.5)
    ap.add_argument("--quant-from", type=float, default=0.6)
    ap.add_argument("--decay-from", type=float, default=0.4)
    ap.add_argument("--needles", type=float, default=0.2, help="share of the windows that carry needles")
    ap.add_argument("--lr", type=float, default=4e-3, help="Muon (an update's RMS is 0.2 x this)")
    ap.add_argument("--adam-lr", type=float, default=8e-3)
    ap.add_argument("--wd", type=float, default=0.1, help="decoupled weight decay of Muon's matrices")
    ap.add_argument("--warmup", type=int, default=40, help="steps")
    ap.add_argument("--clip", type=float, default=1.0)
    ap.add_argument("--kl", type=float, default=1.0, help="weight of the indexer loss")
    ap.add_argument("--kl-rows", type=int, default=1024, help="query rows a step spends on the indexer loss")
    ap.add_argument("--bias-rate", type=float, default=3e-3, help="routing bias step, scaled by the schedule")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--no-compile", dest="compile", action="store_false")
    ap.add_argument("--log-every", type=int, default=40, help="steps")
    ap.add_argument("--eval-every", type=int, default=160, help="steps")
    ap.add_argument("--save-every", type=float, default=120, help="seconds")
    return ap.parse_args(argv)


if __name__ == "__main__":
    Trainer(arguments()).run()
