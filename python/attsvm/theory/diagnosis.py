"""What the theory says of a dataset: the numbers, and the sentences that they print as."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .separation import Separation

__all__ = ["Diagnosis"]

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
