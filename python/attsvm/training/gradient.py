"""Gradients with a scale, the steps that update rules make of gradients, and weights stored in the span of the
queries."""

import math
from typing import Any, NamedTuple

import numpy as np

from ..attention.data import largest
from ..rules import as_rule

# Relative to the largest singular value, values below RANK times the longer side of a matrix count as zero.
# This threshold is also in csrc/training/update.c.
RANK = 4 * 2.0**-52
# Up to this number of elements in a window's keys, C processes eight windows at a time, if it trains W itself.  The
# limit is twice as large if the keys leave a remainder in vectors.
# The limit is eight times SIDE_BY_SIDE if a key has fewer than SHORT_KEYS elements.
SIDE_BY_SIDE, SHORT_KEYS = 1024, 16
IN_RANGE = 1e-50, 1e50  # smallest and largest size of the queries' largest number, so that Z Z^T stays in range


class Gradient(NamedTuple):
    """A gradient with a scale that keeps it in range: the gradient is ``exp(log_scale)`` times the arrays.

    With ``heads=H`` the arrays have H matrices, each with a scale of its own in ``log_scale (H,)``.
    """

    W: np.ndarray | None
    K: np.ndarray | None
    Q: np.ndarray | None
    log_scale: float | np.ndarray


def next_step(run: Any) -> np.ndarray:
    """The direction in which the next step of one training run moves W, of Frobenius norm 1 ([H,] dk, dz); zero if the
    gradient is zero.

    It is the negative gradient of the mean loss in W, or the mean of gradients if the rule keeps one, transformed as
    the rule does: to its signs, to its polar factor, or by the metric.  For factors it is the change of ``K Q^T`` under
    such steps of K and Q.
    """
    if run.K is not None:
        gradient = run.trained.loss_and_grad(K=run.K, Q=run.Q, scaled=True)[1]
        K, Q = (_turned(run, D) for D in (gradient.K, gradient.Q))
        return _of_unit(-(K @ run.Q.mT + run.K @ Q.mT))
    D = run.trained.loss_and_grad(run.W, scaled=True)[1].W if run.mean is None else run.mean
    return _of_unit(-_turned(run, D))


def metric_of(root: np.ndarray, squares: str, shape: tuple[int, ...], runs: int) -> Any:
    """The metric in which an update rule that keeps squares of gradients, such as Adam, takes its steps on weights W of
    this ``shape`` ([R,] [H,] dk, dz).

    ``root`` has a row for each of the ``runs``.  A row begins with numbers for each attention head: the roots of the
    entries' sums (dk dz), or L and R (dk dk + dz dz).  Numbers for a trained output head follow.  The metric is scaled
    to mean 1, or to mean eigenvalue 1, over the directions with a gradient so far; it is 1 in the other directions.
    """
    *before, dk, dz = shape
    width = dk * dz if squares == "entries" else dk * dk + dz * dz
    root = root.reshape(runs, -1)[:, : math.prod(before) // runs * width].reshape(*before, width)
    if squares == "entries":
        return _of_mean_one(root.reshape(shape), (-2, -1))
    sides = zip(np.split(root, [dk * dk], axis=-1), (dk, dz), strict=True)
    return tuple(_fourth_root(side.reshape(*before, d, d)) for side, d in sides)


def _of_mean_one(numbers: np.ndarray, axes: Any) -> np.ndarray:
    seen = numbers > 0
    mean = numbers.sum(axis=axes, keepdims=True) / np.maximum(seen.sum(axis=axes, keepdims=True), 1)
    return np.divide(numbers, mean, out=np.ones_like(numbers), where=seen)


def _fourth_root(square: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(square)
    values = np.where(values > RANK * square.shape[-1] * values[..., -1:], values, 0.0) ** 0.25
    found = (vectors * _of_mean_one(values, -1)[..., None, :]) @ vectors.mT
    return (found + found.mT) / 2  # exactly symmetric


def _turned(run: Any, D: np.ndarray) -> np.ndarray:
    """The direction of a step of the run's update rule for D, a gradient or a mean of gradients; the length is
    arbitrary.

    The metric of a run on factors is None, since such a run does not keep their squares.  The steps of a rule with
    squares are then those of its first step, signs or a polar factor.
    """
    rule, metric = as_rule(run.rule), run.metric
    if metric is not None:
        if not isinstance(metric, tuple):
            return D / metric
        return np.linalg.solve(metric[0], np.linalg.solve(metric[1], D.mT).mT)
    if rule.turns == "signs":
        return np.sign(D)
    if rule.turns == "polar":
        U, s, V = np.linalg.svd(D, full_matrices=False)
        kept = s > RANK * max(D.shape[-2:]) * s[..., :1]
        return (U * kept[..., None, :]) @ V
    if rule.word == "mirror":  # steepest descent in the lp norm
        D = D / (np.abs(D).max() or 1.0)
        return np.sign(D) * np.abs(D) ** (1 / (run.p - 1))
    return _of_unit(D) if rule.word == "normalized" else D


def _of_unit(W: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(W, axis=(-2, -1), keepdims=True)
    return W / np.where(norm > 0, norm, 1.0)


def span_of(problem: Any, W: np.ndarray, trains_head: bool = False) -> np.ndarray | None:
    """Storage (runs, 2 M, dk) for weights W + C^T Z that change only in the span of the queries Z: for each run the M
    rows of Z W^T, and below them C, which begins at 0.  None if steps on W itself are cheaper.

    Besides the pass over the tokens, a step costs M^2 dk multiplications in the span.  On W it costs 2 M dk dz
    multiplications and the update of dk dz weights.

    Short windows are processed eight at a time on W, but one by one in the span.  This costs the span as much as 2300
    multiplications per query with a fixed linear head, and 6000 + 150 M with another head.  A single query leaves seven
    of the eight places empty, so the span costs nothing more; with keys so short that longer windows go eight at a
    time, too, this holds for up to four queries.
    """
    data = problem.data
    M, dk, dz = len(data.queries), data.dk, data.dz
    size = data._longest * dk
    if M == 1 or size > SIDE_BY_SIDE * (8 if dk < SHORT_KEYS else 1):
        cheaper = 2 * M <= 3 * dz
    elif size > SIDE_BY_SIDE:
        cheaper = M <= 4
    else:
        one_by_one = 2300 if problem._from_scores and not trains_head else 6000 + 150 * M
        cheaper = dk * (dz * (2 * M + 12) - M * M) > one_by_one * M
    if not (cheaper and IN_RANGE[0] < largest(data.queries) < IN_RANGE[1]):
        return None
    matrices = W.reshape(-1, dk, dz)
    span = np.zeros((len(matrices), 2 * M, dk))
    span[:, :M] = product(data.queries, matrices)
    return span


def weights_of(problem: Any, W: np.ndarray, span: np.ndarray) -> np.ndarray:
    """The weights W + C^T Z, in the shape of W, for a start W and the storage ``span`` that holds C."""
    queries = problem.data.queries
    return W + product(span[:, len(queries) :].mT, queries.mT).reshape(W.shape)


def product(K: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """K Q^T without a warning: C, or the status of a run, reports weights that left the range of double precision."""
    with np.errstate(over="ignore", invalid="ignore"):
        return K @ Q.mT
