"""When the tokens that attention selects now, optimal or not, are what training selects for ever.

The inequalities of theorem B in notebooks/limit.md.  Notation of that page: the selection a(i); ``r_it`` the rows,
``lead_it = <r_it, W>``; threats score at least as much as the selected token, the other rows are P; mu the multipliers,
``q = mu / S`` on P with ``S = sum_P mu``, ``M = sum_P q r``; ``rho`` the certified margin of the unit direction U.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from ..attention.intervals import intervals
from ..attention.selection import Selection
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from .limit_best import EVALUATED, LOSSES, SPARE, UNIT, BestTokens, diameter, lengths_of_rows

__all__ = ["LocalTokens", "State", "certified_margin", "stays"]

CERTIFIED = ("optimal", "iteration limit")  # statuses of an answer whose margin is certified
TINY = 1e-300  # in the place of a step that underflows
TRIES = 52  # of the bound P^2 on ||M||^2: from 1e-9 rho^2 to rho^2 above it, each 1.5 times as far as the last


def certified_margin(solution: Separation) -> float:
    """rho: the certified lower end of the largest margin; 0 where none is certified."""
    return max(solution.margin * (1 - SPARE), 0.0) if solution.status in CERTIFIED else 0.0


class State(NamedTuple):
    """What one record says of a selection, each number rounded to the safe side."""

    holds: bool = False  # every query: attention above 1/2, output above all scores of P
    drift: float = math.inf  # R E: bound of |d log mu / ds + <r, D>| on P
    threats: float = math.inf  # tau: bound of the threats' sum of |mu|, over S
    pull: float = math.inf  # ||M||
    size: float = math.inf  # bound of sum |mu|: ||dF|| <= R size


class LocalTokens:
    """A selection of a problem; its SVM is solved when the rest of inequality B may hold."""

    def __init__(self, best: BestTokens, chosen: np.ndarray):
        data = best.problem.data
        self.best, self.data, self.problem, self.chosen = best, data, best.problem, chosen
        self.selection = Selection(data, data._layout.shape_queries(chosen))
        self.score = best.scores[best.begin + chosen]
        self.drop = self.score[best.of_query] - best.scores  # positive on P; of the selected tokens themselves 0
        self.threat = self.drop <= 0
        self.threat[best.begin + chosen] = False
        self.gap = np.minimum.reduceat(np.where(self.drop > 0, self.drop, np.inf), best.begin)
        self.lengths = lengths_of_rows(data, chosen)
        self.longest = float(self.lengths.max()) * (1 + SPARE)

    @functools.cached_property
    def apart(self) -> float:
        return diameter(self.data, self.chosen, self.lengths)

    @functools.cached_property
    def solution(self) -> Separation:
        return solve_svm(self.data, self.data._layout.shape_queries(self.chosen))

    @functools.cached_property
    def margins(self) -> tuple[float, float]:
        """rho, and the least margin of a threat, under the direction of the solution; zeros where none is certified."""
        rho, W = certified_margin(self.solution), self.solution.W
        if not rho > 0 or W is None:
            return 0.0, 0.0
        unit = W / np.linalg.norm(W)
        under = float(self.data._flat_margins(unit, self.chosen)[self.threat].min(initial=np.inf))
        return rho, under * (1 - SPARE) - float(self.best.rounding(unit, 1).max())

    def at(self, W: np.ndarray, step: int) -> State:
        """The numbers of theorem B at weights (dk, dz)."""
        begin, q, form = self.best.begin, self.best.of_query, LOSSES[self.problem._loss_name]
        off = 2 * self.best.rounding(W, step) + UNIT * EVALUATED
        lead = self.data._flat_margins(W, self.chosen)  # infinite of the selected tokens, which add nothing below
        if not (lead.min() > 0 and off.max() < SPARE**0.5):
            return State()
        up = np.exp(off) * (1 + self.data.lengths * UNIT)
        w = np.exp(-lead)
        mass, plain = np.add.reduceat(w, begin), self.drop > 0
        sigma = mass * up  # >= 1 - p_ia
        A = np.add.reduceat(w * np.abs(self.drop), begin) * up  # >= |u - g_ia|
        V = np.add.reduceat(w * self.drop * plain, begin) * up  # >= g_ia - u
        if not ((sigma < 1).all() and (V < self.gap).all()):  # p_ia > 1 / (1 + 1)
            return State()
        K = form.ratio(self.score + A, V + A)
        steep = A * (K + 1 / (self.gap - V))
        v = np.add.reduceat(w * self.drop, begin) / (1 + mass)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = form.log_slope(self.score - v) - np.log1p(mass)
            log_mu = np.where(plain, slope[q] - lead + np.log(self.drop - v[q]), -np.inf)
            peak = float(log_mu.max())
            if not np.isfinite(peak):  # no row but threats
                return State()
            mu = np.exp(log_mu - peak)
            bound = form.log_slope(self.score - V)[q] - lead + np.log(np.abs(self.drop) + A[q]) + off[q]
            nu = float(np.exp(bound - peak)[self.threat].sum()) * (1 + SPARE)  # threats may outweigh the rest
        # Relative error of mu: that of p, of the slope (K times that of u) and of u - g_it (relative to the gap).
        wrong = float((off * (1 + steep)).max()) * 4 + EVALUATED * UNIT * (1 + abs(peak))
        pull = float(intervals(self.data, self.selection, W[None], mu[None], "frobenius")[1][0])
        pull = (pull + 2 * wrong * self.longest) * (1 + SPARE)
        size = float(np.exp(bound).sum()) / len(self.score) * (1 + SPARE)
        drift = float((self.lengths * (sigma + steep * (1 + sigma))).max()) * (1 + SPARE)
        return State(wrong < 0.1, drift, nu / (float(mu.sum()) * (1 - wrong)), pull, size)

    def keeps(self, state: State, step: float) -> bool:
        """Whether steps of at most this length keep the selection for ever and turn W to its SVM.

        What costs most is asked last: first with the largest margin that the gradient leaves, and rows that lie
        together; then with the solver's margin; then with the distance of the rows.
        """
        if not (state.holds and stays(step, state, state.pull, math.inf, self.longest, 0.0)):
            return False
        rho, threat = self.margins
        return (
            rho > 0
            and stays(step, state, rho, threat, self.longest, 0.0)
            and stays(step, state, rho, threat, self.longest, self.apart)
        )


def stays(step: float, state: State, rho: float, threat: float, longest: float, apart: float) -> bool:
    """Inequality B for steps of at most this length; ``threat`` the least margin of a threat under U,
    infinite without threats.

    With a bound ``P >= ||M||`` for all later steps, ``m = sqrt(P^2 - rho^2)``, ``d = P + tau R``:

        x = (rho^2 - R (m + tau R)) / d                          > 0    leads of all rows grow, per unit of length
        y = (threat rho - R (m + tau R)) / d - P - R E           > 0    threats fall against S
        c = (rho - tau R) / step - Delta^2 / 8                   > 0
        P^2 - ||M||^2 >= ((d R E)^2 / (1 - e^(-2 step x)) + (R^2 tau)^2 / (1 - e^(-2 step y))) / c
    """
    step = max(step * (1 + SPARE), TINY)
    R, tau, drift, pull = longest, state.threats, state.drift, state.pull
    if not (rho > tau * R and math.isfinite(drift) and pull >= rho * (1 - SPARE)):
        return False
    c = ((rho - tau * R) / step - apart**2 / 8) * (1 - SPARE)
    if not c > 0:
        return False
    room = SPARE * rho**2
    for _ in range(TRIES):
        P = math.sqrt(pull**2 + room)
        lost, d = R * (math.sqrt(P**2 - rho**2) + tau * R), P + tau * R
        x, y = (rho**2 - lost) / d, (threat * rho - lost) / d - P - drift
        if not (x > SPARE * rho and y > SPARE * rho):  # y also where tau underflows: threats that fall more slowly win
            return False
        grown = (d * drift) ** 2 / -math.expm1(-2 * step * x) + (R**2 * tau) ** 2 / -math.expm1(-2 * step * y)
        if grown * (1 + SPARE) <= c * room:
            return True
        room *= 1.5
    return False
