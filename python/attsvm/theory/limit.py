"""What training converges to, proved at a record: ``run.limit()`` and ``train(until="limit")``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..attention.data import Data
from ..common.metric import Metric
from ..common.result import Result
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from ..training.run import Run
from .limit_best import LOSSES, SPARE, BestTokens, Excess, curvature, descends, diameter, lengths_of_rows
from .limit_local import LocalTokens, State

__all__ = ["Judge", "Limit"]

STEPS = ("normalized", "normalized jointly", "constant")  # rules of theorem A: on one matrix the first two are one
CERTIFIED = ("optimal", "iteration limit")  # statuses of an answer whose margin is certified
DECIDED = 0.5  # relative attention of the second token, above which theorem B is not tried: no SVM is solved for it


@dataclass(frozen=True, repr=False, eq=False)
class Limit(Result):
    """Where a training run goes, and from which record on that is known.

    Attributes
    ----------
    status : str, or list of str with ``runs=R``
        "proved"; "conditional": true as long as no later step raises the loss; "open".
    step : int or None, or a list of those
        The first recorded step from which it is.
    message : str, or a list of those
        The same as a sentence; where it is open, what is missing and of which query.
    final : bool array or list, in the data's query shape; with ``runs=R`` an axis, or a list, of the runs first
        At the last record the query gives more than half of its attention to its best token (in every attention head),
        and will at all weights of no larger loss.
    solution : Separation or None, or a list of those
        The SVM of the limit's tokens, in the norm of the rule; None where it is open.
    """

    data: Data
    status: Any
    step: Any
    message: Any
    final: Any
    solution: Any

    @property
    def summary(self) -> str:
        """One line: the message, or how many of several runs have which status."""
        if isinstance(self.status, str):
            return str(self.message)
        words = ("proved", "conditional", "open")
        return ", ".join(f"{self.status.count(word)} {word}" for word in words if word in self.status)

    def _title(self) -> str:
        return f"Limit of {1 if isinstance(self.status, str) else len(self.status)} run(s): {self.summary}"

    def _lines(self) -> list[tuple[str, str]]:
        if isinstance(self.status, str):
            count = sum(int(np.sum(part)) for part in self.final)
            return [("final", f"the tokens of {count} of {len(self.data)} queries")]
        return [(str(r), text) for r, text in enumerate(self.message)]

    def columns(self) -> dict[str, Any]:
        several = not isinstance(self.status, str)
        names = ("status", "step", "message")
        columns = {name: getattr(self, name) if several else [getattr(self, name)] for name in names}
        return {"run": list(range(len(columns["status"])))} | columns


class Judge:
    """Judges the records of one run: what each of them proves by theorems A (best tokens) and B (any tokens)."""

    def __init__(self, run: Run):
        problem = run.problem
        if run.besides:
            raise ValueError(
                f"limit covers steps along the gradient of a fixed head alone, got a run with {run.besides}"
            )
        if problem.head.kind != "linear" or problem.concatenated:
            raise ValueError(
                "limit covers a LinearHead, of one attention head or of several whose attended vectors are summed, "
                f"got {problem!r}"
            )
        self.run, self.data, self.best = run, run.data, BestTokens(problem)
        one = problem.heads is None and run.K is None and run.metric is None
        self.along = one and run.rule in STEPS and run.lr is not None and run.lr.size == 1 and float(run.lr[0, 0]) > 0
        self.rate = float(run.lr[0, 0]) if self.along and run.lr is not None else 0.0
        self.provable = self.along and problem.loss_name in LOSSES
        self._local: dict[bytes, LocalTokens | None] = {}

    @functools.cached_property
    def longest(self) -> np.ndarray:
        return lengths_of_rows(self.data, self.best.best)

    @functools.cached_property
    def apart(self) -> float:
        return diameter(self.data, self.best.best, self.longest)

    @functools.cached_property
    def solution(self) -> Separation:
        """The SVM of the best tokens, in the norm that the rule goes with."""
        norm, best = self.run.own_norm, self.data.layout.shape_queries(self.best.best)
        if isinstance(norm, Metric):
            return solve_svm(self.data, best, metric=norm.value)
        return solve_svm(self.data, best, norm)

    @property
    def margin(self) -> float:
        """rho: the certified lower end of the largest margin; 0 where none is certified."""
        return self.solution.margin * (1 - SPARE) if self.solution.status in CERTIFIED else 0.0

    @functools.cached_property
    def never_raises(self) -> bool:
        """Whether plain descent at this rate lowers the loss from any weights: ``lr < 2 / L``."""
        return self.rate * curvature(self.best, self.longest) * (1 + SPARE) < 2

    def proves(self, found: Excess) -> bool:
        """Theorem A: the gradient in the cone of the best tokens' rows, a margin, and steps that never raise the loss."""
        if not (self.provable and found.in_cone and self.margin > 0):
            return False
        longest, region = float(self.longest.max()), self.best.region(found.total, self.longest)
        step = self.rate
        if self.run.rule == "constant":
            if self.never_raises:
                return True
            step *= longest * region.growth * region.excess  # ||dF|| <= R sum mu
        return bool(descends(step, self.margin, longest, self.apart, region.drift))

    def local(self, chosen: np.ndarray) -> LocalTokens | None:
        """What theorem B knows of this selection; None where no margin of it is certified."""
        key = chosen.tobytes()
        if key not in self._local:
            same = np.array_equal(chosen, self.best.best)
            found = self.solution if same else solve_svm(self.data, self.data.layout.shape_queries(chosen))
            known = found.status in CERTIFIED and found.margin > 0
            self._local[key] = LocalTokens(self.best, found) if known else None
        return self._local[key]

    def keeps(self, W: np.ndarray, step: int, chosen: np.ndarray | None = None) -> LocalTokens | None:
        """Theorem B: the selection that these weights prove to be final; None where they prove none."""
        if not self.provable or not np.isfinite(W).all():
            return None
        if chosen is None:
            chosen = np.array(self.data.layout.flatten_queries("selected", self.data.select(W)), dtype=np.intp)
        lead = self.data.flat_margins(W, chosen)
        if not lead.min() > 0 or np.exp(-lead).max() > DECIDED or not (local := self.local(chosen)):
            return None
        state = local.at(W, step)
        return local if local.keeps(state, self._longest_step(local, state)) else None

    def _longest_step(self, local: LocalTokens, state: State) -> float:
        """No later step is longer: ``lr``, or ``lr R sum |mu|``."""
        return self.rate * (local.longest * state.size if self.run.rule == "constant" else 1.0)

    def proved_at(self, W: np.ndarray, step: int) -> bool:
        """Whether these weights prove their limit, by either theorem."""
        return self.proves(self.best.at(W, step)) or self.keeps(W, step) is not None

    def suggests(self, found: Excess) -> bool:
        """Whether this record shows the limit, as long as no later step raises the loss."""
        enough = found.in_cone if self.along else bool(found.final.all() and self.best.several.any())
        return bool(enough and self.margin > 0)

    def verdict(self, run: Run) -> tuple[str, int | None, str, np.ndarray, Separation | None]:
        """status, step, message, final (M,), solution."""
        steps = [int(step) for step in run.steps]
        found = [self.best.at(W, step) for W, step in zip(run.weights, steps, strict=True)]
        if not found:
            return "open", None, "the run has no record yet", ~self.best.several, None
        final = found[-1].final
        for one, W, step in zip(found, run.weights, steps, strict=True):
            if self.proves(one):
                return "proved", step, self._says(run, step, self.best.best), final, self.solution
            if local := self.keeps(W, step, self._chosen(run)):
                return "proved", step, self._says(run, step, local.chosen), np.ones_like(final), local.solution
        first, highest = None, -np.inf
        for k in range(len(found) - 1, -1, -1):  # back to the first record above which the loss never rose again
            highest = max(highest, found[k].total)
            if found[k].total < highest or not self.suggests(found[k]):
                break
            first = steps[k]
        if first is None:
            return "open", None, self._missing(run, found[-1]), final, None
        tokens = f"the best tokens from the record of step {first} on, as long as no later step raises the loss"
        why = (
            "steps this long are not covered" if self.provable else f"what covers more goes with {STEPS[0]} steps of W"
        )
        return "conditional", first, f"{tokens}: {why}", final, self.solution

    def _chosen(self, run: Run) -> np.ndarray | None:
        """What the run selects at the end, flat."""
        if not self.provable:
            return None
        return np.array(self.data.layout.flatten_queries("selected", run.selected), dtype=np.intp)

    def _says(self, run: Run, step: int, chosen: np.ndarray) -> str:
        same = np.array_equal(chosen, self._chosen(run))
        tokens = "these tokens" if same else "the best tokens, some of which are not selected yet"
        return f"the SVM of {tokens}, proved from the record of step {step} on"

    def _missing(self, run: Run, last: Excess) -> str:
        """What the last record lacks, and of which query."""
        best = self.best
        if not best.several.any():
            return "open: every query sees one token, so nothing moves"
        if not np.isfinite(run.weights[-1]).all():
            return "open: the last weights left the range of double precision"
        if len(best.tied):
            return f"open: query {best.tied[0]} has several tokens of the best score"
        if last.in_cone and self.margin <= 0:
            return f"open: the SVM of the best tokens is {self.solution.status}, so no margin is certified"
        attention = self.data.layout.flatten_entries("p", self.data.probabilities(_first(run.weights[-1])), hidden=True)
        q = int(np.argmax(last.each))
        row = attention[best.begin[q] : best.begin[q] + self.data.lengths[q]]
        own, rival = int(best.best[q]), int(row.argmax())
        text = f"open: query {q} attends to its best token, {own}, by {row[own]:.2g}"
        text += f" and to token {rival} by {row[rival]:.2g}" if rival != own else ""
        above, below = np.exp([last.total, best.barriers(1.0 if self.along else 0.5).min()]) / len(best.top)
        return f"{text}; the loss is {above:.3g} above its infimum, proofs for best tokens begin below {below:.3g}"


