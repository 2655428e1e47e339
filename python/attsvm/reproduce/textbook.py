"""Formulas that the package computes in C, here in a few lines of NumPy, so that claims can compare both results."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from .. import Data, Problem, Separation

TIGHT = 1e-4  # a token with a margin of at most 1 + TIGHT is a support token, as in attsvm.theory.is_locally_optimal


def tokens_of(data: Data) -> tuple[ndarray, ndarray]:
    """The tokens (n, T, d) and queries (n, d) of data with sequences of one length and one query each."""
    return data.keys.reshape(len(data), -1, data.dk), data.queries


def apart(A: ndarray, B: ndarray) -> float:
    """The relative distance ``||A - B|| / ||B||`` of A from B."""
    return float(np.linalg.norm(A - B) / np.linalg.norm(B))


def unit(x: ndarray) -> ndarray:
    """The vectors along the last axis, scaled to length 1."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def slope(x: ndarray, y: ndarray) -> ndarray:
    """The slope of the line through points x (n), y (..., n), by least squares."""
    x = x - x.mean()
    return y @ x / (x @ x)


def logits_of(X: ndarray, Z: ndarray, W: ndarray) -> ndarray:
    """The logits ``x_t^T W z`` (n, T) of tokens X (n, T, d) and queries Z (n, d)."""
    return np.einsum("ntd,nd->nt", X, Z @ W.T)


def softmax(logits: ndarray) -> ndarray:
    s = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return s / s.sum(axis=-1, keepdims=True)


def projection(x: ndarray) -> ndarray:
    """The projection of x onto the simplex along its last axis, by sorting."""
    falling = -np.sort(-x)
    thresholds = (falling.cumsum(axis=-1) - 1) / np.arange(1, x.shape[-1] + 1)
    count = (falling > thresholds).sum(axis=-1, keepdims=True)
    return np.maximum(x - np.take_along_axis(thresholds, count - 1, axis=-1), 0)


def loss(u: ndarray) -> ndarray:
    """Mean logistic loss of outputs u (..., n)."""
    return np.logaddexp(0, -u).mean(axis=-1)


def loss_gradient(X: ndarray, Z: ndarray, scores: ndarray, W: ndarray) -> ndarray:
    """The gradient of the mean logistic loss by the textbook formula ``s (score - s . score)``.

    It loses its digits by cancellation when the softmax s saturates.  X (n, T, d), Z (n, d), scores (n, T) and W (d, d)
    may have one more axis in front, over runs.
    """
    s = softmax((X @ (Z @ W.swapaxes(-1, -2))[..., None])[..., 0])
    u = (s * scores).sum(axis=-1, keepdims=True)
    c = -s * (scores - u) / (scores.shape[-2] * (1 + np.exp(u)))
    return (c[..., None, :] @ X)[..., 0, :].swapaxes(-1, -2) @ Z


def gradient_of(problem: Problem, W: ndarray) -> ndarray:
    """The gradient of a problem's mean logistic loss at W, by the textbook formula."""
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
    """The weights after ``steps`` of gradient descent from W (..., d, d), or from stacked factors K, Q (2, ..., d, m).

    From factors the result is K Q^T.  With ``normalized``, each step of W, K or Q is divided by the norm of its
    gradient.  ``ridge`` is for factors only.
    """
    W, factors = W.copy(), W.ndim == X.ndim

    def product() -> ndarray:
        return W[0] @ W[1].swapaxes(-1, -2) if factors else W

    for _ in range(steps):
        G = loss_gradient(X, Z, scores, product())
        if factors:
            G = np.stack([G @ W[1], G.swapaxes(-1, -2) @ W[0]]) + 2 * ridge * W
        W -= lr * G / (np.linalg.norm(G, axis=(-2, -1), keepdims=True) + np.finfo(float).eps if normalized else 1)
    return product()


