"""Whether two classes of points are linearly separable, with what margin, and the proof: the hard-margin SVM.

The dual has one multiplier a point and, for a free bias, the equation ``sum dual y = 0``.  The solver knows no free
coordinate: the bias is one more coordinate of every point, whose price is moved to where the bias is, until it moves no
more (the proximal point method).  The certificate is that of the points themselves: the margin of w and b, and half
the distance of the two means that the multipliers make.  Pairs of points are rows for the exact proof alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.kinds import cross_attention
from ..common.check import as_floats, check_shapes
from ..common.result import Result
from .influence import Influence, turn_between
from .separation import Separation
from .solve import solve_svm
from .support import ROUNDED

__all__ = ["Plane", "separable"]

LIFT = (
    3.0  # the bias coordinate, of the farthest point: 10 is a third of the steps, and a certificate 3 times as coarse
)
SETTLED = 1e-12  # of a margin: a step of the bias
INSEPARABLE = 4e-9  # of the farthest point: 1e-9 of a lifted row, sqrt(10) long, and what balancing the classes adds
TOL, ROUNDINGS = 1e-9, 100  # the relative gap that is promised: of solve_svm, or this many of a height's roundings
UNIT = np.finfo(np.float64).eps / 2
WINDOW = 1000  # points: one window of 100,000 is taken for one query's dense problem (76 s for 2)
SHOWN = 8  # support points that are printed


@dataclass(repr=False, eq=False)
class Plane(Result):
    """The plane ``w . x + b = 0`` of largest margin between two classes of points, or that there is none.

    Attributes
    ----------
    status : str
        "optimal" (separable), "infeasible" (not separable), "iteration limit" (separable, and the solver stopped before
        its tolerance) or "undecided" (within rounding).
    points : (n, d) array
        X.
    labels : (2,) array
        Those of the negative and of the positive class.
    positive : (n,) bool array
        Which points are of the class where ``w . x + b > 0``.
    w : (d,) array or None
        Normal of the plane: ``y (w . x + b) >= 1`` for every point, and 1 for the nearest; None where there is none.
    b : float
    bias : bool
        Whether b was free.
    margin, margin_bound : float
        The distance of the nearest points to the largest plane lies between, rounding included: the first is that of
        w and b, the second follows from the multipliers.  The margin is 0 where no plane was found.
    dual : (n,) array
        Multiplier of each point: ``w`` is their sum, ``sum dual y x``.  Where the classes are not separable, weights
        with which a mean of points of one class is one of the other: their hulls meet.
    support : integer array
        The points that hold the plane in place, or that show that there is none.
    message : str
        What the status means for the points.
    """

    points: np.ndarray
    labels: np.ndarray
    positive: np.ndarray
    w: np.ndarray | Any
    b: float
    bias: bool
    margin: float
    margin_bound: float
    dual: np.ndarray
    support: np.ndarray
    status: str

    _derived = ("message",)
    _hidden = ("points",)

    @cached_property
    def separation(self) -> Separation:
        """The same answer over differences of points, whose ``prove(path)`` writes an exact proof.

        Its rows are a tree of pairs of support points, which carries the multipliers, and every other point beside the
        nearest of the other class.  Solved when first asked for.
        """
        turned = _turned(self.points, self.positive)
        lows = [side[np.argsort(self._heights[side])] for side in _sides(self.positive)]
        tokens, flows = [], []
        for first, rows, flow in _tree(self.dual, lows, self.support) if self.bias else _alone(self.dual):
            origin = np.zeros(turned.shape[1]) if first is None else turned[first]
            tokens.append(np.vstack([origin, -turned[rows]]))
            flows.append(np.append(0.0, flow))
        asked = [np.full(len(window), 2.0 if self.bias else 1.0) for window in tokens]
        data = cross_attention(tokens, np.ones((len(tokens), 1)))
        return solve_svm(data, np.zeros(len(tokens), dtype=np.intp), margins=asked, warm_start=flows)

    @property
    def _heights(self) -> np.ndarray:
        """``y (w . x + b)``: that of the nearest points is 1; zero without a plane."""
        if self.w is None:
            return np.zeros(len(self.points))
        return np.where(self.positive, 1.0, -1.0) * (self.points @ self.w + self.b)

    @property
    def message(self) -> str:
        if self.status == "optimal":
            return f"separable: no plane has a larger margin, to a relative {self.margin_bound / self.margin - 1:.1e}"
        if self.status == "iteration limit":
            return f"separable, but the largest margin is known only to be at most {self.margin_bound:.6g}"
        if self.status != "infeasible":
            return "no separating plane was found, and no proof that there is none"
        if not self.bias:
            return f"not separable through the origin: it is a mean of {len(self.support)} points, y times x (see dual)"
        one, other = (self.support[self.positive[self.support] == side] for side in (True, False))
        if len(one) == len(other) == 1:
            return f"not separable: points {one[0]} and {other[0]} are equal, to rounding, and have different labels"
        return f"not separable: the hulls of {len(one)} positive and {len(other)} negative points meet (see dual)"

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """``w . x + b`` of new points, positive for the class of ``labels[1]``.

        Parameters
        ----------
        X : (m, d) array_like or sparse matrix

        Returns
        -------
        (m,) array

        Raises
        ------
        ValueError
            Where there is no plane.
        """
        if self.w is None:
            raise ValueError(f"decision_function needs a plane, and there is none: {self.message}")
        return as_floats("X", _dense(X), "m, d", (None, len(self.w))) @ self.w + self.b

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The label of each new point; parameters and errors as in :meth:`decision_function`."""
        return self.labels[(self.decision_function(X) > 0).astype(np.intp)]

    def influence(self) -> PointInfluence:
        """What each point did: its multiplier, and the plane without it.

        Only support points take a solve, from the multipliers of the others: without any other the plane is the same.

        Returns
        -------
        Influence
            ``multiplier``, ``turn`` (1 - correlation of w with that without the point) and ``margin`` without it, one a
            point; ``to_dataframe()``.

        Raises
        ------
        ValueError
            Where there is no plane.

        Examples
        --------
        >>> attsvm.separable([[0.0], [1.0], [3.0]], [0, 0, 1]).influence().margin.round(6).tolist()
        [1.0, 1.5, inf]
        """
        if self.status != "optimal":
            raise ValueError(f"influence is that on an optimal plane, got one that is {self.status!r}: {self.message}")
        n = len(self.points)
        turn, margin, solved = np.zeros(n), np.full(n, self.margin), np.isin(np.arange(n), self.support)
        unfinished = []
        for i in self.support.tolist():
            rest = np.arange(n) != i
            if len(np.unique(self.positive[rest])) < (2 if self.bias else 1):
                turn[i], margin[i] = np.nan, np.inf
                continue
            plane = _plane(self.points[rest], self.labels, self.positive[rest], self.bias, self.dual[rest])
            turn[i], margin[i] = turn_between(self.w, plane.w), plane.margin
            if plane.status != "optimal":
                unfinished.append(i)
        return PointInfluence(self, self.dual, turn, margin, 0.5 / margin**2, solved, unfinished)

    def _check(self) -> None:
        check_shapes(vars(self), {"points": "n, d", "labels": "k", "positive": "n", "dual": "n", "support": "s"})

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


