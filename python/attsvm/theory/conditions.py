"""Weights compared with SVM solutions: correlation, share of the largest margin, and conditions of convergence."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..attention.data import Data, check_data
from ..common.check import as_finite, check_type
from ..common.norms import read_norm, size
from ..common.types import MetricLike, Norm
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from ..training.problem import Problem
from .limit_proofs import UNIT, lengths_of_rows

# Warn if less than this share of the Frobenius norm of W lies in the span of token differences and queries.
# If less than half of W lies in the span, projecting W onto it more than doubles its share of the largest margin.
MOST_OUTSIDE = 0.5
SPANNED = 1e-6  # singular values of tokens or queries below this fraction of the largest count as zero
CHUNK = 4096  # rows processed at a time
ROUNDING = 1e-13  # rounding error of a computed margin, relative to the length of the margin's row times the norm of W
# A token is tight if its margin is at most 1 + TIGHT, or if it is a support token.
# An answer with a gap of 1e-9 fixes W only to sqrt(2e-9) ||W||, and a margin to 4e-5 ||W|| times its row's length.
TIGHT = 1e-4


def correlation(A: ArrayLike, B: ArrayLike) -> float:
    """The cosine ``<A, B> / (||A||_F ||B||_F)`` of two weight matrices; NaN if one of them is zero.

    Parameters
    ----------
    A, B : array_like of one shape

    Examples
    --------
    >>> attsvm.correlation([[1.0, 0.0]], [[1.0, 1.0]])
    0.7071067811865475
    """
    A, B = as_finite("A", A), as_finite("B", B)
    if A.shape != B.shape:
        raise ValueError(f"A and B must have one shape, got {A.shape} and {B.shape}")
    if not (A.any() and B.any()):
        return math.nan
    A, B = (M / np.abs(M).max() for M in (A, B))  # A and B are scaled, since squares of large weights may overflow
    return float(np.vdot(A, B) / (np.linalg.norm(A) * np.linalg.norm(B)))  # type: ignore[arg-type]


def is_locally_optimal(problem: Problem, solution: Separation) -> bool:
    """Whether every selected token scores more than each tight token of its query.

    A token is tight if its margin is 1, up to 1e-4, or if it is a support token, whatever margin W gives it.

    Plain gradient descent with small steps converges to the direction of such a solution from all weights that are
    large enough and close enough to that direction.  If instead a support token with a positive multiplier scores more
    than the selected one, training leaves the direction, provided that the rows of the SVM are linearly independent; if
    they are not, other rows may outweigh it.  For equal scores nothing is proved.  The condition is for one selected
    token per query.

    Parameters
    ----------
    problem : Problem
        With a linear head and one attention head.
    solution : Separation
        Of the problem's data.

    Notes
    -----
    Source: the locally optimal directions of "Transformers as Support Vector Machines" (Tarzanagh, Li, Thrampoulidis,
    Oymak, 2023).  With the score ``y v . x_t`` of token t: ``y v . x_a > y v . x_t`` for every t with
    ``(x_a - x_t)^T W z = 1``.

    Examples
    --------
    >>> attsvm.theory.is_locally_optimal(problem, attsvm.solve_svm(data, problem.optimal))
    True
    """
    check_type("problem", problem, Problem)
    problem._require_linear()
    check_type("solution", solution, Separation, "attsvm.solve_svm")
    if solution.W is None:
        raise ValueError(f"solution must have weights, got one that is {solution.status}")
    if solution.selection.kept is not None:
        raise ValueError("solution must come from a selection of one token per query")
    pairs = ([getattr(of.data, name) for of in (problem, solution)] for name in ("keys", "queries", "start", "stop"))
    if problem.data is not solution.data and not all(np.array_equal(*pair) for pair in pairs):
        raise ValueError("solution must be of the data of the problem")
    return not rivals_of(problem, solution).any()


def rivals_of(problem: Problem, solution: Separation) -> np.ndarray:
    """Which tight tokens score at least as much as the selected token of their query, as a flat bool array."""
    reference = solution.selection.reference
    return tight_entries(solution) & (problem._flat_scores >= at_reference(problem, reference))


def at_reference(problem: Problem, reference: np.ndarray) -> np.ndarray:
    """The score of each query's selected token, repeated for every entry (token that the query sees)."""
    return problem._flat_scores[problem.data._begin + reference][problem.data._query_of()]


