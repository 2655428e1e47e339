"""Whether two classes of points are linearly separable, with what margin, and the proof: the classical question.

With a free bias the rows are ``w . (x_i - x_j) >= 2`` over positive i and negative j: a window of attention each, whose
query is the number 1.  They are never all in memory: a working set of points is solved, and the points of either class
that lie farthest on the wrong side join it, until none does.  The answer's rows are then all pairs of its points, and
every other point beside one point of the other class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.kinds import cross_attention
from ..common.check import as_floats
from .separation import Separation
from .solve import solve_svm

__all__ = ["Plane", "separable"]

JOIN = 40  # points of each class that join the working set at once: twice as many or half take longer
NEAR = 1e-3  # how far above the lowest, which are 1 from the plane, a point of the working set may lie and stay
WINDOW = 1000  # points: one window of 100,000 is taken for one query's dense problem (76 s for 2)
REACHED = 1e-9  # what a point may lie below them before the last solve


class Plane(Separation):
    """The plane ``w . x + b = 0`` between two classes of points: a :class:`Separation` of their rows.

    Attributes
    ----------
    margin : float
        Distance of the nearest points to the plane; 0 where the classes are not separable.
    w : (d,) array or None
        Normal of the plane: ``y (w . x + b) >= 1`` for every point, and 1 for the nearest; None where there is none.
    b : float
    """

    b = 0.0

    @classmethod
    def of(cls, sol: Separation) -> Plane:
        """The answer for what it is, a plane."""
        plane = cls.__new__(cls)
        vars(plane).update(vars(sol))
        return plane

    @property
    def w(self) -> np.ndarray | Any:
        return None if self.W is None else self.W[:, 0]

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"b": self.b}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Plane:
        b = state.pop("b")
        found = super()._from_state(state)
        assert isinstance(found, Plane)
        found.b = b
        return found


def separable(X: ArrayLike, y: ArrayLike, bias: bool = True) -> Plane:
    """Whether a plane separates two classes of points, and the one of largest margin, with certificate and proof.

    Parameters
    ----------
    X : (n, d) array_like
        Points.
    y : (n,) array_like
        Any two labels; the larger one is the positive class.
    bias : bool
        Whether the plane may pass beside the origin.

    Returns
    -------
    Plane
        A :class:`Separation` with ``w``, ``b`` and, as ``margin``, the distance of the nearest points to the plane.
        Its status is "optimal" (separable), "infeasible" (not separable, by the certificate) or "undecided" (within
        rounding).  ``prove`` writes a proof of it.

    Raises
    ------
    ValueError, TypeError
        Naming the argument; not two labels.

    Notes
    -----
    The plane of ``sklearn.svm.SVC(kernel="linear", C=inf)``.  Source: Cortes and Vapnik, "Support-Vector Networks"
    (1995); the working set as in Joachims, "Making large-scale SVM learning practical" (1999).

    Examples
    --------
    >>> import attsvm
    >>> plane = attsvm.separable([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]], ["a", "a", "b"])
    >>> plane.status, plane.margin, plane.w, plane.b
    ('optimal', 1.0, array([1., 0.]), -2.0)
    """
    points = as_floats("X", X, "n, d")
    labels, which = np.unique(np.asarray(y), return_inverse=True)
    if np.asarray(y).shape != points.shape[:1]:
        raise ValueError(f"y must have shape (n,) = ({len(points)},), got {np.asarray(y).shape}")
    if len(labels) != 2:
        raise ValueError(f"y must hold two different labels, got {len(labels)}")
    sides = [points[which == 1], -points[which == 0]] if bias else [np.where(which[:, None] == 1, points, -points)]
    plane = _grown(sides)
    if bias and plane.w is not None:
        plane.b = float((sides[1] @ plane.w).min() - (sides[0] @ plane.w).min()) / 2
    return plane


def _grown(sides: list[np.ndarray]) -> Plane:
    """Solved for a working set that grows.  The sides are to lie high along w: the points of one class and those of the
    other turned around, whose lowest heights add up to 2; or all points turned so, whose lowest height is 1."""
    direction = sum((side.mean(axis=0) for side in sides), np.zeros(sides[0].shape[1]))
    working = [_lowest(side @ direction) for side in sides]
    while True:
        sol = _solve([side[some] for side, some in zip(sides, working, strict=True)])
        if sol.W is None or sol.status != "optimal":
            return Plane.of(sol)
        heights = [side @ sol.W[:, 0] for side in sides]
        known = [height[some].min() for height, some in zip(heights, working, strict=True)]
        lower = [_lowest(height) for height in heights]
        joining = [some[height[some] < low - REACHED] for some, height, low in zip(lower, heights, known, strict=True)]
        if not sum(map(len, joining)):
            return Plane.of(_solve(*_whole(sides, heights, working)))
        staying = [some[height[some] < low + NEAR] for some, height, low in zip(working, heights, known, strict=True)]
        working = [np.union1d(*both) for both in zip(staying, joining, strict=True)]


def _lowest(heights: np.ndarray) -> np.ndarray:
    few = min(JOIN, len(heights))
    return np.argpartition(heights, few - 1)[:few]


def _whole(
    sides: list[np.ndarray], heights: list[np.ndarray], working: list[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The working set, the lowest first, and all other points of the sides."""
    ordered = [some[np.argsort(height[some])] for some, height in zip(working, heights, strict=True)]
    return [side[some] for side, some in zip(sides, ordered, strict=True)], [
        np.delete(side, some, axis=0) for side, some in zip(sides, ordered, strict=True)
    ]


def _solve(working: list[np.ndarray], others: list[np.ndarray] | None = None) -> Separation:
    """The SVM of all pairs of these points, one of either side, and of each other beside the first of the other side;
    where there is one side, of these points and others."""
    d, others = working[0].shape[1], others or [np.empty((0, working[0].shape[1]))] * len(working)
    if len(working) == 1:
        parts = [working[0], *np.array_split(others[0], len(others[0]) // WINDOW + 1)]
        windows = [np.concatenate([np.zeros((1, d)), -part]) for part in parts if len(part)]
    else:
        windows = [np.concatenate([one[None], -working[1]]) for one in working[0]]
        windows[0] = np.concatenate([windows[0], -others[1]])
        if len(others[0]):
            windows.append(np.concatenate([working[1][:1], -others[0]]))
    data = cross_attention(windows, np.ones((len(windows), 1)))
    margins = [np.full(len(window), float(len(working))) for window in windows]
    return solve_svm(data, np.zeros(len(windows), dtype=np.intp), margins=margins)
