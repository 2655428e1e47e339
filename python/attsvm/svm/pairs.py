"""A plane between two classes of points as an answer over differences of points: for exact proofs.

A row is a pair of a positive and a negative point, ``w . (x_i - x_j) >= 2``, in a window of attention whose query is
the number 1; without a bias it is a point beside the origin.
"""

from __future__ import annotations

import numpy as np

from ..attention.kinds import cross_attention
from .separation import Separation
from .solve import solve_svm

WINDOW = 1000  # points: one window of 100,000 is taken for one query's dense problem (76 s for 2)
ORIGIN = -1  # stands for a point where one class alone has rows

Window = tuple[int, np.ndarray, np.ndarray]  # a point, or ORIGIN; those that it has a row with; their weights


def separation_of(
    turned: np.ndarray, weights: np.ndarray, margin: float, sides: list[np.ndarray], support: np.ndarray
) -> Separation:
    """The answer of ``turned``, the points times y, from their weights and margin; ``sides``: the points of either
    class, or of both together, nearest first."""
    windows = _tree(weights, sides, support) if len(sides) == 2 else _stars(ORIGIN, sides[0], weights)
    origin = np.zeros(turned.shape[1])
    tokens = [np.vstack([origin if first == ORIGIN else turned[first], -turned[rows]]) for first, rows, _ in windows]
    asked = [np.full(len(window), float(len(sides))) for window in tokens]
    with np.errstate(over="ignore", under="ignore"):  # in extreme units
        flows = [np.append(0.0, flow) / (margin or 1.0) / (margin or 1.0) for _, _, flow in windows]
    known = flows if all(np.isfinite(flow).all() for flow in flows) else None
    data = cross_attention(tokens, np.ones((len(tokens), 1)))
    return solve_svm(data, np.zeros(len(tokens), dtype=np.intp), margins=asked, warm_start=known)


def _stars(first: int, points: np.ndarray, weights: np.ndarray) -> list[Window]:
    parts = np.array_split(points, len(points) // WINDOW + 1)
    return [(first, part, weights[part]) for part in parts if len(part)]


def _tree(weights: np.ndarray, sides: list[np.ndarray], support: np.ndarray) -> list[Window]:
    """Pairs of support points whose weights add up to those of the points, one less than there are points: both
    classes laid along a line, each point as long as its weight, and a pair where two overlap.  The nearest come
    first, and are a pair; each other point stands beside the nearest of the other class."""
    held = [side[np.isin(side, np.append(support, side[0]))] for side in sides]
    ends = [np.cumsum(weights[some]) for some in held]
    cuts = np.union1d(*ends)
    one, other = (
        some[np.minimum(np.searchsorted(end, cuts), len(some) - 1)] for some, end in zip(held, ends, strict=True)
    )
    flow = np.diff(cuts, prepend=0.0)
    windows: list[Window] = [(int(i), other[one == i], flow[one == i]) for i in np.unique(one)]
    for side, some, opposite in zip(sides, held, sides[::-1], strict=True):
        windows += _stars(int(opposite[0]), np.setdiff1d(side, some), np.zeros_like(weights))
    return windows
