"""The theory's conditions on a dataset, each one a number."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from . import _core, theory
from ._check import as_norm
from ._selection import Selection
from .problem import Problem
from .separation import Separation
from .svm import solve_svm

__all__ = ["Diagnosis", "diagnose"]

EQUAL = 1e-9  # scores that differ by less, relative to the largest, tie: tokens given to double precision
BEATEN_SHOWN = 8  # queries listed by name


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What the theory says of a problem and a selection.  Prints as sentences; :meth:`to_dict` gives plain numbers.

    Attributes
    ----------
    scores : array or list, in the data's entry shape
        ``y v . value`` of every token a query sees.
    optimal : integer array or list, in the data's query shape
        Each query's best token.
    selected : integer array or list, in the data's query shape
        The selection diagnosed.
    solution : Separation
        Its SVM, with margin interval or, when infeasible, the certificate.
    dimension_suffices : bool
        ``dk >= T - 1`` and ``dz >= n`` for n queries over at most T tokens: then almost every dataset makes every
        selection separable.
    support : bool array or list, in the data's entry shape, or None
        Tokens whose margin is exactly 1; None without a solution.
    beaten_by : integer array or list, in the data's query shape, or None
        The best-scoring support token that scores at least as much as the selected one; -1 where there is none.
    locally_optimal : bool or None
        No query is beaten by a support token: training that starts near the SVM's direction stays there.
    globally_optimal : bool
        Every query selects a token of its highest score.
    all_support : bool or None
        Every token but the selected one is support.
    unique_optimum : bool
        Every query's best score is reached by one token.
    score_gap, score_spread : float
        Least distance of a best score from the second; largest difference among the non-optimal scores of a query.
    equal_scores : bool
        All non-optimal tokens of a query tie, below the best.
    no_stationary_point : str or None
        Why no W is stationary, so that gradient descent on W diverges from any start: "all tokens support" (of the
        optimal selection) or "equal scores"; None when neither holds.
    iota : float
        Least ``(x_t - x_optimal)^T G z`` of the gradient G at W = 0: positive when the first step separates.
    separating_cone : (float, float) or None
        mu and R of the cone around the first step in which no weights are stationary.
    local_cone : (float, float) or None
        mu and R: weights of norm at least R whose correlation with the SVM solution is at least 1 - mu are never
        stationary.  A bound, and a pessimistic one.
    lipschitz, step_size : float
        ``L_W``, a Lipschitz constant of the gradient, and 1 / L_W, the theory's step of plain gradient descent.
    """

    scores: Any
    optimal: Any
    selected: Any
    solution: Separation
    dimension_suffices: bool
    support: Any
    beaten_by: Any
    locally_optimal: bool | None
    globally_optimal: bool
    all_support: bool | None
    unique_optimum: bool
    score_gap: float
    score_spread: float
    equal_scores: bool
    no_stationary_point: str | None
    iota: float
    separating_cone: tuple[float, float] | None
    local_cone: tuple[float, float] | None
    lipschitz: float
    step_size: float

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and nested lists only; the solution as its status, margins and certificate."""
        found = {
            field.name: _plain(getattr(self, field.name)) for field in fields(self) if field.name != "solution"
        }
        solution = self.solution
        return found | {
            "norm": solution.norm,
            "status": solution.status,
            "margin": solution.margin,
            "margin_bound": solution.margin_bound,
            "rank": solution.rank,
            "certificate": _plain(solution.certificate),
        }

    def __repr__(self) -> str:
        return "\n".join(
            [f"Diagnosis of {self._what()}", *(f"  {name:<20}{text}" for name, text in self._lines())]
        )

    def _what(self) -> str:
        data = self.solution.data
        lengths = data.stop - data.start
        tokens = str(lengths.max()) if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
        return f"{len(data)} queries over {tokens} tokens, dk = {data.dk}, dz = {data.dz}"

    def _lines(self) -> list[tuple[str, str]]:
        lines = [
            ("selected", self._selected()),
            ("separable", self._separable()),
            ("dimension", self._dimension()),
        ]
        if self.support is not None:
            held, others = self._counts()
            lines.append(("support", f"{held} of the {others} tokens not selected have a margin of exactly 1"))
            lines += self._local()
        lines.append(("stationary points", self._stationary()))
        lines.append(("first step", self._first()))
        lines.append(
            (
                "step size",
                f"1 / L_W = {self.step_size:.4g} for plain gradient descent on W, L_W = {self.lipschitz:.4g}",
            )
        )
        return lines

    def _selected(self) -> str:
        best = _flat(self.optimal)
        if self.globally_optimal:
            tie = "" if self.unique_optimum else " (some queries have several of the same score)"
            return "globally optimal: the best token of every query" + tie
        same = int((_flat(self.selected) == best).sum())
        return f"not globally optimal: the best token of {same} of {len(best)} queries"

    def _separable(self) -> str:
        solution = self.solution
        if solution.W is None or solution.status == "no constraint":
            answer = {"infeasible": "no", "no constraint": "yes"}.get(solution.status, solution.status)
            return f"{answer}: {solution.message}"
        return (
            f"yes: weights of {_norm_name(solution.norm)} norm 1 reach the margin {solution.margin:.6g}, the largest "
            f"to a relative {solution.gap:.1e}"
        )

    def _dimension(self) -> str:
        data = self.solution.data
        needs = f"dk >= T - 1 = {int((data.stop - data.start).max()) - 1} and dz >= n = {len(data)}"
        if self.dimension_suffices:
            return f"{needs}: almost all data of this shape are separable, whatever is selected"
        return f"too small to make every selection separable, which takes {needs}"

    def _counts(self) -> tuple[int, int]:
        data = self.solution.data
        return int(sum(np.sum(part) for part in _listed(self.support))), int(data.indptr[-1]) - len(data)

    def _local(self) -> list[tuple[str, str]]:
        if not self.locally_optimal:
            beaten = np.flatnonzero(_flat(self.beaten_by) >= 0)
            text = [
                f"no: {len(beaten)} of {len(self.solution.data)} queries have a support token of a score as good"
            ]
            text += [self._rival(q) for q in beaten[:BEATEN_SHOWN]]
            if len(beaten) > BEATEN_SHOWN:
                text.append(f"and {len(beaten) - BEATEN_SHOWN} more")
            return [("locally optimal", ("\n" + " " * 22).join(text))]
        lines = [("locally optimal", "yes: every selected token scores more than its support tokens")]
        if self.local_cone:
            mu, R = self.local_cone
            lines.append(("local cone", f"no stationary W with correlation >= 1 - {mu:.3g} and norm >= {R:.4g}"))
        return lines

    def _rival(self, q: int) -> str:
        token, chosen = int(_flat(self.beaten_by)[q]), int(_flat(self.selected)[q])
        row = _rows(self.scores)[q]
        return f"query {q}: token {token} scores {row[token]:.4g}, the selected {chosen} {row[chosen]:.4g}"

    def _stationary(self) -> str:
        if self.no_stationary_point == "all tokens support":
            return "none: all tokens but the optimal ones are their support"
        if self.no_stationary_point == "equal scores":
            return "none: the other tokens of a query score the same"
        return (
            "not excluded: the optimal tokens are not held by all others, whose scores do not tie "
            f"(spread {self.score_spread:.4g})"
        )

    def _first(self) -> str:
        if not self.separating_cone:
            return f"gradient at W = 0 does not separate the optimal tokens: iota = {self.iota:.4g}"
        mu, R = self.separating_cone
        return (
            f"gradient at W = 0 separates the optimal tokens, iota = {self.iota:.4g}: no stationary W of norm "
            f">= {R:.4g} in its cone, mu = {mu:.3g}"
        )


def diagnose(problem: Problem, selected: Any = None, norm: str | float = "frobenius") -> Diagnosis:
    """The conditions of the theory on this dataset: which hold, with which numbers.

    Parameters
    ----------
    problem : Problem
        With a linear head.
    selected : integer array_like (n,) or (n, S), or a list of those, optional
        One token per query; the optimal ones by default.
    norm : {"frobenius", "nuclear"} or float p > 1
        Of the SVM: "nuclear" for training K and Q, whose convergence is proved for the regularisation path alone;
        cones are for "frobenius".

    Returns
    -------
    Diagnosis

    Raises
    ------
    ValueError, TypeError
        Naming the argument that does not fit.
    KeyboardInterrupt
        On Ctrl-C.

    Notes
    -----
    Definitions are those of "Transformers as Support Vector Machines" (Tarzanagh, Li, Thrampoulidis, Oymak, 2023):
    a selection is locally optimal when each selected token scores more than its support tokens.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> found = attsvm.diagnose(problem)
    >>> found.locally_optimal, found.dimension_suffices
    (True, True)
    >>> attsvm.diagnose(problem, [0, 0, 0, 0, 0, 0]).locally_optimal
    False
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {type(problem).__name__}")
    problem.require_linear()
    norm = as_norm("norm", norm)
    data, scores = problem.data, problem._scores
    best = _core.top(data._handle, scores)
    selection = Selection(data, problem.optimal if selected is None else selected)
    if selection.kept is not None:
        raise ValueError("selected must hold one token per query (integers), got bools")
    chosen = selection.reference
    solution = solve_svm(data, data.layout.shape_queries(chosen), norm)
    same = np.array_equal(chosen, best) and norm == "frobenius"
    ideal = solution if same else solve_svm(data, problem.optimal)
    spread, gap, equal = _non_optimal(problem, best)
    iota, size = theory.first_gradient(problem, best)
    L = theory.smoothness(problem)
    held = _all_support(data, ideal)
    local = _locally(problem, solution)
    return Diagnosis(
        scores=problem.scores,
        optimal=problem.optimal,
        selected=data.layout.shape_queries(chosen),
        solution=solution,
        dimension_suffices=bool(data.dk >= (data.stop - data.start).max() - 1 and data.dz >= len(data)),
        **local,
        globally_optimal=bool((theory.at_reference(problem, chosen) >= theory.at_reference(problem, best)).all()),
        all_support=_all_support(data, solution),
        unique_optimum=gap > 0,
        score_gap=gap,
        score_spread=spread,
        equal_scores=equal,
        no_stationary_point=_why_none(ideal, gap > 0, held, equal),
        iota=iota,
        separating_cone=theory.separating_cone(problem, ideal, iota, size),
        local_cone=(
            theory.local_cone(problem, solution.W, chosen)
            if norm == "frobenius" and local["locally_optimal"]
            else None
        ),
        lipschitz=L,
        step_size=1 / L if L > 0 else math.inf,
    )


