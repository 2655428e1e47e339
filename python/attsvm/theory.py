"""Where the two halves meet: directions of training against solutions of the SVM."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._check import as_floats, as_numeric, check_finite
from .problem import Problem
from .separation import Separation

__all__ = ["correlation", "is_locally_optimal"]

# A support token's margin is 1; a certified gap of 1e-9 fixes margins to about its square root.
TIGHT = 1e-4


def correlation(A: Any, B: Any) -> float:
    """Cosine ``<A, B> / (||A||_F ||B||_F)`` of two weight matrices; NaN when one of them is zero.

    Parameters
    ----------
    A, B : array_like of one shape

    Examples
    --------
    >>> import attsvm
    >>> attsvm.correlation([[1.0, 0.0]], [[1.0, 1.0]])
    0.7071067811865475
    """
    A = np.asarray(as_numeric("A", A), dtype=np.float64)
    B = np.asarray(as_numeric("B", B), dtype=np.float64)
    if A.shape != B.shape:
        raise ValueError(f"A and B must have one shape, got {A.shape} and {B.shape}")
    check_finite("A", A)
    check_finite("B", B)
    largest_a, largest_b = np.abs(A).max(initial=0.0), np.abs(B).max(initial=0.0)
    if largest_a == 0 or largest_b == 0:
        return float("nan")
    A, B = A / largest_a, B / largest_b  # norms of weights may overflow when squared
    return float(np.vdot(A, B) / (np.linalg.norm(A) * np.linalg.norm(B)))


def is_locally_optimal(problem: Problem, solution: Separation) -> bool:
    """Whether every selected token scores more than each of its support tokens (margin exactly 1).

    Training that starts near the direction of such a solution stays there; support tokens with a better score pull
    it away.  Holds for one selected token per query.

    Parameters
    ----------
    problem : Problem
        With a linear head.
    solution : Separation
        Of the problem's data.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> data = attsvm.cross_attention(X, Z)
    >>> problem = attsvm.Problem(data, y, attsvm.LinearHead(v))
    >>> attsvm.is_locally_optimal(problem, attsvm.solve_svm(data, problem.optimal))
    True
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {type(problem).__name__}")
    if not isinstance(solution, Separation):
        raise TypeError(f"solution must come from solve_svm, got {type(solution).__name__}")
    if solution.W is None:
        raise ValueError(f"solution must have weights, got one that is {solution.status}")
    if solution._selection.kept is not None:
        raise ValueError("solution must come from a selection of one token per query")
    data = problem.data
    if not _same(data, solution.data):
        raise ValueError("solution must be of the data of the problem")
    logits, scores = data.logits(as_floats("W", solution.W, "dk, dz")), problem.scores
    chosen = data.layout.flatten_queries("selected", data.layout.shape_queries(solution._selection.reference))
    pairs = zip(_windows(data, logits), _windows(data, scores), chosen, strict=True)
    for logit, score, a in pairs:
        tight = (logit[a] - logit <= 1 + TIGHT) & (np.arange(len(logit)) != a)
        if (score[tight] >= score[a]).any():
            return False
    return True


def _same(data: Any, other: Any) -> bool:
    names = ("keys", "queries", "start", "stop")
    return data is other or all(np.array_equal(getattr(data, name), getattr(other, name)) for name in names)


def _windows(data: Any, shaped: Any) -> list[np.ndarray]:
    """Per-entry results, one row per query (causal rows keep what they cannot see: -inf never is tight)."""
    if isinstance(shaped, list):
        return [row for part in shaped for row in np.atleast_2d(part)]
    return list(shaped.reshape(-1, shaped.shape[-1]))
