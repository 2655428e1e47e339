"""The theory's conditions on a dataset, as numbers and as printed sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..attention.data import largest
from ..attention.selection import Selection
from ..common.check import as_norm, check_type
from ..common.norms import norm_name
from ..common.result import Lines, Solved
from ..common.types import Norm
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from ..training.problem import Problem
from ..training.run import Run
from . import conditions
from .limit_proofs import BestTokens, Rows, longest_step

IN_RANGE = 300  # products of numbers in the conditions must lie within 1e-IN_RANGE .. 1eIN_RANGE
# Scores that differ by less than this fraction of the gap to the best score count as equal.
# Tokens with a margin of at most 1 + EQUAL count as tight.
# If scores or margins differ by more than EQUAL allows, weights of norm log(1 / difference) can be stationary.
EQUAL = 1e-9
# A message lists at most this number of the queries in which a tight token scores at least as much as the selected one.
BEATEN_SHOWN = 8
DIVERGES = "gradient descent on W diverges from any start, though not always to the optimal tokens"


@dataclass(frozen=True, repr=False, eq=False)
class Diagnosis(Solved):
    """The theory's conditions for a problem and a selection.  Prints as sentences; :meth:`to_dict` gives plain numbers.

    Attributes
    ----------
    data, status, message
        Of the ``solution``.
    scores : array or list, in the data's entry shape
        ``y v . value`` of every token a query sees.
    optimal : integer array or list, in the data's query shape
        Each query's best token.
    selected : integer array or list, in the data's query shape
        The selection diagnosed.
    solution : Separation
        Its SVM, with margin interval or, when infeasible, the certificate.
    dimension_suffices : bool
        Whether the shape alone makes every selection separable, for almost all data: each window has at most dk + 1
        tokens, and there are at most dk dz rows, or, if queries share tokens, at most dz queries.  The condition is
        sufficient, not necessary.
    tight : bool array or list, in the data's entry shape, or None
        Tokens whose margin is 1, up to 1e-4, or whose multiplier is positive: the paper's support indices.
        ``solution.support`` has only the latter.  None without an optimal solution.
    beaten_by : integer array or list, in the data's query shape, or None
        The best-scoring tight token that scores at least as much as the selected one; -1 where there is none.
    locally_optimal : bool or None
        Whether no tight token scores at least as much as the selected one.  Then plain gradient descent on W, in steps
        up to ``step_size``, converges to the direction of the Frobenius SVM from all weights that are large enough and
        close enough to that direction.
    globally_optimal : bool
        Every query selects a token of its highest score.
    all_support : bool or None
        Every token but the selected one is tight.
    unique_optimum : bool
        Every query's best score is reached by one token.
    score_gap, score_spread : float
        Least distance of a best score from the second; largest difference among the non-optimal scores of a query.
    equal_scores : bool
        All non-optimal tokens of a query tie, below the best.
    no_stationary_point : str or None
        The reason why no W is stationary, so that gradient descent on W diverges from any start: "all tokens support"
        (every token but the optimal ones is tight in their SVM) or "equal scores".  None if neither holds; there may
        still be no stationary point, as when the rows are linearly independent.
    iota : float
        The least ``(x_t - x_optimal)^T G z`` for the gradient G at W = 0; positive if the first step separates, 0
        if it is 0 within rounding.
    separating_cone : (float, float) or None
        mu and R of a cone around the first step in which no weights are stationary; None if the step does not separate.
    local_cone : (float, float) or None
        mu and R: at weights of norm at least R whose correlation with the SVM solution is at least 1 - mu the loss
        falls along that solution, so no such weights are stationary.  The bound is pessimistic, and training may leave
        the cone.
    lipschitz, step_size : float
        ``L_W``, a Lipschitz constant of the gradient, and 1 / L_W, the theory's step of plain gradient descent.
    barrier, longest_step : float or None
        What theorem A of ``notebooks/limit.md`` needs before :meth:`attsvm.Run.limit` proves by it that a run goes to
        the optimal tokens: a loss less than ``barrier`` above its infimum, and normalised steps shorter than
        ``longest_step = 8 rho / Delta^2``, where rho is the margin of the optimal tokens' SVM and Delta bounds the
        distance between two rows.  Both are necessary, and not sufficient.  None if several tokens have the best score,
        if no margin is certified, or if no proof covers the loss or the size of tokens and queries.
    undecided : bool array or list, in the data's query shape, or None
        For a diagnosed run: the queries whose attention has not chosen a token.
    """

    scores: Any
    optimal: Any
    selected: Any
    solution: Separation
    dimension_suffices: bool
    tight: Any
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
    undecided: Any = None
    barrier: float | None = None
    longest_step: float | None = None

    def _check(self) -> None:
        self.columns()  # reads all other arrays
        if self.undecided is not None:
            self._queries("undecided")

    _least_width = 20

    def _queries(self, name: str) -> Any:
        """The values of an attribute that has one value per query, as a flat array."""
        return self.data._layout.flatten_queries(name, getattr(self, name))

    def _scores_of(self, name: str) -> Any:
        """The scores of the tokens that an attribute (selected, optimal or beaten_by) names, one per query."""
        return self._entries("scores")[self.data._begin + self._queries(name)]

    def _entries(self, name: str) -> np.ndarray:
        return self.data._layout.flatten_entries(name, getattr(self, name), hidden=True)

    def columns(self) -> dict[str, Any]:
        columns = {
            "query": np.arange(len(self.data.queries)),
            "selected": self._queries("selected"),
            "score": self._scores_of("selected"),
            "optimal": self._queries("optimal"),
            "optimal_score": self._scores_of("optimal"),
        }
        if self.tight is not None:
            columns["tight_tokens"] = np.add.reduceat(self._entries("tight"), self.data._begin, dtype=np.intp)
            columns["beaten_by"] = self._queries("beaten_by")
        return columns

    def _title(self) -> str:
        data, lengths = self.data, self.data.lengths
        tokens = str(lengths.max()) if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
        return f"Diagnosis of {len(data)} queries over {tokens} tokens, dk = {data.dk}, dz = {data.dz}"

    def _lines(self) -> Lines:
        data, lines = self.data, [("selected", self._selected())]
        if self.undecided is not None and (count := self._queries("undecided").sum()):
            lines.append(("undecided", f"{count} of {len(data)} queries of the run: their attention has not chosen"))
        lines += [("separable", self._separable()), ("dimension", self._dimension())]
        if self.tight is not None:
            share = f"{self._entries('tight').sum()} of the {data._entries - len(data)} tokens not selected"
            lines.append(("tight", f"{share}: their margin is 1, to 1e-4, or their multiplier positive"))
            lines.append(("locally optimal", self._local()))
        if self.local_cone:
            near = "correlation >= 1 - {:.3g}, norm >= {:.4g}".format(*self.local_cone)
            lines.append(("local cone", f"no weights this near the SVM are stationary: {near}"))
        step = f"1 / L_W = {self.step_size:.4g} for plain gradient descent on W, L_W = {self.lipschitz:.4g}"
        return [
            *lines,
            ("stationary points", self._stationary()),
            ("first step", self._first()),
            ("step size", step),
            ("limit", self._limit()),
        ]

    def _selected(self) -> str:
        if self.globally_optimal:
            tie = "" if self.unique_optimum else " (some queries have several of the same score)"
            return "globally optimal: the best token of every query" + tie
        same = self._scores_of("selected") >= self._scores_of("optimal")
        return f"not globally optimal: the best token of {same.sum()} of {len(same)} queries"

    def _separable(self) -> str:
        solution = self.solution
        if solution.W is None or solution.status == "no constraint":
            answer = {"infeasible": "no", "no constraint": "yes"}.get(solution.status, solution.status)
            return f"{answer}: {solution.message}"
        return (
            f"yes: weights of {norm_name(solution.norm)} norm 1 reach the margin {solution.margin:.6g}, the largest "
            f"to a relative {solution.gap:.1e}"
        )

    def _dimension(self) -> str:
        data = self.data
        needs = f"dk >= T - 1 = {data._longest - 1} and "
        needs += f"dk dz >= rows = {data._rows}" if windows_apart(data) else f"dz >= queries = {len(data)}"
        if self.dimension_suffices:
            return f"{needs}: almost all data of this shape are separable, whatever is selected"
        return f"the shape alone does not decide: enough for almost all data, but not necessary, is {needs}"

    def _local(self) -> str:
        if self.locally_optimal:
            return "yes: every selected token scores more than the tight tokens of its query"
        rival, chosen = self._queries("beaten_by"), self._queries("selected")
        beaten = np.flatnonzero(rival >= 0)
        count, best, score = len(beaten), self._scores_of("beaten_by"), self._scores_of("selected")
        text = [f"no: in {count} of {len(self.data)} queries a tight token scores as much: training may leave or stay"]
        for q in beaten[:BEATEN_SHOWN]:
            token = f"token {rival[q]} scores {best[q]:.4g}"
            text.append(f"query {q}: {token}, the selected {chosen[q]} {score[q]:.4g}")
        text += [f"and {count - BEATEN_SHOWN} more"] * (count > BEATEN_SHOWN)
        return "\n".join(text)

    def _limit(self) -> str:
        if self.iota == math.inf:
            return "nothing to prove: every query sees one token"
        if self.barrier is None:
            return (
                "not to be proved of the optimal tokens: each must be the only best one, their SVM feasible, the loss "
                "a named one, and squares of tokens and queries in range"
            )
        return (
            f"theorem A needs a loss less than {self.barrier:.3g} above that of the best tokens, and normalised steps "
            f"shorter than {self.longest_step:.3g}: run.limit()"
        )

    def _stationary(self) -> str:
        if self.no_stationary_point == "all tokens support":
            return f"none, all tokens but the optimal ones are tight in their SVM: {DIVERGES}"
        if self.no_stationary_point == "equal scores":
            return f"none, the other tokens of a query score the same: {DIVERGES}"
        if (self._scores_of("optimal") == np.minimum.reduceat(self._entries("scores"), self.data._begin)).all():
            return "every W: all tokens that a query sees score the same"
        # if no W ranks the selected tokens first, the rows of the SVM are linearly dependent
        if self.dimension_suffices and self.solution.W is not None:
            return f"none for almost all data of this shape, whose rows are independent: {DIVERGES}"
        return (
            "not excluded: enough would be one best token in each query, weights that rank these first, and the others "
            f"all tight in their SVM or equal in score (here up to {self.score_spread:.4g} apart)"
        )

    def _first(self) -> str:
        if self.iota == math.inf:
            return "nothing to separate: every query sees one token"
        if not self.separating_cone:
            least = f"its least margin is iota = {self.iota:.4g}"
            return f"from W = 0 it does not rank the optimal token first everywhere: {least}"
        mu, R = self.separating_cone
        return (
            f"from W = 0 it ranks the optimal tokens first, by iota = {self.iota:.4g}: beyond norm {R:.4g} no weights "
            f"are stationary in that cone, mu = {mu:.3g}"
        )


def windows_apart(data: Any) -> bool:
    """Whether the windows of the queries are disjoint, so that no two queries share tokens."""
    order = np.argsort(data.start)
    return bool((data.start[order[1:]] >= data.stop[order[:-1]]).all())


def diagnose(problem: Problem, selected: ArrayLike | Run | None = None, norm: Norm = "frobenius") -> Diagnosis:
    """Checks the theory's conditions on the data of a problem: which of them hold, and with which numbers.

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
        If products of tokens, queries and scores leave double precision.
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
    data, best = problem.data, BestTokens(problem)
    selection = Selection(data, problem.optimal if selected is None else selected)
    if selection.kept is not None:
        raise ValueError("selected must hold one token per query (integers), got bools")
    chosen = selection.reference
    solution = solve_svm(data, data._layout.shape_queries(chosen), norm)
    same = np.array_equal(chosen, best.best) and norm == "frobenius"
    rows = Rows(data, best.best)
    if same:
        rows.solution = solution
    ideal = rows.solution
    gap = float(best.gap.min())
    spread = float((best.second - np.minimum.reduceat(best.scores, best.begin)).max(initial=0.0))
    equal = gap > 0 and spread <= EQUAL * gap
    iota, size = conditions.first_gradient(problem, best.best)
    L = conditions.smoothness(problem)
    tight = beaten_by = locally_optimal = None
    if solution.status in ("optimal", "no constraint"):
        rivals = conditions.rivals_of(problem, solution)
        strongest = _core.top(data._handle, np.where(rivals, problem._flat_scores, -np.inf))
        beaten = np.logical_or.reduceat(rivals, data._begin)
        tight = data._layout.shape_entries(conditions.tight_entries(solution))
        beaten_by = data._layout.shape_queries(np.where(beaten, strongest, -1))
        locally_optimal = not beaten.any()
    why_none = None
    decided = gap > 0 and rows.margin > 0  # each query has one best token, and some W ranks it first
    if decided:
        why_none = "all tokens support" if conditions.all_tight(ideal, EQUAL) else "equal scores" if equal else None
    provable = decided and not best.uncovered
    return Diagnosis(
        scores=problem.scores,
        optimal=problem.optimal,
        selected=data._layout.shape_queries(chosen),
        solution=solution,
        dimension_suffices=bool(
            data.dk >= data._longest - 1
            and (data._rows <= data.dk * data.dz if windows_apart(data) else len(data) <= data.dz)
        ),
        tight=tight,
        beaten_by=beaten_by,
        locally_optimal=locally_optimal,
        globally_optimal=bool((best.scores[best.begin + chosen] >= best.top).all()),
        all_support=conditions.all_tight(solution),
        unique_optimum=gap > 0,
        score_gap=gap,
        score_spread=spread,
        equal_scores=equal,
        no_stationary_point=why_none,
        iota=iota,
        separating_cone=conditions.separating_cone(problem, ideal, iota, size),
        local_cone=conditions.local_cone(problem, solution) if norm == "frobenius" and locally_optimal else None,
        lipschitz=L,
        step_size=1 / L if L > 0 else math.inf,
        undecided=getattr(selected, "undecided", None),
        barrier=best.barrier if provable else None,
        longest_step=longest_step(rows.margin, rows.longest, rows.apart) if provable else None,
    )


def _check_scale(problem: Problem) -> None:
    """Raises ValueError if products that the conditions need would underflow or overflow."""
    data = problem.data
    sizes = {"tokens": data._largest_key, "queries": largest(data.queries), "scores": largest(problem._flat_scores)}
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
