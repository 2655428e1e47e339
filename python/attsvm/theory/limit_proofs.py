"""Conditions under which training selects the same tokens for ever: the inequalities of notebooks/limit.md, one
function each.

The notation is that of the page.  Theorem A is about the best tokens.  Query i has a best token a(i) with score g_i1,
the second score g_i2, and the drops ``g_i1 - g_it`` to the scores g_it of its tokens t.  Its output is ``u_i = g_i1 -
v_i`` with the shortfall ``v_i = sum_t p_it (g_i1 - g_it)``, where p_it is the attention to token t.  Its excess is
``phi_i(v) = l(g_i1 - v) - l(g_i1)`` with the loss l.  The sum of the excesses of the n queries is ``n (F(W) - F*)``,
with the mean loss F and its infimum F*.  Excesses are compared as logarithms, so that near ties and large scores keep
their digits.

Theorem B is about the tokens a(i) that attention selects now, optimal or not.  ``r_it`` are their rows and
``lead_it = <r_it, W>``.  A threat is a token that scores at least as much as the selected one; P are the rows of all
other tokens.  mu are the multipliers of the rows in the negative gradient, ``S = sum_P mu``, ``q = mu / S`` on P, and
``M = sum_P q r``.  ``rho`` is the certified margin of the SVM's unit direction U.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from ..attention.data import largest
from ..attention.selection import Selection, intervals
from ..common.norms import Metric
from ..common.types import Norm
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from ..training.problem import Problem

UNIT = 2.0**-53  # relative error of one rounding in double precision
# Bound on the rounding error of a computed excess loss, relative to the numbers from which it is computed.
# The computation of an excess loss takes at most 20 operations.
EVALUATED = 64 * UNIT
CHUNK = 2**16  # largest count of entries of token differences computed at once, so that they stay in cache
LARGEST = 700  # the exponential of a larger number may leave double precision
SPARE = 1e-9  # relative reserve for rounding in comparisons of margins, lengths, distances and steps
TINY = 1e-300  # replaces the length of a query, or of a step, that has underflowed to 0
# Number of values that `stays` tries for its bound P on the norm of M, the mean of the rows weighted by multipliers.
# The first P tried has P^2 = ||M||^2 + 1e-9 rho^2, where M is the weighted mean of the rows and rho the SVM's margin.
# From each P tried to the next, P^2 - ||M||^2 grows by the factor 1.5, up to about rho^2, the squared margin.
TRIES = 52
# Up to this number of rows, the largest distance of two rows is computed from all pairs; for more rows it is bounded.
EXACT_ROWS = 512
# with more queries than this, the largest distance of two rows is bounded by twice the length of the longest row
EXACT_QUERIES = 2048


Formula = Callable[..., Any]


class LossForm(NamedTuple):
    """Properties of a convex, strictly decreasing loss that the proofs use; all functions take arrays over queries.

    ``log_slope(u)``: log of ``-l'(u)``.  ``log_excess(top, log_v)``: log of ``l(top - v) - l(top)``.
    ``reach(top, log_e)``: the shortfall v at which the excess is ``e^log_e``.  ``ratio(top, v)``: bound of
    ``l'' / |l'|`` over outputs from ``top - v`` to ``top``.
    """

    log_slope: Formula
    log_excess: Formula
    reach: Formula
    ratio: Formula


def log_expm1(log_v: Any) -> Any:
    """log(e^v - 1) from log v, accurate also where v is so small that e^v rounds to 1."""
    v = np.exp(log_v)
    return np.where(log_v < -37, log_v, v + np.log(-np.expm1(-v)))


def log_log1p_exp(z: Any) -> Any:
    """log(log(1 + e^z))."""
    return np.where(z < -37, z, np.log(np.logaddexp(0.0, z)))


def _log_slope(top: Any) -> Any:
    """log |l'| of the logistic loss l at the output ``top``."""
    return -np.logaddexp(0.0, top)


def _log_of_log_loss(top: Any, log_v: Any) -> Any:
    """``log(l(top - v) - l(top))`` with ``l(u) = -log u``: log(-log(1 - v / top)), inf for v >= top."""
    log_share = np.minimum(log_v - np.log(top), 0.0)
    return log_log1p_exp(log_share - np.log1p(-np.exp(log_share)))


