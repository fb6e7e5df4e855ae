"""The optimiser: Muon for matrices, AdamW for everything else."""
import torch

MATRICES = ("wq_a", "wq_b", "wkv", "wo_a", "wo_b", "wgate", "wk", "w1", "w2", "w3",
            "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def newton_schulz(x, steps=5):
    """x [n, rows, cols] -> nearly its orthogonal factor."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-2, -1)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        g = x @ x.transpose(-2, -1)
        x = a * x + (b * g + c * (g @ g)) @ x
    return x.transpose(-2, -1) if tall else x


def is_matrix(name):
    return name.removesuffix(".weight").rsplit(".", 1)[-1] in MATRICES


def adam_scale(name):
    """Learning-rate multiplier by what the parameter does."""
    if name == "embed.weight":
        return 10.0
    if name == "model.embed_tokens.weight":                                  # tied: it is the output matrix too
        return 0.5
    if name.endswith("engram.embed"):
        return 3.0
    if "hc_" in name:
        return 0.1 if name.endswith("_fn") else 0.5
    if name.endswith("gate.weight") or name.endswith("weights_proj"):
        return 0.3
    return 1.0


class Optimizers:
    def __init__(self, model, lr_muon, lr_adam, wd, momentum=0.95):
        self.model, self.lr_m, self.wd, self.mom = model, lr_muon, wd, momentum
        self.muon, adam = {}, {}
        for n, p in model.p.items():
            if is_matrix(n):
                shape = tuple(p.shape)
                if n.endswith("wo_a"):                                       # one matrix per output group
                    shape = (model.cfg.o_groups, model.cfg.o_lora_rank, shape[1])
                self.muon.setdefault(shape[-2:], []).append((p, shape if len(shape) == 3 else (1,) + shape))
            else:
                adam.setdefault(adam_scale(n), []).append(p)
        self.buf = {k: torch.zeros(sum(s[0] for _, s in v), *k, device=model.device) for k, v in self.muon.items()}
        extra = {"fused": True} if model.device.type == "cuda" else {}
        groups = [{"params": ps, "lr": lr_adam * s, "base": lr_adam * s} for s, ps in adam.items()]
        self.adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, **extra)
        self.work = torch.bfloat16 if model.device.type == "cuda" else torch.float32

    @torch.no_grad()
    def step(self, scale, clip):
        """One update; returns the gradient norm before clipping (a tensor, no synchronisation)."""
        params = self.model.parameters()
        grads = [p.grad for p in params if p.grad is not None]
        norm = torch.stack([g.norm() for g in grads]).norm() if grads[0].device.type == "cpu" \
            else torch.stack(list(torch._foreach_norm(grads))).norm()
        shrink = (clip / (norm + 1e-6)).clamp(max=1.0)
        if self.model.device.type == "cuda":
            torch._foreach_mul_(grads, shrink)
        else:
            for g in grads:
                g.mul_(shrink)
        for g in self.adam.param_groups:
            g["lr"] = g["base"] * scale
        self.adam.step()
        lr = self.lr_m * scale
        for shape, items in self.muon.items():
            g = torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).reshape(s) for p, s in items])
            buf = self.buf[shape]
            buf.lerp_(g, 1 - self.mom)
            u = newton_schulz(g.lerp(buf, self.mom).to(self.work)).float()
            u.mul_(-lr * 0.2 * max(shape) ** 0.5)
            a, ups, ps = 0, [], [p for p, _ in items]
            for p, s in items:
                ups.append(u[a:a + s[0]].reshape(p.shape))
                a += s[0]
            torch._foreach_mul_(ps, 1 - lr * self.wd)
            torch._foreach_add_(ps, ups)
        for p in params:
            p.grad = None
        return norm

    def state_dict(self):
        return {"adam": self.adam.state_dict(), "muon": {str(k): v for k, v in self.buf.items()}}

    def load_state_dict(self, d):
        self.adam.load_state_dict(d["adam"])
        for k, v in self.buf.items():
            v.copy_(d["muon"][str(k)])
