"""Norms of weights and their dual norms, of one matrix or of a stack, and how far rounding can put them off."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .metric import Metric
from .types import Norm

__all__ = ["largest_of_unit", "norm_name", "roundings", "size"]

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

    The dual of Frobenius and of a metric is of their kind; nuclear and spectral are each other's, that of the max norm
    is the sum of the absolute entries, and of the exponent p it is ``p / (p - 1)``.
    """
    largest = np.maximum(W.max(axis=(-2, -1)), -W.min(axis=(-2, -1)))
    if norm == "frobenius" and np.all((largest == 0) | ((largest > SMALL) & (largest < 1 / SMALL))):
        return np.sqrt(np.einsum("...ij,...ij->...", W, W))  # the common case, without temporaries
    W = W / np.where(largest > 0, largest, 1.0)[..., None, None]  # squares and powers may leave the range of doubles
    if isinstance(norm, Metric):
        found = norm.size(W, dual)
    elif norm == "max":
        found = np.abs(W).sum(axis=(-2, -1)) if dual else np.abs(W).max(axis=(-2, -1))
    elif norm == "frobenius":
        found = np.sqrt(np.square(W).sum(axis=(-2, -1)))
    elif isinstance(norm, str):
        sigma = np.linalg.svd(W, compute_uv=False)
        found = sigma.sum(axis=-1) if (norm == "nuclear") != dual else sigma.max(axis=-1)
    else:
        p = norm / (norm - 1) if dual else norm
        found = (np.abs(W) ** p).sum(axis=(-2, -1)) ** (1 / p)
    return largest * found


def roundings(norm: Norm | Metric, dk: int, dz: int) -> float:
    """The relative error of :func:`size`, either norm, at most."""
    count = dk * dz + SPARE
    if isinstance(norm, Metric):
        return EPSILON * (count + norm.roundings)
    if norm in ("nuclear", "spectral"):  # each singular value to max(dk, dz) roundings of the largest, or so
        count *= SPARE
    return EPSILON * count


def largest_of_unit(norm: Norm | Metric, dk: int, dz: int) -> float:
    """The largest dual norm of a matrix whose Frobenius norm is 1."""
    if isinstance(norm, Metric):
        return norm.largest_dual
    if norm == "max":
        return math.sqrt(dk * dz)
    if norm == "spectral":
        return math.sqrt(min(dk, dz))
    if isinstance(norm, str):
        return 1.0
    q = norm / (norm - 1)
    return (dk * dz) ** max(0.0, 1 / q - 0.5)
