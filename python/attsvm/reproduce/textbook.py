"""What the package computes in C, again in a few lines of NumPy: claims hold the two against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from .. import Data, Problem, Separation

TIGHT = 1e-4  # a margin this close to 1 is a support token's, as in attsvm.theory.is_locally_optimal


def tokens_of(data: Data) -> tuple[ndarray, ndarray]:
    """Tokens (n, T, d) and queries (n, d) of sequences of one length with one query each."""
    return data.keys.reshape(len(data), -1, data.dk), data.queries


def apart(A: ndarray, B: ndarray) -> float:
    """How far A is from B, relative."""
    return float(np.linalg.norm(A - B) / np.linalg.norm(B))


def unit(x: ndarray) -> ndarray:
    """Vectors along the last axis, made as long as 1."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def slope(x: ndarray, y: ndarray) -> ndarray:
    """Of the line through points x (n), y (..., n), by least squares."""
    x = x - x.mean()
    return y @ x / (x @ x)


def logits_of(X: ndarray, Z: ndarray, W: ndarray) -> ndarray:
    """``x_t^T W z`` (n, T) of tokens and queries of one length each."""
    return np.einsum("ntd,nd->nt", X, Z @ W.T)


def softmax(logits: ndarray) -> ndarray:
    s = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return s / s.sum(axis=-1, keepdims=True)


def projection(x: ndarray) -> ndarray:
    """The point of the simplex nearest to x, along its last axis, by sorting."""
    falling = -np.sort(-x)
    thresholds = (falling.cumsum(axis=-1) - 1) / np.arange(1, x.shape[-1] + 1)
    count = (falling > thresholds).sum(axis=-1, keepdims=True)
    return np.maximum(x - np.take_along_axis(thresholds, count - 1, axis=-1), 0)


def loss(u: ndarray) -> ndarray:
    """Mean logistic loss of outputs u (..., n)."""
    return np.logaddexp(0, -u).mean(axis=-1)


def loss_gradient(X: ndarray, Z: ndarray, scores: ndarray, W: ndarray) -> ndarray:
    """The textbook gradient of the mean logistic loss, by ``s (score - s . score)``; it cancels when s saturates.

    Axes before those of X (n, T, d), Z (n, d), scores (n, T) and W (d, d) go over runs.
    """
    s = softmax((X @ (Z @ W.swapaxes(-1, -2))[..., None])[..., 0])
    u = (s * scores).sum(axis=-1, keepdims=True)
    c = -s * (scores - u) / (scores.shape[-2] * (1 + np.exp(u)))
    return (c[..., None, :] @ X)[..., 0, :].swapaxes(-1, -2) @ Z


def gradient_of(problem: Problem, W: ndarray) -> ndarray:
    """The textbook gradient of a problem."""
    return loss_gradient(*tokens_of(problem.data), problem.scores, W)


def descend(
    X: ndarray,
    Z: ndarray,
    scores: ndarray,
    W: ndarray,
    steps: int,
    lr: float,
    normalized: bool = True,
    ridge: float = 0.0,
) -> ndarray:
    """``steps`` of gradient descent from W (..., d, d), or from a stack of the factors K and Q (2, ..., d, m), each by
    the norm of its own gradient; the last weights, K Q^T of factors."""
    W, factors = W.copy(), W.ndim == X.ndim

    def product() -> ndarray:
        return W[0] @ W[1].swapaxes(-1, -2) if factors else W

    for _ in range(steps):
        G = loss_gradient(X, Z, scores, product())
        if factors:
            G = np.stack([G @ W[1], G.swapaxes(-1, -2) @ W[0]]) + 2 * ridge * W
        size = np.linalg.norm(G, axis=(-2, -1), keepdims=True)
        W -= lr * G / (size + np.finfo(float).eps if normalized else 1)
    return product()


def mirror_descend(X: ndarray, Z: ndarray, scores: ndarray, W: ndarray, steps: int, lr: float, p: float) -> ndarray:
    """Descent in ``sign(W) |W|^(p-1)``, each step of length ``lr`` in the dual norm, the lq norm with 1/p + 1/q = 1."""
    q = p / (p - 1)
    for _ in range(steps):
        G = loss_gradient(X, Z, scores, W)
        U = np.sign(W) * np.abs(W) ** (p - 1) - lr * G / np.linalg.norm(G.ravel(), q)
        W = np.sign(U) * np.abs(U) ** (1 / (p - 1))
    return W


def support_margins(X: ndarray, Z: ndarray, selected: ndarray, W: ndarray) -> ndarray:
    """``(x_selected - x_t)^T W z`` (n, T); infinite at the selected token itself, which has no margin to itself."""
    rows = np.arange(len(Z))
    m = np.einsum("ntd,nd->nt", X[rows, selected][:, None] - X, Z @ W.T)
    m[rows, selected] = np.inf
    return m


def locally_optimal(X: ndarray, Z: ndarray, scores: ndarray, selected: ndarray, W: ndarray) -> bool:
    """Whether each selected token scores more than its support tokens, from the definition."""
    support = support_margins(X, Z, selected, W) <= 1 + TIGHT
    return bool((scores[np.arange(len(Z)), selected][:, None] > scores)[support].all())


def norms(A: ndarray, norm: str | float) -> tuple[float, float]:
    """A norm of a matrix and its dual: of the singular values by name, of the entries by p."""
    x = np.linalg.svd(A, compute_uv=False) if norm in ("nuclear", "spectral") else A.ravel()
    p = {"frobenius": 2.0, "nuclear": 1.0, "spectral": np.inf, "max": np.inf}[norm] if isinstance(norm, str) else norm
    q = np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)
    return float(np.linalg.norm(x, p)), float(np.linalg.norm(x, q))


def plain(W: ndarray, metric: Any, dual: bool = False) -> ndarray:
    """The matrix whose Frobenius norm is the norm of W, or the dual norm, in a metric; W itself without one."""
    if metric is None:
        return W
    if not isinstance(metric, tuple):
        return W / np.sqrt(metric) if dual else W * np.sqrt(metric)
    power = -0.5 if dual else 0.5
    left, right = ((V * values**power) @ V.T for values, V in map(np.linalg.eigh, metric))
    return left @ W @ right


def certificate(data: Data, selected: ndarray, solution: Separation) -> dict[str, Any]:
    """What a solution proves, from tokens, queries, W and the multipliers alone; NaN where there is none.

    ``margin``: of W at norm 1; ``bound`` of the largest such margin by the multipliers ``dual >= 0``, which is
    ``||A^T dual||_dual / sum(dual)``; ``gap``: what is between them, as a part of the bound.  ``rank``: singular values
    above 1e-4 of the largest.
    """
    if solution.W is None or solution.dual is None:
        return dict.fromkeys(("margin", "bound", "gap", "rank"), np.nan)
    X, Z = tokens_of(data)
    delta = X[np.arange(len(Z)), selected][:, None] - X
    adjoint = np.einsum("nt,ntd->dn", np.maximum(solution.dual, 0), delta) @ Z
    sigma = np.linalg.svd(solution.W, compute_uv=False)
    norm: Any = solution.norm if solution.metric is None else "frobenius"
    size = norms(plain(solution.W, solution.metric), norm)[0]
    margin = support_margins(X, Z, selected, solution.W).min() / size
    bound = norms(plain(adjoint, solution.metric, dual=True), norm)[1] / np.maximum(solution.dual, 0).sum()
    return {"margin": margin, "bound": bound, "gap": 1 - margin / bound, "rank": (sigma > 1e-4 * sigma[0]).sum()}