LOSSES = {
    "logistic": LossForm(
        _log_slope,
        lambda top, log_v: log_log1p_exp(_log_slope(top) + log_expm1(log_v)),
        lambda top, log_e: np.logaddexp(0.0, log_expm1(log_e) - _log_slope(top)),
        lambda top, v: np.exp(_log_slope(-top)),  # l'' / |l'| = 1 - |l'| is largest at u = top
    ),
    "exponential": LossForm(
        np.negative,
        lambda top, log_v: log_expm1(log_v) - top,
        lambda top, log_e: np.logaddexp(0.0, log_e + top),
        lambda top, v: np.ones_like(top),
    ),
    "linear": LossForm(
        np.zeros_like, lambda top, log_v: log_v, lambda top, log_e: np.exp(log_e), lambda top, v: np.zeros_like(top)
    ),
    "log": LossForm(
        lambda u: -np.log(u),
        _log_of_log_loss,
        lambda top, log_e: -top * np.expm1(-np.exp(log_e)),
        lambda top, v: 1 / (top - v),
    ),
}


class Excess(NamedTuple):
    """How far the loss of each query is above its infimum (the excess) at one record, as logarithms rounded up."""

    each: np.ndarray  # (M,) upper bounds of the logarithm of each query's excess (its loss minus its infimum)
    total: float  # upper bound of the logarithm of the sum of all excess losses
    final: np.ndarray  # (M,) bool: whether inequality A.1 of notebooks/limit.md holds for each query
    in_cone: bool  # whether inequality A.2 of notebooks/limit.md holds


