#!/usr/bin/env python3
"""CPU tests of the trainer's model (torch >= 1.13), among them its logits against the NumPy reference. By hand:

    python3 train/tests/test_model.py [name ...]
"""
import ctypes
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "reference"))
import v41_reference
import numpy as np
import torch

import kernels
import ops
import quant as Q
from config import Mode, dense_config, micro_text_config
from data import segments
from export import export, import_checkpoint
from llama import Llama
from model import Model
from optim import Optimizers

torch.manual_seed(0)


def make(seed=1, topk=None, spread=True):
    tm = np.random.default_rng(5).permutation(np.arange(512) % 400)
    seen = {}
    tm = np.array([seen.setdefault(int(v), len(seen)) for v in tm])
    txt = micro_text_config(512, len(seen))
    if topk:
        txt["index_topk"] = topk
    m = Model(txt, tm, seed=seed)
    if spread:                                     # an untrained model hardly moves: make everything matter
        g = torch.Generator().manual_seed(9)
        with torch.no_grad():
            for n, p in m.p.items():
                if n.endswith("norm") or n.endswith("_weight"):
                    p.mul_(1 + 0.2 * torch.randn(p.shape, generator=g))
                elif n.endswith("sink"):
                    p.add_(torch.randn(p.shape, generator=g))
                elif n == "head.weight":
                    p.mul_(15)
                elif "hc_" in n and n.endswith("scale"):
                    p.mul_(5)
                elif n.endswith("wq_b") or n.endswith("wq_a"):
                    p.mul_(1.7)
            for b in m.bias.values():
                b.add_(0.1 * torch.randn(b.shape, generator=g))
    return m