class PointInfluence(Influence):
    """That of points on a plane."""

    _unit, _holds, _answer = "point", "are support points", "a plane"


def separable(X: ArrayLike, y: ArrayLike, bias: bool = True, *, progress: bool = False) -> Plane:
    """Whether two classes of points are linearly separable, and the hard-margin SVM, with certificate and proof.

    Parameters
    ----------
    X : (n, d) array_like or sparse matrix
        Points; a sparse matrix of SciPy is made dense.
    y : (n,) array_like
        Any two labels; the larger one is the positive class.
    bias : bool
        Whether the plane may pass beside the origin.
    progress : bool
        As in :func:`attsvm.solve_svm`.

    Returns
    -------
    Plane
        With ``w``, ``b``, the ``margin`` and the support points; ``predict(X)``, ``influence()`` and ``plot()``.  Its
        status is "optimal" (separable), "infeasible" (not separable, by the multipliers) or "undecided" (within
        rounding).  ``separation.prove(path)`` writes a proof.

    Raises
    ------
    ValueError, TypeError
        Labels that are not two, or NaN.

    See Also
    --------
    attsvm.sklearn.HardMarginClassifier : the same as an estimator of scikit-learn.

    Notes
    -----
    The hard-margin SVM ``min ||w||  s.t.  y (w . x + b) >= 1``: what ``sklearn.svm.SVC(kernel="linear", C=inf)`` stands
    for.  Source: Cortes and Vapnik, "Support-Vector Networks" (1995); the proximal point method is that of Rockafellar,
    "Monotone Operators and the Proximal Point Algorithm" (1976).  Of fewer points than coordinates the problem is
    solved in the points' span.

    Examples
    --------
    >>> plane = attsvm.separable([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]], ["a", "a", "b"])
    >>> plane.status, round(plane.margin, 9), plane.w.round(9).tolist(), round(plane.b, 9)
    ('optimal', 1.0, [1.0, 0.0], -2.0)
    >>> plane.support, plane.predict([[1.5, 0.0], [2.5, 0.0]]).tolist()
    (array([1, 2]), ['a', 'b'])
    """
    points, classes = as_floats("X", _dense(X), "n, d"), np.asarray(y)
    if classes.shape != points.shape[:1]:
        raise ValueError(f"y must have shape (n,) = ({len(points)},), got {classes.shape}")
    if (missing := np.flatnonzero(classes != classes)).size:
        raise ValueError(f"y must hold two different labels, got NaN for point {missing[0]}")
    labels, which = np.unique(classes, return_inverse=True)
    if len(labels) != 2:
        raise ValueError(f"y must hold two different labels, got {len(labels)}")
    return _plane(points, np.array(labels.tolist()), which == 1, bool(bias), progress=progress)


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X


