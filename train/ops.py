"""Fused element-wise functions and hand-written backwards of the published architecture.

Each @compiled function is one compiled region. Activations are flat: N = batch x seq rows, so that every function sees one shape
whatever the sequence length is. EPS is the model's rms_norm_eps; Model.__init__ sets it.
"""
import torch
import torch.nn.functional as F

from kernels import compiled
from quant import t_fake

EPS = 1e-20


def _rms(x):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def _rot(x, cos, sin):
    """Adjacent pairs of the last 2 * cos.size(-1) features; fp32 in, fp32 out."""
    r = cos.shape[-1]
    if x.dim() == 3:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    d = x.shape[-1] - 2 * r
    a, b = x[..., d::2], x[..., d + 1::2]
    y = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    return torch.cat([x[..., :d], y], -1)


@compiled
def f_rms(x, w):
    return (_rms(x) * w).to(x.dtype)


@compiled
def f_rope(x, cos, sin):
    return _rot(x.float(), cos, sin).to(x.dtype)


@compiled
def f_rope_fq(x, cos, sin, fmt):
    return t_fake(_rot(x.float(), cos, sin), fmt).to(x.dtype)


@compiled
def f_norm_rope_fq(x, w, cos, sin, fmt):
    return t_fake(_rot(_rms(x) * w, cos, sin), fmt).to(x.dtype)


@compiled
def f_hc_z(m, h, svec, base):
    h = h.float()
    return m.float() * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS) * svec + base


@compiled
def f_hc_pre_rms(h, mix, w):
    x = (h.float() * mix.unsqueeze(-1)).sum(1)
    return (_rms(x) * w).to(h.dtype)


@compiled
def f_hc_post(y, h, post, comb):
    hf, n = h.float(), h.shape[1]
    out = post.unsqueeze(-1) * y.float().unsqueeze(1)
    for j in range(n):
        out = out + comb[:, j].unsqueeze(-1) * hf[:, j].unsqueeze(1)
    return out.to(h.dtype)


@compiled
def f_swiglu(h13, wt, limit):
    g, u = h13.float().chunk(2, -1)
    if limit > 0:
        g, u = g.clamp(max=limit), u.clamp(-limit, limit)
    y = F.silu(g) * u
    if wt is not None:
        y = y * wt.unsqueeze(-1)
    return y.to(h13.dtype)


@compiled
def f_engram(h, kv, qk):
    n, d = h.shape[1], h.shape[2]
    hf, key, val = h.float(), kv[:, :n * d].float().view(-1, n, d), kv[:, n * d:].float()
    dot = (hf * qk * key).sum(-1) * torch.rsqrt(hf.square().mean(-1) + EPS) \
        * torch.rsqrt(key.square().mean(-1) + EPS) * d ** -0.5
    root = dot.abs().clamp(min=1e-6).sqrt()
    gate = torch.sigmoid(torch.where(dot < 0, -root, root))
    return (hf + gate.unsqueeze(-1) * val.unsqueeze(1)).to(h.dtype)


@compiled
def f_pool(kv, sc, r):
    """[T*r, D] -> [T, D]: softmax over the group, per channel."""
    kv, sc = kv.float().view(-1, r, kv.shape[-1]), sc.float().view(-1, r, sc.shape[-1])
    return (kv * sc.softmax(1)).sum(1)


# -- attention softmax over window | compressed | sink, with a hand-written backward ------------------
@compiled
def _sm_fwd(sw, sc, lo, pos, valid, sink, scale, win):
    """sw [N,H,2W], sc [N,H,K] raw dots. lo/pos [N] first / own flat position. Returns pw, pc, lse."""
    j = (torch.div(pos, win, rounding_mode="floor") - 1).unsqueeze(1) * win \
        + torch.arange(2 * win, device=pos.device, dtype=pos.dtype)
    mw = (j >= lo.unsqueeze(1)) & (j <= pos.unsqueeze(1))
    a = torch.where(mw.unsqueeze(1), sw.float() * scale, -1e30)
    c = torch.where(valid.unsqueeze(1), sc.float() * scale, -1e30)
    mx = torch.maximum(torch.maximum(a.amax(-1), c.amax(-1)), sink)
    ea, ec = torch.exp(a - mx.unsqueeze(-1)), torch.exp(c - mx.unsqueeze(-1))
    den = ea.sum(-1) + ec.sum(-1) + torch.exp(sink - mx)
    inv = (1 / den).unsqueeze(-1)
    return (ea * inv).to(sw.dtype), (ec * inv).to(sw.dtype), mx + den.log()