def rand_ids(b, s, seed=3, vocab=512):
    return torch.randint(3, vocab, (b, s), generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------------------------------------
def test_formats_numpy_vs_torch():
    x = np.concatenate([np.random.default_rng(0).standard_normal(200000) * 10.0 ** np.random.default_rng(1).uniform(-4, 3, 200000),
                        Q.E4M3_TABLE[np.isfinite(Q.E4M3_TABLE)], [0.25, .75, 1.25, 1.75, 2.5, 3.5, 5, 7, -5, 0, 448, 460, 2 ** -10, 3 * 2 ** -10]])
    x = x.astype(np.float32)
    a = Q.E4M3_TABLE[Q.n_e4m3(x)]
    assert np.array_equal(a, Q.t_e4m3(torch.from_numpy(x)).numpy())
    grid = np.sort(Q.E4M3_TABLE[np.isfinite(Q.E4M3_TABLE)])
    best = np.abs(np.clip(x, -448, 448)[:2000, None] - grid[None]).min(1)
    assert np.array_equal(np.abs(np.clip(x, -448, 448)[:2000] - a[:2000]), best)
    b = Q.E2M1_TABLE[Q.n_e2m1(x)]
    assert np.array_equal(b, Q.t_e2m1(torch.from_numpy(x)).numpy())
    ties = {.25: 0, .75: 1, 1.25: 1, 1.75: 2, 2.5: 2, 3.5: 4, 5: 4, 7: 6}
    for k, v in ties.items():
        assert Q.E2M1_TABLE[Q.n_e2m1(np.array([k]))][0] == v
    w = np.random.default_rng(2).standard_normal((96, 160)).astype(np.float32) * .3
    c, s = Q.n_quant_fp8_block(w)
    assert np.array_equal(Q.n_dequant_fp8_block(c, s), Q.t_weight_fp8(torch.from_numpy(w)).numpy())
    c, s = Q.n_quant_mxfp4(w)
    assert np.array_equal(Q.n_dequant_mxfp4(c, s), Q.t_qdq(torch.from_numpy(w), "mx4").numpy())
    c, s = Q.n_quant_fp8_rows(w)
    assert np.array_equal(Q.n_dequant_fp8_rows(c, s), Q.t_qdq(torch.from_numpy(w), "fp8").numpy())
    # quantising twice changes nothing (the exported weights survive a resume + export)
    y = Q.t_weight_fp8(torch.from_numpy(w))
    assert torch.equal(Q.t_weight_fp8(y), y) and torch.equal(Q.t_qdq(Q.t_qdq(y, "mx4"), "mx4"), Q.t_qdq(y, "mx4"))


def test_sinkhorn_device_code():
    src = "#include <math.h>\n#define HC_FN static inline\n#define HC_EXP expf\n" + kernels.HC_DEVICE + r"""
extern "C" void fwd(const float*z,int n,int it,float eps,float*a,float*b,float*c){for(int i=0;i<n;++i)hc_fwd_one(z+24*i,it,eps,a+4*i,b+4*i,c+16*i);}
extern "C" void bwd(const float*z,int n,int it,float eps,const float*a,const float*b,const float*c,float*d){for(int i=0;i<n;++i)hc_bwd_one(z+24*i,it,eps,a+4*i,b+4*i,c+16*i,d+24*i);}
"""
    with tempfile.TemporaryDirectory() as d:
        open(d + "/k.cc", "w").write(src)
        try:
            subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", d + "/k.so", d + "/k.cc"], check=True)
        except FileNotFoundError:
            print("    no g++: skipped")
            return
        lib = ctypes.CDLL(d + "/k.so")
        z = (torch.randn(50, 24) * 2).requires_grad_()
        out = kernels.hc_split_torch(z, 4, 20, 1e-6)
        gs = [torch.randn_like(t) for t in out]
        want, = torch.autograd.grad(sum((a * b).sum() for a, b in zip(out, gs)), z)
        p = lambda t: ctypes.c_void_p(t.data_ptr())
        res = [torch.zeros(50, 4), torch.zeros(50, 4), torch.zeros(50, 16)]
        zz, dz = z.detach().contiguous(), torch.zeros(50, 24)
        lib.fwd(p(zz), 50, 20, ctypes.c_float(1e-6), *[p(t) for t in res])
        lib.bwd(p(zz), 50, 20, ctypes.c_float(1e-6), *[p(t.contiguous()) for t in gs], p(dz))
    for a, b in zip(res, out):
        assert (a.view(-1) - b.detach().reshape(-1)).abs().max() < 1e-5
    assert (dz - want).abs().max() < 2e-5, (dz - want).abs().max()


def test_softmax_backward():
    N, H, W, K = 64, 3, 16, 5
    sw, sc = torch.randn(N, H, 2 * W, requires_grad=True), torch.randn(N, H, K, requires_grad=True)
    sink = torch.randn(H, requires_grad=True)
    pos = torch.arange(N, dtype=torch.int32)
    lo = torch.clamp(pos - (W - 1), min=0)
    valid = torch.rand(N, K) < .6
    j = (pos // W - 1)[:, None] * W + torch.arange(2 * W)
    mw = (j >= lo[:, None]) & (j <= pos[:, None])
    full = torch.cat([(sw * .3).masked_fill(~mw[:, None], -1e30), (sc * .3).masked_fill(~valid[:, None], -1e30),
                      sink.view(1, H, 1).expand(N, H, 1)], -1).softmax(-1)
    g = torch.randn(N, H, 2 * W + K)
    want = torch.autograd.grad((full[..., :-1] * g).sum(), (sw, sc, sink))
    pw, pc = ops.Softmax.apply(sw, sc, sink, lo, pos, valid, .3, W)
    got = torch.autograd.grad((torch.cat([pw, pc], -1) * g).sum(), (sw, sc, sink))
    for a, b in zip(want, got):
        assert (a - b).abs().max() < 1e-5
    full = torch.cat([(sw * .3).masked_fill(~mw[:, None], -1e30), sink.view(1, H, 1).expand(N, H, 1)], -1).softmax(-1)
    want = torch.autograd.grad((full[..., :-1] * g[..., :2 * W]).sum(), (sw, sink))
    pw, _ = ops.Softmax.apply(sw, None, sink, lo, pos, None, .3, W)
    got = torch.autograd.grad((pw * g[..., :2 * W]).sum(), (sw, sink))
    for a, b in zip(want, got):
        assert (a - b).abs().max() < 1e-5


def test_gradients_numerically():
    """Directional derivatives of the whole loss; dense attention and all experts on, since selections are
    step functions."""
    m = make()
    m.cfg.num_experts_per_tok = m.cfg.n_routed_experts
    ids, lab = rand_ids(2, 48), rand_ids(2, 48, 4)
    mode = Mode(dense=True)
    m.loss(ids, lab, mode=mode)[0].backward()
    for n in m.p:
        if "indexer" in n:
            continue
        p = m.p[n]
        d = torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) * p.detach().abs().mean().clamp(min=1e-2)
        want, val = float((p.grad * d).sum()), []
        for sgn in (1, -1):
            with torch.no_grad():
                p += sgn * 3e-3 * d
                val.append(float(m.loss(ids, lab, mode=mode)[0]))
                p -= sgn * 3e-3 * d
        num = (val[0] - val[1]) / 6e-3
        # the signed square root of Engram's gate is steep near 0, so its finite differences are rough
        tol = 0.5 if n.endswith(("q_weight", "k_weight")) else 0.03
        assert abs(num - want) < tol * abs(want) + 1.5e-3, (n, num, want)


def test_indexer_gradient_isolated():
    """The indexer loss reaches indexer weights only, the model loss reaches no indexer weight."""
    m = make()
    ids, lab = rand_ids(2, 64), rand_ids(2, 64, 4)
    loss, kl = m.loss(ids, lab, mode=Mode(), kl_rows=torch.arange(1, 64, 5))
    gi = torch.autograd.grad(kl, m.parameters(), retain_graph=True, allow_unused=True)
    gm = torch.autograd.grad(loss, m.parameters(), allow_unused=True)
    for n, a, b in zip(m.p, gi, gm):
        has_i, has_m = (a is not None and bool(a.abs().max() > 0)), (b is not None and bool(b.abs().max() > 0))
        assert has_i == ("indexer" in n), n
        assert has_m == ("indexer" not in n), n


def test_dense_equals_sparse_with_large_topk():
    m = make(topk=512)
    m.cfg.candidate_topk_blocks = 1000
    ids = rand_ids(2, 96)
    with torch.no_grad():
        a, _ = m.forward(ids, mode=Mode(dense=True))
        b, _ = m.forward(ids, mode=Mode())
    assert (a - b).abs().max() < 2e-4, (a - b).abs().max()


def test_causal_and_topk():
    m = make()
    ids = rand_ids(1, 96)
    cut = 61
    other = ids.clone()
    other[0, cut:] = rand_ids(1, 96, 77)[0, cut:]
    for mode in (Mode(), Mode(quant=True), Mode(dense=True)):
        k1, k2 = {}, {}
        with torch.no_grad():
            a, _ = m.forward(ids, mode=mode, keep_topk=k1)
            b, _ = m.forward(other, mode=mode, keep_topk=k2, select_rows=16)
        assert (a[:cut] - b[:cut]).abs().max() < 1e-4
        assert (a[cut:] - b[cut:]).abs().max() > 1e-2
        for l, (idx, ok) in k1.items():
            r = m.cfg.ratio[l]
            vis = (torch.arange(96) + 1) // r
            assert bool(((idx < vis[None, :, None]) | ~ok).all())
            assert torch.equal(ok.sum(-1)[0], torch.minimum(vis, torch.tensor(8)))
            i2, o2 = k2[l]
            s1 = [set(idx[0, i][ok[0, i]].tolist()) for i in range(cut)]
            s2 = [set(i2[0, i][o2[0, i]].tolist()) for i in range(cut)]
            assert s1 == s2 and all(len(s) == int(v) for s, v in zip(s1, ok.sum(-1)[0][:cut]))


def test_batch_rows_independent():
    m = make()
    a, b = rand_ids(1, 64, 1), rand_ids(1, 64, 2)
    with torch.no_grad():                           # unquantised: a value at a rounding border would jump
        y, _ = m.forward(torch.cat([a, b]), mode=Mode())
        z, _ = m.forward(b, mode=Mode())
    assert (y[64:] - z).abs().max() < 1e-4


def test_bf16_path():
    """The dtypes of the GPU path: bf16 activations give nearly the fp32 loss and gradients."""
    a = make(spread=False)
    b = Model(a.cfg.text, a.token_map.numpy()[:512], dtype=torch.bfloat16, seed=1)
    ids, lab = rand_ids(2, 64), rand_ids(2, 64, 4)
    rows = torch.arange(3, 64, 5)
    for mode in (Mode(dense=True), Mode(), Mode(quant=True), Mode(quant=True, act_fp8=True)):
        g = []
        for m in (a, b):
            ctx = m.swapped() if mode.quant else None
            if ctx:
                ctx.__enter__()
            ce, kl = m.loss(ids, lab, mode=mode, kl_rows=rows, count=True,
                            seg_start=torch.where(torch.arange(64) >= 40, 40, 0).expand(2, 64))
            (ce + kl).backward()
            if ctx:
                ctx.__exit__()
            assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in m.parameters())
            g.append((float(ce), float(kl), torch.cat([p.grad.flatten() for p in m.parameters()])))
            for p in m.parameters():
                p.grad = None
        cos = torch.dot(g[0][2], g[1][2]) / (g[0][2].norm() * g[1][2].norm())
        assert abs(g[0][0] - g[1][0]) < 0.02 and cos > (0.8 if mode.act_fp8 else 0.9), (mode, g[0][:2], g[1][:2], cos)


