"""A gradient that is kept in range, however little of it the softmax has left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Gradient"]


class Gradient(NamedTuple):
    """A gradient kept in range: the true one is ``exp(log_scale)`` times the arrays.

    With ``heads=H`` the arrays have H matrices, each with a scale of its own in ``log_scale (H,)``.
    """

    W: np.ndarray | None
    K: np.ndarray | None
    Q: np.ndarray | None
    log_scale: float | np.ndarray