def _turned(points: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """``y x``: which are to lie high along w."""
    return np.where(positive[:, None], points, -points)


def _sides(positive: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(positive), np.flatnonzero(~positive)]


def _plane(
    points: np.ndarray,
    labels: np.ndarray,
    positive: np.ndarray,
    bias: bool,
    start: np.ndarray | None = None,
    progress: bool = False,
) -> Plane:
    """Solved, and certified by the points as they came."""
    centre = points.mean(axis=0) if bias else np.zeros(points.shape[1])
    moved = points - centre
    spread = float(np.linalg.norm(moved, axis=1).max()) or 1.0
    w, dual = _solve(moved, positive, spread if bias else 0.0, start, progress)
    sides = _sides(positive)
    if bias:  # the multipliers of either class have one sum
        for side in sides:
            dual[side] /= 2 * dual[side].sum() or 1.0
    else:
        dual /= dual.sum() or 1.0
    turned = _turned(points, positive)
    length = float(np.linalg.norm(points, axis=1).max())
    bound = float(np.linalg.norm(dual @ turned)) + (np.count_nonzero(dual) + 4) * UNIT * length
    if dual.sum() < 0.9:  # a class without multipliers: no bound
        bound = np.inf
    margin = 0.0
    if w is not None:
        heights = turned @ w
        lows = [heights[side].min() for side in sides] if bias else [heights.min()]
        scale, b = float(np.mean(lows)), float(lows[-1] - lows[0]) / 2
        margin = scale / np.linalg.norm(w) - (len(w) + 4) * UNIT * (length + abs(b) / np.linalg.norm(w))
    if w is None or margin <= 0:
        status = "infeasible" if bound <= INSEPARABLE * spread else "undecided"
        held = dual > ROUNDED * dual.max()
        return Plane(points, labels, positive, None, 0.0, bias, 0.0, bound, 2 * dual, np.flatnonzero(held), status)
    w, b, heights = w / scale, b / scale, (heights + np.where(positive, b, -b)) / scale
    held = (dual > ROUNDED * dual.max()) & (dual > (heights - 1) * dual.max())
    rounding = (ROUNDINGS + len(w) + np.count_nonzero(dual)) * 2 * UNIT * length / margin
    status = "optimal" if bound / margin - 1 <= max(TOL, rounding) else "iteration limit"
    dual *= w @ w
    return Plane(points, labels, positive, w, b, bias, float(margin), bound, dual, np.flatnonzero(held), status)


def _solve(
    points: np.ndarray, positive: np.ndarray, spread: float, start: np.ndarray | None, progress: bool
) -> tuple[np.ndarray | None, np.ndarray]:
    """Normal, or None, and multipliers; ``spread`` is 0 without a bias."""
    basis, n = None, len(points)
    if n < points.shape[1]:
        basis, coordinates = np.linalg.qr(points.T)
        points = coordinates.T
    if spread:
        points = np.column_stack([points, np.full(n, LIFT * spread)])
    turned, signs = _turned(points, positive), np.where(positive, 1.0, -1.0)
    parts = np.array_split(np.arange(n), n // WINDOW + 1)
    zero = np.zeros(points.shape[1])
    data = cross_attention([np.vstack([zero, -turned[part]]) for part in parts], np.ones((len(parts), 1)))
    first = np.zeros(len(parts), dtype=np.intp)
    warm: Any = None if start is None else [np.append(0.0, start[part]) for part in parts]
    b, last = 0.0, np.inf
    while True:
        asked = [np.append(0.0, 1 - b * signs[part]) for part in parts]
        warm = solve_svm(data, first, margins=asked, warm_start=warm, progress=progress)
        w = None if warm.W is None else warm.W[:, 0]
        step = 0.0 if w is None or not spread else abs(w[-1]) * LIFT * spread
        if step <= SETTLED or step >= last / 2:
            break
        b, last = b + w[-1] * LIFT * spread, step
    dual = np.delete(warm.flat_dual, data.indptr[:-1])
    if w is not None and spread:
        w = w[:-1]
    return w if w is None or basis is None else basis @ w, np.maximum(dual, 0.0)


Window = tuple[int | None, np.ndarray, np.ndarray]  # a point, or the origin; points that it has a row with; multipliers


def _alone(dual: np.ndarray) -> list[Window]:
    parts = np.array_split(np.arange(len(dual)), len(dual) // WINDOW + 1)
    return [(None, part, dual[part]) for part in parts]


def _tree(dual: np.ndarray, lows: list[np.ndarray], support: np.ndarray) -> list[Window]:
    """Pairs of a positive and a negative support point whose multipliers add up to those of the points: both classes
    laid along one line, each point as long as its multiplier, and a pair where two overlap.  The nearest come first, so
    that the nearest two are a pair; each other point stands beside the nearest of the other class."""
    held = [np.union1d(low[:1], low[np.isin(low, support)]) for low in lows]
    held = [low[np.isin(low, some)] for low, some in zip(lows, held, strict=True)]  # in order of height
    ends = [np.cumsum(dual[some]) for some in held]
    cuts = np.union1d(*ends)
    at = [some[np.minimum(np.searchsorted(end, cuts), len(some) - 1)] for some, end in zip(held, ends, strict=True)]
    flow = np.diff(cuts, prepend=0.0)
    windows: list[Window] = [(int(i), at[1][at[0] == i], flow[at[0] == i]) for i in np.unique(at[0])]
    for low, some, other in zip(lows, held, lows[::-1], strict=True):
        rest = np.setdiff1d(low, some)
        parts = np.array_split(rest, len(rest) // WINDOW + 1)
        windows += [(int(other[0]), part, np.zeros(len(part))) for part in parts if len(part)]
    return windows
