"""The support of an answer, and whether the solution is unique."""

import math
from typing import Any

import numpy as np

from ..common.norms import Metric, of_values
from .request import SHARDED, of_order_one

# The product of a row's absolute multiplier and its largest absolute entry is compared with the largest such product.
# A row counts as a support row if its product exceeds this fraction of the largest product.
# A smaller product may be the rounding error of a sum over thousands of rows.
ROUNDED = 1e-12
CHUNK = 65536  # number of rows whose token differences are computed at a time


def holding(sol: Any) -> np.ndarray:
    """The support tokens of an answer, as a flat bool array with a flag for each pair of a query and a token."""
    selection = sol.selection
    found = (sol.flat_dual > 0) & ~selection.flags(sol.data)
    entries = np.flatnonzero(found)
    part = pulls(sol, entries)
    # no multipliers, or only those of rows that are zero (a copy of the selected token, or a zero query)
    if not part.any():
        return found
    found[entries] = part > ROUNDED
    # in answers that are not optimal, W and the multipliers may come from different iterates
    if sol.status == "optimal" and sol.C is None:
        excess = sol.flat_margins[entries] - selection.asked(entries)
        found[entries] &= part > excess / selection.largest
    return found


def pulls(sol: Any, entries: np.ndarray) -> np.ndarray:
    """For each given entry (pair of a query and a token), its absolute multiplier times the largest absolute entry of
    its row, divided by the largest such product; zeros if all are zero.

    A row is ``(x_ref - x_t) z^T``, with x_ref the selected token.  The factors are scaled to order one before they are
    multiplied, since the products may leave double precision.
    """
    data = sol.data
    q, chosen, token = data._rows_of(sol.selection.reference, entries)
    sizes = (chosen != token) / 2
    for k in range(0, 0 if data._identity else len(entries), CHUNK):
        a, t = (data.keys[at[k : k + CHUNK]].astype(np.float64) / 2 for at in (chosen, token))
        sizes[k : k + CHUNK] = np.abs(a - t).max(axis=1)
    factors = np.abs(sol.flat_dual[entries]), sizes, np.abs(data.queries).max(axis=1)[q]
    pull = np.prod([of_order_one(factor) for factor in factors], axis=0)
    return pull / (pull.max(initial=0.0) or 1.0)


# A value counts as zero below ZERO times the largest value, and as nonzero above NONZERO times the largest.
# An answer with a gap of 1e-9 does not decide whether a value between ZERO and NONZERO is zero.
ZERO, NONZERO = 1e-7, 1e-5
# Thresholds for the least singular value of the support rows, at unit length and restricted to a face of the norm ball.
# A least singular value above REGULAR makes W unique; with one below SINGULAR, a W inside the face is not unique.
SINGULAR, REGULAR = 1e-11, 1e-7
LARGEST = 4_000_000  # largest number of elements in the matrix of the restricted support rows (32 MB)


def is_unique(sol: Any) -> bool | None:
    """Whether the W of an answer is the only one of least norm; None if it is not known to be of least norm, or if
    rounding, the problem's size or rows in other processes do not allow a decision."""
    if sol.W is None or sol.status not in ("optimal", "no constraint"):
        return None
    if isinstance(sol.norm, Metric) or 1 < of_values(sol.norm)[1] < math.inf or not sol.W.any():
        return True  # W is unique: the norm is strictly convex, or W = 0
    if sol.method == SHARDED:
        return None
    data, selection = sol.data, sol.selection
    query, chosen, token = data._rows_of(selection.reference)
    asked = selection.asked(np.arange(len(token)))
    # the slack of each row in units of the largest margin asked, infinite for an equality row
    slack = (sol.flat_margins - asked) / selection.largest
    slack[selection.flags(data)] = np.inf
    # Uniqueness does not depend on scale: scale to order one, since squares of the numbers may leave double precision.
    delta, Z, multiplier, W = map(of_order_one, (data._differences(chosen, token), data.queries, sol.flat_dual, sol.W))
    length = np.linalg.norm(delta, axis=1) * np.linalg.norm(Z, axis=1)[query]
    row = (asked > -np.inf) & (length > 0)
    query, delta, multiplier, slack, length = (part[row] for part in (query, delta, multiplier, slack, length))
    M = (multiplier[:, None] * delta).T @ Z[query]
    equal = np.isinf(slack)
    pull = np.where(equal, 0.0, multiplier * length)
    held, face = _split(pull, pull.max()), _face(sol.norm, M, W)
    if held is None or face is None:
        return None
    held |= equal
    inside, restrict = face
    dimensions = restrict(delta[:1], Z[:1]).shape[1]
    if dimensions == 0:
        return True
    inside = inside and (slack[~held] > NONZERO).all()
    if dimensions > held.sum():
        return False if inside else None
    if dimensions * held.sum() > LARGEST:
        return None
    least = np.linalg.svd(restrict(delta[held] / length[held, None], Z[query[held]]), compute_uv=False)[-1]
    if least > REGULAR:
        return True
    return False if inside and least < SINGULAR else None


def _split(values: np.ndarray, top: float) -> np.ndarray | None:
    """Which values are nonzero relative to ``top``, as a bool array; None if a value is too small to decide, between
    ZERO and NONZERO."""
    large = np.abs(values) >= NONZERO * top
    return large if (large | (np.abs(values) <= ZERO * top)).all() else None


def _face(norm: str, M: np.ndarray, W: np.ndarray) -> tuple[Any, ...] | None:
    """The face of the norm ball that holds its points of largest inner product with M, the sum of the rows of the SVM
    times their multipliers.

    Returns whether W lies inside the face, and a function that restricts rows to the face; None if rounding does not
    decide the dimension of the face.
    """
    if norm == "max":
        fixed = _split(M, np.abs(M).max())
    else:
        U, s, Vt = np.linalg.svd(M, full_matrices=norm == "spectral")
        fixed = _split(s if norm == "spectral" else s[0] - s, s[0])
    if fixed is None:
        return None
    if norm == "max":
        inside = (np.abs(W[~fixed]) < (1 - NONZERO) * np.abs(W).max()).all()
        return inside, lambda delta, z: products(delta, z)[:, ~fixed.ravel()]
    if norm == "spectral":
        U, V = U[:, fixed.sum() :], Vt[fixed.sum() :].T
        free = U.T @ W @ V
        inside = free.size == 0 or np.linalg.norm(free, 2) < (1 - NONZERO) * np.linalg.norm(W, 2)
        return inside, lambda delta, z: products(delta @ U, z @ V)
    r = (~fixed).sum()  # nuclear norm: the singular values that equal the largest one are not fixed
    sigma = np.linalg.svd(W, compute_uv=False)
    i, j = np.triu_indices(r)

    def restrict(delta: np.ndarray, z: np.ndarray) -> np.ndarray:
        a, b = delta @ U[:, :r], z @ Vt[:r].T
        return a[:, i] * b[:, j] + (i != j) * a[:, j] * b[:, i]

    return sigma[r - 1] > NONZERO * sigma[0], restrict


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """For each row k, all products of a number in a[k] and a number in b[k], as a flat row."""
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)
