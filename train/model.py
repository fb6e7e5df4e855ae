"""DeepSeek-V4.1-Flash text architecture in PyTorch, written for training at small scale.

Activations are flat: N = batch x seq rows. Parameters live in a dict under their published names (`layers.3.attn.wq_b.weight`, ...);
routed experts are stacked as `layers.3.ffn.experts.w1` [E, out, in].

Modes (see config.Mode): dense attention over all compressed entries (start of training), sparse attention over the indexer's top-k
(the real model), fake quantisation of weights and KV caches, decoder window truncated at segment starts (bounded replay).
"""
import math

import numpy as np
import torch
import torch.nn.functional as F

import ops
from config import Cfg, Mode, engram_multipliers, engram_primes
from kernels import grouped_mm, hc_split
from ops import (Combine, Dispatch, GatherRows, Permute, Softmax, f_engram, f_hc_post, f_hc_pre_rms, f_hc_z, f_norm_rope_fq,
                 f_rms, f_rope, f_swiglu, lin)
from params import init_tensor, param_spec
from quant import t_fake, t_qdq, t_weight_fp8
from selection import Selection


class _Ctx:
    pass


def cross_entropy(head, hid, labels, weights, chunks):
    """Weighted mean over the labels that are not -100, the logits made in chunks of rows."""
    lab = labels.reshape(-1)
    w = (lab >= 0).float() if weights is None else weights.reshape(-1) * (lab >= 0)
    tot = 0.0
    for hc, lc, wc in zip(hid.chunk(chunks), lab.chunk(chunks), w.chunk(chunks)):
        tot = tot + (F.cross_entropy(head(hc), lc, ignore_index=-100, reduction="none") * wc).sum()
    return tot / w.sum().clamp(min=1)