def export_micro(m, folder):
    return export({"text": m.cfg.text, "token_map": m.token_map, "state": m.state(), "meta": {}}, None, folder)


def test_export_roundtrip_and_swap():
    m = make()
    with tempfile.TemporaryDirectory() as d:
        export_micro(m, d)
        got = import_checkpoint(d)["state"]
        for n, v in m.quantised_weights().items():
            assert torch.equal(v, got[n]), n
        before = {n: p.detach().clone() for n, p in m.p.items()}
        with m.swapped():
            assert all(torch.equal(m.p[n].detach(), got[n]) for n in m.p)
        assert all(torch.equal(m.p[n].detach(), before[n]) for n in m.p)
        # straight-through: gradients taken while swapped land on the masters
        with m.swapped():
            m.loss(rand_ids(1, 32), rand_ids(1, 32, 4), mode=Mode(quant=True))[0].backward()
        assert m.p["layers.3.ffn.experts.w1"].grad.abs().max() > 0


def test_reference_logits():
    R = v41_reference
    m = make()
    ids = rand_ids(1, 96)
    with tempfile.TemporaryDirectory() as d:
        export_micro(m, d)
        ref = R.Model(d, "fp32", main_kv="fp32", window_kv="fp32", index_kv="fp32")
        want = ref.session().forward(ids[0].tolist())
        with torch.no_grad(), m.swapped():
            got = m.logits(m.forward(ids, mode=Mode(quant=True, kv=False))[0]).numpy()
        print(f"    f32 caches: largest |logit difference| {np.abs(got - want).max():.2e}")
        assert np.abs(got - want).max() < 1e-4                   # nothing is rounded
        for fmt, theirs in (("g16", "fp4_g16_e4m3"), ("fp8", "fp8"), ("bf16", "bf16")):
            ref = R.Model(d, "fp32", main_kv=theirs)
            tr = {}
            want = ref.session().forward(ids[0].tolist(), tr)
            keep = {}
            with torch.no_grad(), m.swapped():
                hid, _ = m.forward(ids, mode=Mode(quant=True, main=fmt), keep_topk=keep)
                got = m.logits(hid).numpy()
            # a different top-k pick (fp32 sum order) may move a row; count such rows, compare the rest
            bad = np.zeros(96, bool)
            for l, (idx, ok) in keep.items():
                for i in range(96):
                    a = set(idx[0, i][ok[0, i]].tolist())
                    b = set(v for v in tr[f"layers.{l}.topk"][i].tolist() if v >= 0)
                    bad[i] |= a != b
            err = np.abs(got - want).max(1)
            # a cached value at a rounding border may fall to the other side and move the rows after it a little
            print(f"    main KV {fmt}: |logit difference| median {np.median(err[~bad]):.2e}, largest {err[~bad].max():.2e} over "
                  f"{(~bad).sum()} rows, logit spread {want.std():.2f}, rows with another top-k {bad.sum()}")
            assert np.median(err[~bad]) < 2e-3 and err[~bad].max() < 0.1 and bad.sum() <= 2
        ref = R.Model(d, "official")
        want = ref.session().forward(ids[0].tolist())
        with torch.no_grad(), m.swapped():
            hid, _ = m.forward(ids, mode=Mode(quant=True, act_fp8=True))
            got = m.logits(hid).numpy()
            hid, _ = m.forward(ids, mode=Mode(quant=True))
            plain = m.logits(hid).numpy()
        own = R.Model(d, "fp32").session().forward(ids[0].tolist())
        rel = lambda a: np.median(np.linalg.norm(a - want, axis=1) / np.linalg.norm(want, axis=1))
        print(f"    random weights, against the reference's official mode (bf16 activations): median relative error "
              f"{rel(got):.3f} with fp8 inputs, {rel(plain):.3f} without; the reference's own fp32 mode {rel(own):.3f}")
        assert rel(got) < 1.3 * rel(own)


