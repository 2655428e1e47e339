"""Which rows hold a solution in place, and whether it is the only one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..common.norms import Metric, of_values

__all__ = ["ROUNDED", "holding", "log_pulls"]

ROUNDED = 1e-12  # of the largest multiplier, each times the size of its row: what sums of thousands of rows leave
CHUNK = 65536  # rows whose sizes are taken at a time


def holding(sol: Any) -> np.ndarray:
    """The entries of an answer's support, flat."""
    selection, found = sol.selection, sol.flat_dual > 0
    if selection.kept is not None:
        found &= ~selection.kept
    entries = np.flatnonzero(found)
    pull = log_pulls(sol, entries)
    largest = pull.max(initial=-np.inf)
    if largest == -np.inf:  # none, or that of a copy or a zero query, whose row is zero
        return found
    part = np.exp(pull - largest)
    found[entries] = part > ROUNDED
    if sol.status == "optimal" and sol.C is None:  # else W and multipliers need not belong together
        excess = sol.data._flat_margins(sol.W, selection.reference)[entries] - selection.asked(entries)
        found[entries] &= part > excess / selection.largest
    return found


def log_pulls(sol: Any, entries: np.ndarray) -> np.ndarray:
    """Logarithms, as the numbers may leave double precision, of the multipliers of these entries, each times the size
    of its row: the largest number in x_ref - x_t times that in z."""
    data, sizes = sol.data, np.empty(len(entries))
    q, chosen, token = data._rows_of(sol.selection.reference, entries)
    if data._identity:
        sizes = (chosen != token) / 2
    for k in range(0, 0 if data._identity else len(entries), CHUNK):
        a, t = (data.keys[at[k : k + CHUNK]].astype(np.float64) / 2 for at in (chosen, token))
        sizes[k : k + CHUNK] = np.abs(a - t).max(axis=1)
    with np.errstate(divide="ignore"):
        return np.log(np.abs(sol.flat_dual[entries])) + np.log(sizes) + np.log(np.abs(data.queries).max(axis=1))[q]


# Zero below the first part of the largest, not zero above the second; a gap of 1e-9 says nothing in between.
ZERO, NONZERO = 1e-7, 1e-5
# Least singular value of the rows on the face, those of unit length, that leave a direction of it, or none.
SINGULAR, REGULAR = 1e-11, 1e-7
LARGEST = 4_000_000  # numbers in the matrix of the rows on the face: 32 MB


def is_unique(sol: Any) -> bool | None:
    """Of an answer with weights; None where rounding, or the size, does not let it be decided."""
    if sol.C is not None or isinstance(sol.norm, Metric) or 1 < of_values(sol.norm)[1] < math.inf or not sol.W.any():
        return True  # strictly convex, or zero
    query, delta, multiplier, slack = _rows(sol)
    # Nothing below depends on units, but squares of numbers in them may leave double precision.
    delta, Z, multiplier, W = (_of_order_one(a) for a in (delta, sol.data.queries, multiplier, sol.W))
    M = np.einsum("k,ki,kj->ij", multiplier, delta, Z[query], optimize=True)
    length = np.linalg.norm(delta, axis=1) * np.linalg.norm(Z[query], axis=1)
    held = _split(np.where(np.isinf(slack), np.inf, multiplier * length))
    face_of = {"max": _max, "spectral": _spectral, "nuclear": _nuclear}.get(sol.norm)
    face = None if face_of is None else face_of(M, W)
    if held is None or face is None:
        return None
    inside, dimensions, restrict = face
    if dimensions == 0:
        return True
    inside &= bool((slack[~held] > NONZERO).all())
    if dimensions > held.sum():
        return False if inside else None
    if dimensions * held.sum() > LARGEST:
        return None
    unit = delta[held] / length[held, None]
    least = np.linalg.svd(restrict(unit, Z[query[held]]), compute_uv=False)[-1]
    if least > REGULAR:
        return True
    return False if inside and least < SINGULAR else None


def _of_order_one(a: np.ndarray) -> np.ndarray:
    return a / max(np.abs(a).max(initial=0.0), np.finfo(np.float64).tiny)


def _rows(sol: Any) -> tuple[Any, ...]:
    """Query, difference, multiplier and slack of every row, as a part of what it is to reach; inf on equalities."""
    data, reference = sol.data, sol.selection.reference
    query, chosen, token = data._rows_of(reference)
    delta = data.keys[chosen].astype(np.float64) - data.keys[token]
    asked = sol.selection.asked(np.arange(len(token)))
    margin = np.einsum("ki,ki->k", delta, data.queries[query] @ sol.W.T)
    slack = (margin - asked) / sol.selection.largest
    if sol.selection.kept is not None:
        slack[sol.selection.kept] = np.inf
    row = (token != chosen) & (asked > -np.inf) & delta.any(axis=1) & data.queries[query].any(axis=1)
    return query[row], delta[row], sol.flat_dual[row], slack[row]


def _split(values: np.ndarray, largest: float | None = None) -> np.ndarray | None:
    """Which values are not zero; None where that is not plain."""
    finite = np.abs(values[np.isfinite(values)])
    top = finite.max(initial=0.0) if largest is None else largest
    plain = (np.abs(values) <= ZERO * top) | (np.abs(values) >= NONZERO * top)
    return np.abs(values) >= NONZERO * top if plain.all() else None


def _max(M: np.ndarray, W: np.ndarray) -> tuple[Any, ...] | None:
    fixed = _split(M)
    if fixed is None:
        return None
    free = ~fixed
    inside = bool((np.abs(W[free]) < (1 - NONZERO) * np.abs(W).max()).all())
    return inside, int(free.sum()), lambda delta, z: (delta[:, :, None] * z[:, None, :])[:, free]


def _spectral(M: np.ndarray, W: np.ndarray) -> tuple[Any, ...] | None:
    U, s, Vt = np.linalg.svd(M)
    ranked = _split(s)
    if ranked is None:
        return None
    k = int(ranked.sum())
    U, V = U[:, k:], Vt[k:].T
    dimensions = U.shape[1] * V.shape[1]
    inside = dimensions == 0 or np.linalg.norm(U.T @ W @ V, 2) < (1 - NONZERO) * np.linalg.norm(W, 2)
    return bool(inside), dimensions, lambda delta, z: _products(delta @ U, z @ V)


def _nuclear(M: np.ndarray, W: np.ndarray) -> tuple[Any, ...] | None:
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    below = _split(s[0] - s, s[0])
    if below is None:
        return None
    r = int((~below).sum())
    U, V = U[:, :r], Vt[:r].T
    sigma = np.linalg.svd(W, compute_uv=False)
    upper = np.triu_indices(r)

    def restrict(delta: np.ndarray, z: np.ndarray) -> np.ndarray:
        products = _products(delta @ U, z @ V).reshape(len(delta), r, r)
        both = products + products.swapaxes(1, 2)
        both[:, np.arange(r), np.arange(r)] /= 2
        return both[:, upper[0], upper[1]]

    return bool(sigma[r - 1] > NONZERO * sigma[0]), r * (r + 1) // 2, restrict


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Row by row, all products of an entry of a with one of b."""
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)
