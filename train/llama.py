"""The dense twin: a Llama-style decoder (RMSNorm, rotate-half RoPE, grouped KV heads, SwiGLU) with the interface of model.Model.

Every layer attends to all earlier tokens. There is no selection, no replay and no quantised cache; Mode.quant rounds the weights to
what is exported (FP8 E4M3 with an E8M0 scale per 32 x 32 block; embedding and norms BF16).
"""
import torch
import torch.nn.functional as F

from model import Model, cross_entropy
from ops import lin
from params import init_tensor


class DenseCfg:
    sliding_window = 1
    index_topk = 0

    def __init__(self, text):
        self.text = text
        self.__dict__.update(text)


def dense_spec(c):
    s, d, i, hd = {}, c.hidden_size, c.intermediate_size, c.head_dim
    q, kv, res = c.num_attention_heads * hd, c.num_key_value_heads * hd, (2 * c.num_hidden_layers) ** -0.5
    s["model.embed_tokens.weight"] = ((c.vocab_size, d), "bf16", 0.05)
    for l in range(c.num_hidden_layers):
        p = f"model.layers.{l}."
        for name, o, n, gain in (("self_attn.q_proj", q, d, 1), ("self_attn.k_proj", kv, d, 1), ("self_attn.v_proj", kv, d, 1),
                                 ("self_attn.o_proj", d, q, 2 * res), ("mlp.gate_proj", i, d, 1), ("mlp.up_proj", i, d, 1),
                                 ("mlp.down_proj", d, i, 2 * res)):
            s[f"{p}{name}.weight"] = ((o, n), "fp8", gain * n ** -0.5)
        s[p + "input_layernorm.weight"] = ((d,), "bf16", "ones")
        s[p + "post_attention_layernorm.weight"] = ((d,), "bf16", "ones")
    s["model.norm.weight"] = ((d,), "bf16", "ones")
    if not c.tie_word_embeddings:
        s["lm_head.weight"] = ((c.vocab_size, d), "bf16", 0.01)
    return s


def rms(x, w, eps):
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + eps) * w).to(x.dtype)


def rotate(x, cos, sin):
    """x [B,heads,S,D]; the first half of a head pairs with the second."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class Llama:
    quantised_weights = Model.quantised_weights
    swapped = Model.swapped
    parameters = Model.parameters
    num_params = Model.num_params

    def __init__(self, text, token_map=None, device="cpu", dtype=torch.float32, seed=0, init=True):
        self.cfg = c = DenseCfg(text)
        self.device, self.dtype = torch.device(device), dtype
        self.spec = dense_spec(c)
        gen = torch.Generator().manual_seed(seed)
        self.p = {n: (init_tensor(shape, how, gen, c) if init else torch.zeros(shape)).to(self.device).requires_grad_()
                  for n, (shape, _, how) in self.spec.items()}
        self.token_map = torch.zeros(0, dtype=torch.long)
        self._rope = {}

    def state(self):
        return {k: v.detach() for k, v in self.p.items()}

    def load_state(self, d):
        with torch.no_grad():
            for k, v in self.p.items():
                v.copy_(d[k].to(v.device, torch.float32))

    def rope(self, s):
        if s not in self._rope:
            c = self.cfg
            f = 1.0 / (float(c.rope_theta) ** (torch.arange(0, c.head_dim, 2, dtype=torch.float32) / c.head_dim))
            ang = torch.arange(s, dtype=torch.float32)[:, None] * f[None]
            self._rope[s] = ang.double().cos().float().to(self.device), ang.double().sin().float().to(self.device)
        return self._rope[s]

    def forward(self, ids, **_):
        """ids [B,S] -> (final hidden rows [B*S, d], None)."""
        c, (B, S) = self.cfg, ids.shape
        hd, nq, nk = c.head_dim, c.num_attention_heads, c.num_key_value_heads
        cos, sin = self.rope(S)
        h = F.embedding(ids, self.p["model.embed_tokens.weight"])            # the residual stays in fp32
        for l in range(c.num_hidden_layers):
            w = lambda n: self.p[f"model.layers.{l}.{n}.weight"]
            t = rms(h, w("input_layernorm"), c.rms_norm_eps).to(self.dtype)
            q, k, v = (lin(t, w(f"self_attn.{n}_proj")).view(B, S, -1, hd).transpose(1, 2) for n in "qkv")
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            if nk < nq:
                k, v = (x.repeat_interleave(nq // nk, 1) for x in (k, v))
            o = attend(q, k, v).transpose(1, 2).reshape(B, S, nq * hd)
            h = h + lin(o, w("self_attn.o_proj")).float()
            t = rms(h, w("post_attention_layernorm"), c.rms_norm_eps).to(self.dtype)
            g = F.silu(lin(t, w("mlp.gate_proj")).float()).to(t.dtype) * lin(t, w("mlp.up_proj"))
            h = h + lin(g, w("mlp.down_proj")).float()
        return rms(h, self.p["model.norm.weight"], c.rms_norm_eps).to(self.dtype).view(B * S, -1), None

    def logits(self, hidden):
        c = self.cfg
        return lin(hidden, self.p["model.embed_tokens.weight" if c.tie_word_embeddings else "lm_head.weight"]).float()

    def loss(self, ids, labels, weights=None, chunks=4, **_):
        return cross_entropy(self.logits, self.forward(ids)[0], labels, weights, chunks), None

    def update_bias(self, rate):
        return None


def attend(q, k, v):
    f = getattr(F, "scaled_dot_product_attention", None)
    if f is not None:
        return f(q, k, v, is_causal=True)
    s = q.shape[2]                                                           # torch < 2
    m = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1)
    return (torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5).masked_fill(m, -1e30).softmax(-1) @ v