@compiled
def _sm_bwd(pw, pc, dpw, dpc, lse, sink, scale):
    pwf, pcf, gw, gc = pw.float(), pc.float(), dpw.float(), dpc.float()
    delta = (pwf * gw).sum(-1) + (pcf * gc).sum(-1)
    dw = pwf * (gw - delta.unsqueeze(-1)) * scale
    dc = pcf * (gc - delta.unsqueeze(-1)) * scale
    return dw.to(pw.dtype), dc.to(pc.dtype), -(torch.exp(sink - lse) * delta).sum(0)


@compiled
def _sm1_fwd(sw, lo, pos, sink, scale, win):
    j = (torch.div(pos, win, rounding_mode="floor") - 1).unsqueeze(1) * win \
        + torch.arange(2 * win, device=pos.device, dtype=pos.dtype)
    mw = (j >= lo.unsqueeze(1)) & (j <= pos.unsqueeze(1))
    a = torch.where(mw.unsqueeze(1), sw.float() * scale, -1e30)
    mx = torch.maximum(a.amax(-1), sink)
    ea = torch.exp(a - mx.unsqueeze(-1))
    den = ea.sum(-1) + torch.exp(sink - mx)
    return (ea / den.unsqueeze(-1)).to(sw.dtype), mx + den.log()


@compiled
def _sm1_bwd(pw, dpw, lse, sink, scale):
    pwf, gw = pw.float(), dpw.float()
    delta = (pwf * gw).sum(-1)
    return (pwf * (gw - delta.unsqueeze(-1)) * scale).to(pw.dtype), -(torch.exp(sink - lse) * delta).sum(0)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, sw, sc, sink, lo, pos, valid, scale, win):
        if sc is None:
            pw, lse = _sm1_fwd(sw, lo, pos, sink, scale, win)
            pc = None
        else:
            pw, pc, lse = _sm_fwd(sw, sc, lo, pos, valid, sink, scale, win)
        ctx.save_for_backward(pw, pc, lse, sink)
        ctx.scale = scale
        return pw, pc

    @staticmethod
    def backward(ctx, dpw, dpc):
        pw, pc, lse, sink = ctx.saved_tensors
        if pc is None:
            dw, ds = _sm1_bwd(pw, dpw, lse, sink, ctx.scale)
            return dw, None, ds, None, None, None, None, None
        dw, dc, ds = _sm_bwd(pw, pc, dpw, dpc, lse, sink, ctx.scale)
        return dw, dc, ds, None, None, None, None, None


@compiled
def _scatter_rows(base, idx, g):
    return base.index_add(0, idx, g.float())


class GatherRows(torch.autograd.Function):
    """kv [T,D] rows picked by idx [M]; the backward adds in fp32."""

    @staticmethod
    def forward(ctx, kv, idx):
        ctx.save_for_backward(idx)
        ctx.shape, ctx.dtype = kv.shape, kv.dtype
        return kv.index_select(0, idx)

    @staticmethod
    def backward(ctx, g):
        idx, = ctx.saved_tensors
        base = torch.zeros(ctx.shape, device=g.device, dtype=torch.float32)
        return _scatter_rows(base, idx, g).to(ctx.dtype), None


class Dispatch(torch.autograd.Function):
    """x [N,D] -> rows sorted by expert [N*K, D] and back; `order` sorts the N*K slots, `inv` undoes it."""

    @staticmethod
    def forward(ctx, x, order, inv, k):
        ctx.save_for_backward(inv)
        ctx.k = k
        return x.index_select(0, torch.div(order, k, rounding_mode="floor"))

    @staticmethod
    def backward(ctx, g):
        inv, = ctx.saved_tensors
        g = g.index_select(0, inv)
        return g.view(-1, ctx.k, g.shape[-1]).sum(1), None, None, None


class Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, order, inv, k):
        ctx.save_for_backward(order)
        ctx.k = k
        return y.index_select(0, inv).view(-1, k, y.shape[-1]).sum(1)

    @staticmethod
    def backward(ctx, g):
        order, = ctx.saved_tensors
        return g.index_select(0, torch.div(order, ctx.k, rounding_mode="floor")), None, None, None


class Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, order, inv):
        ctx.save_for_backward(inv)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx, g):
        inv, = ctx.saved_tensors
        return g.index_select(0, inv), None, None


def lin(x, w):
    return F.linear(x, w.to(x.dtype))