def mirror_descend(X: ndarray, Z: ndarray, scores: ndarray, W: ndarray, steps: int, lr: float, p: float) -> ndarray:
    """Computes the weights after mirror descent in ``sign(W) |W|^(p-1)``.  Each step has the lq norm ``lr``, with 1/p +
    1/q = 1."""
    q = p / (p - 1)
    for _ in range(steps):
        G = loss_gradient(X, Z, scores, W)
        U = np.sign(W) * np.abs(W) ** (p - 1) - lr * G / np.linalg.norm(G.ravel(), q)
        W = np.sign(U) * np.abs(U) ** (1 / (p - 1))
    return W


def support_margins(X: ndarray, Z: ndarray, selected: ndarray, W: ndarray) -> ndarray:
    """The margins ``(x_selected - x_t)^T W z`` (n, T) of each query, infinite at the selected token itself."""
    rows = np.arange(len(Z))
    m = np.einsum("ntd,nd->nt", X[rows, selected][:, None] - X, Z @ W.T)
    m[rows, selected] = np.inf
    return m


def locally_optimal(X: ndarray, Z: ndarray, scores: ndarray, selected: ndarray, W: ndarray) -> bool:
    """Whether a selection is locally optimal by the definition: each token scores more than its support tokens."""
    support = support_margins(X, Z, selected, W) <= 1 + TIGHT
    return bool((scores[np.arange(len(Z)), selected][:, None] > scores)[support].all())


def norms(A: ndarray, norm: str | float) -> tuple[float, float]:
    """Returns a norm of the matrix A; and the dual norm of A.  A number p as ``norm`` stands for the entrywise lp
    norm."""
    x = np.linalg.svd(A, compute_uv=False) if norm in ("nuclear", "spectral") else A.ravel()
    p = {"frobenius": 2.0, "nuclear": 1.0, "spectral": np.inf, "max": np.inf}[norm] if isinstance(norm, str) else norm
    q = np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)
    return float(np.linalg.norm(x, p)), float(np.linalg.norm(x, q))


def plain(W: ndarray, metric: Any, dual: bool = False) -> ndarray:
    """Returns a matrix whose Frobenius norm is the norm, or the dual norm, of W in a metric; it is W itself if metric
    is None."""
    if metric is None:
        return W
    if not isinstance(metric, tuple):
        return W / np.sqrt(metric) if dual else W * np.sqrt(metric)
    power = -0.5 if dual else 0.5
    left, right = ((V * values**power) @ V.T for values, V in map(np.linalg.eigh, metric))
    return left @ W @ right


def certificate(data: Data, selected: ndarray, solution: Separation) -> dict[str, Any]:
    """Recomputes margin, bound, gap and rank of an SVM solution from tokens, queries, W and multipliers alone; NaN
    without W.

    - ``margin``: the least margin of W, scaled to norm 1;
    - ``bound``: ``||A^T dual||_dual / sum(dual)``, an upper bound of all such margins by multipliers ``dual >= 0``;
    - ``gap``: ``1 - margin / bound``;
    - ``rank``: the number of singular values above 1e-4 of the largest.
    """
    if solution.W is None or solution.dual is None:
        return dict.fromkeys(("margin", "bound", "gap", "rank"), np.nan)
    X, Z = tokens_of(data)
    adjoint = np.einsum("nt,ntd->dn", np.maximum(solution.dual, 0), X[np.arange(len(Z)), selected][:, None] - X) @ Z
    sigma = np.linalg.svd(solution.W, compute_uv=False)
    norm: Any = solution.norm if solution.metric is None else "frobenius"
    margin = support_margins(X, Z, selected, solution.W).min() / norms(plain(solution.W, solution.metric), norm)[0]
    bound = norms(plain(adjoint, solution.metric, dual=True), norm)[1] / np.maximum(solution.dual, 0).sum()
    return {"margin": margin, "bound": bound, "gap": 1 - margin / bound, "rank": (sigma > 1e-4 * sigma[0]).sum()}
