"""Formulas that the package computes in C, here in a few lines of NumPy, so that claims can compare both results."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy import linalg, ndarray

from .. import Data, Problem, Separation

TIGHT = 1e-4  # a token with a margin of at most 1 + TIGHT is a support token, as in attsvm.theory.is_locally_optimal


def tokens_of(data: Data) -> tuple[ndarray, ndarray]:
    """The tokens (n, T, d) and queries (n, d) of data with sequences of one length and one query each."""
    return data.keys.reshape(len(data), -1, data.dk), data.queries


def apart(A: ndarray, B: ndarray) -> float:
    """The relative distance ``||A - B|| / ||B||`` of A from B."""
    return float(linalg.norm(A - B) / linalg.norm(B))


def unit(x: ndarray) -> ndarray:
    """The vectors along the last axis, scaled to length 1."""
    return x / linalg.norm(x, axis=-1, keepdims=True)


def slope(x: ndarray, y: ndarray) -> ndarray:
    """The slope of the line through points x (n), y (..., n), by least squares."""
    x = x - x.mean()
    return y @ x / (x @ x)


def logits_of(X: ndarray, Z: ndarray, W: ndarray) -> ndarray:
    """The logits ``x_t^T W z`` (..., n, T) of tokens X (..., n, T, d) and queries Z (..., n, d)."""
    return np.matvec(X, Z @ W.mT)


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


class Sequences(NamedTuple):
    """Sequences with one query each: tokens X (n, T, d), queries Z (n, d) and the scores of the tokens (n, T).

    All three may have one more axis in front, over runs.
    """

    X: ndarray
    Z: ndarray
    scores: ndarray


def sequences_of(problem: Problem) -> Sequences:
    return Sequences(*tokens_of(problem.data), problem.scores)


def side_by_side(problems: Iterable[Problem]) -> Sequences:
    """The sequences of problems of one size, stacked along an axis in front."""
    return Sequences(*map(np.stack, zip(*map(sequences_of, problems), strict=True)))


def slopes_of(scores: ndarray, logits: ndarray, summed: Any = ()) -> ndarray:
    """The derivatives of the mean logistic loss in the logits (..., n, T), by the textbook formula ``s (score - s .
    score)``.  It loses its digits by cancellation when the softmax s saturates.

    The loss is that of the outputs ``s . score``, or of their sum over the axes ``summed``.
    """
    s = softmax(logits)
    u = (s * scores).sum(axis=-1, keepdims=True)
    return -s * (scores - u) / (scores.shape[-2] * (1 + np.exp(u.sum(axis=summed, keepdims=True))))


def pulled(slopes: ndarray, X: ndarray, Z: ndarray) -> ndarray:
    """The gradient in W (..., d, d) from the derivatives in the logits: the sum of ``slope_t x_t z^T``."""
    return np.vecmat(slopes, X).mT @ Z


def loss_gradient(at: Sequences, W: ndarray, slopes: Callable[..., ndarray] = slopes_of) -> ndarray:
    """The gradient of a loss at W (d, d), or (runs, d, d), where ``slopes(scores, logits)`` returns the derivatives of
    the loss in the logits."""
    X, Z, scores = at
    return pulled(slopes(scores, logits_of(X, Z, W)), X, Z)


def gradient_of(problem: Problem, W: ndarray) -> ndarray:
    """The gradient of a problem's mean logistic loss at W, by the textbook formula."""
    return loss_gradient(sequences_of(problem), W)


def descend(
    at: Sequences,
    W: ndarray,
    steps: int,
    lr: float,
    normalized: bool = True,
    ridge: float = 0.0,
    slopes: Callable[..., ndarray] = slopes_of,
) -> ndarray:
    """The weights after ``steps`` of gradient descent from W (..., d, d), or from stacked factors K, Q (2, ..., d, m).

    ``slopes`` is the argument of :func:`loss_gradient`.

    From factors the result is K Q^T.  With ``normalized``, each step of W, K or Q is divided by the norm of its
    gradient.  ``ridge`` is for factors only.
    """
    factors = W.ndim > at.scores.ndim

    def product() -> ndarray:
        return W[0] @ W[1].mT if factors else W

    for _ in range(steps):
        G = loss_gradient(at, product(), slopes)
        if factors:
            G = np.stack([G @ W[1], G.mT @ W[0]]) + 2 * ridge * W
        W = W - lr * G / (linalg.matrix_norm(G, keepdims=True) + np.finfo(float).eps if normalized else 1)
    return product()


