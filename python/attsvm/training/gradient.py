"""A gradient that is kept in range, however little of it the softmax has left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Gradient", "of_order_one"]


class Gradient(NamedTuple):
    """A gradient kept in range: the true one is ``exp(log_scale)`` times the arrays.

    With ``heads=H`` the arrays have H matrices, each with a scale of its own in ``log_scale (H,)``.
    """

    W: np.ndarray | None
    K: np.ndarray | None
    Q: np.ndarray | None
    log_scale: float | np.ndarray


def of_order_one(arrays: list[np.ndarray], log_scale: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The same gradient (H matrices in each array) of order one whatever the windows' own scales were, each attention
    head by itself."""
    largest = np.max([np.abs(a).max(axis=(1, 2)) for a in arrays], axis=0)
    unit = np.where(largest == 0, 1.0, largest)
    return [a / unit[:, None, None] for a in arrays], np.where(largest == 0, -np.inf, log_scale + np.log(unit))
