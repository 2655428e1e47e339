"""Norms of weights and their dual norms, of one matrix or of a stack, and how far rounding can put them off."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _core
from .metric import Metric
from .types import Norm

__all__ = ["largest_of_unit", "norm_name", "of_values", "roundings", "size"]

NAMED = {"frobenius": (False, 2.0), **_core.NORM}
EPSILON = 2.0**-52
SMALL = 1e-100  # squares of these are in range
SPARE = 16  # roundings more than a count of the operations


def norm_name(norm: str | float | Metric) -> str:
    """The norm in a sentence, before the word "norm"."""
    if isinstance(norm, str):
        return norm
    return "metric" if isinstance(norm, Metric) else f"entrywise l{norm:g}"


def size(W: np.ndarray, norm: Norm | Metric, dual: bool = False) -> Any:
    """``||W||`` of W (..., dk, dz), or its dual norm ``max_(||V|| <= 1) <V, W>``: (...).

    The dual of a metric is of its kind; that of the exponent p, of entries or of singular values, is ``p / (p - 1)``.
    """
    largest = np.maximum(W.max(axis=(-2, -1)), -W.min(axis=(-2, -1)))
    if norm == "frobenius" and np.all((largest == 0) | ((largest > SMALL) & (largest < 1 / SMALL))):
        return np.sqrt(np.einsum("...ij,...ij->...", W, W))  # the common case, without temporaries
    W = W / np.where(largest > 0, largest, 1.0)[..., None, None]  # squares and powers may leave the range of doubles
    if isinstance(norm, Metric):
        found = norm.size(W, dual)
    else:
        singular, p = of_values(norm)
        values = np.linalg.svd(W, compute_uv=False) if singular else W.reshape(*W.shape[:-2], -1)
        found = np.linalg.norm(values, conjugate(p) if dual else p, axis=-1)
    return largest * found


def of_values(norm: str | float) -> tuple[bool, float]:
    """Whether the norm is of the singular values or of the entries, and its exponent."""
    return NAMED[norm] if isinstance(norm, str) else (False, norm)


def conjugate(p: float) -> float:
    """The exponent of the dual norm."""
    return 1.0 if p == math.inf else math.inf if p == 1 else p / (p - 1)


def roundings(norm: Norm | Metric, dk: int, dz: int) -> float:
    """The relative error of :func:`size`, either norm, at most."""
    count = dk * dz + SPARE
    if isinstance(norm, Metric):
        return EPSILON * (count + norm.roundings)
    if of_values(norm)[0]:  # each singular value to max(dk, dz) roundings of the largest, or so
        count *= SPARE
    return EPSILON * count


def largest_of_unit(norm: Norm | Metric, dk: int, dz: int) -> float:
    """The largest dual norm of a matrix whose Frobenius norm is 1."""
    if isinstance(norm, Metric):
        return norm.largest_dual
    singular, p = of_values(norm)
    return (min(dk, dz) if singular else dk * dz) ** max(0.0, 1 / conjugate(p) - 0.5)
