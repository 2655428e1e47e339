"""Whether two classes of points are linearly separable, with what margin, and the proof: the classical question.

With a free bias the rows are ``w . (x_i - x_j) >= 2`` over positive i and negative j: a window of attention each, whose
query is the number 1.  They are never all in memory: a working set of points is solved, and the points of either class
that lie farthest on the wrong side join it, until none does.  The answer's rows are then all pairs of its points, and
every other point beside one point of the other class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.data import Data
from ..attention.kinds import cross_attention
from ..common.check import as_floats, check_shapes
from ..common.result import Result
from .separation import Separation
from .solve import solve_svm
from .support import holding

__all__ = ["Plane", "separable"]

JOIN = 40  # points of each class that join the working set at once: twice as many or half take longer
NEAR = 1e-3  # how far above the lowest, which are 1 from the plane, a point of the working set may lie and stay
WINDOW = 1000  # points: one window of 100,000 is taken for one query's dense problem (76 s for 2)
SHOWN = 8  # support points that are printed
REACHED = 1e-9  # what a point may lie below them before the last solve


ORIGIN = -1  # stands for a point where one class alone has rows

Window = tuple[int, np.ndarray]  # a point, or ORIGIN, and those of the other class that it has a row with


@dataclass(repr=False, eq=False)
class Plane(Result):
    """The plane ``w . x + b = 0`` of largest margin between two classes of points, or that there is none.

    Attributes
    ----------
    status : str
        "optimal", "infeasible" or "undecided".
    separation : Separation
        The answer it rests on, whose rows are differences of points, with certificate and proof.
    w : (d,) array or None
        Normal of the plane: ``y (w . x + b) >= 1`` for every point, and 1 for the nearest; None where there is none.
    b : float
    margin, margin_bound : float
        The distance of the nearest points to the plane lies between; 0 where the classes are not separable.
    positive : (n,) bool array
        Which points are of the class where ``w . x + b > 0``.
    dual : (n,) array
        Multiplier of each point: ``w`` is their sum, ``sum dual y x``.  Where the classes are not separable, weights
        with which a mean of points of one class is one of the other: their hulls meet.
    support : integer array
        The points that hold the plane in place.
    message : str
        What the status means for the points.
    """

    separation: Separation
    b: float
    positive: np.ndarray
    dual: np.ndarray
    support: np.ndarray

    _derived = ("status", "message", "margin", "margin_bound", "w")
    _hidden = ("separation",)

    @property
    def data(self) -> Data:
        return self.separation.data

    @property
    def status(self) -> str:
        return self.separation.status

    @property
    def w(self) -> np.ndarray | Any:
        return None if self.separation.W is None else self.separation.W[:, 0]

    @property
    def margin(self) -> float:
        return self.separation.margin

    @property
    def margin_bound(self) -> float:
        return self.separation.margin_bound

    @property
    def message(self) -> str:
        if self.status == "optimal":
            return f"separable: no plane has a larger margin, to a relative {self.separation.gap:.1e}"
        if self.status != "infeasible":
            return "no separating plane was found, and no proof that there is none"
        one, other = (np.flatnonzero(side & (self.dual > 0)) for side in (self.positive, ~self.positive))
        if len(one) == len(other) == 1:
            return f"not separable: points {one[0]} and {other[0]} are equal, to rounding, and have different labels"
        return f"not separable: the hulls of {len(one)} positive and {len(other)} negative points meet (see dual)"

    def _check(self) -> None:
        check_shapes(vars(self), {"positive": "n", "dual": "n", "support": "k"})

    def _title(self) -> str:
        return f"Plane between {int(self.positive.sum())} and {int((~self.positive).sum())} points: {self.status}"

    def _lines(self) -> list[tuple[str, str]]:
        lines = [("", self.message)]
        if self.w is None:
            return lines
        lines.append(("margin", f"{self.margin:.12g} (at most {self.margin_bound:.12g})"))
        return [*lines, ("support", f"{len(self.support)} points: {str(self.support.tolist()[:SHOWN])[1:-1]}")]

    def columns(self) -> dict[str, Any]:
        points = np.arange(len(self.dual))
        return {"point": points, "positive": self.positive, "dual": self.dual, "support": np.isin(points, self.support)}


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
        With ``w``, ``b``, the ``margin`` and the support points.  Its status is "optimal" (separable), "infeasible"
        (not separable, by the multipliers) or "undecided" (within rounding).  ``separation`` is the answer that it
        rests on, and ``separation.prove(path)`` writes a proof.

    Raises
    ------
    ValueError, TypeError
        Labels that are not two.

    Notes
    -----
    The plane of ``sklearn.svm.SVC(kernel="linear", C=inf)``.  Source: Cortes and Vapnik, "Support-Vector Networks"
    (1995); the working set as in Joachims, "Making large-scale SVM learning practical" (1999).

    Examples
    --------
    >>> plane = attsvm.separable([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]], ["a", "a", "b"])
    >>> plane.status, plane.margin, plane.w, plane.b
    ('optimal', 1.0, array([1., 0.]), -2.0)
    >>> plane.support
    array([1, 2])
    """
    points = as_floats("X", X, "n, d")
    labels, which = np.unique(np.asarray(y), return_inverse=True)
    if np.asarray(y).shape != points.shape[:1]:
        raise ValueError(f"y must have shape (n,) = ({len(points)},), got {np.asarray(y).shape}")
    if len(labels) != 2:
        raise ValueError(f"y must hold two different labels, got {len(labels)}")
    positive = which == 1
    turned = np.where(positive[:, None], points, -points)  # which are to lie high along w
    sides = [np.flatnonzero(positive), np.flatnonzero(~positive)] if bias else [np.arange(len(points))]
    sol, windows = _grown(turned, sides)
    dual, held = np.zeros(len(points)), np.zeros(len(points), dtype=bool)
    holds = holding(sol)
    at = sol.data.indptr
    for q, (first, others) in enumerate(windows):
        rows = slice(at[q] + 1, at[q + 1])
        dual[others] += sol.flat_dual[rows]
        held[others] |= holds[rows]
        if first != ORIGIN:
            dual[first] += sol.flat_dual[rows].sum()
            held[first] |= holds[rows].any()
    b = 0.0
    if bias and sol.W is not None:
        heights = turned @ sol.W[:, 0]
        b = float(heights[sides[1]].min() - heights[sides[0]].min()) / 2
    return Plane(sol, b, positive, dual, np.flatnonzero(held))


