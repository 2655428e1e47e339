"""Linear separability of two classes of points: the hard-margin SVM, with its margin and a certificate.

The dual has one multiplier per point and, for a free bias, the equation ``sum dual y = 0``.  The solver has no free
variables, so the bias is solved for by the proximal point method: it becomes one more coordinate of every point, and
its penalty is centred at the last bias until the bias no longer moves.  The certificate is computed from the points:
the margin of w and b, and half the distance between the two means that the multipliers define.  Rows that are pairs of
points are used for the exact proof alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.data import Data
from ..attention.kinds import cross_attention
from ..common.check import as_flag, as_floats, check_shapes
from ..common.result import Lines, Result
from .influence import Influence, turn_between
from .separation import Separation
from .solve import solve_svm
from .support import ROUNDED

# Largest number of points in one window: the solver treats one window of 100,000 points as one dense problem.
WINDOW = 1000
ORIGIN = -1  # first number of a pair that compares a point with the origin, not with another point
# Tolerance of the solves in which the bias is a coordinate of the points.
# With the tolerance 1e-9, the plane of the standardised breast cancer data had a gap of 3e-9.
FINE = 1e-11
SETTLED = 1e-12  # stop when the bias b changes by less than this, in units in which w . x + b = 1 at the nearest points
# Not separable: half the distance of the two classes' weighted means is below this fraction of the data's radius.
# The solve has an error of 1e-9; balancing the multipliers of the classes adds another 1e-9.
INSEPARABLE = 2e-9
# a plane is optimal if its relative gap is at most TOL, or at most about ROUNDINGS rounding errors of w . x + b
TOL, ROUNDINGS = 1e-9, 100
UNIT = float(np.finfo(np.float64).eps) / 2  # unit roundoff
SHOWN = 8  # largest number of support points that are printed


@dataclass(repr=False, eq=False)
class Plane(Result):
    """The plane ``w . x + b = 0`` of largest margin between two classes of points, or the certificate that there is
    none.

    Attributes
    ----------
    status : str
        "optimal" (separable), "infeasible" (not separable, or only by a margin below ``margin_bound``, which rounding
        hides), "iteration limit" (separable, and the solver stopped before its tolerance) or "undecided" (within
        rounding).
    points : (n, d) array
        X.
    labels : (2,) array
        Those of the negative and of the positive class.
    positive : (n,) bool array
        Which points belong to the positive class, where ``w . x + b > 0``.
    w : (d,) array or None
        Normal of the plane: ``y (w . x + b) >= 1`` for every point, and 1 for the nearest; None where there is none.
    b : float
    bias : bool
        Whether b was free.
    margin, margin_bound : float
        The largest distance that a plane can have from its nearest points lies between the two, rounding included.  The
        first is reached by w and b, the second is proved by the multipliers.  The margin is 0 if no plane was found.
    weights : (n,) array
        The weight of each point in a mean of its class, times 1/2.  The two means are the nearest points of the two
        convex hulls; half their distance is the bound.  If the classes are not separable the means are equal, to
        rounding.  Without a bias: the weights of all ``y x`` in their mean nearest to the origin.
    dual : (n,) array
        The multiplier of each point, ``weights / margin^2``; ``w = sum dual y x``.  If there is no plane: the weights.
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
    weights: np.ndarray
    support: np.ndarray
    status: str

    _derived = ("message", "dual")
    _hidden = ("points",)
    norm_name = "hard-margin"

    @cached_property
    def separation(self) -> Separation:
        """This plane as the answer of an attention SVM over differences of points, whose ``prove(path)`` proves it.

        Its rows are pairs of a positive and a negative point.  The pairs of support points form a tree and carry the
        multipliers; every other point is paired with the nearest point of the other class.  Without a bias a row is a
        single point.  Computed on first access.
        """
        turned = np.where(self.positive[:, None], self.points, -self.points)
        w = np.zeros(turned.shape[1]) if self.w is None else self.w
        return _pairs(turned, _sides(self.positive, self.bias), w, self.weights, self.support)[-1]

    @property
    def dual(self) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):  # in extreme units
            return self.weights if self.w is None else self.weights / self.margin / self.margin

    @property
    def data(self) -> Data:
        return self.separation.data

    @property
    def message(self) -> str:
        if self.status == "optimal":
            return f"separable: no plane has a larger margin, to a relative {self.margin_bound / self.margin - 1:.1e}"
        if self.status == "iteration limit":
            return f"separable, but the largest margin is known only to be at most {self.margin_bound:.6g}"
        if self.status != "infeasible":
            return "no separating plane was found, and no proof that there is none"
        # a tenth more, since the digits shown may be rounded down
        hidden = f"not separable by a margin above {1.1 * self.margin_bound:.1e}"
        if not self.bias:
            return (
                f"{hidden} through the origin: a mean of {len(self.support)} points, y times x, is that near (see dual)"
            )
        one, other = (self.support[self.positive[self.support] == side] for side in (True, False))
        if len(one) == len(other) == 1:
            return f"{hidden}: points {one[0]} and {other[0]} are equal, to twice that, and have different labels"
        return f"{hidden}: hulls of {len(one)} positive and {len(other)} negative points meet, to twice that (see dual)"

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
        """The label of each new point.  Parameters and errors are those of :meth:`decision_function`."""
        return self.labels[(self.decision_function(X) > 0).astype(np.intp)]

    def influence(self) -> Influence:
        """The influence of each point on this plane: its multiplier, and the plane without the point.

        Without a point that is no support point the plane is the same; without a support point it is solved again,
        warm-started from the multipliers of the others.

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
            plane = _plane(self.points[rest], self.labels, self.positive[rest], self.bias, self.weights[rest])
            turn[i], margin[i] = turn_between(self.w, plane.w), plane.margin
            if plane.status != "optimal":
                unfinished.append(i)
        with np.errstate(over="ignore"):
            objective = 0.5 / margin / margin
        return Influence(self, self.dual, turn, margin, objective, solved, unfinished, "point")

    def _check(self) -> None:
        check_shapes(vars(self), {"points": "n, d", "labels": "k", "positive": "n", "weights": "n", "support": "s"})

    def _title(self) -> str:
        return f"Plane between {self.positive.sum()} and {(~self.positive).sum()} points: {self.status}"

    def _lines(self) -> Lines:
        lines = [("", self.message)]
        if self.w is not None:
            lines.append(("margin", f"{self.margin:.12g} (at most {self.margin_bound:.12g})"))
            lines.append(("support", f"{len(self.support)} points: {str(self.support.tolist()[:SHOWN])[1:-1]}"))
        return lines

    def columns(self) -> dict[str, Any]:
        points = np.arange(len(self.dual))
        return {"point": points, "positive": self.positive, "dual": self.dual, "support": np.isin(points, self.support)}


def separable(X: ArrayLike, y: ArrayLike, bias: bool = True, *, progress: bool | None = None) -> Plane:
    """The plane of largest margin between two classes of points, or a certificate that no plane separates them.

    Parameters
    ----------
    X : (n, d) array_like or sparse matrix
        Points; a sparse matrix of SciPy is made dense.
    y : (n,) array_like
        Any two labels; the larger one is the positive class.
    bias : bool
        Whether the plane has a bias b; without one it passes through the origin.
    progress : bool, optional
        As in :func:`attsvm.solve_svm`.

    Returns
    -------
    Plane
        With ``w``, ``b``, the ``margin`` and the support points; ``predict(X)``, ``influence()`` and ``plot()``.  Its
        status is "optimal" (separable), "infeasible" (not separable, by the multipliers, or only by a margin that
        rounding hides) or "undecided" (within rounding).  ``separation.prove(path)`` writes a proof.

    Raises
    ------
    ValueError, TypeError
        If the labels are not two, hold NaN, or cannot be ordered.

    See Also
    --------
    attsvm.sklearn.HardMarginClassifier : the same as an estimator of scikit-learn.

    Notes
    -----
    The hard margin SVM ``min ||w||  s.t.  y (w . x + b) >= 1``, which ``SVC(C=inf)`` of scikit-learn stands for with
    ``kernel="linear"``.  Of fewer points than coordinates the problem is solved in the points' span.  Source: Cortes
    and Vapnik, "Support-Vector Networks" (1995); the proximal point method is that of Rockafellar, "Monotone Operators
    and the Proximal Point Algorithm" (1976).

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
    try:
        labels, which = np.unique(classes, return_inverse=True)
    except TypeError as error:  # the types of the labels have no common order, such as None among words
        kinds = ", ".join(sorted({type(label).__name__ for label in classes.tolist()}))
        raise TypeError(f"y must hold labels that can be ordered, got {kinds}") from error
    if len(labels) != 2:
        raise ValueError(f"y must hold two different labels, got {len(labels)}")
    return _plane(points, np.array(labels.tolist()), which == 1, as_flag("bias", bias), progress=progress)


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X


