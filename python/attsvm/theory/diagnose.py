"""The theory's conditions on a dataset, each one a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..attention.selection import Selection
from ..attention.windows import largest
from ..common.check import as_norm, check_type
from ..common.types import Norm
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from ..training.problem import Problem
from ..training.run import Run
from . import conditions
from .diagnosis import Diagnosis, windows_apart
from .limit_best import BestTokens, diameter, lengths_of_rows, longest_sure_step
from .limit_local import CERTIFIED

__all__ = ["diagnose"]

IN_RANGE = 300  # decimal digits either way of what the conditions multiply: tokens and queries squared, scores squared
# Scores that differ by this part of the gap above them, and margins of 1 + EQUAL, are taken as equal: larger
# differences can make weights of norm log(1 / difference) stationary.
EQUAL = 1e-9


def diagnose(problem: Problem, selected: ArrayLike | Run | None = None, norm: Norm = "frobenius") -> Diagnosis:
    """The conditions of the theory on this dataset: which hold, with which numbers.

    Parameters
    ----------
    problem : Problem
        With a linear head.
    selected : integer array_like (n,) or (n, S), a list of those, or a Run, optional
        One token per query; the optimal ones by default.
    norm : {"frobenius", "nuclear", "max", "spectral"} or float p > 1
        Of the SVM: "nuclear" for training K and Q, whose convergence is proved for the regularisation path alone;
        cones are for "frobenius".

    Returns
    -------
    Diagnosis

    Raises
    ------
    ValueError, TypeError
        Tokens whose products with queries and scores leave double precision.
    KeyboardInterrupt
        On Ctrl-C.

    Notes
    -----
    Definitions are those of "Transformers as Support Vector Machines" (Tarzanagh, Li, Thrampoulidis, Oymak, 2023):
    a selection is locally optimal when each selected token scores more than its support tokens.  The bound on the
    dimension is sharper than that of the paper.  For almost all tokens and queries the rows ``(x_selected - x_t) z^T``
    are linearly independent, so that some W gives them any margins.

    Examples
    --------
    >>> found = attsvm.diagnose(problem)
    >>> found.locally_optimal, found.dimension_suffices
    (True, True)
    >>> attsvm.diagnose(problem, [0, 0, 0, 0, 0, 0]).locally_optimal
    False
    """
    check_type("problem", problem, Problem)
    problem._require_linear()
    _check_scale(problem)
    norm = as_norm("norm", norm)
    data, scores = problem.data, problem._flat_scores
    best = _core.top(data._handle, scores)
    selection = Selection(data, problem.optimal if selected is None else selected)
    if selection.kept is not None:
        raise ValueError("selected must hold one token per query (integers), got bools")
    chosen = selection.reference
    solution = solve_svm(data, data._layout.shape_queries(chosen), norm)
    same = np.array_equal(chosen, best) and norm == "frobenius"
    ideal = solution if same else solve_svm(data, problem.optimal)
    spread, gap, equal = _non_optimal(problem, best)
    iota, size = conditions.first_gradient(problem, best)
    L = conditions.smoothness(problem)
    local = _locally(problem, solution)
    return Diagnosis(
        scores=problem.scores,
        optimal=problem.optimal,
        selected=data._layout.shape_queries(chosen),
        solution=solution,
        dimension_suffices=bool(
            data.dk >= data._longest - 1
            and (data._rows <= data.dk * data.dz if windows_apart(data) else len(data) <= data.dz)
        ),
        **local,
        globally_optimal=bool(
            (conditions.at_reference(problem, chosen) >= conditions.at_reference(problem, best)).all()
        ),
        all_support=conditions.all_tight(solution),
        unique_optimum=gap > 0,
        score_gap=gap,
        score_spread=spread,
        equal_scores=equal,
        no_stationary_point=_why_none(ideal, gap > 0, conditions.all_tight(ideal, EQUAL), equal),
        iota=iota,
        separating_cone=conditions.separating_cone(problem, ideal, iota, size),
        local_cone=(
            conditions.local_cone(problem, solution.W, chosen)
            if norm == "frobenius" and local["locally_optimal"]
            else None
        ),
        lipschitz=L,
        step_size=1 / L if L > 0 else math.inf,
        undecided=selected.undecided if isinstance(selected, Run) else None,
        **_limit(problem, ideal),
    )


def _check_scale(problem: Problem) -> None:
    """The first gradient and L_W are products of these numbers and their squares: zero or infinite they say nothing."""
    parts = {"queries": problem.data.queries, "scores": problem._flat_scores}
    sizes = {"tokens": problem.data._largest_key} | {name: largest(part) for name, part in parts.items()}
    if min(sizes.values()) == 0:
        return
    tokens, queries, scores = (math.log10(size) for size in sizes.values())
    together = 2 * (tokens + queries)
    if max(map(abs, (2 * tokens, 2 * queries, together + scores, together + 2 * scores))) > IN_RANGE:
        found = ", ".join(f"{name} of {size:.0e}" for name, size in sizes.items())
        raise ValueError(
            "problem must be of a scale at which squares of tokens, queries and scores and their products lie within "
            f"1e-{IN_RANGE} .. 1e{IN_RANGE}, got {found}: rescale them"
        )


def _non_optimal(problem: Problem, best: np.ndarray) -> tuple[float, float, bool]:
    """Largest spread of the non-optimal scores of a query, least gap of a best score to the next, and whether the
    former are equal."""
    data, others = problem.data, problem._flat_scores.copy()
    others[data.indptr[:-1] + best] = -np.inf
    second = np.maximum.reduceat(others, data.indptr[:-1])
    others[data.indptr[:-1] + best] = np.inf
    least = np.minimum.reduceat(others, data.indptr[:-1])
    some = data.lengths > 1
    if not some.any():
        return 0.0, math.inf, True
    first = problem._flat_scores[data.indptr[:-1] + best]
    spread, gap = float((second - least)[some].max()), float((first - second)[some].min())
    return spread, gap, bool(spread <= EQUAL * gap and gap > 0)


def _limit(problem: Problem, ideal: Separation) -> dict[str, Any]:
    """What a run must meet for its limit on the optimal tokens to be proved."""
    best = BestTokens(problem)
    if len(best.tied) or ideal.status not in CERTIFIED or not ideal.margin > 0:
        return {}
    lengths = lengths_of_rows(problem.data, best.best)
    step = longest_sure_step(ideal.margin, float(lengths.max()), diameter(problem.data, best.best, lengths))
    return {"barrier": best.barrier, "longest_step": step}


def _locally(problem: Problem, solution: Separation) -> dict[str, Any]:
    if solution.W is None or solution.status not in ("optimal", "no constraint"):
        return {"tight": None, "beaten_by": None, "locally_optimal": None}
    data, chosen = problem.data, solution.selection.reference
    tight = conditions.tight_entries(data, solution.W, chosen)
    rivals = tight & (problem._flat_scores >= conditions.at_reference(problem, chosen))
    strongest = _core.top(data._handle, np.where(rivals, problem._flat_scores, -np.inf))
    beaten = np.logical_or.reduceat(rivals, data.indptr[:-1])
    return {
        "tight": data._layout.shape_entries(tight, False),
        "beaten_by": data._layout.shape_queries(np.where(beaten, strongest, -1)),
        "locally_optimal": not beaten.any(),
    }


def _why_none(ideal: Separation, unique: bool, all_support: bool | None, equal: bool) -> str | None:
    if ideal.W is None or not unique or ideal.status == "no constraint":
        return None
    return "all tokens support" if all_support else "equal scores" if equal else None
