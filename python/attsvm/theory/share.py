"""How close weights come to the largest margin, in any norm."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.data import Data, check_data
from ..attention.selection import Selection
from ..common.check import as_finite
from ..common.norms import read_norm, size
from ..common.types import MetricLike, Norm
from ..svm.solve import solve_svm

# Warn if less than this share of the Frobenius norm lies in the span of rows and queries: projecting W would more than
# double its margin share.
MOST_OUTSIDE = 0.5
SPANNED = 1e-6  # singular values of tokens or queries below this fraction of the largest count as zero
CHUNK = 4096  # rows processed at a time
ROUNDING = 1e-13  # rounding error of a computed margin, relative to (row length) (norm of W)


def margin_share(
    data: Data, selected: ArrayLike, W: ArrayLike, norm: Norm = "frobenius", metric: MetricLike | None = None
) -> tuple[Any, ...]:
    """The margin of ``W / ||W||`` as a share of the largest margin gamma*: ``min_e A(W)_e / ||W|| / gamma*``.

    The share is 1 if W has the direction of an SVM solution of that norm (any of them, if there are several), and
    negative if W does not rank the selected tokens first.

    Parameters
    ----------
    data : Data
    selected : as in :func:`solve_svm`
        Several selected tokens of a query must have equal logits.  If their logits differ, minus the largest difference
        counts as a margin.
    W : array_like (..., dk, dz)
        Weights, or a stack of them (those of a run: ``run.weights``).
    norm, metric : as in :func:`solve_svm`

    Returns
    -------
    low, high : float, or arrays (...)
        The share lies in [low, high]: the margin of W divided by the certified upper and lower bound of the largest
        margin.  (W itself proves a lower bound.)  0 for W = 0.

    Raises
    ------
    ValueError
        When the selection is infeasible, or asks nothing: there is no largest margin.

    Warns
    -----
    UserWarning
        In the Frobenius and nuclear norms, if less than half of the Frobenius norm of W lies in the span of rows and
        queries: the rest changes no margin and lowers the share.  Weights trained from zero lie in this span; the
        weights of a head of a model do not if there are fewer queries or tokens than dimensions.

    Notes
    -----
    The norm of each W is computed here; a solution need not be unique for this measure to make sense, as it has to be
    for a correlation with one.

    Examples
    --------
    >>> sol = attsvm.solve_svm(data, [0, 1, 2, 3, 4, 5], "max")
    >>> low, high = attsvm.theory.margin_share(data, [0, 1, 2, 3, 4, 5], sol.W, "max")
    >>> 1 - 1e-8 < low <= high <= 1
    True
    """
    check_data("data", data)
    kind = read_norm(norm, metric, data.dk, data.dz)
    W = as_finite("W", W)
    if W.ndim < 2 or W.shape[-2:] != (data.dk, data.dz):
        raise ValueError(f"W must have shape (..., dk, dz) = (..., {data.dk}, {data.dz}), got {W.shape}")
    selection = Selection(data, selected)
    sol = solve_svm(data, selected, norm, metric=metric)
    if sol.status == "no constraint":
        raise ValueError("selected must leave a token out that differs: without a row no margin is the largest")
    if sol.status == "infeasible":
        raise ValueError(f"selected must be feasible to have a largest margin, got one that is not: {sol.message}")
    stack = W.reshape(-1, data.dk, data.dz)
    sizes = size(stack, kind)
    if kind in ("frobenius", "nuclear"):
        _warn_outside(data, selection, stack)
    units = stack / np.where(sizes > 0, sizes, 1.0)[:, None, None]
    least = np.array([_least(data, selection, unit) for unit in units])
    lower = np.maximum(sol.margin, least)  # the margin of W is a lower bound, too
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.where(least == 0, 0.0, least / np.stack([np.maximum(sol.margin_bound, lower), lower]))
    low, high = np.sort(ends, axis=0).reshape(2, *W.shape[:-2])
    return (float(low), float(high)) if W.ndim == 2 else (low, high)


def _warn_outside(data: Data, selection: Selection, stack: np.ndarray) -> None:
    whole = np.linalg.norm(stack, axis=(1, 2))
    _, chosen, token = data._rows_of(selection.reference)
    left = _span(data.dk, len(token), lambda at: data._differences(token[at], chosen[at]))
    right = _span(data.dz, len(data.queries), lambda at: data.queries[at])
    share = np.linalg.norm(left.T @ stack @ right, axis=(1, 2))[whole > 0] / whole[whole > 0]
    if share.min(initial=1.0) < MOST_OUTSIDE:
        warnings.warn(
            f"W: only {share.min():.2g} of its Frobenius norm lies on the directions that tokens and queries have; the "
            "rest changes no margin and lowers the share",
            stacklevel=3,
        )


def _span(d: int, count: int, rows: Callable[[slice], np.ndarray]) -> np.ndarray:
    """Orthonormal columns that span the given rows of d numbers."""
    scatter = np.zeros((d, d))
    for at in range(0, count, CHUNK):
        some = rows(slice(at, at + CHUNK))
        scatter += some.T @ some
    eigenvalues, vectors = np.linalg.eigh(scatter)
    return vectors[:, eigenvalues > SPANNED**2 * eigenvalues[-1]]


def _least(data: Data, selection: Selection, W: np.ndarray) -> float:
    """The least margin of W.  An equality row counts as minus the difference of its sides, if that exceeds rounding."""
    found, equal = data._flat_margins(W, selection.reference), np.flatnonzero(selection.flags(data))
    query, chosen, token = data._rows_of(selection.reference, equal)
    equal, query, chosen, token = (part[chosen != token] for part in (equal, query, chosen, token))
    length = np.linalg.norm(data._differences(chosen, token), axis=1) * np.linalg.norm(data.queries[query], axis=1)
    off = np.abs(found[equal])
    found[equal] = np.where(off > ROUNDING * length * np.linalg.norm(W), -off, np.inf)
    return float(found.min())