def _first(W: np.ndarray) -> np.ndarray:
    """The weights, or those of the first attention head."""
    return W if W.ndim == 2 else W[0]


def find_limit(run: Run) -> Limit:
    """:meth:`attsvm.Run.limit`."""
    parts = [run[r] for r in range(len(run.W))] if run.stacked else [run]
    status, step, message, final, solution = map(list, zip(*(Judge(one).verdict(one) for one in parts), strict=True))
    shaped = [run.data.layout.shape_queries(flags) for flags in final]
    if not run.stacked:
        return Limit(run.data, status[0], step[0], message[0], shaped[0], solution[0])
    together = shaped if isinstance(shaped[0], list) else np.stack(shaped)
    return Limit(run.data, status, step, message, together, solution)


def watch_limit(run: Run) -> Callable[[Run], bool]:
    """Whether the last record of a run under way, which is like this one, proves the limit; of several runs, of all."""
    judges = [Judge(run[r]) for r in range(len(run.W))] if run.stacked else [Judge(run)]
    known = [False] * len(judges)

    def proves(now: Run) -> bool:
        for r, judge in enumerate(judges):
            if not known[r]:
                weights = now.weights[r, -1] if now.stacked else now.weights[-1]
                known[r] = judge.proved_at(weights, int(now.steps[-1]))
        return all(known)

    return proves


Run.find_limit = find_limit
Run.watch_limit = watch_limit
