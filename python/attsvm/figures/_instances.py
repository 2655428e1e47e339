"""What several figures share: random problems, initial weights, and how a training ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import sample, theory
from ..data import cross_attention
from ..output import LinearHead
from ..problem import Problem
from ..report import SATURATED
from ..separation import Separation
from ..svm import solve_svm
from ..train import Run

__all__ = ["all_support", "ending", "linear_layer", "margin_error", "sphere_problem"]


def sphere_problem(rng: np.random.Generator, n: int, T: int, d: int) -> Problem:
    """Tokens, queries and head uniform on the unit sphere, labels fair coins, mean logistic loss."""
    X, Z, y, v = sample.unit_sphere(n, T, d, rng)
    return Problem(cross_attention(X, Z), y, LinearHead(v))


def linear_layer(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Distributed as PyTorch initialises a linear layer with as many inputs as the last axis is long."""
    bound = 1 / np.sqrt(shape[-1])
    return rng.uniform(-bound, bound, shape)


def ending(problem: Problem, run: Run, norm: str) -> dict[str, bool]:
    """How a run ended: on the optimal tokens; or on others that are locally optimal; or on neither.

    "Neither" counts runs whose attention has not settled, and selections that are not separable, as well as those
    that a support token with a better score will still pull away.
    """
    settled = bool((run.probabilities.max(axis=-1) > SATURATED).all())
    best = settled and bool((run.selected == problem.optimal).all())
    solution = None if best or not settled else solve_svm(problem.data, run.selected, norm)
    local = solution is not None and solution.W is not None and theory.is_locally_optimal(problem, solution)
    return {"global": best, "local": local, "neither": not best and not local}


def all_support(problem: Problem, solution: Separation) -> bool:
    """Whether every token but the selected ones has a margin of exactly 1."""
    if solution.W is None:
        return False
    others = problem.data.indptr[-1] - len(problem.data)
    held = theory.support_entries(problem.data, solution.W, solution._selection.reference)
    return bool(held.sum() == others)


def margin_error(share: Any, runs: int) -> Any:
    """Three standard errors of a share, for error bars."""
    return 3 * np.sqrt(np.asarray(share) * (1 - np.asarray(share)) / runs)
