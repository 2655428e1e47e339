"""Weights in the span of the queries, W + C^T Z: where every gradient of a linear head lies."""

from __future__ import annotations

import numpy as np

from .problem import Problem

SMALL = 4096  # numbers in the keys of a problem that C takes eight windows at a time, by W


def span_of(problem: Problem, W: np.ndarray) -> np.ndarray | None:
    """U = Z W^T, then C = 0, of each run (runs, 2 M, dk); None where steps on W itself are the shorter way.

    A step costs M^2 dk multiplications beside the sweep then, and 2 M dk dz on W.
    """
    data = problem.data
    M, dk = len(data.queries), data.dk
    linear = problem.heads is None and isinstance(problem._rule, np.ndarray)
    if not linear or 2 * M > 3 * data.dz or data.indptr[-1] * dk < SMALL:
        return None
    span = np.zeros((len(W), 2 * M, dk))
    with np.errstate(over="ignore", invalid="ignore"):  # C says where weights leave the range
        np.matmul(data.queries, W.swapaxes(1, 2), out=span[:, :M])
    return span


def weights_of(problem: Problem, W: np.ndarray, span: np.ndarray) -> np.ndarray:
    """W + C^T Z (runs, dk, dz)."""
    C = span[:, len(problem.data.queries) :]
    with np.errstate(over="ignore", invalid="ignore"):
        return W + C.swapaxes(1, 2) @ problem.data.queries
