"""Weights in the span of the queries, W + C^T Z: where every gradient of a linear head lies."""

from __future__ import annotations

import numpy as np

from ..attention.windows import largest
from .problem import Problem

SIDE_BY_SIDE = 1024  # numbers in the keys of a window that C reads beside seven others, by W
IN_RANGE = 1e-50, 1e50  # of the largest number in the queries, which go into Z Z^T squared


def span_of(problem: Problem, W: np.ndarray) -> np.ndarray | None:
    """U = Z W^T, then C = 0, of each run (runs, 2 M, dk); None where steps on W itself are the shorter way."""
    data = problem.data
    M, dk = len(data.queries), data.dk
    if not problem._from_scores or not _is_shorter(M, dk, data.dz, data._longest):
        return None
    if not IN_RANGE[0] < largest(data.queries) < IN_RANGE[1]:
        return None
    matrices = W.reshape(-1, dk, data.dz)
    span = np.zeros((len(matrices), 2 * M, dk))
    with np.errstate(over="ignore", invalid="ignore"):  # C says where weights leave the range
        np.matmul(data.queries, matrices.swapaxes(1, 2), out=span[:, :M])
    return span


def _is_shorter(M: int, dk: int, dz: int, longest: int) -> bool:
    """Beside the sweep a step costs M^2 dk multiplications in the span, 2 M dk dz and the moving of dk dz weights on W.

    Short windows go eight at a time on W but one by one in the span, which is as long as 2300 multiplications of each.
    """
    if longest * dk <= SIDE_BY_SIDE:
        return dk * (dz * (2 * M + 12) - M * M) > 2300 * M
    return 2 * M <= 3 * dz


def weights_of(problem: Problem, W: np.ndarray, span: np.ndarray) -> np.ndarray:
    """W + C^T Z, shaped as W."""
    C = span[:, len(problem.data.queries) :]
    with np.errstate(over="ignore", invalid="ignore"):
        return W + (C.swapaxes(1, 2) @ problem.data.queries).reshape(W.shape)
