"""NumPy twins of output heads and of the general output rule, written to be read."""

from __future__ import annotations

import math

import numpy as np
import reference


def head_value(head, o, q=0):
    """Value and gradient of a head (kind, v, a, lam) at one attended vector."""
    kind, v, a, lam = head
    if kind == "mlp":
        before = v.T @ o
        return a @ np.maximum(before, 0), v @ (a * (before > 0))
    if kind == "classes":  # a: the class of each query
        log_p = reference.log_softmax(v.T @ o)
        return log_p[a[q]], v[:, a[q]] - v @ np.exp(log_p)
    v = v if v.ndim == 1 else v[q]
    return v @ o - lam * (o @ o), v - 2 * lam * o


def attended(data, W, combine):
    """o_q (M, d) of the weights (H, dk, dz)."""
    heads = [np.array(reference.attended(data, one)) for one in W]
    return np.sum(heads, axis=0) if combine == "sum" else np.concatenate(heads, axis=1)


def logit_gradients(data, y, head, loss, W, combine="sum"):
    """Mean loss, and of each attention head and query (c, log_scale): the gradient in its logits is c exp(log_scale).

    As the linear twin, with the scores of a step: g_t = y <d head(o) / d o^h, value_t>.
    """
    y, M, dv = reference.per_query(data, y), len(data.queries), data.values.shape[1]
    O, logits = attended(data, W, combine), [reference.logits(data, one) for one in W]  # noqa: E741
    total, found = 0.0, [[] for _ in W]
    for q, V in enumerate(reference.windows(data, values=True)):
        value, gradient = head_value(head, O[q], q)
        part, log_slope = reference.loss_value(loss, y[q] * value, 0.0)
        total += part / M
        for h, pairs in enumerate(found):
            g = gradient if combine == "sum" else gradient[h * dv : (h + 1) * dv]
            c, scale = reference.softmax_pull_back(logits[h][q], V @ (y[q] * g))
            pairs.append((-c / M, scale + log_slope))
    return total, found


def loss_and_grad(data, y, head, loss, W, combine="sum"):
    """``(loss, G, log_scale)``: the gradient in the weights (H, dk, dz) is ``G[h] * exp(log_scale[h])``."""
    total, found = logit_gradients(data, y, head, loss, W, combine)
    gradients = []
    for one, pairs in zip(W, found, strict=True):
        queries = zip(reference.windows(data), reference.logits(data, one), data.queries, pairs, strict=True)
        parts = [(np.outer((X - X[np.argmax(row)]).T @ c, z), scale) for X, row, z, (c, scale) in queries]
        gradients.append(reference.scaled_sum(parts))
    return total, *map(np.array, zip(*gradients, strict=True))


def head_gradients(data, y, head, loss, W, combine="sum"):
    """``(gradients, log_scale)`` in the head's own parameters: of v; of V and a; or of v and lam.

    dL/dp = 1/M sum_q loss'(u_q) y_q d head(o_q)/dp is ``gradients * exp(log_scale)``.
    """
    kind, v, a, lam = head
    y, O = reference.per_query(data, y), attended(data, W, combine)  # noqa: E741
    dv, rest = np.zeros_like(v), np.zeros_like(a) if kind == "mlp" else np.zeros(1)
    slopes = [reference.loss_value(loss, y[q] * head_value(head, o)[0], 0.0)[1] for q, o in enumerate(O)]
    for o, label, slope in zip(O, y, slopes, strict=True):
        c = -math.exp(slope - max(slopes)) * label / len(O)
        if kind == "mlp":
            before = v.T @ o
            dv += c * np.outer(o, a * (before > 0))
            rest += c * np.maximum(before, 0)
        else:
            dv += c * o
            rest -= c * (o @ o)
    return [dv] if kind == "linear" else [dv, rest], max(slopes)