def mirror_descend(at: Sequences, W: ndarray, steps: int, lr: float, p: float) -> ndarray:
    """Computes the weights after mirror descent in ``sign(W) |W|^(p-1)``.  Each step has the lq norm ``lr``, with 1/p +
    1/q = 1."""
    q = p / (p - 1)
    for _ in range(steps):
        G = loss_gradient(at, W)
        U = np.sign(W) * np.abs(W) ** (p - 1) - lr * G / linalg.norm(G.ravel(), q)
        W = np.sign(U) * np.abs(U) ** (1 / (p - 1))
    return W


def differences(data: Data, selected: ndarray) -> ndarray:
    """The differences ``x_selected - x_t`` (n, T, d) of the selected token of each query and all of its tokens."""
    X, _ = tokens_of(data)
    return X[np.arange(len(X)), selected][:, None] - X


def rows_within(data: Data, kept: ndarray) -> tuple[ndarray, tuple[ndarray, ...]]:
    """The rows ``(x_first - x_t) z^T``, flat, of all kept tokens t but the first of each query; and the queries and
    tokens t of these rows."""
    others = np.nonzero(kept & (kept.cumsum(axis=1) > 1))
    rows = differences(data, kept.argmax(axis=1))[others][..., None] * data.queries[others[0], None]
    return rows.reshape(len(rows), data.dk * data.dz), others


def support_margins(data: Data, selected: ndarray, W: ndarray) -> ndarray:
    """The margins ``(x_selected - x_t)^T W z`` (n, T) of each query, infinite at the selected token itself."""
    m = logits_of(differences(data, selected), data.queries, W)
    m[np.arange(len(m)), selected] = np.inf
    return m


def locally_optimal(problem: Problem, selected: ndarray, W: ndarray) -> bool:
    """Whether a selection is locally optimal by the definition: each token scores more than its support tokens."""
    scores, support = problem.scores, support_margins(problem.data, selected, W) <= 1 + TIGHT
    return bool((np.take_along_axis(scores, selected[:, None], 1) > scores)[support].all())


def norms(A: ndarray, norm: Any) -> tuple[float, float]:
    """Returns a norm of the matrix A; and the dual norm of A.  A number p as ``norm`` stands for the entrywise lp
    norm."""
    x = linalg.svd(A, compute_uv=False) if norm in ("nuclear", "spectral") else A.ravel()
    p = {"frobenius": 2.0, "nuclear": 1.0, "spectral": np.inf, "max": np.inf}.get(norm, norm)
    q = np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)
    return float(linalg.norm(x, p)), float(linalg.norm(x, q))


def plain(W: ndarray, metric: Any, power: float) -> ndarray:
    """Returns W times a power of the metric; it is W itself if metric is None.

    For the powers 0.5 and -0.5 its Frobenius norm is the norm and the dual norm of W in the metric.
    """
    if isinstance(metric, tuple):
        left, right = ((V * values**power) @ V.T for values, V in map(linalg.eigh, metric))
        return left @ W @ right
    return W if metric is None else W * metric**power


def certificate(solution: Separation) -> dict[str, Any]:
    """Recomputes margin, bound, gap and rank of an SVM solution from tokens, queries, W and multipliers alone; NaN
    without W.

    - ``margin``: the least margin of W, scaled to norm 1;
    - ``bound``: ``||A^T dual||_dual / sum(dual)``, an upper bound of all such margins by multipliers ``dual >= 0``;
    - ``gap``: ``1 - margin / bound``;
    - ``rank``: the number of singular values above 1e-4 of the largest.
    """
    data, selected, W, metric = solution.data, solution.selection.reference, solution.W, solution.metric
    if W is None:
        return dict.fromkeys(("margin", "bound", "gap", "rank"), np.nan)
    dual = np.maximum(solution.dual, 0)
    adjoint = pulled(dual, differences(data, selected), data.queries)
    norm = solution.norm if metric is None else "frobenius"
    margin = support_margins(data, selected, W).min() / norms(plain(W, metric, 0.5), norm)[0]
    bound = norms(plain(adjoint, metric, -0.5), norm)[1] / dual.sum()
    return {"margin": margin, "bound": bound, "gap": 1 - margin / bound, "rank": linalg.matrix_rank(W, rtol=1e-4)}
