"""Learning rates: what is given, one per step; else a step that fits the scale of the data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..attention.data import Data
from ..common.check import as_floats, as_number, as_numeric
from ..rules import UpdateRule

FIRST = 0.1  # the Frobenius length of a step on tokens and queries of length one, as the papers' experiments have it
QUERIES, TOKENS = 64, 256  # looked at, evenly spread: the scale is only wanted to a factor of two


def default_rate(rule: UpdateRule, factors: bool, data: Data, total: float, share: float) -> np.ndarray:
    """``0.1 / s`` for steps of unit length, (1, 1), by the square of the scale ``s`` that :func:`squares` gives.

    s is rounded to a power of two, so that it is exactly 1 on tokens and queries of length one.  A W of data s times as
    large is 1/s as large, and so is its gradient s times as large: every rule then goes through the same attention.
    """
    first = FIRST / rule.length(data.dk, data.dz)
    if not 0 < total < math.inf:  # tokens all alike, or zero queries: nothing moves
        return np.array([[first]])
    # W <- W - lr g: the exponent of s in lr; each of two factors has the root of W's scale.
    exponent = {"constant": 2.0, "mirror": rule.p - 1}.get(rule.word, 1.0) / (2.0 if factors else 1.0)
    return np.array([[first * 2.0 ** (-exponent * round(math.log2(total / share) / 2))]])


def squares(data: Data) -> tuple[float, float]:
    """``1/2 ||x - x'||^2 ||z||^2``, its mean over pairs of tokens of a window, summed over queries that see several;
    and how many these are: both as parts of all queries.  The quotient is 1 for random vectors of length one."""
    chosen = _spread(0, len(data.queries), QUERIES)
    keys, queries = data._powers or (0, 0)
    start, lengths, total = data.start[chosen], data.lengths[chosen], 0.0
    z = np.square(np.ldexp(data.queries[chosen], -queries)).sum(axis=1)
    for T in set(lengths[lengths > 1].tolist()):
        here = lengths == T
        if data._identity:
            total += z[here].sum()
            continue
        X = np.ldexp(data.keys[start[here, None] + _spread(0, T, TOKENS)].astype(np.float64), -keys)
        X -= X.mean(axis=1, keepdims=True)
        total += np.square(X, out=X).sum(axis=(1, 2)) @ z[here] / (X.shape[1] - 1)
    with np.errstate(over="ignore", under="ignore"):  # what leaves double precision counts as no scale
        return float(np.ldexp(total / len(chosen), 2 * (keys + queries))), float(np.mean(lengths > 1))


def _spread(first: int, stop: int, most: int) -> np.ndarray:
    """Indices from first to stop - 1, evenly spread where they are more."""
    if stop - first <= most:
        return np.arange(first, stop)
    return np.linspace(first, stop - 1, most).astype(int)


def rates(lr: Any, begun: int, steps: int, runs: int | None) -> np.ndarray:
    """(1 or runs, 1 or begun + steps) of what is given; C stretches an axis of length one."""
    if callable(lr):
        lr = [lr(k) for k in range(begun, begun + steps)] or 0.0  # nothing is asked of a run without steps
    if isinstance(lr, float):
        return np.array([[as_number("lr", lr, least=0.0)]])
    if (array := as_numeric("lr", lr)).ndim == 2 and runs is not None:
        found = as_floats("lr", array, "runs, steps", (runs, 1 if array.shape[1] == 1 else steps))
    else:
        found = as_floats("lr", array if array.ndim else array[None], "steps", (steps if array.ndim else 1,))[None]
    if found.min() < 0:
        raise ValueError(f"lr must not be negative, got {found.min():g}")
    return np.pad(found, ((0, 0), (begun, 0))) if begun and found.shape[1] > 1 else found
