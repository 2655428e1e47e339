"""NumPy twins of the update rules, and the walk of a run: each step from gradients G exp(scale), one rule at a time.

A trained point is a tuple of matrices, (W,) or (K, Q), with v at its end when the head is trained.
"""

from __future__ import annotations

import attsvm
import numpy as np
import reference


def gradients(case, weights, loss="logistic", ridge=0.0, v=None):
    """Mean loss and the gradients as pairs (G, scale); with ``v`` that of the head (the logistic loss), too."""
    W = weights[0] if len(weights) == 1 else weights[0] @ weights[1].T
    value, G, scale = reference.loss_and_grad(case.data, case.y, case.v if v is None else v, loss, W)
    pairs = [(G, scale)] if len(weights) == 1 else [(G @ weights[1], scale), (G.T @ weights[0], scale)]
    found = [reference.ridged(*pair, w, ridge) for pair, w in zip(pairs, weights, strict=True)]
    if v is not None:
        labels, attended = reference.per_query(case.data, case.y), reference.attended(case.data, W)
        found.append(((-labels / (1 + np.exp(labels * (attended @ v)))) @ attended / len(attended), 0.0))
    return value, found


class Rule:
    """A rule with what it remembers: ``step`` gives the next point.  The head is a group of its own: it has its own
    norm, and no weight decay."""

    def __init__(self, rule="normalized", lr=0.1, ridge=0.0, momentum=0.0, weight_decay=0.0, loss="logistic"):
        own = attsvm.rules.as_rule(rule)
        self.rule, self.lr, self.ridge, self.decay, self.loss = own.word, lr, ridge, weight_decay, loss
        self.momentum, self.betas, self.eps, self.p, self.target = momentum, own.betas, own.eps, own.p, own.target_loss
        self.means, self.sums, self.metric, self.steps = None, None, own.metric, 0

    def step(self, case, weights, v=None):
        value, found = gradients(case, weights, self.loss, self.ridge, v)
        if self.rule == "polyak" and self.target is None:  # the infimum of the logistic loss: all on their best token
            best = np.array([row.max() for row in reference.scores(case.data, case.y, case.v)])
            self.target = np.mean(np.logaddexp(0, -best))
        n, head = len(weights), [] if v is None else [v]
        return self.move([*weights, *head], value, found, [range(n), *[[n] for _ in head]])

    def move(self, points, value, found, groups):
        """The points after a step of these gradients; the first of the groups, those of one joint norm, decays."""
        lr = np.broadcast_to(self.lr, (self.steps + 1,))[-1] if np.ndim(self.lr) == 0 else self.lr[self.steps]
        self.steps += 1
        if self.means is None:
            adam = self.rule == "adam"
            self.means = [Means(self.betas[0], 1 - self.betas[0], self.betas[1]) if adam else Means(self.momentum)
                          for _ in found]  # fmt: skip
            self.sums = [Sums() for _ in found]
        for sums, pair in zip(self.sums, found, strict=True):
            sums.add(*pair)
        means, after = [mean.add(*pair) for mean, pair in zip(self.means, found, strict=True)], []
        for group in groups:
            top = max(means[i][1] for i in group)
            plain = [means[i][0] * np.exp(means[i][1] - top) for i in group]  # all on one scale
            joint = np.sqrt(sum((g**2).sum() for g in plain))
            length, kept = lr, 1 - lr * self.decay * (group is groups[0])
            if self.rule == "polyak":
                length = min(lr, (value - self.target) / (joint * np.exp(top)) / 2)
            for i, g in zip(group, plain, strict=True):
                if self.rule == "mirror":
                    after.append(mirror(points[i], g, lr, self.p))
                else:
                    after.append(kept * points[i] - length * self.direction(i, g, np.exp(top), joint))
        return after

    def direction(self, i, g, size, joint):
        if self.rule == "adam":
            return self.means[i].adam(self.eps)
        if self.rule == "adagrad":
            return self.sums[i].adagrad(*self.means[i].mean, self.eps)
        if self.rule == "shampoo":
            return self.sums[i].shampoo(*self.means[i].mean, self.eps)
        if self.metric is not None and self.rule in ("constant", "normalized"):
            g = g * size if self.rule == "constant" else g
            D = self.metric
            step = np.linalg.solve(D[0], g) @ np.linalg.inv(D[1]) if isinstance(D, tuple) else g / D
            return step if self.rule == "constant" else step / np.sqrt((g * step).sum())
        if self.rule == "constant":
            return g * size
        if self.rule in ("normalized jointly", "polyak"):
            return g / joint
        if self.rule == "sign":
            return np.sign(g)
        return spectral(g) if self.rule == "spectral" else g / (np.linalg.norm(g) or 1.0)


def train(case, weights, steps, **options):
    """The points before the first step and after each."""
    rule, path = Rule(**options), [tuple(np.asarray(w, dtype=np.float64) for w in weights)]
    for _ in range(steps):
        path.append(tuple(rule.step(case, path[-1])))
    return path


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


class Sums:
    """The gradients G exp(scale) so far."""

    def __init__(self):
        self.seen = []

    def add(self, G, scale):
        self.seen.append((G, scale))

    def _on_one_scale(self):
        top = max(scale for _, scale in self.seen)
        return [G * np.exp(scale - top) for G, scale in self.seen], top

    def adagrad(self, D, scale, eps):
        seen, top = self._on_one_scale()
        root = np.sqrt(sum(G**2 for G in seen)) + (eps * np.exp(min(-top, 700.0)) if eps else 0.0)
        return np.divide(D * np.exp(scale - top), root, out=np.zeros_like(root), where=root > 0)

    def shampoo(self, D, scale, eps):
        seen, top = self._on_one_scale()
        ridge = (eps * np.exp(min(-top, 300.0))) ** 2 if eps else 0.0
        left, right = sum(G @ G.T for G in seen), sum(G.T @ G for G in seen)
        return fourth(left, ridge) @ (D * np.exp(scale - top)) @ fourth(right, ridge)


def fourth(S, ridge):
    """(S + ridge I)^(-1/4) where S is more than rounding."""
    values, vectors = np.linalg.eigh(S)
    values = np.where(values > 4 * len(S) * np.finfo(float).eps * values[-1], values, 0.0) + ridge
    return vectors @ np.diag([value**-0.25 if value > 0 else 0.0 for value in values]) @ vectors.T


def _sum(old, beta, new):
    kept = old[1] + np.log(beta) if beta > 0 else -np.inf
    scale = max(kept, new[1])
    return np.exp(kept - scale) * old[0] + np.exp(new[1] - scale) * new[0], scale