def test_reference_bounded_replay():
    """seg_start = the decoder segment of the reference's bounded prefill."""
    R = v41_reference
    m = make()
    ids, W = rand_ids(1, 96), m.cfg.sliding_window
    with tempfile.TemporaryDirectory() as d:
        export_micro(m, d)
        want, start = R.Model(d, "fp32").session().prefill_bounded(ids[0].tolist())
    assert start == 96 - W
    seg = torch.where(torch.arange(96) >= start, start, 0)[None]
    with torch.no_grad(), m.swapped():
        hid, _ = m.forward(ids, mode=Mode(quant=True), seg_start=seg)
        full, _ = m.forward(ids, mode=Mode(quant=True))
        got, plain = m.logits(hid)[start:].numpy(), m.logits(full)[start:].numpy()
    err = np.abs(got - want).max(1)
    print(f"    bounded replay: {np.sort(err)[:-1].max():.2e} (worst row {err.max():.2e}); without truncation "
          f"{np.abs(plain - want).max():.2e}")
    assert np.sort(err)[:-1].max() < 1e-2 and np.abs(plain - want).max() > 0.05


def test_muon_and_toy_training():
    m = make(spread=False)
    opt = Optimizers(m, 4e-3, 3e-3, 0.05)
    text = open(__file__).read()[:4000]
    ids = torch.tensor([3 + (ord(ch) % 200) for ch in text])
    first = last = None
    for step in range(30):
        start = torch.randint(0, len(ids) - 129, (4,)).tolist()
        win = torch.stack([ids[s:s + 129] for s in start])
        mode = Mode(dense=step < 10, quant=step >= 20)
        ctx = m.swapped() if mode.quant else None
        if ctx:
            ctx.__enter__()
        loss, kl = m.loss(win[:, :-1], win[:, 1:], mode=mode, kl_rows=torch.arange(2, 128, 11), count=True)
        (loss + kl).backward()
        if ctx:
            ctx.__exit__()
        opt.step(1.0, 1.0)
        m.update_bias(1e-3)
        first, last = first or float(loss), float(loss)
    print(f"    toy loss {first:.2f} -> {last:.2f}")
    assert last < 0.75 * first


