"""What several figures share: random problems, initial weights, and how a training ended."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import LinearHead, Problem, Run, Separation, correlation, cross_attention, sample, solve_svm
from ..common.types import Loss, Norm
from ..plot.curves import SATURATED
from ..theory import conditions as theory
from .textbook import TIGHT, locally_optimal, support_margins, tokens_of

# Problems that a figure draws at most until one is as it wants them: one in fifty is, where the fewest are.
DRAWS = 10_000
ALLOWED = 0.18  # of a share: 95 % intervals are +-.05 for references of 400 runs and more, +-.11 for the quick 80


def draws() -> Iterator[None]:
    """For ever in practice: an error says that none of so many problems was accepted."""
    yield from itertools.repeat(None, DRAWS)
    raise RuntimeError(f"none of {DRAWS:,} random problems was accepted")


def sphere_problem(rng: np.random.Generator, n: int, T: int, d: int) -> Problem:
    """Tokens, queries and head uniform on the unit sphere, labels fair coins, mean logistic loss."""
    X, Z, y, v = sample.unit_sphere(n, T, d, rng)
    return Problem(cross_attention(X, Z), y, LinearHead(v))


def one_scored(rng: np.random.Generator, n: int, T: int, d: int, loss: Loss = "logistic") -> Problem:
    """Tokens and queries uniform on the unit sphere; a random token of each sequence has score 1, all others 0."""
    X, Z, _, _ = sample.unit_sphere(n, T, d, rng)
    scores = np.arange(T) == rng.integers(T, size=n)[:, None]
    return Problem(cross_attention(X, Z, scores.astype(float)[..., None]), None, LinearHead([1.0]), loss=loss)


def linear_layer(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Distributed as PyTorch initialises a linear layer with as many inputs as the last axis is long."""
    bound = 1 / np.sqrt(shape[-1])
    return rng.uniform(-bound, bound, shape)


def ending(problem: Problem, run: Run, norm: Norm) -> dict[str, bool]:
    """How a run ended: on the optimal tokens; or on others that are locally optimal; or on neither.

    "Neither" counts runs whose attention has not saturated, and selections that are not separable, as well as those
    that a support token with a better score will still pull away.  "proved": of W, that it stays so for ever.
    """
    best = local = False
    if (run.probabilities.max(axis=-1) > SATURATED).all():
        best = on_best(run)
        solution = None if best else solve_svm(problem.data, run.selected, norm)
        local = solution is not None and solution.W is not None and theory.is_locally_optimal(problem, solution)
    proved = norm == "frobenius" and run.limit().status == "proved"
    return {"global": best, "local": local, "neither": not best and not local, "proved": proved}


def on_best(run: Run) -> bool:
    """Whether a run selects the optimal token for every query."""
    return bool((run.selected == run.problem.optimal).all())


def stacked(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """An array of each measurement of all rows."""
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def to_svm(W: np.ndarray, solution: Separation) -> float:
    """Correlation of weights with a solution; NaN where there is none."""
    return np.nan if solution.W is None else correlation(W, solution.W)


def differs(problem: Problem, solution: Separation) -> bool:
    """Whether the package's local optimality or support is another than the definition's, in NumPy."""
    if solution.W is None:
        return False
    (X, Z), chosen = tokens_of(problem.data), solution.selection.reference
    margins = support_margins(X, Z, chosen, solution.W)
    tight = (margins[np.isfinite(margins)] <= 1 + TIGHT).all()
    found = theory.is_locally_optimal(problem, solution), theory.all_tight(solution)
    return (locally_optimal(X, Z, problem.scores, chosen, solution.W), bool(tight)) != found


def around(value: float) -> tuple[float | None, float | None]:
    """The bound of a share: a reference and what is allowed on either side; none where it would be 0 or 1."""
    low, high = value - ALLOWED, value + ALLOWED
    return (low if low > 0 else None, high if high < 1 else None)