def _non_optimal(problem: Problem, best: np.ndarray) -> tuple[float, float, bool]:
    """Largest spread of the non-optimal scores of a query, least gap of a best score to the next, and whether the
    former are equal."""
    data, others = problem.data, problem._scores.copy()
    others[data.indptr[:-1] + best] = -np.inf
    second = np.maximum.reduceat(others, data.indptr[:-1])
    others[data.indptr[:-1] + best] = np.inf
    least = np.minimum.reduceat(others, data.indptr[:-1])
    some = data.stop - data.start > 1
    if not some.any():
        return 0.0, math.inf, True
    first = problem._scores[data.indptr[:-1] + best]
    spread, gap = float((second - least)[some].max()), float((first - second)[some].min())
    return spread, gap, bool(spread <= EQUAL * np.abs(problem._scores).max() and gap > 0)


def _locally(problem: Problem, solution: Separation) -> dict[str, Any]:
    if solution.W is None:
        return {"support": None, "beaten_by": None, "locally_optimal": None}
    data, chosen = problem.data, solution._selection.reference
    support = theory.support_entries(data, solution.W, chosen)
    rivals = support & (problem._scores >= theory.at_reference(problem, chosen))
    strongest = _core.top(data._handle, np.where(rivals, problem._scores, -np.inf))
    beaten = np.logical_or.reduceat(rivals, data.indptr[:-1])
    return {
        "support": data.layout.shape_entries(support, False),
        "beaten_by": data.layout.shape_queries(np.where(beaten, strongest, -1)),
        "locally_optimal": not beaten.any(),
    }


def _all_support(data: Any, solution: Separation) -> bool | None:
    if solution.W is None:
        return None
    held = theory.support_entries(data, solution.W, solution._selection.reference).sum()
    return bool(held == data.indptr[-1] - len(data))


def _why_none(ideal: Separation, unique: bool, all_support: bool | None, equal: bool) -> str | None:
    if ideal.W is None or not unique or ideal.status == "no constraint":
        return None
    return "all tokens support" if all_support else "equal scores" if equal else None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


def _listed(shaped: Any) -> list:
    return shaped if isinstance(shaped, list) else [shaped]


def _flat(shaped: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in _listed(shaped)])


def _rows(shaped: Any) -> list[np.ndarray]:
    """Entry-shaped numbers, one row per query."""
    return [row for part in _listed(shaped) for row in np.reshape(part, (-1, np.shape(part)[-1]))]


def _norm_name(norm: str | float) -> str:
    return {"frobenius": "Frobenius", "nuclear": "nuclear"}.get(norm, f"entrywise l{norm}")  # type: ignore[arg-type]
