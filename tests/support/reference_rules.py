"""NumPy twins of the rules beyond plain and normalised descent: one step each, from the plain gradient.

A trained point is a tuple of matrices, (W,) or (K, Q), with v at its end when the head is trained.
"""

from __future__ import annotations

import numpy as np
import reference


def gradients(data, y, loss, weights, v, head=False):
    """Mean loss and the true gradients; with ``head`` also in v (the logistic loss)."""
    W = weights[0] if len(weights) == 1 else weights[0] @ weights[1].T
    value, G, scale = reference.loss_and_grad(data, y, v, loss, W)
    G = G * np.exp(scale)
    found = [G] if len(weights) == 1 else [G @ weights[1], G.T @ weights[0]]
    if head:
        labels, attended = reference.per_query(data, y), reference.attended(data, W)
        slope = -1 / (1 + np.exp(labels * (attended @ v)))
        found.append((slope * labels) @ attended / len(attended))
    return value, found


def mirror(w, g, lr, p):
    q = p / (p - 1)
    u = np.sign(w) * np.abs(w) ** (p - 1) - lr * g / (np.abs(g) ** q).sum() ** (1 / q)
    return np.sign(u) * np.abs(u) ** (1 / (p - 1))


def spectral(g):
    """U V^T over the singular values that are not rounding; a vector over its norm."""
    if g.ndim == 1:
        return g / np.linalg.norm(g)
    U, s, Vt = np.linalg.svd(g, full_matrices=False)
    rank = (s > 4 * max(g.shape) * np.finfo(float).eps * s[0]).sum()
    return U[:, :rank] @ Vt[:rank]


class Means:
    """m <- beta m + weight g and v <- beta2 v + (1 - beta2) g^2 of gradients G exp(scale), each with its scale."""

    def __init__(self, beta, weight=1.0, beta2=None):
        self.beta, self.weight, self.beta2 = beta, weight, beta2
        self.mean, self.square, self.steps = (0.0, -np.inf), (0.0, -np.inf), 0

    def add(self, G, scale):
        self.steps += 1
        self.mean = _sum(self.mean, self.beta, (self.weight * G, scale))
        if self.beta2 is not None:
            self.square = _sum(self.square, self.beta2, ((1 - self.beta2) * G**2, 2 * scale))
        return self.mean

    def adam(self, eps):
        (m, scale), (v, square) = self.mean, self.square
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            m = m / (1 - self.beta**self.steps)
            root = np.sqrt(v / (1 - self.beta2**self.steps))
            found = m * np.exp(scale - square / 2) / (root + (eps * np.exp(-square / 2) if eps else 0.0))
        return np.where(np.isfinite(found), found, 0.0)


def _sum(old, beta, new):
    kept = old[1] + np.log(beta) if beta > 0 else -np.inf
    scale = max(kept, new[1])
    return np.exp(kept - scale) * old[0] + np.exp(new[1] - scale) * new[0], scale


def polyak(weights, found, excess, lr):
    """All matrices together."""
    size = np.sqrt(sum((g**2).sum() for g in found))
    length = min(lr, excess / (2 * size))
    return [w - length * g / size for w, g in zip(weights, found, strict=True)]


def ball(W, radius, norm):
    """The nearest point of the Frobenius or nuclear ball."""
    if norm == "frobenius":
        return W * min(1.0, radius / np.linalg.norm(W))
    U, s, V = np.linalg.svd(W, full_matrices=False)
    if s.sum() <= radius:
        return W
    low, high = 0.0, s[0]
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(s - middle, 0).sum() > radius else (low, middle)
    return (U * np.maximum(s - high, 0)) @ V