def _sides(positive: np.ndarray, bias: bool) -> list[np.ndarray]:
    """The indices of the points of each class, as a list of two arrays; without a bias, one array of all points."""
    return [np.flatnonzero(positive), np.flatnonzero(~positive)] if bias else [np.arange(len(positive))]


def _plane(
    points: np.ndarray,
    labels: np.ndarray,
    positive: np.ndarray,
    bias: bool,
    start: np.ndarray | None = None,
    progress: bool | None = None,
) -> Plane:
    """Solves for the plane of largest margin between two classes, and certifies it from the points as they were given.

    ``start`` are the weights of a similar plane.  Coordinates are divided by a power of two, since their squares may
    leave double precision.
    """
    unit = float(2.0 ** np.floor(np.log2(np.abs(points).max() or 1.0)))
    X = points / unit
    moved = X - X.mean(axis=0) if bias else X
    spread = float(np.linalg.norm(moved, axis=1).max()) or 1.0
    signs = np.where(positive, 1.0, -1.0)
    w, weights = _solve(moved, signs, spread if bias else 0.0, start, progress)
    sides, bound, status = _sides(positive, bias), INSEPARABLE * spread, "undecided"
    # points times their labels y = +-1: a separating plane has ``w . y x`` positive for all of them
    turned, length = signs[:, None] * X, float(np.linalg.norm(X, axis=1).max())
    while True:
        for side in sides:  # scale the multipliers of each class, so that both classes have the same sum of multipliers
            weights[side] /= len(sides) * weights[side].sum() or 1.0
        used, last = np.count_nonzero(weights), bound
        # without multipliers in a class there is no proved bound of the margin
        bound = float(np.linalg.norm(weights @ turned)) + (used + 4) * UNIT * length if weights.sum() > 0.9 else np.inf
        held = weights > ROUNDED * weights.max()
        heights, size = turned @ w, float(np.linalg.norm(w)) or 1.0
        lows = [float(heights[side].min()) for side in sides]
        scale, b = sum(lows) / len(lows), (lows[-1] - lows[0]) / 2
        margin = scale / size - (len(w) + 4) * UNIT * (length + abs(b) / size)
        if margin > 0:
            excess = (heights + b * signs) / scale - 1
            held &= weights > excess * weights.max()
            rounding = (ROUNDINGS + len(w) + used) * 2 * UNIT * length / margin
            status = "optimal" if bound / margin - 1 <= max(TOL, rounding) else "iteration limit"
            w, b, margin = w / scale / unit, b / scale, margin * unit
            break
        if status == "infeasible" or bound > last * (1 - TOL):
            w, b, margin = None, 0.0, 0.0
            break
        # A far point makes the bias coordinate long, which hides that the classes are apart; in pairs there is none.
        # Pairs that are left out may need another round.
        *ends, pairs = _pairs(turned, sides, w, weights, np.flatnonzero(held), progress)
        status = "infeasible" if pairs.status == "infeasible" else "undecided"
        w, weights = np.zeros_like(w) if pairs.W is None else pairs.W[:, 0], np.zeros(len(X) + 1)
        for end in ends:
            np.add.at(weights, end, np.delete(pairs.flat_dual, pairs.data._begin))
        weights = weights[:-1]  # without that of ORIGIN
    return Plane(points, labels, positive, w, b, bias, margin, bound * unit, weights, np.flatnonzero(held), status)


