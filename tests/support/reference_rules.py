"""NumPy twins of the update rules, and the walk of a run: each step from gradients G exp(scale), one rule at a time.

A trained point is a tuple of matrices, (W,) or (K, Q), with v at its end when the head is trained.
"""

import attsvm
import numpy as np
import reference


def gradients(case, weights, loss="logistic", ridge=0.0, v=None):
    """Mean loss and the gradients as pairs (G, scale); with ``v`` that of the head, too."""
    W = weights[0] if len(weights) == 1 else weights[0] @ weights[1].T
    value, G, scale = reference.loss_and_grad(case.data, case.y, case.v if v is None else v, loss, W)
    pairs = [(G, scale)] if len(weights) == 1 else [(G @ weights[1], scale), (G.T @ weights[0], scale)]
    found = [reference.ridged(*pair, w, ridge) for pair, w in zip(pairs, weights, strict=True)]
    if v is not None:
        (dv,), log_scale = reference.head_gradients(case.data, case.y, ("linear", v, None, 0.0), loss, W[None])
        found.append((dv, log_scale))
    return value, found


class Rule:
    """A rule and all gradients that it has seen: ``step`` gives the next point.  The head is a group of its own: it has
    its own norm, and no weight decay."""

    def __init__(self, rule="normalized", lr=0.1, ridge=0.0, momentum=0.0, weight_decay=0.0, loss="logistic"):
        self.own, self.lr, self.ridge, self.decay, self.loss = attsvm.rules.as_rule(rule), lr, ridge, weight_decay, loss
        self.rule, self.target, self.seen = self.own.word, self.own.target_loss, []
        self.beta = self.own.betas[0] if self.rule == "adam" else momentum

    def step(self, case, weights, v=None):
        value, found = gradients(case, weights, self.loss, self.ridge, v)
        if self.rule == "polyak" and self.target is None:  # the infimum of the logistic loss: all on their best token
            best = np.array([row.max() for row in reference.scores(case.data, case.y, case.v)])
            self.target = np.mean(np.logaddexp(0, -best))
        n, head = len(weights), [] if v is None else [v]
        return self.move([*weights, *head], value, found, [range(n), *[[n] for _ in head]])

    def move(self, points, value, found, groups):
        """The points after a step of these gradients; the first of the groups, those of one joint norm, decays."""
        lr = self.lr if np.ndim(self.lr) == 0 else self.lr[len(self.seen)]
        self.seen.append(found)
        means, after = [decayed(seen, self.beta) for seen in zip(*self.seen, strict=True)], []
        for group in groups:
            top = max(means[i][1] for i in group)
            plain = [means[i][0] * np.exp(means[i][1] - top) for i in group]  # all on one scale
            joint = np.sqrt(sum((g**2).sum() for g in plain))
            length, kept = lr, 1 - lr * self.decay * (group is groups[0])
            if self.rule == "polyak":
                length = min(lr, (value - self.target) / (joint * np.exp(top)) / 2)
            for i, g in zip(group, plain, strict=True):
                if self.rule == "mirror":
                    after.append(mirror(points[i], g, lr, self.own.p))
                else:
                    after.append(kept * points[i] - length * self.direction(i, g, top, joint))
        return after

    def direction(self, i, g, scale, joint):
        """Of gradients g exp(scale), in mean."""
        metric, size = self.own.metric, np.exp(scale)
        if self.rule in ("adam", "adagrad", "shampoo"):
            return adaptive(self.rule, [found[i] for found in self.seen], g, scale, self.own)
        if metric is not None and self.rule in ("constant", "normalized"):
            g = g * size if self.rule == "constant" else g
            D = metric
            step = np.linalg.solve(D[0], g) @ np.linalg.inv(D[1]) if isinstance(D, tuple) else g / D
            return step if self.rule == "constant" else step / np.sqrt((g * step).sum())
        if self.rule == "constant":
            return g * size
        if self.rule in ("normalized jointly", "polyak"):
            return g / joint
        if self.rule == "sign":
            return np.sign(g)
        if self.rule == "spectral":
            return spectral(g)
        assert self.rule == "normalized", f"the twin knows no rule {self.rule!r}"
        return g / (np.linalg.norm(g) or 1.0)


def decayed(seen, beta, of=lambda G: G, power=1):
    """sum of beta^age of(G) exp(power scale) over what was seen, and its scale."""
    ages = range(len(seen) - 1, -1, -1)
    with np.errstate(divide="ignore"):
        return reference.scaled_sum(
            [(of(G), power * scale + (age and age * np.log(beta))) for (G, scale), age in zip(seen, ages, strict=True)]
        )


def adaptive(rule, seen, g, scale, own):
    """The mean g exp(scale) over the root of the squares seen: elementwise, or of both sides."""
    if rule == "shampoo":
        (left, top), (right, _) = (decayed(seen, 1.0, of, 2) for of in (lambda G: G @ G.T, lambda G: G.T @ G))
        ridge = (own.eps * np.exp(min(-top / 2, 300.0))) ** 2
        return fourth(left, ridge) @ (g * np.exp(scale - top / 2)) @ fourth(right, ridge)
    squares, top = decayed(seen, own.betas[1] if rule == "adam" else 1.0, np.square, 2)
    if rule == "adam":
        g, squares = (x * (1 - beta) / (1 - beta ** len(seen)) for x, beta in zip((g, squares), own.betas, strict=True))
    root = np.sqrt(squares) + (own.eps and own.eps * np.exp(min(-top / 2, 700.0)))
    return np.divide(g * np.exp(scale - top / 2), root, out=np.zeros_like(root), where=root > 0)


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


def fourth(S, ridge):
    """(S + ridge I)^(-1/4) where S is more than rounding."""
    values, vectors = np.linalg.eigh(S)
    values = np.where(values > 4 * len(S) * np.finfo(float).eps * values[-1], values, 0.0) + ridge
    return vectors @ np.diag([value**-0.25 if value > 0 else 0.0 for value in values]) @ vectors.T
