"""Compressed entries: the sources that publish them, the indexer that selects them, and the loss that trains the indexer.

Selection is a part of Model (model.py), which gives it cfg, p, rope and qlin.
"""
import math

import torch
import torch.nn.functional as F

from ops import f_norm_rope_fq, f_pool, f_rms, f_rope_fq, lin


class Selection:
    def publish(self, l, t, x):
        """KV source: latent entries, their quantised rotated form, and the indexer keys."""
        a, r = f"layers.{l}.attn.", self.cfg.ratio[l]
        if r == 1:
            raw = lin(t, self.p[a + "compressor.wkv"])
        else:
            raw = f_pool.fn(lin(t, self.p[a + "compressor.wkv"]), lin(t, self.p[a + "compressor.wgate"]), r).to(self.dtype)
        latent = f_rms.fn(raw, self.p[a + "compressor.norm"])     # .fn: small, not worth compiling
        cos, sin = self.rope(x.B, x.S, r, True)
        x.main[l] = f_rope_fq.fn(latent, cos, sin, x.fmt_main)
        k = lin(latent.detach(), self.p[a + "indexer.wk"])
        x.ikey[l] = f_norm_rope_fq.fn(k, self.p[a + "indexer.k_norm"], cos, sin, x.fmt_index)

    def index_q(self, l, t, qr, cos, sin, x, rope=f_rope_fq):
        c, a = self.cfg, f"layers.{l}.attn.indexer."
        q = self.qlin(qr, a + "wq_b", x).view(-1, c.index_n_heads, c.index_head_dim)
        q = rope(q, cos, sin, x.fmt_index)
        w = lin(t, self.p[a + "weights_proj"]) * (c.index_head_dim ** -0.5 * c.index_n_heads ** -0.5)
        return q, w

    def topk(self, sc, k):
        """exact_ties: the smaller index wins, as in the NumPy reference (rectified scores tie at 0)."""
        if self.exact_ties:
            val, ind = sc.sort(dim=-1, descending=True, stable=True)
            return val[..., :k], ind[..., :k]
        return sc.topk(k, -1, sorted=False)

    @torch.no_grad()
    def select(self, l, t, qr, x):
        """Top-k compressed entries per query, chunked over queries."""
        c, r = self.cfg, self.cfg.ratio[l]
        src = c.src(l, c.kv_src)
        B, S, nh, hd = x.B, x.S, c.index_n_heads, c.index_head_dim
        q, w = self.index_q(l, t, qr, *self.rope(B, S, 1, True), x)
        q, w = q.view(B, S, nh, hd), w.view(B, S, nh)
        key = x.ikey[src].detach().view(B, -1, hd)
        T = key.shape[1]
        k_all = min(c.index_topk, T)
        idx = torch.zeros(B, S, k_all, dtype=torch.long, device=t.device)
        ok = torch.zeros(B, S, k_all, dtype=torch.bool, device=t.device)
        is_cand, use_cand = l == c.candidate_source_layer_id, 0 <= c.candidate_source_layer_id < l
        bs = c.candidate_block_size
        if is_cand:
            x.cand = torch.zeros(B, S, -(-T // bs), dtype=torch.bool, device=t.device)
        step = max(64, min(S, x.select_rows // B))
        ar = torch.arange(S, device=t.device)
        for a in range(0, S, step):
            b = min(S, a + step)
            n, tv = b - a, min(T, b // r)
            if tv == 0:
                continue
            dots = torch.matmul(q[:, a:b].reshape(B, n * nh, hd), key[:, :tv].transpose(1, 2)).relu_()
            sc = torch.bmm(w[:, a:b].reshape(B * n, 1, nh), dots.view(B * n, nh, tv)).view(B, n, tv)
            vis = torch.div(ar[a:b] + 1, r, rounding_mode="floor")
            sc.masked_fill_(ar[:tv] >= vis[:, None], -math.inf)
            if is_cand:
                nb = -(-tv // bs)
                blk = F.pad(sc, (0, nb * bs - tv), value=-math.inf).view(B, n, nb, bs).amax(-1)
                last = torch.div(vis - 1, bs, rounding_mode="floor")
                pin = (ar[:nb] == last[:, None]) & (vis > 0)[:, None]
                blk = blk.masked_fill(pin, math.inf)
                val, ind = self.topk(blk, min(c.candidate_topk_blocks, nb))
                x.cand[:, a:b, :nb].scatter_(-1, ind, val > -math.inf)
            elif use_cand:
                nb = -(-tv // bs)
                keep = x.cand[:, a:b, :nb].repeat_interleave(bs, -1)[..., :tv]
                sc = sc.masked_fill(~keep, -math.inf)
            k = min(k_all, tv)
            val, ind = self.topk(sc, k)
            good = val > -math.inf
            idx[:, a:b, :k] = torch.where(good, ind, torch.zeros_like(ind))
            ok[:, a:b, :k] = good
        x.topk = idx                                             # local entry numbers, [B,S,K]
        base = (torch.arange(B, device=t.device) * T).view(B, 1, 1)
        x.flat_idx = (idx + base).view(-1)
        x.valid = ok.view(B * S, k_all)
        if x.keep_topk is not None:
            x.keep_topk[l] = (idx.clone(), ok.clone())

    def kl_target(self, l, q, sw, main, lo, sink, x):
        """Detached attention distribution over all visible entries, for the sampled rows."""
        c, r = self.cfg, self.cfg.ratio[l]
        B, H, D = x.B, c.num_attention_heads, c.head_dim
        with torch.no_grad():
            rows, M = x.kl_flat, len(x.kl_rows)
            qs = q.index_select(0, rows).view(B, M * H, D)
            sc = torch.matmul(qs, main.view(B, -1, D).transpose(1, 2)).view(B, M, H, -1).float() * D ** -0.5
            T = sc.shape[-1]
            vis = torch.div(x.kl_rows + 1, r, rounding_mode="floor")
            mask = torch.arange(T, device=q.device) < vis[:, None]                       # [M,T]
            sc = sc.masked_fill(~mask[None, :, None], -math.inf)
            W = c.sliding_window
            pos = rows
            j = (torch.div(pos, W, rounding_mode="floor") - 1)[:, None] * W + torch.arange(2 * W, device=q.device)
            mw = (j >= lo.index_select(0, rows).long()[:, None]) & (j <= pos[:, None])
            ws = (sw.index_select(0, rows).float() * D ** -0.5).masked_fill(~mw[:, None], -math.inf)
            other = torch.logaddexp(ws.logsumexp(-1), sink.float()).view(B, M, H, 1)
            norm = torch.logaddexp(other, sc.logsumexp(-1, keepdim=True))
            p = torch.exp(sc - norm).sum(2)                                             # [B,M,T]
            s = c.src(l, c.idx_src)
            x.kl_p[s] = x.kl_p[s] + p if s in x.kl_p else p

    def kl_logits(self, l, t, qr, x):
        c, r = self.cfg, self.cfg.ratio[l]
        B, M, nh, hd = x.B, len(x.kl_rows), c.index_n_heads, c.index_head_dim
        cos, sin = self.rope(B, x.S, 1, True)
        rows = x.kl_flat
        q, w = self.index_q(l, t.detach().index_select(0, rows), qr.detach().index_select(0, rows),
                            cos.index_select(0, rows), sin.index_select(0, rows), x, f_rope_fq.fn)
        key = x.ikey[c.src(l, c.kv_src)].view(B, -1, hd)
        dots = torch.matmul(q.reshape(B, M * nh, hd), key.transpose(1, 2)).view(B, M, nh, -1)
        sc = (dots.float().relu() * w.float().view(B, M, nh, 1)).sum(2)
        vis = torch.div(x.kl_rows + 1, r, rounding_mode="floor")
        mask = torch.arange(sc.shape[-1], device=t.device) < vis[:, None]
        x.kl_q[l] = torch.log_softmax(sc.masked_fill(~mask, -1e30), -1)

    def kl_loss(self, x):
        total, rows = 0.0, 0
        for l, logq in x.kl_q.items():
            vis = torch.div(x.kl_rows + 1, self.cfg.ratio[l], rounding_mode="floor") > 0
            p = x.kl_p[l]
            p = p / p.sum(-1, keepdim=True).clamp(min=1e-20)
            kl = (p * (p.clamp(min=1e-20).log() - logq)).sum(-1) * vis
            total, rows = total + kl.sum() / (vis.sum() * x.B).clamp(min=1), rows + 1
        return total / max(rows, 1)
