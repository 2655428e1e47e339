"""The limit of training, proved from the records of a run: ``run.limit()`` and ``train(until="limit")``."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .. import _core
from ..svm.separation import Separation
from ..training.run import Run
from .limit_proofs import BestTokens, Excess, LocalTokens, Rows, curvature, descends

# update rules that the theorems cover; with one weight matrix, the two normalised rules are the same
STEPS = ("normalized", "normalized jointly", "constant")
# Bound on the relative error of the recorded loss.
# Theorem A cannot prove a record whose loss exceeds the barrier by more than the error of the recorded loss.
LOSS_OFF = 1e-9
# Theorem B is tried only if e^-lead (R / margin)^2 is at most WORTH, since a trial costs as much as ten steps.
# lead is the least margin of the weights W, margin is lead / ||W||, and R is the length of the longest row.
# The median of e^-lead (R / margin)^2 at the first records that theorem B proves is 0.016 (6 sequences of 8 tokens).
WORTH = 0.03


@dataclass(frozen=True, repr=False, eq=False)
class Limit:
    """The limit of a training run, and the record from which on it is known.

    Attributes
    ----------
    status : str, or list of str with ``runs=R``
        "proved"; "conditional": true as long as no later step raises the loss; "open".
    step : int or None, or a list of those
        The first recorded step from which on the status holds.
    message : str, or a list of those
        The status as a sentence; if it is open, what is missing and for which query.
    final : bool array or list, in the data's query shape; with ``runs=R`` an axis, or a list, of the runs first
        Whether the query gives more than half of its attention to its best token (in every attention head) at the last
        record, and at all weights of no larger loss.  If a limit with other tokens is proved: true for all queries.
    solution : Separation or None, or a list of those
        The SVM of the tokens that the limit selects, in the norm of the update rule; None if the status is open.
    """

    status: Any
    step: Any
    message: Any
    final: Any
    solution: Any

    @property
    def summary(self) -> str:
        """One line: the message of a single run; for several runs, how many have each status."""
        if isinstance(self.status, str):
            return self.message
        words = ("proved", "conditional", "open")
        return ", ".join(f"{self.status.count(word)} {word}" for word in words if word in self.status)

    def __repr__(self) -> str:
        if isinstance(self.status, str):
            return f"Limit: {self.message}"
        lines = [f"  {r}  {text}" for r, text in enumerate(self.message)]
        return "\n".join([f"Limits of {len(lines)} runs: {self.summary}", *lines])


class Judge:
    """Decides which limit the records of one training run prove, by theorem A (best tokens) or theorem B (any tokens)
    of notebooks/limit.md."""

    def __init__(self, run: Run):
        problem = run.problem
        if run.besides:
            raise ValueError(
                f"limit covers steps along the gradient of a fixed head alone, got a run with {run.besides}"
            )
        if problem.head.kind != "linear" or problem._concatenated:
            raise ValueError(
                "limit covers a LinearHead, of one attention head or of several whose attended vectors are summed, "
                f"got {problem!r}"
            )
        self.run, self.data, self.best = run, run.data, BestTokens(problem)
        self.rows = Rows(run.data, self.best.best, run.own_norm)
        self.infimum = problem._mean_loss(self.best.top)
        steps = {
            f"heads={problem.heads}": problem.heads is not None,
            "training K and Q": run.K is not None,
            f"rule={run.rule!r}": run.rule not in STEPS,
            "a metric": run.metric is not None,
            "an lr of 0 or one for each step": not run.lr,
        }
        other = next((name for name, holds in steps.items() if holds), "")
        self.along = not other
        self.rate: Any = run.lr
        # the property of the run that no proof covers, as text; empty if there is none
        self.uncovered = other or self.best.uncovered
        self._local: dict[bytes, LocalTokens] = {}

    @cached_property
    def never_raises(self) -> bool:
        """Whether plain gradient descent at the run's learning rate lowers the loss from all weights: ``lr < 2 / L``,
        with L a Lipschitz constant of the gradient."""
        return self.rate * curvature(self.best, self.rows.lengths) < 2

    def proves(self, found: Excess) -> bool:
        """Whether theorem A holds: the gradient lies in the cone of the best tokens' rows, their SVM has a margin, and
        no later step raises the loss."""
        if not (found.in_cone and self.rows.margin > 0):
            return False
        longest, (drift, mass) = self.rows.longest, self.best.region(found.total, self.rows.lengths)
        plain = self.run.rule == "constant"
        step = self.rate * (longest * mass if plain else 1.0)  # ||dF|| <= R sum mu
        return plain and self.never_raises or descends(step, self.rows.margin, longest, self.rows.apart, drift)

    def proved_at(self, W: np.ndarray, step: int, loss: float) -> Rows | None:
        """The rows of the tokens that the limit selects, if recorded weights and their loss prove it by theorem A (the
        best tokens) or theorem B (the tokens that W selects, which training then keeps for ever); else None."""
        if self.uncovered:
            return None
        below = loss - self.infimum <= self.best.barrier + LOSS_OFF * (abs(loss) + abs(self.infimum))
        if below and self.proves(self.best.at(W, step)):
            return self.rows
        if not np.isfinite(W).all():
            return None
        chosen = _core.top(self.data._handle, self.data._logits(W))
        lead = self.data._flat_margins(W, chosen).min()
        largest = np.linalg.norm(W) * self.rows.longest
        if not 0 < lead < math.inf or math.exp(-lead) > WORTH * (lead / largest) ** 2:
            return None
        key = chosen.tobytes()
        if key not in self._local:
            self._local[key] = LocalTokens(self.best, chosen)
        local = self._local[key]
        state = local.at(W, step)
        # An upper bound on the length of each later step follows.  For plain descent it is lr R sum |mu|, with R the
        # longest row and mu the multipliers of the rows.
        plain = self.run.rule == "constant"
        if state is not None and local.keeps(state, self.rate * (local.longest * state.size if plain else 1.0)):
            return local
        return None

    def verdict(self) -> tuple[str, int | None, str, np.ndarray, Separation | None]:
        """The fields of a Limit for this run: status, step, message, final (M,) and solution.

        Goes back from the last record to find the first one from which on all records prove the same limit.
        """
        run, steps = self.run, self.run.steps.tolist()
        if not steps:
            return "open", None, "open: the run has no record yet", ~self.best.several, None
        records = range(len(steps) - 1, -1, -1)
        last, first, proof = self.best.at(run.weights[-1], steps[-1]), None, None
        for k in records:
            found = self.proved_at(run.weights[k], steps[k], float(run.loss[k]))
            if found is None or proof is not None and not np.array_equal(found.chosen, proof.chosen):
                break
            first, proof = steps[k], found
        if proof is not None:
            final = last.final | (proof.chosen != self.best.best).any()
            same = np.array_equal(proof.chosen, _core.top(self.data._handle, self.data._logits(run.W)))
            tokens = "these tokens" if same else "the best tokens, some of which are not selected yet"
            text = f"the SVM of {tokens}, proved from the record of step {first} on"
            return "proved", first, text, final, proof.solution
        highest = -np.inf
        # go back from the last record, while no later record has a larger loss
        for k in records:
            here = self.best.at(run.weights[k], steps[k])
            # whether the record determines the limit, provided that no later step raises the loss
            enough = here.in_cone if self.along else here.final.all()
            if here.total < highest or not (enough and self.rows.margin > 0):
                break
            first, highest = steps[k], here.total
        if first is None:
            return "open", None, self._missing(last), last.final, None
        tokens = f"the best tokens from the record of step {first} on, as long as no later step raises the loss"
        why = f"no proof covers {self.uncovered}" if self.uncovered else "the steps are longer than proofs allow"
        return "conditional", first, f"{tokens}: {why}", last.final, self.rows.solution

    def _missing(self, last: Excess) -> str:
        """The message if the limit is not proved: the condition that the last record does not meet, and the query that
        misses it."""
        best, weights = self.best, self.run.weights[-1]
        if not best.several.any():
            return "open: every query sees one token, so nothing moves"
        if not np.isfinite(weights).all():
            return "open: the last weights left the range of double precision"
        if len(best.tied):
            return f"open: query {best.tied[0]} has several tokens of the best score"
        if self.rows.margin <= 0:
            return f"open: the SVM of the best tokens is {self.rows.solution.status}, so no margin is certified"
        q = last.each.argmax()
        W = weights.reshape(-1, *self.data._W_shape)[0]  # of several attention heads, the first is described
        row = _core.probabilities(self.data._handle, W)[slice(*self.data.indptr[q : q + 2])]
        own, rival = best.best[q], row.argmax()
        text = f"open: query {q} attends to its best token, {own}, by {row[own]:.2g}"
        text += f" and to token {rival} by {row[rival]:.2g}" if rival != own else ""
        below = np.exp((best.wholes if self.along else best.halves).min()) / len(best.top)
        text += f"; the loss is {self.run.loss[-1] - self.infimum:.3g} above that of the best tokens"
        return f"{text}, and a conditional limit begins below {below:.3g}"


def _judges(run: Run) -> list[Judge]:
    return [Judge(run[r]) for r in range(len(run.W))] if run.stacked else [Judge(run)]


def find_limit(run: Run) -> Limit:
    """Finds the limit of a training run, or of each of several runs: see :meth:`attsvm.Run.limit`."""
    found = (judge.verdict() for judge in _judges(run))
    status, step, message, final, solution = map(list, zip(*found, strict=True))
    shaped = [run.data._layout.shape_queries(flags) for flags in final]
    if not run.stacked:
        return Limit(status[0], step[0], message[0], shaped[0], solution[0])
    return Limit(status, step, message, shaped if isinstance(shaped[0], list) else np.stack(shaped), solution)


def watch_limit(run: Run) -> Callable[[np.ndarray, int, Any], bool]:
    """Makes a function that says whether a record (weights, step, loss) of a run like ``run`` proves the run's limit;
    with several runs, whether the limits of all are proved."""
    unproved = dict(enumerate(_judges(run)))

    def proves(weights: np.ndarray, step: int, loss: Any) -> bool:
        stack, losses = (weights, loss) if run.stacked else ([weights], [loss])
        for r, judge in list(unproved.items()):
            if judge.proved_at(stack[r], step, float(losses[r])) is not None:
                del unproved[r]
        return not unproved

    return proves


Run.find_limit = find_limit
Run.watch_limit = watch_limit