def _solve(
    points: np.ndarray, signs: np.ndarray, spread: float, known: np.ndarray | None, progress: bool | None
) -> tuple[Any, np.ndarray]:
    """Solves the hard-margin SVM of points whose labels +-1 are ``signs``.  Returns the normal w of the plane (zero if
    there is no plane); and the multiplier of each point.

    ``spread`` is the bias coordinate of every point, 0 without a bias.  It is as long as the farthest point: a longer
    one saves few steps and makes the certificate coarser.
    """
    basis, n = None, len(points)
    if n < points.shape[1]:
        basis, coordinates = np.linalg.qr(points.T)
        points = coordinates.T
    if spread:
        points = np.column_stack([points, np.full(n, spread)])
    data = _attention(signs[:, None] * points, np.full(n, ORIGIN), np.arange(n))
    b, last = 0.0, np.inf
    while True:
        sol = _solve_pairs(data, 1 - b * signs, known, tol=FINE, progress=progress)
        known = np.maximum(np.delete(sol.flat_dual, data._begin), 0.0)
        w = np.zeros(data.dk) if sol.W is None else sol.W[:, 0]
        step = w[-1] * spread
        if abs(step) <= SETTLED or abs(step) >= last / 2:
            break
        b, last = b + step, abs(step)
    w = w[:-1] if spread else w
    return w if basis is None else basis @ w, known


