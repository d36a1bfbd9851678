"""A solution of exercise 6."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
Arrays = dict[str, Array]


def forward(p: Arrays, x: Array, targets: Array) -> tuple[float, Arrays]:
    """The loss of two layers and cross-entropy, with all that the way back needs.

    p:        w1 (D, D), b1 (D,), scale (D,), w2 (D, C), b2 (C,)
    x:        (N, D)
    targets:  (N,)
    """
    h = x @ p["w1"] + p["b1"]
    t = np.tanh(h)
    s = t * p["scale"]
    logits = s @ p["w2"] + p["b2"]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    loss = -np.log(shares[np.arange(len(x)), targets]).mean()
    return loss, {"t": t, "s": s, "shares": shares}


def backward(p: Arrays, x: Array, targets: Array) -> Arrays:
    """The gradient of each parameter."""
    kept = forward(p, x, targets)[1]
    g = kept["shares"].copy()
    g[np.arange(len(x)), targets] -= 1
    g /= len(x)  # the mean is over examples, not over classes
    grads = {"w2": kept["s"].T @ g, "b2": g.sum(axis=0)}
    g = g @ p["w2"].T
    grads["scale"] = (g * kept["t"]).sum(axis=0)  # scale is repeated along the batch, as a bias is
    g = g * p["scale"]
    g = g * (1 - kept["t"] ** 2)
    grads["w1"] = x.T @ g
    grads["b1"] = g.sum(axis=0)
    return grads