class Model(Selection):
    def __init__(self, text, token_map, device="cpu", dtype=torch.float32, seed=0, init=True):
        self.cfg = c = Cfg(text)
        ops.EPS = max(c.rms_norm_eps, 1e-20)
        self.device, self.dtype = torch.device(device), dtype
        self.exact_ties = self.device.type == "cpu"
        self.spec = param_spec(c)                         # name -> (shape, stored as, std or fill)
        gen = torch.Generator().manual_seed(seed)
        self.p, self.bias = {}, {}
        for name, (shape, _, how) in self.spec.items():
            t = init_tensor(shape, how, gen, c) if init else torch.zeros(shape)
            self.p[name] = t.to(self.device).requires_grad_()
        for l in range(c.num_hidden_layers):
            self.bias[l] = torch.zeros(c.n_routed_experts, device=self.device)
        self.load = torch.zeros(c.num_hidden_layers, c.n_routed_experts, device=self.device)
        self._rope_cache = {}
        tm = torch.as_tensor(np.asarray(token_map), dtype=torch.long)
        assert int(tm.max()) + 1 == c.engram_compressed_vocab_size, "token map and config disagree"
        if len(tm) < c.vocab_size:                        # ids the tokenizer never makes (tests only)
            tm = torch.cat([tm, tm.new_zeros(c.vocab_size - len(tm))])
        self.token_map = tm.to(self.device)
        self.pad_class = int(tm[c.engram_pad_token_id])
        primes = engram_primes(text)
        self.e_primes = [torch.tensor(p, device=self.device) for p in primes]
        self.e_off, self.e_mult = [], engram_multipliers(text)
        for p in primes:
            flat = [v for r in p for v in r]
            self.e_off.append(torch.tensor([sum(flat[:i]) for i in range(len(flat))], device=self.device))

    # -- bookkeeping ---------------------------------------------------------------------------------
    def parameters(self):
        return list(self.p.values())

    def num_params(self):
        return sum(t.numel() for t in self.p.values())

    def state(self):
        d = {k: v.detach() for k, v in self.p.items()}
        d.update({f"layers.{l}.ffn.gate.bias": b for l, b in self.bias.items()})
        return d

    def load_state(self, d):
        with torch.no_grad():
            for k, v in self.p.items():
                v.copy_(d[k].to(v.device, torch.float32))
            for l, b in self.bias.items():
                b.copy_(d[f"layers.{l}.ffn.gate.bias"])

    @torch.no_grad()
    def quantised_weights(self):
        """name -> values exactly as the exported checkpoint will hold them."""
        out, small = {}, []
        groups = {}
        for name, (shape, kind, _) in self.spec.items():
            w = self.p[name].detach()
            if kind in ("mx4", "table"):
                groups.setdefault((kind, 32), []).append((name, w))
            elif kind == "fp8":
                groups.setdefault((kind, tuple(shape)), []).append((name, w))
            elif kind == "bf16":
                small.append((name, w))
            else:
                out[name] = w
        for (kind, _), items in groups.items():
            if kind == "fp8":
                q = t_weight_fp8(torch.stack([w for _, w in items]))
                out.update({n: q[i] for i, (n, _) in enumerate(items)})
            else:
                flat = torch.cat([w.reshape(-1, 32) for _, w in items])
                q, a = t_qdq(flat, "mx4" if kind == "mx4" else "fp8"), 0
                for n, w in items:
                    k = w.numel() // 32
                    out[n] = q[a:a + k].view(w.shape)
                    a += k
        for n, w in small:
            out[n] = w.to(torch.bfloat16).float()
        return out

    class _Swap:
        def __init__(self, model):
            self.m = model

        def __enter__(self):
            self.old = {n: t.data for n, t in self.m.p.items()}
            for n, v in self.m.quantised_weights().items():
                self.m.p[n].data = v

        def __exit__(self, *a):
            for n, v in self.old.items():
                self.m.p[n].data = v

    def swapped(self):
        """Context: parameters hold their quantised values (gradients pass straight through)."""
        return Model._Swap(self)

    # -- positions ------------------------------------------------------------------------------------
    def _freq(self, yarn):
        c, dim = self.cfg, self.cfg.qk_rope_head_dim
        theta = float(c.compress_rope_theta if yarn else c.rope_theta)
        expo = torch.arange(0, dim, 2, dtype=torch.float32) / dim
        f = 1.0 / (theta ** expo)
        rs = c.rope_scaling or {}
        orig = rs.get("original_max_position_embeddings", 0)
        if yarn and orig > 0:
            def at(turns):
                return dim * math.log(orig / (turns * 2 * math.pi)) / (2 * math.log(theta))
            lo, hi = max(math.floor(at(rs["beta_fast"])), 0), min(math.ceil(at(rs["beta_slow"])), dim - 1)
            ramp = ((torch.arange(dim // 2, dtype=torch.float32) - lo) / max(hi - lo, 1e-3)).clamp(0, 1)
            keep = 1 - ramp
            f = f / rs["factor"] * (1 - keep) + f * keep
        return f

    def rope(self, bsz, s, ratio, yarn):
        """cos, sin for flat rows; ratio > 1: one row per group, at the group's first position."""
        key = (bsz, s, ratio, yarn)
        if key not in self._rope_cache:
            if len(self._rope_cache) > 24:
                self._rope_cache.clear()
            pos = torch.arange(0, s, ratio, dtype=torch.float32)
            ang = pos[:, None] * self._freq(yarn)[None]
            cs = [f(ang.double()).float().to(self.device).repeat(bsz, 1).contiguous() for f in (torch.cos, torch.sin)]
            self._rope_cache[key] = cs
        return self._rope_cache[key]

    # -- engram ---------------------------------------------------------------------------------------
    @torch.no_grad()
    def hashes(self, ids):
        """[B,S] -> per engram layer [B*S, cols] table rows."""
        c = self.cfg
        comp = self.token_map[ids]
        b, s = comp.shape
        back = [comp]
        for k in range(1, c.engram_max_ngram_size):
            pad = comp.new_full((b, min(k, s)), self.pad_class)
            back.append(torch.cat([pad, comp[:, :max(s - k, 0)]], 1))
        out = []
        for i in range(len(c.engram_layer_ids)):
            h, cols = back[0] * int(self.e_mult[i][0]), []
            for k in range(1, c.engram_max_ngram_size):
                h = h ^ (back[k] * int(self.e_mult[i][k]))
                cols.append(h.unsqueeze(-1) % self.e_primes[i][k - 1])
            out.append((torch.cat(cols, -1) + self.e_off[i]).view(b * s, -1))
        return out

    def engram(self, l, h, x):
        c, g = self.cfg, f"layers.{l}.engram."
        rows = x.hash[c.engram_layer_ids.index(l)]
        e = F.embedding(rows, self.p[g + "embed"]).flatten(1).to(self.dtype)
        kv = self.qlin(e, g + "wkv", x)
        return f_engram(h, kv, self.p[g + "q_weight"] * self.p[g + "k_weight"])

    # -- small pieces -----------------------------------------------------------------------------------
    def qlin(self, t, name, x):
        """A linear whose weight is quantised in the checkpoint."""
        return lin(t_fake(t, "fp8") if x.mode.act_fp8 else t, self.p[name])

    def hc(self, l, part, h):
        c, t = self.cfg, f"layers.{l}.hc_{part}_"
        n = c.hc_mult
        flat = h.flatten(1)
        m = lin(flat, self.p[t + "fn"])
        s = self.p[t + "scale"]
        svec = torch.cat([s[0:1].expand(n), s[1:2].expand(n), s[2:3].expand(n * n)])
        return hc_split(f_hc_z(m, flat, svec, self.p[t + "base"]), n, c.hc_sinkhorn_iters, c.hc_eps)

    # -- attention --------------------------------------------------------------------------------------
    def attention(self, l, t, x):
        c, a, r = self.cfg, f"layers.{l}.attn.", self.cfg.ratio[l]
        B, S, H, D, W = x.B, x.S, c.num_attention_heads, c.head_dim, c.sliding_window
        N = B * S
        cos, sin = self.rope(B, S, 1, r > 0)
        qr = f_rms(self.qlin(t, a + "wq_a", x), self.p[a + "q_norm"])
        q = f_rope(self.qlin(qr, a + "wq_b", x).view(N, H, D), cos, sin)
        kv = f_norm_rope_fq(self.qlin(t, a + "wkv", x), self.p[a + "kv_norm"], cos, sin, x.fmt_window)
        kb = kv.view(N // W, W, D)
        k2 = torch.cat([torch.roll(kb, 1, 0), kb], 1)                       # previous block | own block
        qb = q.view(N // W, W * H, D)
        sw = torch.matmul(qb, k2.transpose(1, 2)).view(N, H, 2 * W)
        lo = x.lo_dec if l >= c.dec0 else x.lo_enc
        sink, scale = self.p[a + "attn_sink"], D ** -0.5
        if not r:
            pw, _ = Softmax.apply(sw, None, sink, lo, x.pos, None, scale, W)
            o = torch.matmul(pw.view(N // W, W * H, 2 * W), k2)
        else:
            if l in c.kv_src:
                self.publish(l, t, x)
            main = x.main[c.src(l, c.kv_src)]
            if l in c.idx_src:
                if x.kl_rows is not None:
                    self.kl_logits(l, t, qr, x)
                if not x.mode.dense:
                    self.select(l, t, qr, x)
            if x.kl_rows is not None:
                self.kl_target(l, q.detach(), sw.detach(), main.detach(), lo, sink.detach(), x)
            if x.mode.dense:
                mb = main.view(B, -1, D)
                sc = torch.matmul(q.view(B, S * H, D), mb.transpose(1, 2)).view(N, H, -1)
                pw, pc = Softmax.apply(sw, sc, sink, lo, x.pos, self.dense_mask(x, r), scale, W)
                oc = torch.matmul(pc.view(B, S * H, -1), mb)
            else:
                ks = GatherRows.apply(main, x.flat_idx).view(N, -1, D)
                sc = torch.matmul(q, ks.transpose(1, 2))
                pw, pc = Softmax.apply(sw, sc, sink, lo, x.pos, x.valid, scale, W)
                oc = torch.matmul(pc, ks)
            o = torch.matmul(pw.view(N // W, W * H, 2 * W), k2).view(N, H, D) + oc.view(N, H, D)
        o = f_rope(o.view(N, H, D), cos, -sin)
        G = c.o_groups
        wo = self.p[a + "wo_a"].to(o.dtype).view(G, c.o_lora_rank, -1)
        low = torch.einsum("ngd,grd->ngr", o.reshape(N, G, -1), wo).reshape(N, -1)
        return self.qlin(low, a + "wo_b", x)

    def dense_mask(self, x, r):
        if r not in x.masks:
            s = torch.arange(x.S, device=self.device)
            m = torch.arange(x.S // r, device=self.device) < torch.div(s + 1, r, rounding_mode="floor")[:, None]
            x.masks[r] = m.repeat(x.B, 1)
        return x.masks[r]

    # -- mixture of experts ------------------------------------------------------------------------------
    def moe(self, l, t, x):
        c, f = self.cfg, f"layers.{l}.ffn."
        K, E = c.num_experts_per_tok, c.n_routed_experts
        s = torch.sqrt(F.softplus(F.linear(t.float(), self.p[f + "gate.weight"])) + 1e-20)
        with torch.no_grad():
            pick = (s + self.bias[l]).topk(K, -1).indices
            flat = pick.flatten()
            order = torch.sort(flat.to(torch.int32), stable=True).indices
            inv = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
            counts = torch.zeros(E, device=flat.device, dtype=torch.long).scatter_add_(0, flat, torch.ones_like(flat))
            offs = counts.cumsum(0).to(torch.int32)
            if x.count:
                self.load[l] += counts
        w = s.gather(1, pick)
        w = w / (w.sum(-1, keepdim=True) + 1e-20) * c.routed_scaling_factor
        ws = Permute.apply(w.reshape(-1), order, inv)
        tq = t_fake(t, "fp8") if x.mode.act_fp8 else t
        xs = Dispatch.apply(tq, order, inv, K)
        w13 = torch.cat([self.p[f + "experts.w1"], self.p[f + "experts.w3"]], 1).to(t.dtype)
        y = f_swiglu(grouped_mm(xs, w13, counts, offs), ws, c.swiglu_limit)
        y = t_fake(y, "fp8") if x.mode.act_fp8 else y
        y = grouped_mm(y, self.p[f + "experts.w2"].to(t.dtype), counts, offs)
        y = Combine.apply(y, order, inv, K)
        s13 = torch.cat([self.p[f + "shared_experts.w1"], self.p[f + "shared_experts.w3"]], 0)
        z = f_swiglu(lin(tq, s13), None, c.swiglu_limit)
        return y + self.qlin(z, f + "shared_experts.w2", x)

    # -- the stack ----------------------------------------------------------------------------------------
    def forward(self, ids, mode=None, seg_start=None, kl_rows=None, count=False, keep_topk=None,
                select_rows=8192):
        """ids [B,S], S a multiple of the window. seg_start [B,S]: first position of each query's decoder
        segment (bounded replay). kl_rows: sorted local positions the indexer loss uses.
        Returns (final hidden rows [N,d], indexer loss or None)."""
        c = self.cfg
        x = _Ctx()
        x.mode, x.B, x.S = mode or Mode(), ids.shape[0], ids.shape[1]
        assert x.S % c.sliding_window == 0
        x.count, x.keep_topk, x.select_rows = count, keep_topk, select_rows
        kv = x.mode.quant and x.mode.kv
        x.fmt_main = x.mode.main if kv else "none"
        x.fmt_window = "fp8" if kv else "none"
        x.fmt_index = "mx4" if kv else "none"
        x.main, x.ikey, x.masks, x.kl_p, x.kl_q = {}, {}, {}, {}, {}
        N, dev = x.B * x.S, self.device
        x.pos = torch.arange(N, device=dev, dtype=torch.int32)
        first = torch.div(x.pos, x.S, rounding_mode="floor") * x.S
        x.lo_enc = torch.maximum(x.pos - (c.sliding_window - 1), first)
        x.lo_dec = x.lo_enc
        if seg_start is not None:
            x.lo_dec = torch.maximum(x.lo_enc, first + seg_start.reshape(-1).to(torch.int32))
        x.kl_rows = kl_rows
        if kl_rows is not None:
            x.kl_flat = (kl_rows[None] + torch.arange(x.B, device=dev)[:, None] * x.S).view(-1)
        x.hash = self.hashes(ids)

        e = F.embedding(ids.reshape(-1), self.p["embed.weight"]).to(self.dtype)
        h = e.unsqueeze(1).expand(N, c.hc_mult, e.shape[-1]).contiguous()
        mix = torch.zeros(N, c.hc_mult, device=dev)
        mix[:, 0] = 1
        for l in range(c.num_hidden_layers):
            if l in c.engram_layer_ids:
                h = self.engram(l, h, x)
            pre, post, comb = self.hc(l, "attn", h)
            y = self.attention(l, f_hc_pre_rms(h, mix, self.p[f"layers.{l}.attn_norm"]), x)
            h = f_hc_post(y, h, post, comb)
            nxt, post, comb = self.hc(l, "ffn", h)
            y = self.moe(l, f_hc_pre_rms(h, pre, self.p[f"layers.{l}.ffn_norm"]), x)
            h = f_hc_post(y, h, post, comb)
            mix = nxt
        out = f_hc_pre_rms(h, mix, self.p["norm"])
        return out, (self.kl_loss(x) if kl_rows is not None else None)

    def logits(self, hidden):
        return lin(hidden, self.p["head.weight"]).float()

    def loss(self, ids, labels, weights=None, chunks=4, **kw):
        """labels [B,S], -100 = no loss; weights [B,S] or None. Returns (weighted mean cross entropy, indexer loss)."""
        hid, kl = self.forward(ids, **kw)
        return cross_entropy(self.logits, hid, labels, weights, chunks), kl

    def update_bias(self, rate):
        """noaux_tc: push under-used experts up and over-used ones down by a fixed step."""
        with torch.no_grad():
            err = self.load.mean(1, keepdim=True) - self.load
            for l, b in self.bias.items():
                b += rate * torch.sign(err[l])
            imb = (self.load.amax(1) / self.load.mean(1).clamp(min=1e-9))
            self.load.zero_()
            return imb