# ------------------------------------------------------------------- pairs of points as rows of an attention SVM


def _attention(turned: np.ndarray, first: np.ndarray, other: np.ndarray) -> Data:
    """Data whose rows are the pairs of points ``first[k]`` and ``other[k]``.

    Each row is the sum of the two points times their labels.  A window holds pairs that follow each other and have one
    first point, at most WINDOW pairs.
    """
    turned = np.vstack([turned, np.zeros_like(turned[:1])])  # the last row is that of ORIGIN
    cuts = 1 + np.flatnonzero((np.diff(first) != 0) | (np.arange(1, len(first)) % WINDOW == 0))
    windows = zip(np.split(first, cuts), np.split(other, cuts), strict=True)
    return cross_attention(
        [np.vstack([turned[one[:1]], -turned[others]]) for one, others in windows], np.ones((len(cuts) + 1, 1))
    )


def _solve_pairs(data: Data, asked: np.ndarray, weights: np.ndarray | None, **options: Any) -> Separation:
    """Solves the SVM of pairs, from the given weights, for the margins asked of them."""

    def shaped(numbers: np.ndarray) -> Any:
        # reference tokens get the number 0
        return data._layout.shape_entries(np.insert(numbers, data._begin - np.arange(len(data)), 0.0))

    warm = None if weights is None else shaped(weights)
    return solve_svm(data, [0] * len(data), margins=shaped(asked), warm_start=warm, **options)


def _pairs(
    turned: np.ndarray,
    sides: list[np.ndarray],
    w: np.ndarray,
    weights: np.ndarray,
    support: np.ndarray,
    progress: bool | None = None,
) -> tuple[np.ndarray, np.ndarray, Separation]:
    """Returns the first points of the pairs of :attr:`Plane.separation`; their other points; and that answer.

    Without a bias each point is paired with the origin.  With a bias, the weights of the pairs add up to the weight of
    each point, and k support points form k - 1 pairs.  The points of each class are laid along a line as intervals as
    long as their weights; two points are a pair where their intervals overlap.  The nearest points have the least
    heights along the normal w.  They come first, so they are a pair.  Each point that is no support point is paired,
    with weight 0, with the nearest point of the other class.
    """
    heights = turned @ w
    sides = [side[np.argsort(heights[side])] for side in sides]
    first, other = np.full_like(sides[0], ORIGIN), sides[0]
    flow = weights[other]
    if len(sides) > 1:
        held = [side[np.isin(side, np.append(support, side[0]))] for side in sides]
        ends = [np.cumsum(weights[some]) for some in held]
        cuts = np.union1d(*ends)
        first, other = (
            some[np.minimum(np.searchsorted(end, cuts), len(some) - 1)] for some, end in zip(held, ends, strict=True)
        )
        flow = np.diff(cuts, prepend=0.0)
        for side, some, opposite in zip(sides, held, sides[::-1], strict=True):
            rest = np.setdiff1d(side, some)
            first, other = np.append(first, np.full_like(rest, opposite[0])), np.append(other, rest)
        flow = np.append(flow, np.zeros(len(first) - len(flow)))
    data = _attention(turned, first, other)
    return first, other, _solve_pairs(data, np.full(len(first), len(sides)), flow, progress=progress)
