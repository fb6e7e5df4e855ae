#!/usr/bin/env python3
"""Prints the constants of mote__exp_f32: exp(r) = 1 + r + r^2 q(r) on |r| <= ln2/2 (a little wider), q of degree 4 with the
smallest largest relative error (Lawson's reweighted least squares), and ln 2 in two fp32 pieces."""
import numpy as np

L = np.longdouble
half = L(np.log(2)) / 2 * L(1.001)
r = half * np.cos(np.linspace(0, np.pi, 4001).astype(L))
r = r[np.abs(r) > 1e-3]
want = (np.exp(r) - 1 - r) / r ** 2
scale = (r ** 2 / np.exp(r)).astype(float)                 # error of q -> relative error of exp
A = np.vander((r / half).astype(float), 5, increasing=True)
w = np.ones(len(r)) / len(r)
for _ in range(400):
    c = np.linalg.lstsq(A * (scale * np.sqrt(w))[:, None], want.astype(float) * scale * np.sqrt(w), rcond=None)[0]
    e = np.abs((A @ c - want.astype(float)) * scale)
    w = w * e
    w /= w.sum()
print("largest relative error 2^%.1f" % np.log2(e.max()))
for i, v in enumerate(c):
    print(f"q{i} = {float(np.float32(v / float(half) ** i)).hex()}f")
hi = np.float32(np.log(2))
lo = L("0.693147180559945309417232121458176568") - L(hi)
print("ln2 hi", float(hi).hex(), "lo", float(np.float32(lo)).hex(), "log2e", float(np.float32(1 / np.log(2))).hex())