def tight_entries(solution: Separation) -> np.ndarray:
    """Which tokens have the margin 1 under an SVM solution, up to TIGHT, or are its support tokens, as a flat bool
    array."""
    tight = solution.flat_margins <= 1 + TIGHT
    # the multipliers of an answer that is not optimal may come from another iterate than W
    return tight | solution.columns()["support"] if solution.status == "optimal" else tight


def all_tight(solution: Separation, tolerance: float | None = None) -> bool | None:
    """Whether every token that is not selected is tight, or has a margin of 1 up to a given tolerance, under the SVM
    solution; None without weights."""
    if solution.W is None:
        return None
    margins = solution.flat_margins
    tight = tight_entries(solution) if tolerance is None else margins <= 1 + tolerance
    return bool(tight[np.isfinite(margins)].all())


def smoothness(problem: Problem) -> float:
    """A Lipschitz constant L_W of the gradient dL/dW of the training loss.

    ``L_W = 1/M sum_q ||z||^2 ||X||^2 g (M0 g + 3 M1)`` with ``g = ||V|| ||v||``.

    X and V are the keys and values of a query's window, in spectral norm; M0 and M1 bound ``|l''|`` and ``|l'|``
    over the scores, where every output lies.  Infinite for the log loss when a score is 0.
    """
    if problem._own_loss is not None:
        return np.inf  # the second derivative of the user's loss is not known
    size, g = _sizes(problem)
    M0, M1 = _core.loss_bounds(_core.LOSS[problem._loss_name], problem._flat_scores.min())
    return float((size**2 * g * (M0 * g + 3 * M1)).mean())


