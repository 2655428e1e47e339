"""The regularisation path: stationary points of the loss in growing balls, or with a vanishing ridge."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..common.check import as_choice, as_count, as_floats, as_number, check_shapes, check_type
from ..common.norms import norm_name, size
from ..common.result import Lines, Result
from ..common.types import Ball
from ..svm.solve import ConvergenceWarning, feasible, solve_svm
from ..training.problem import Problem
from ..training.train import train

HALVINGS = 60  # the search for the radius of a given ridge halves its interval at most this many times
# The search ends at a relative error of the ridge below this; a point with a gap of 1e-6 fixes its ridge no better.
SAME_RIDGE = 1e-3
# Step k in a round of `_Search.stationary` has the length STEP * radius / sqrt(k), halved from each round to the next.
STEP = 0.3
ROUND = 250  # number of training steps in a round of `_Search.stationary`
INSIDE = 1 - 1e-6  # weights whose norm is below this fraction of the radius are inside the ball

NUMBERS = ("loss", "log_excess", "gap", "log_ridge")  # attributes of a Path with one number for each point


@dataclass(repr=False, eq=False)
class Path(Result):
    """The points of a regularisation path; arrays have one entry per point.

    Attributes
    ----------
    radii : (R,) array
        Radii of the balls, in units of the norm of W.
    weights : (R, dk, dz) array
        Stationary points of the mean loss within them; minimisers if that loss is convex in W.
    loss : (R,) array
    log_excess : (R,) array
        Natural logarithm of the loss minus the mean loss of the best tokens, which is the infimum of the loss if some
        W separates the best tokens from all others.  It stays accurate where the loss itself no longer changes.
    gap : (R,) array
        Frank-Wolfe gap ``<G, W> + radius ||G||_dual`` of the log-excess, relative to its second term: 0 at a
        stationary point.
    log_ridge : (R,) array
        Natural logarithm of the ridge for which the same point is stationary: of ``ridge ||W||_F^2``, or of
        ``ridge (||K||_F^2 + ||Q||_F^2)`` for the nuclear norm.
    norm : str
    status : str
        "completed"; "iteration limit" when some point stopped above the tolerance; "interrupted" in the ``.partial`` of
        Ctrl-C.
    message : str
        What the status means here.
    """

    radii: np.ndarray
    weights: np.ndarray
    loss: np.ndarray
    log_excess: np.ndarray
    gap: np.ndarray
    log_ridge: np.ndarray
    norm: str
    status: str

    _derived = ("message",)

    @property
    def message(self) -> str:
        largest = f"the largest gap of {len(self.radii)} points is {self.gap.max(initial=0.0):.1e}"
        return {
            "completed": "every point is stationary in its ball, to the tolerance",
            "iteration limit": f"some points stopped above the tolerance: {largest}",
        }.get(self.status, f"interrupted after these points: {largest}")

    def _check(self) -> None:
        check_shapes(vars(self), {"weights": "R, dk, dz"} | dict.fromkeys(("radii", *NUMBERS), "R"))

    def _title(self) -> str:
        points = f"Path of {len(self.radii)} points" if len(self.radii) else "Path of no point"
        return f"{points} in the {norm_name(self.norm)} norm: {self.status}"

    def _lines(self) -> Lines:
        if len(self.radii) == 0:
            return []
        ends = {"radius": self.radii, "loss": self.loss, "log excess": self.log_excess, "log ridge": self.log_ridge}
        lines = [(name, f"{values[0]:.6g} -> {values[-1]:.6g}") for name, values in ends.items()]
        return [*lines, ("largest gap", f"{self.gap.max():.1e}")]

    def columns(self) -> dict[str, Any]:
        return {"radius": self.radii} | {name: getattr(self, name) for name in NUMBERS}


def regularization_path(
    problem: Problem,
    radii: ArrayLike | None = None,
    norm: Ball = "frobenius",
    *,
    selected: Any = None,
    ridges: ArrayLike | None = None,
    tol: float = 1e-6,
    max_iter: int = 5000,
) -> Path:
    """Stationary points of ``L(W)`` with ``||W|| <= R`` for growing R, or of ``L(W) + ridge ||W||_F^2`` as ridge falls.

    They are minimisers if L is convex in W; if not, some W may have less loss.  If each query has one best token, and
    some W ranks these tokens first, W / R of the minimisers turns to the direction of their SVM solution in the same
    norm as R grows.  With ties it need not.  The ball ``||K||_F^2 + ||Q||_F^2 <= 2 R`` of factors ``W = K Q^T`` is the
    nuclear ball of W.

    With ``selected`` it is a local path, in a cone around the SVM solution of these tokens; W / R turns to that
    solution if the tokens are locally optimal.  Heads that are not linear have only local paths.

    Parameters
    ----------
    problem : Problem
        With one attention head.
    radii : (R,) array_like, positive and growing
        In units of the norm of W.
    norm : {"frobenius", "nuclear"}
    selected : as in :func:`solve_svm`, optional
        The tokens of a local path; bools if a query keeps several.  Without it the path of a head that is not linear
        begins at W = 0.
    ridges : (R,) array_like, positive and falling, instead of radii (global paths)
        Factors of ``||W||_F^2``, or of ``||K||_F^2 + ||Q||_F^2`` for the nuclear norm.  For each the radius is searched
        at which the ball's multiplier equals the ridge, up to a relative 1e-3.
    tol : float
        Gap at which a point is accepted.
    max_iter : int
        Iterations of a point.

    Returns
    -------
    Path

    Raises
    ------
    FloatingPointError
        When logits overflow.
    KeyboardInterrupt
        On Ctrl-C, with the points so far in ``.partial``.

    Warns
    -----
    ConvergenceWarning
        When a point stopped before the tolerance.

    Notes
    -----
    The method is nonmonotone spectral projected gradient on the logarithm of the excess loss; each point starts from
    the previous one.  If a point does not select the optimal tokens, a second run starts from the direction of weights
    that rank them first, if there are any, and the better of the two points is returned.

    Points of a local path are stationary points.  They are found by projected descent on the normalised gradient, from
    the direction of the SVM and then from the previous point.  Their infimum is not known, so ``log_excess`` is NaN.

    Source: "Transformers as Support Vector Machines" (Tarzanagh, Li, Thrampoulidis, Oymak, 2023).

    Examples
    --------
    >>> svm = attsvm.solve_svm(problem.data, problem.optimal)
    >>> path = attsvm.regularization_path(problem, [1, 10, 100])
    >>> [attsvm.correlation(W, svm.W) > least for W, least in zip(path.weights, (0.2, 0.6, 0.99))]
    [True, True, True]
    """
    check_type("problem", problem, Problem)
    if problem.heads is not None:
        raise ValueError(f"problem must have heads=None, got {problem!r}")
    problem._check_scale()
    as_choice("norm", norm, _core.BALL)
    if (radii is None) == (ridges is None):
        raise ValueError("give either radii or ridges")
    wanted = _ordered("radii", radii, 1) if ridges is None else _ordered("ridges", ridges, -1)
    tol, max_iter = as_number("tol", tol, above=0.0), as_count("max_iter", max_iter, 1)
    local = selected is not None or not problem._from_scores
    if local and ridges is not None:
        raise ValueError("ridges must come without selected and with a linear head: local paths go by radii")
    toward = np.zeros(problem.data._W_shape)
    if not local:
        W = feasible(problem.data, problem.optimal).W
        toward = toward if W is None else W / (size(W, "frobenius") or 1.0)
    elif selected is not None:
        svm = solve_svm(problem.data, selected, norm)
        if svm.W is None:
            raise ValueError(f"selected must be tokens that some W separates: {svm.message}")
        toward = svm.W * svm.margin
    search = _Search(problem, norm, tol, max_iter, local, toward)
    next_point = search.point if ridges is None else search.ridge
    points: list[_Point] = []
    try:
        for number in wanted:
            points.append(next_point(number, points[-1] if points else None))
    except KeyboardInterrupt as interrupt:
        interrupt.partial = _path(problem, norm, points, "interrupted")  # type: ignore[attr-defined]
        raise
    late = max(point.gap for point in points) > tol
    path = _path(problem, norm, points, "iteration limit" if late else "completed")
    if late:
        warnings.warn(f"regularization_path: {path.message}", ConvergenceWarning, stacklevel=2)
    return path


def _ordered(name: str, value: Any, sign: int) -> np.ndarray:
    numbers = as_floats(name, value, "R")
    if numbers.min() <= 0:
        raise ValueError(f"{name} must be positive, got {numbers.min():g}")
    if (sign * np.diff(numbers) < 0).any():
        raise ValueError(f"{name} must be {'growing' if sign > 0 else 'falling'}, got {numbers}")
    return numbers


class _Point(NamedTuple):
    """The numbers of one point, in the order of the fields of a :class:`Path`."""

    radius: float
    W: np.ndarray
    loss: float
    log_excess: float
    gap: float
    log_ridge: float


def _path(problem: Problem, norm: str, points: list[_Point], status: str) -> Path:
    radii, W, loss, log_excess, gap, log_ridge = (np.array([point[k] for point in points]) for k in range(6))
    weights = W.reshape(len(points), *problem.data._W_shape)
    return Path(radii, weights, loss, log_excess, gap, log_ridge, norm, status)


@dataclass(frozen=True)
class _Search:
    problem: Problem
    norm: Ball
    tol: float
    max_iter: int
    local: bool  # whether the path is local: stationary points in a cone around ``toward``, for any head
    toward: np.ndarray  # a direction of norm 1 that ranks the given (local path) or optimal tokens first; or zero

    def point(self, radius: float, before: _Point | None) -> _Point:
        """The point of the path at a given radius.  A global path starts at zero.  If its descent does not end at the
        optimal tokens, a second descent starts from weights that rank these tokens first, and the better point is
        returned."""
        start = self.toward * radius * self.local if before is None else before.W * (radius / before.radius)
        if self.local:
            W, log_gradient, gap = self.stationary(start, radius)
            log_excess = math.nan
        else:
            found, data = self._descend(start, radius), self.problem.data._handle
            chosen, best = (_core.top(data, of) for of in (_core.logits(data, found[0]), self.problem._flat_scores))
            if self.toward.any() and not np.array_equal(chosen, best):
                found = min(found, self._descend(self.toward * radius, radius), key=lambda answer: answer[1])
            W, log_excess, log_gradient, gap = found
        # the ridge for which W is stationary: ||G||_F = 2 ridge ||W||_F, with G the gradient of the loss at W, or
        # ||G||_op = 2 ridge for the nuclear norm
        of_W = math.log(radius) if self.norm == "frobenius" else 0.0
        return _Point(radius, W, self.problem.loss(W), log_excess, gap, log_gradient - math.log(2) - of_W)

    def _descend(self, start: np.ndarray, radius: float) -> tuple[np.ndarray, float, float, float]:
        W = np.ascontiguousarray(start)
        try:
            code, log_excess, log_gradient, gap, _, exception = _core.regularization_path_point(
                self.problem._objective, W, _core.BALL[self.norm], radius, self.tol, self.max_iter
            )
        except ArithmeticError as error:
            raise FloatingPointError(f"the point of radius {radius:g} cannot be computed: {error}") from None
        if _core.STATUS[code] == "interrupted":
            raise exception or KeyboardInterrupt
        return W, log_excess, log_gradient, gap

    def stationary(self, W: np.ndarray, radius: float) -> tuple[np.ndarray, float, float]:
        """``(W, log ||G||, gap)``: a stationary point W of the loss in the ball ``||W|| <= radius``, the dual norm of
        the gradient G at W, and how far W is from stationary.  The search begins at the given W.

        The method is projected descent on the normalised gradient, which keeps its direction where the loss no longer
        changes in double precision.  Its steps shrink, so it stays in the cone of its start unless the descent leads
        out of it.  On the sphere the gap is ``<G, W> + radius ||G||_dual`` divided by its second term: 0 if the ball
        holds W against the gradient.  Inside the ball it is divided by the loss instead: 0 if the gradient vanishes.
        """
        step, left, gap = STEP * radius, self.max_iter, math.inf
        while left > 0 and not gap <= self.tol:
            steps = min(ROUND, left)
            rates = step / np.sqrt(np.arange(1, steps + 1))
            W = train(self.problem, W, ball=(self.norm, radius), lr=rates, steps=steps, record=0).W
            log_gradient, gap = _gap(self.problem, W, radius, self.norm)
            step, left = step / 2, left - steps
        return W, log_gradient, gap

    def ridge(self, ridge: float, before: _Point | None) -> _Point:
        """The point of the path for a given ridge.  The matching ridge falls as the ball's radius grows, so the radius
        is bracketed and then found by bisection of its logarithm."""
        target = math.log(ridge)
        low = before or self.point(1e-6, None)
        if low.log_ridge <= target:  # the ridge is so large that W is almost zero
            return low
        high = low
        while high.log_ridge > target:
            low, high = high, self.point(2 * high.radius, high)
        for _ in range(HALVINGS):
            middle = self.point(math.sqrt(low.radius * high.radius), low)
            excess = middle.log_ridge - target
            if abs(excess) <= SAME_RIDGE:
                return middle
            low, high = (middle, high) if excess > 0 else (low, middle)
        return high


def _gap(problem: Problem, W: np.ndarray, radius: float, norm: Ball) -> tuple[float, float]:
    loss, (G, *_, log_scale) = problem.loss_and_grad(W, scaled=True)
    dual = size(G, norm, dual=True)
    if dual == 0:
        return -math.inf, 0.0
    gap = np.vdot(G, W) + radius * dual
    gap = gap * math.exp(min(log_scale, 700)) / abs(loss) if size(W, norm) < INSIDE * radius else gap / (radius * dual)
    return math.log(dual) + log_scale, gap
