"""The influence of each sequence on an SVM answer: the answer without the sequence, solved again if it holds a support
token."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..common.result import Lines, Solved
from .in_metric import solve_in_norm
from .request import SHARDED, Request, of_order_one
from .separation import Separation

TOL = 1e-9  # the default tolerance of solve_svm


@dataclass(repr=False, eq=False)
class Influence(Solved):
    """The influence of each sequence on an SVM answer, or of each point on a separating plane.

    Returned by :meth:`attsvm.Separation.influence` and :meth:`attsvm.Plane.influence`.

    Attributes
    ----------
    solution : Separation or Plane
        The answer with all sequences, or points.
    multiplier : (n,) array
        Sum of the multipliers of the rows of each sequence.
    turn : (n,) array
        ``1 - correlation`` of ``W`` with the answer without the sequence; NaN where no weights are left.
    margin : (n,) array
        The largest margin without the sequence; infinite if no other margin is asked, NaN for a soft margin.
    objective : (n,) array
        ``1 / (2 margin^2)``, or the objective of the soft margin, without the sequence.
    solved : (n,) bool array
        Whether the sequence holds a support token or, with a soft margin, slack, so that its removal took a solve.
    unfinished : list of int
        Sequences without which the solver stopped before its tolerance.
    unit : str
        "sequence", or "point" on a plane.
    """

    solution: Any
    multiplier: np.ndarray
    turn: np.ndarray
    margin: np.ndarray
    objective: np.ndarray
    solved: np.ndarray
    unfinished: list[int]
    unit: str = "sequence"

    @property
    def share(self) -> float:
        """The share of sequences that hold a support token.

        For exchangeable sequences whose tokens are selected by a fixed rule, it bounds the expected chance that the
        answer selects wrongly for a new sequence.
        """
        return float(self.solved.mean())

    _derived = ("share",)

    def _title(self) -> str:
        return f"Influence of each {self.unit} on a {self.solution.norm_name} SVM"

    def _lines(self) -> Lines:
        count = self.solved.sum()
        lines = [("support", f"{count} of {len(self.turn)}; without any other {self.unit} the answer is the same")]
        if count and np.isfinite(self.turn).any():
            most = np.nanargmax(self.turn)
            lines.append(("largest turn", f"{self.turn[most]:.3g}, without {self.unit} {most}"))
        if self.unfinished:
            lines.append(("unfinished", f"stopped before the tolerance without {self.unfinished}"))
        return lines

    def columns(self) -> dict[str, Any]:
        return {self.unit: np.arange(len(self.turn))} | {
            name: getattr(self, name) for name in ("multiplier", "turn", "margin", "objective", "solved")
        }


def influence_of(sol: Separation) -> Influence:
    """Computes the influence of each sequence on an SVM answer: see :meth:`attsvm.Separation.influence`."""
    owner = owners(sol)
    n = owner[-1] + 1
    solved = np.bincount(owner, moving(sol), n) > 0
    turn, unfinished = np.zeros(n), []
    margin, objective = np.full(n, sol.margin), np.full(n, sol.objective)
    for i in np.flatnonzero(solved).tolist():
        rest = without(sol, owner == i)
        if rest.status not in ("optimal", "no constraint"):
            unfinished.append(i)
        margin[i], objective[i], turn[i] = rest.margin, rest.objective, turn_between(sol.W, rest.W)
    return Influence(sol, np.bincount(owner, sol.flat_dual, n), turn, margin, objective, solved, unfinished)


def moving(sol: Separation) -> np.ndarray:
    """Which constraints may change the answer by their removal, as a flat bool array: those of support tokens, and
    those with a nonzero multiplier that are equalities or, with a soft margin, any: their slack counts even if W has no
    part in it."""
    equal = sol.selection.flags(sol.data) | (sol.C is not None)
    return sol.flat_support | equal & (sol.flat_dual != 0)  # equality rows may have multipliers of either sign


def owners(sol: Separation) -> np.ndarray:
    """The number of the sequence to which each entry (pair of a query and a token) belongs.

    Raises ValueError unless the answer is optimal and all rows (constraints) of its SVM are in this process.
    """
    if sol.data._identity:
        raise ValueError("influence needs tokens, got a vocabulary: its rows are those of kinds of contexts")
    if sol.method == SHARDED:
        raise ValueError("influence needs all rows in one process, got an answer of reduce=")
    if sol.status != "optimal":
        raise ValueError(f"influence is that on an optimal answer, got one that is {sol.status!r}: {sol.message}")
    counts = sol.data._layout.counts
    return np.repeat(np.repeat(np.arange(len(counts)), counts), sol.data.lengths)


def without(sol: Separation, gone: np.ndarray) -> Separation:
    """Solves the SVM without the constraints flagged in ``gone``, warm-started from the multipliers of the remaining
    constraints."""
    start = np.where(gone, 0.0, sol.flat_dual)
    return solve_in_norm(sol.data, Request(sol.selection.without(gone), sol.norm, "auto", TOL, C=sol.C, dual=start))


def turn_between(A: np.ndarray, B: np.ndarray | None) -> float:
    """1 - correlation of matrices A and B, accurate also where they are close; NaN if B is zero or None."""
    if B is None or not B.any():
        return math.nan
    A, B = map(of_order_one, (A, B))
    return float(np.sum((A / np.linalg.norm(A) - B / np.linalg.norm(B)) ** 2) / 2)
