"""Bounds on the largest margin that weights and multipliers prove, rounded outwards."""

from __future__ import annotations

import math

import numpy as np

from .. import _core
from ..common.norms import Metric, largest_of_unit, roundings, size
from ..common.types import Norm
from .data import Data
from .selection import Selection


def intervals(
    data: Data, selection: Selection, W: np.ndarray, delta: np.ndarray, norm: Norm | Metric
) -> tuple[np.ndarray, np.ndarray]:
    """The bounds (low, high), each (R,), that R weights W (R, dk, dz) and multipliers ``delta`` (R, entries) prove of
    the largest margin.

    ``low`` is the least margin of W divided by its norm, ``high`` the dual norm of the combined rows divided by the sum
    of the multipliers.  Both are rounded outwards.  Negative multipliers of margin rows count as zero.
    """
    reference, kept, power = selection.within(data).reference, selection.kept, sum(data._powers or (0,))
    handle = data._stored if data._powers is None else data._in_range(choosing=False)
    dual = np.maximum(delta, 0.0)
    W, dual = _in_range(W), _in_range(dual if kept is None else np.where(kept, delta, dual))
    least, pull, total, off = _core.interval(handle, reference, kept, W, dual)
    dk, dz = data.dk, data.dz
    outwards = 1 + roundings(norm, dk, dz)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(least > 0, least / (outwards * size(W, norm)), 0.0)
        reached = outwards * (size(pull, norm, dual=True) + off * largest_of_unit(norm, dk, dz))
        high = np.where(total > 0, reached / total, math.inf)
    low[np.isnan(low)] = 0.0  # W = 0 gives 0 / 0
    return np.ldexp(low, power), np.ldexp(high, power)


def _in_range(stack: np.ndarray) -> np.ndarray:
    """Each member divided by a power of two, so that sums of squares stay in range.  Neither bound depends on the scale
    of W or of the multipliers."""
    largest = np.abs(stack).max(axis=tuple(range(1, stack.ndim)), keepdims=True)
    return np.ldexp(stack, -np.frexp(largest)[1], order="C")