def _grown(turned: np.ndarray, sides: list[np.ndarray]) -> tuple[Separation, list[Window]]:
    """Solved for a working set that grows.  The lowest heights of the two classes add up to 2; or that of all points
    is 1."""
    heights = turned @ sum((turned[side].mean(axis=0) for side in sides), np.zeros(turned.shape[1]))
    working = [_lowest(heights, side) for side in sides]
    while True:
        sol, windows = _solve(turned, working, [side[:0] for side in sides])
        if sol.W is None or sol.status != "optimal":
            return sol, windows
        heights = turned @ sol.W[:, 0]
        known = [heights[some].min() for some in working]
        lower = [_lowest(heights, side) for side in sides]
        joining = [some[heights[some] < low - REACHED] for some, low in zip(lower, known, strict=True)]
        if not sum(map(len, joining)):
            working = [some[np.argsort(heights[some])] for some in working]
            return _solve(turned, working, [np.setdiff1d(*both) for both in zip(sides, working, strict=True)])
        staying = [some[heights[some] < low + NEAR] for some, low in zip(working, known, strict=True)]
        working = [np.union1d(*both) for both in zip(staying, joining, strict=True)]


def _lowest(heights: np.ndarray, side: np.ndarray) -> np.ndarray:
    few = min(JOIN, len(side))
    return side[np.argpartition(heights[side], few - 1)[:few]]


def _solve(turned: np.ndarray, working: list[np.ndarray], others: list[np.ndarray]) -> tuple[Separation, list[Window]]:
    """The SVM of all pairs of these points, one of either class, and of each other beside the first of the other class;
    where there is one, of these points and others.  And the points of its windows."""
    if len(working) == 1:
        parts = [working[0], *np.array_split(others[0], len(others[0]) // WINDOW + 1)]
        windows: list[Window] = [(ORIGIN, part) for part in parts if len(part)]
    else:
        windows = [(int(one), working[1]) for one in working[0]]
        windows[0] = windows[0][0], np.concatenate([working[1], others[1]])
        if len(others[0]):
            windows.append((int(working[1][0]), others[0]))
    zero = np.zeros(turned.shape[1])
    tokens = [np.vstack([zero if first == ORIGIN else turned[first], -turned[rows]]) for first, rows in windows]
    data = cross_attention(tokens, np.ones((len(tokens), 1)))
    margins = [np.full(len(window), float(len(working))) for window in tokens]
    return solve_svm(data, np.zeros(len(tokens), dtype=np.intp), margins=margins), windows