class BestTokens:
    """What theorem A needs of a problem: constants of the best tokens, and how far the loss at given weights is above
    its infimum (the excess).

    With H attention heads whose attended vectors are summed, every head has the same best token.  The highest output is
    then H times the best score, and the shortfall is the sum of the heads' shortfalls.
    """

    def __init__(self, problem: Problem):
        data, self.problem = problem.data, problem
        self.scores, self.begin, self.of_query = problem._flat_scores, data._begin, data._query_of()
        self.best = _core.top(data._handle, self.scores)
        self.several = data.lengths > 1
        chosen, others = self.begin + self.best, self.scores.copy()
        score = self.scores[chosen]
        others[chosen] = -np.inf
        self.second = np.maximum.reduceat(others, self.begin)  # -inf for a query that sees one token
        # best score minus second, g_i1 - g_i2: 0 if these tie, infinite for a query that sees one token
        self.gap = score - self.second
        self.top = score * (problem.heads or 1)
        self.tied = np.flatnonzero(self.gap == 0)  # the queries in which several tokens have the best score
        # For every token x and query z, |x|^T |W| |z| is at most reach times ||W||.
        # read anew: tokens that are not copied may have changed since their largest size was kept
        size = 1.0 if data._identity else largest(data.keys)
        self.reach = size * math.sqrt(data.dk) * np.linalg.norm(data.queries, axis=1)
        with np.errstate(all="ignore"):
            self.log_drop = np.log(score[self.of_query] - self.scores)
            # for each query, logarithms of the right sides of the inequalities A.1 and A.2 of notebooks/limit.md
            self.halves, self.wholes = self._barriers(0.5), self._barriers(1.0)
            # A.2 holds if the mean loss is less than this above its infimum
            self.barrier = float(np.exp(self.wholes.min())) / len(self.top)

    @property
    def uncovered(self) -> str:
        """The property of the problem that no proof covers, as text; empty if there is none."""
        if self.problem._own_loss is not None:
            return "a loss of your own"
        # data._powers is None if squares of tokens and queries stay within the range of double precision
        return "" if self.problem.data._powers is None else "tokens or queries whose squares leave the range"

    def log_excess(self, log_v: np.ndarray, side: int) -> np.ndarray:
        """The logarithm of how far each query's loss rises if its output is v below its highest value, from log v;
        rounded up (side 1) or down (side -1)."""
        own = self.problem._own_loss
        # a user's loss: the excess is a difference of two values, each assumed right to some units in the last place
        if own is not None:
            at, top = own.value(self.top - np.exp(log_v)), own.value(self.top)
            allowed = EVALUATED * (np.abs(at) + np.abs(top))
            return np.log(np.maximum(at - top + side * allowed, 0.0))
        found = LOSSES[self.problem._loss_name].log_excess(self.top, log_v)
        sizes = 1 + np.abs(self.top) + np.exp(np.minimum(log_v, 700)) + np.abs(log_v) + np.abs(found)
        return found + side * EVALUATED * sizes

    def _barriers(self, share: float) -> np.ndarray:
        """Lower bounds (M,) of the logarithm of each query's excess loss if its output is below its largest value by
        ``share`` times the gap of its two best scores: -inf if these tie, infinite for a query that sees one token."""
        found = self.log_excess(np.log(share * np.where(self.several, self.gap, 0.0)) - EVALUATED, -1)
        return np.where(self.several, found, np.inf)

    def at(self, W: np.ndarray, step: int = 0) -> Excess:
        """How far the loss at weights ([H,] dk, dz) is above its infimum, after ``step`` steps, each of which may have
        added a rounding error to W.

        The shortfall v_i is how far the output of query i is below its highest value.  It is
        ``sum_t (g_i1 - g_it) e^(-lead_it) / (1 + sum_t e^(-lead_it))``, summed over attention heads.
        """
        data, shortfalls = self.problem.data, []
        with np.errstate(all="ignore"):
            for part in W.reshape(-1, *W.shape[-2:]):
                lead = data._flat_margins(part, self.best)
                lead[self.begin + self.best] = 0.0
                (above, most), (below, peak) = self._log_sums(self.log_drop - lead), self._log_sums(-lead)
                # rounding errors of the leads (margins), which enter the numerator and the denominator of the shortfall
                off = 2 * self.rounding(part, step)
                off += UNIT * 2 * data.lengths + EVALUATED * (1 + np.abs(most) + np.abs(peak))
                shortfalls.append(above - below + off)
            log_v = np.logaddexp.reduce(shortfalls, axis=0)
            # the shortfall is 0, and its logarithm log_v is -inf, if all scores of the query are equal
            each = np.where(log_v > -np.inf, self.log_excess(log_v, 1), log_v)
            largest = max(each.max(), np.finfo(float).min)  # finite also if all scores of each query are equal
            # A total that is NaN stays NaN, and satisfies no inequality.  The last term is for rounding.
            total = float(largest + np.log(np.exp(each - largest).sum()) + math.log1p(len(each) * UNIT + EVALUATED))
        # A.1; and A.2 in logarithms, whose right side is -inf if best scores of a query tie
        return Excess(each, total, ~self.several | (total < self.halves), total < self.wholes.min())

    def rounding(self, W: np.ndarray, step: int) -> np.ndarray:
        """Bounds (M,) on the rounding error of each query's computed leads (margins): the relative error of N
        operations times ``|x_a - x_t|^T |W| |z|``.

        N counts the operations of one lead, and the roundings of W itself, one for each step.
        """
        rounds = UNIT * (self.problem.data.dk + self.problem.data.dz + len(self.begin) + step + 8)
        return 2 * rounds * self.reach * np.linalg.norm(W)

    def _log_sums(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns, for each query: the logarithm of the sum of e^term over its tokens; and its largest term."""
        most = np.maximum.reduceat(terms, self.begin)
        most[most == -np.inf] = 0.0  # all tokens of the query have equal scores
        return most + np.log(np.add.reduceat(np.exp(terms - most[self.of_query]), self.begin)), most

    def region(self, total: float, longest: np.ndarray) -> tuple[float, float]:
        """Returns two bounds for all weights whose loss is at most a record's: a bound on the drift ``|d log mu / ds +
        <r, D>|`` of the multiplier mu of a row r at W + s D, with D of norm 1; and a bound on the sum of multipliers.

        Both bounds are infinite if inequality A.2 of notebooks/limit.md fails.  In this level set ``F <= F(W_k)`` the
        negative gradient lies in the cone of the rows.  ``longest`` (M,) bounds the norms of each query's rows.

        The bound of the drift is ``R E`` with the longest row R and ``E = V / gap + V (K + 1 / (gap - V))``.  V is the
        largest shortfall of a query's output, gap the difference of its two best scores, and K a bound of
        ``l'' / |l'|``.  The bound of the sum is ``e^(K V) (F - F*)``, with the mean loss F and its infimum F*.
        """
        form, there = LOSSES[self.problem._loss_name], self.several
        top, gap, longest = self.top[there], self.gap[there], longest[there]
        with np.errstate(all="ignore"):
            V = form.reach(top, np.float64(total)) * (1 + SPARE)
            K = form.ratio(top, V)
            E = V / gap + V * (K + 1 / (gap - V))
            if not (V < gap).all():
                return math.inf, math.inf
            return float((longest * E).max()), float(np.exp(K * V).max()) * math.exp(total) / len(self.top)


def lengths_of_rows(data: Any, best: np.ndarray | None) -> np.ndarray:
    """The Frobenius norm of each query's longest row ``(x_a - x_t) z^T``, (M,).  ``best`` has each query's token a; if
    it is None, x_a is the mean of the query's tokens."""
    found, of_entry = np.empty(len(data.queries)), data._token_of()
    chunk = max(1, CHUNK // (data.dk * data._longest))
    for first in range(0, len(found), chunk):
        part = slice(first, first + chunk)
        lengths, begin = data.lengths[part], data._begin[part]
        tokens = data.keys[of_entry[begin[0] :][: lengths.sum()]].astype(np.float64)
        begin = begin - begin[0]
        if best is None:
            centre = np.add.reduceat(tokens, begin, axis=0) / lengths[:, None]
        else:
            centre = data.keys[(data.start + best)[part]]
        tokens -= np.repeat(centre, lengths, axis=0)
        squares = np.maximum.reduceat(np.einsum("ij,ij->i", tokens, tokens), begin)
        found[part] = np.sqrt(squares) * np.linalg.norm(data.queries[part], axis=1)
    return found


def curvature(best: BestTokens, longest: np.ndarray) -> float:
    """A Lipschitz constant of the gradient dF/dW of the mean loss F.

    It is the mean of ``d^2/4 s (M0 s / 4 + M1)`` over queries.

    The constant holds for one attention head.  d bounds the difference of two logits of the query along a unit
    direction; s is the range of its scores.  M0 and M1 bound ``|l''|`` and ``|l'|`` over these scores; ``|l'|`` is
    largest at the least score.
    """
    loss, least = best.problem._loss_name, np.minimum.reduceat(best.scores, best.begin)
    spread = best.top - least
    with np.errstate(all="ignore"):
        M0 = np.array([_core.loss_bounds(_core.LOSS[loss], score)[0] for score in least])
        M1 = np.exp(LOSSES[loss].log_slope(least))
        terms = longest**2 * spread * (M0 * spread / 4 + M1)  # d <= 2 longest
    return float(np.where(spread > 0, terms, 0.0).mean() * (1 + SPARE))


def descends(step: float, rho: float, longest: float, apart: float, drift: float) -> bool:
    """Whether a step of this length along the negative gradient, and every shorter step, lowers the loss: inequality
    A.4 of notebooks/limit.md.

    ``1 - exp(-rho s + Delta^2 s^2 / 8) > (e^(s R E) - 1) (e^(s R) - 1)``, where s is the step length, rho the margin, R
    the length of the longest row, Delta a bound on the distance of two rows, and R E a bound on the multipliers' drift.
    """
    step *= 1 + SPARE
    fall = rho * step - (apart * step) ** 2 / 8
    return (
        fall > SPARE * rho * step
        and step * max(drift, longest) <= LARGEST
        and -math.expm1(-fall) > (1 + SPARE) * math.expm1(step * drift) * math.expm1(step * longest)
    )


def longest_step(rho: float, longest: float, apart: float) -> float:
    """A step length for which :func:`descends` is true if the drift is 0: slightly below ``8 rho / Delta^2``, with rho
    the margin and Delta the largest distance of two rows."""
    return (1 - 2.0**-10) * min(8 * rho / apart**2, LARGEST / longest) if apart > 0 else math.inf


class State(NamedTuple):
    """The numbers of a selection at one record that theorem B of notebooks/limit.md needs, each rounded to the safe
    side.

    A threat is a token that scores at least as much as the selected token of its query.  P are the rows of all other
    tokens.
    """

    # bound, called R E in `stays`, of the drift |d log mu / ds + <r, D>| of a row r's multiplier mu at weights W + s D
    # The bound of the drift holds for directions D of norm 1, and for the rows of all tokens that are no threats.
    drift: float
    # bound tau of the sum of the threats' multipliers |mu|, divided by the sum of all other rows' multipliers mu
    threats: float
    # bound of the norm of M, which is the mean of the rows that are no threats, weighted by their multipliers
    pull: float
    # bound of the sum of all rows' multipliers |mu|; times the length of the longest row, it bounds the gradient's norm
    size: float


@dataclass(eq=False)
class Rows:
    """The rows ``(x_a - x_t) z^T`` of a selection: the length of each query's longest row, a bound on the distance of
    any two rows, and the SVM of all rows.  Each is computed on demand."""

    data: Any
    chosen: np.ndarray
    norm: Norm | Metric = "frobenius"

    @cached_property
    def lengths(self) -> np.ndarray:
        return lengths_of_rows(self.data, self.chosen)

    @cached_property
    def longest(self) -> float:
        """The length of the longest row, rounded up."""
        return float(self.lengths.max()) * (1 + SPARE)

    @cached_property
    def apart(self) -> float:
        """An upper bound on the distance between two rows.

        For few rows it is the largest distance, computed exactly.  For more rows: two rows of one query z are at most
        ``2 max_t ||(x_t - mean) z^T||`` apart, with the mean of its tokens, and the squared distance of rows of queries
        i and j is at most ``R_i^2 + R_j^2 + 2 R_i R_j |cos(z_i, z_j)|``, with R_i the length of query i's longest row.
        """
        data, longest = self.data, self.lengths
        if data._rows <= EXACT_ROWS:
            entries = np.delete(np.arange(data._entries), data._begin + self.chosen)
            q, chosen, token = data._rows_of(self.chosen, entries)
            difference, z = data._differences(chosen, token), data.queries[q]
            gram = (difference @ difference.T) * (z @ z.T)
            squares = np.diag(gram)
            largest = (squares[:, None] + squares - 2 * gram).max(initial=0.0)
            return math.sqrt(largest + SPARE * squares.max(initial=0.0))
        if len(longest) > EXACT_QUERIES:
            return float(2 * longest.max() * (1 + SPARE))
        unit = data.queries / np.maximum(np.linalg.norm(data.queries, axis=1, keepdims=True), TINY)
        between = longest[:, None] ** 2 + longest**2 + 2 * longest[:, None] * longest * np.abs(unit @ unit.T)
        np.fill_diagonal(between, 4 * np.minimum(lengths_of_rows(data, None), longest) ** 2)
        return float(np.sqrt(between.max()) * (1 + SPARE))

    @cached_property
    def solution(self) -> Separation:
        selected = self.data._layout.shape_queries(self.chosen)
        if isinstance(self.norm, Metric):
            return solve_svm(self.data, selected, metric=self.norm.value)
        return solve_svm(self.data, selected, self.norm)

    @property
    def margin(self) -> float:
        """rho, the certified lower bound of the largest margin of the selection; 0 if none is certified or there is no
        row."""
        return self.solution.margin * (1 - SPARE) if self.solution.status != "no constraint" else 0.0


class LocalTokens(Rows):
    """Decides by theorem B whether training keeps a selection for ever.  The SVM of the selection is solved only if the
    theorem's other conditions may hold."""

    def __init__(self, best: BestTokens, chosen: np.ndarray):
        super().__init__(best.problem.data, chosen)
        self.best = best
        self.selection = Selection(self.data, self.data._layout.shape_queries(chosen))
        self.score = best.scores[best.begin + chosen]
        # score of the selected token minus that of each token: positive for tokens that score less, 0 for itself
        self.drop = self.score[best.of_query] - best.scores
        self.threat = self.drop <= 0
        self.threat[best.begin + chosen] = False
        self.gap = np.minimum.reduceat(np.where(self.drop > 0, self.drop, np.inf), best.begin)

    def at(self, W: np.ndarray, step: int) -> State | None:
        """The numbers that theorem B of notebooks/limit.md needs, at weights W (dk, dz) after ``step`` steps.

        None if one of three conditions fails, without which the theorem says nothing: each query's attention to its
        selected token exceeds 1/2; each query's output exceeds the scores of all tokens that score less than its
        selected token; and the bound of the multipliers' relative rounding error is below .1.
        """
        best = self.best
        begin, q, form = best.begin, best.of_query, LOSSES[best.problem._loss_name]
        with np.errstate(all="ignore"):
            off = 2 * best.rounding(W, step) + EVALUATED
            # lead is infinite at the selected tokens, which then add nothing to the sums of e^-lead
            lead = self.data._flat_margins(W, self.chosen)
            up = np.exp(off) * (1 + self.data.lengths * UNIT)
            w = np.exp(-lead)
            mass, plain = np.add.reduceat(w, begin), self.drop > 0
            sigma = mass * up  # bound of 1 - p, with p the attention of the selected token
            # A bounds |u - g|, and V bounds g - u, for a query's output u and the score g of its selected token
            A = np.add.reduceat(w * np.abs(self.drop), begin) * up
            V = np.add.reduceat(w * self.drop * plain, begin) * up
            # sigma bounds the sum of e^-lead of a query: if it is below 1, its selected token has attention above 1 / 2
            if not ((sigma < 1).all() and (V < self.gap).all()):
                return None
            K = form.ratio(self.score + A, V + A)
            steep = A * (K + 1 / (self.gap - V))
            v = np.add.reduceat(w * self.drop, begin) / (1 + mass)
            slope = form.log_slope(self.score - v) - np.log1p(mass)
            log_mu = np.where(plain, slope[q] - lead + np.log(self.drop - v[q]), -np.inf)
            peak = log_mu.max()  # it is -inf if every token other than the selected ones is a threat
            mu = np.exp(log_mu - peak)
            bound = form.log_slope(self.score - V)[q] - lead + np.log(np.abs(self.drop) + A[q]) + off[q]
            # bound nu of the sum of the threats' multipliers |mu|, in units of the largest multiplier of all other rows
            nu = float(np.exp(bound - peak)[self.threat].sum()) * (1 + SPARE)
            # wrong: bound of the relative error of the multipliers |l'(u)| p (u - g), for output u, attention p and
            # score g
            # An error e of the output u changes |l'(u)| by at most the fraction K times e, where K bounds l'' / |l'|.
            # An error e of the output u changes the factor u - g of the multiplier by the fraction e / (u - g).
            wrong = (off * (1 + steep)).max() * 4 + EVALUATED * (1 + abs(peak))
            if not wrong < 0.1:
                return None
            pull = float(intervals(self.data, self.selection, W[None], mu[None], "frobenius")[1][0])
            pull = (pull + 2 * wrong * self.longest) * (1 + SPARE)
            size = float(np.exp(bound).sum()) / len(self.score) * (1 + SPARE)
            drift = float((self.lengths * (sigma + steep * (1 + sigma))).max()) * (1 + SPARE)
            return State(drift, nu / (mu.sum() * (1 - wrong)), pull, size)

    def keeps(self, state: State, step: float) -> bool:
        """Whether theorem B of notebooks/limit.md holds for steps of at most this length: the selection stays for ever,
        and W turns to the direction of its SVM.

        A cheap test comes first, with numbers that favour the inequality: the largest margin that the gradient allows,
        and 0 for the distance of rows.  Only then are the solver's margin and the distance of rows computed.
        """
        if not stays(step, state, state.pull, math.inf, self.longest, 0.0) or not self.margin > 0:
            return False
        unit = self.solution.W / np.linalg.norm(self.solution.W)
        # the least margin of a threat under the direction of the SVM solution
        threat = self.data._flat_margins(unit, self.chosen)[self.threat].min(initial=np.inf) * (1 - SPARE)
        threat -= self.best.rounding(unit, 1).max()
        return stays(step, state, self.margin, threat, self.longest, self.apart)


def stays(step: float, state: State, rho: float, threat: float, longest: float, apart: float) -> bool:
    """Whether inequality B of notebooks/limit.md holds, under which training keeps a selection for ever with steps of
    at most this length.

    ``threat`` is the least margin of a threat under the unit direction U of the SVM, infinite without threats.  rho is
    the certified margin, R the length of the longest row, tau, R E and ||M|| are the fields ``threats``, ``drift`` and
    ``pull`` of ``state``, and Delta bounds the distance of two rows.

    With a bound ``P >= ||M||`` for all later steps, ``m = sqrt(P^2 - rho^2)``, ``d = P + tau R``:

        x = (rho^2 - R (m + tau R)) / d                          > 0    growth of each lead, per unit of step length
        y = (threat rho - R (m + tau R)) / d - P - R E           > 0    threats' multipliers fall faster than S
        c = (rho - tau R) / step - Delta^2 / 8                   > 0
        P^2 - ||M||^2 >= ((d R E)^2 / (1 - e^(-2 step x)) + (R^2 tau)^2 / (1 - e^(-2 step y))) / c
    """
    step = max(step * (1 + SPARE), TINY)
    R, tau, drift = longest, state.threats, state.drift
    room = SPARE * rho**2 * 1.5 ** np.arange(TRIES)
    with np.errstate(all="ignore"):
        c = ((rho - tau * R) / step - apart**2 / 8) * (1 - SPARE)
        P = np.sqrt(state.pull**2 + room)
        lost, d = R * (np.sqrt(P**2 - rho**2) + tau * R), P + tau * R
        x, y = (rho**2 - lost) / d, (threat * rho - lost) / d - P - drift
        # y > 0 is needed even if tau underflows to 0: it makes threats' multipliers fall faster than other multipliers
        grow = np.minimum(x, y) > SPARE * rho
        grown = (d * drift) ** 2 / -np.expm1(-2 * step * x) + (R**2 * tau) ** 2 / -np.expm1(-2 * step * y)
        # the right side is positive only if c is
        return bool((grow & (grown * (1 + SPARE) < c * room)).any())