def test_dense_twin():
    """Causal, the same after export, and gradients of finite differences."""
    for kv in (4, 2):
        m = Llama(dense_config(512, kv), seed=1)
        ids = rand_ids(1, 40)
        other = ids.clone()
        other[0, 30:] = rand_ids(1, 40, 8)[0, 30:]
        with torch.no_grad():
            a, b = m.forward(ids)[0], m.forward(other)[0]
        assert torch.equal(a[:30], b[:30]) or (a[:30] - b[:30]).abs().max() < 1e-5
        assert (a[30:] - b[30:]).abs().max() > 1e-2
        with tempfile.TemporaryDirectory() as d:
            export_micro(m, d)
            got = import_checkpoint(d)["state"]
        for n, v in m.quantised_weights().items():
            assert torch.equal(v, got[n]), n


def test_segments():
    seg, keep = segments(np.random.default_rng(0), 8, 400, 16, 50)
    pos = np.arange(400)
    assert (seg <= pos).all() and (np.diff(seg, axis=1) >= 0).all() and 0 < (seg.max(1) > 0).sum() < 8
    assert keep[seg == 0].all() and not keep[(seg > 0) & (pos - seg < 15)].any() and keep[pos - seg >= 15].all()


def main():
    names = sys.argv[1:] or [k for k in globals() if k.startswith("test_")]
    bad = 0
    for n in names:
        try:
            globals()[n]()
            print("ok  ", n, flush=True)
        except Exception:
            import traceback
            traceback.print_exc()
            bad += 1
            print("FAIL", n, flush=True)
    print(f"{len(names) - bad} passed, {bad} failed")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
