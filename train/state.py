"""Snapshots: model.pt (weights, fp32, with configuration and token map) and state_full.pt (weights, optimiser, step: exact resume)."""
import os

import torch


def save_model(path, model, meta):
    torch.save({"text": model.cfg.text, "token_map": model.token_map.cpu(), "meta": meta,
                "state": {k: v.detach().to("cpu", torch.float32).clone() for k, v in model.state().items()}}, path + ".tmp")
    os.replace(path + ".tmp", path)


def load_model(path):
    """{"text", "token_map", "state", "meta"} as save_model wrote it."""
    return torch.load(path, map_location="cpu")


def save_full(path, model, opt, step):
    torch.save({"state": model.state(), "opt": opt.state_dict(), "step": step, "token_map": model.token_map.cpu(), "text": model.cfg.text},
               path + ".tmp")
    os.replace(path + ".tmp", path)


def load_full(path, model, opt):
    d = torch.load(path, map_location=model.device)
    model.load_state(d["state"])
    opt.load_state_dict(d["opt"])
    return d["step"]