def _sizes(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Returns two numbers for each query: ``||X|| ||z||``, the spectral norm of its tokens X times the length of its
    vector z; and ``||V|| ||v||``, the spectral norm of its values V times the length of its head v."""
    data = problem.data
    windows, of_query = np.unique(np.stack([data.start, data.stop]), axis=1, return_inverse=True)
    # keys and values, or the one array that is both
    norms = [
        np.array([np.linalg.norm(vectors[a:b].astype(np.float64), 2) for a, b in windows.T])[of_query]
        for vectors in ([data.keys] if data.values is data.keys else [data.keys, data.values])
    ]
    return norms[0] * np.linalg.norm(data.queries, axis=1), norms[-1] * np.linalg.norm(problem._head[1], axis=-1)


def first_gradient(problem: Problem, reference: np.ndarray) -> tuple[float, float]:
    """``(iota, ||G||_F)``: how well the first gradient step from W = 0 ranks the optimal tokens, and the norm of that
    gradient G.

    iota is the least ``(x_t - x_optimal)^T G z``.

    If iota is positive, the first step of gradient descent from zero ranks every optimal token first.

    A query's least margin counts as 0 if it is at most its rounding error.  A score or an output u has an error of at
    most N g units of rounding, with g as in :func:`smoothness` and N the number of operations, so a multiplier
    ``l'(u) (g_t - u) / T`` summed over the query's tokens has one of ``2 N g (M0 g + 2 M1)``.  The sum over all entries
    and the margin itself, of length ``2 ||X|| ||z||``, add the rest.  A user's derivative counts as exact.
    """
    data, own = problem.data, problem._own_loss
    _, G = problem.loss_and_grad(np.zeros(data._W_shape))
    least = np.minimum.reduceat(data._flat_margins(-G, reference), data._begin)
    u = np.add.reduceat(problem._flat_scores, data._begin) / data.lengths
    if own is None:
        M0, M1 = _core.loss_bounds(_core.LOSS[problem._loss_name], u.min())
    else:
        M0, M1 = 0.0, math.exp(own.evaluate(u)[1].max())
    size, g = _sizes(problem)
    rounds = data._entries + data._longest + data.dk + data.dz + data.values.shape[1] + 16
    error = 4 * rounds * UNIT * size * (size * g * (M0 * g + 3 * M1)).mean()
    return float(np.where(np.abs(least) > error, least, 0.0).min()), float(np.linalg.norm(G))


def local_cone(problem: Problem, solution: Separation) -> tuple[float, float] | None:
    """A cone ``(mu, R)`` around an SVM solution W in which the loss falls along W: weights of norm at least R whose
    correlation with W is at least 1 - mu.

    W is the Frobenius ``solution`` of a locally optimal selection.  In the cone, margins are at most eps (in units of
    W's) away from W's own, by ``||W / ||W|| - U / ||U|||| <= sqrt(2 mu)`` and Cauchy-Schwarz, for
    ``mu = (eps / (A ||W||))^2 / 2`` with A the longest row.  Let delta be how far the margins of all tokens that are
    no support exceed 1, and ``eps = min(1/2, delta) / 4``.  With r = norm / ||W||, softmax gives a token at most
    ``exp(-r margin)`` of the selected one's, and the inner product of the negative gradient with W is a mean over
    queries of covariances that are at least ``S (gap - B (G x + H y (1 + x)))``: S the softmax of the support
    tokens, ``x = (T-1) exp(-r (delta - 2 eps))`` bounds that of the others relative to it, ``y = (T-1) exp(-r (1 -
    eps))`` that of all but the selected token; gap, G and H are the least and largest score differences to support
    tokens, to better ones, and to any; B the largest margin of W.  R is where the bracket becomes positive.

    None if there is no such cone: a query has no support token, or a support token scores as much as the selected one.
    """
    data = problem.data
    own, reference = solution.flat_margins, solution.selection.reference
    near = own <= 1 + TIGHT
    # score of the entry's token minus that of the selected token
    ahead = problem._flat_scores - at_reference(problem, reference)
    longest = lengths_of_rows(data, reference).max()
    slack = own[~near].min(initial=np.inf) - 1
    eps = min(0.5, slack) / 4
    size = float(np.linalg.norm(solution.W))
    begin, several = data._begin, data.lengths > 1

    def most(values: np.ndarray) -> np.ndarray:
        """The largest value of each query that sees several tokens."""
        return np.maximum.reduceat(values, begin)[several]

    # gap: the least score lead over the support tokens (near) of each query, infinite for a query that has none
    gap = -most(np.where(near, ahead, -np.inf))
    if not (gap.size and 0 < gap.min() and gap.max() < np.inf):
        return None
    B = most(np.where(np.isfinite(own), own, 0.0))
    G, H = B * most(np.where(near, 0.0, ahead)), B * most(np.abs(ahead))
    count = data.lengths[several] - 1.0

    def least_bracket(r: float) -> float:
        """The least bracket of the queries; G and H contain the docstring's factor B."""
        x, y = count * math.exp(-r * (slack - 2 * eps)), count * math.exp(-r * (1 - eps))
        return (gap - G * x - H * y * (1 + x)).min()

    # bisection for the radius from which the bracket, which grows with r, is positive; right to 1e-12, and not smaller
    low, radius = 0.0, 1.0
    while least_bracket(radius) <= 0:
        low, radius = radius, 2 * radius
    for _ in range(40):
        middle = (low + radius) / 2
        low, radius = (middle, radius) if least_bracket(middle) <= 0 else (low, middle)
    return 0.5 * (eps / (longest * size)) ** 2, radius * size


def separating_cone(problem: Problem, solution: Separation, iota: float, size: float) -> tuple[float, float] | None:
    """A cone ``(mu, R)`` around the first gradient step in which no weights are stationary.

    It is ``{W: (x_optimal - x_t)^T W z >= mu ||W|| / ||W_svm||, ||W|| >= R}``, with W_svm the SVM solution.

    mu is that of the first gradient step, ``iota ||W_svm|| / ||G||``.  From norm R on every optimal token has so much
    probability s_optimal that ``B (1 - s_optimal) < 1``, with B the largest margin of W_svm; each covariance is then
    positive.  None if the first gradient step does not separate.
    """
    if not 0 < iota < math.inf or solution.W is None:
        return None
    data, own = problem.data, solution.flat_margins
    norm = float(np.linalg.norm(solution.W))
    mu = min(iota * norm / size, 1.0)  # mu is at most 1, but for rounding
    worst = ((data.lengths[data._query_of()] - 1) * (own - 1))[np.isfinite(own)].max()
    return mu, norm * math.log(max(worst, 1.0)) / mu


def margin_share(
    data: Data, selected: ArrayLike, W: ArrayLike, norm: Norm = "frobenius", metric: MetricLike | None = None
) -> tuple[Any, ...]:
    """The least margin of ``W / ||W||`` as a share of the largest margin that any weights of norm 1 have.

    It is ``min_e A(W)_e / ||W|| / gamma*``, with A(W)_e the margin of entry e and gamma* the largest margin.

    The share is 1 if W has the direction of an SVM solution of that norm (any of them, if there are several), and
    negative if W does not rank the selected tokens first.

    Parameters
    ----------
    data : Data
    selected : as in :func:`solve_svm`
        Several selected tokens of a query must have equal logits.  If their logits differ, minus the largest difference
        counts as a margin.
    W : array_like (..., dk, dz)
        Weights, or a stack of them (those of a run: ``run.weights``).
    norm, metric : as in :func:`solve_svm`

    Returns
    -------
    low, high : float, or arrays (...)
        The share lies in [low, high]: the margin of W divided by the certified upper and lower bound of the largest
        margin.  (W itself proves a lower bound.)  0 for W = 0.

    Raises
    ------
    ValueError
        When the selection is infeasible, or asks nothing: there is no largest margin.

    Warns
    -----
    UserWarning
        In the Frobenius and nuclear norms, if less than half of the Frobenius norm of W lies in the span of rows and
        queries: the rest changes no margin and lowers the share.  Weights trained from zero lie in this span; the
        weights of a head of a model do not if there are fewer queries or tokens than dimensions.

    Notes
    -----
    The norm of each W is computed here; a solution need not be unique for this measure to make sense, as it has to be
    for a correlation with one.

    Examples
    --------
    >>> sol = attsvm.solve_svm(data, [0, 1, 2, 3, 4, 5], "max")
    >>> low, high = attsvm.theory.margin_share(data, [0, 1, 2, 3, 4, 5], sol.W, "max")
    >>> 1 - 1e-8 < low <= high <= 1
    True
    """
    check_data("data", data)
    kind = read_norm(norm, metric, *data._W_shape)
    W = as_finite("W", W)
    if W.shape[-2:] != data._W_shape:
        raise ValueError(f"W must have shape (..., dk, dz) = (..., {data.dk}, {data.dz}), got {W.shape}")
    sol = solve_svm(data, selected, norm, metric=metric)
    if sol.status == "no constraint":
        raise ValueError("selected must leave a token out that differs: without a row no margin is the largest")
    if sol.status == "infeasible":
        raise ValueError(f"selected must be feasible to have a largest margin, got one that is not: {sol.message}")
    stack = W.reshape(-1, *data._W_shape)
    sizes = size(stack, kind)
    if kind in ("frobenius", "nuclear"):
        whole = np.linalg.norm(stack, axis=(1, 2))
        _, chosen, token = data._rows_of(sol.selection.reference)
        chunks = (slice(first, first + CHUNK) for first in range(0, len(token), CHUNK))
        left, right = _span(data._differences(token[at], chosen[at]) for at in chunks), _span([data.queries])
        share = np.linalg.norm(left.T @ stack @ right, axis=(1, 2))[whole > 0] / whole[whole > 0]
        if share.min(initial=1.0) < MOST_OUTSIDE:
            warnings.warn(
                f"W: only {share.min():.2g} of its Frobenius norm lies on the directions that tokens and queries have; "
                "the rest changes no margin and lowers the share",
                stacklevel=2,
            )
    units = stack / np.where(sizes > 0, sizes, 1.0)[:, None, None]
    # If two selected tokens of a query have unequal logits, beyond rounding, minus the difference counts as a margin.
    equal, reference = np.flatnonzero(sol.selection.flags(data)), sol.selection.reference
    query, chosen, token = data._rows_of(reference, equal)
    length = np.linalg.norm(data._differences(chosen, token), axis=1) * np.linalg.norm(data.queries[query], axis=1)
    least = np.empty(len(units))
    for k, unit in enumerate(units):
        margins = data._flat_margins(unit, reference)
        off = np.abs(margins[equal])
        margins[equal] = np.where(off > ROUNDING * length * np.linalg.norm(unit), -off, np.inf)
        margins[data._begin + reference] = np.inf
        least[k] = margins.min()
    lower = np.maximum(sol.margin, least)  # the margin of W is itself a lower bound of the largest margin
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.where(least == 0, 0.0, least / np.stack([np.maximum(sol.margin_bound, lower), lower]))
    low, high = np.sort(ends, axis=0).reshape(2, *W.shape[:-2])
    return (float(low), float(high)) if W.ndim == 2 else (low, high)


def _span(parts: Iterable[np.ndarray]) -> np.ndarray:
    """An orthonormal basis, as columns, of the span of the rows of all ``parts`` (..., d)."""
    scatter: Any = sum(part.T @ part for part in parts)
    eigenvalues, vectors = np.linalg.eigh(scatter)
    return vectors[:, eigenvalues > SPANNED**2 * eigenvalues[-1]]
