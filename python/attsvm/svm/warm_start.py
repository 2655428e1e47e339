"""What an earlier answer says about the next problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..attention.data import Data
from ..attention.selection import as_entries
from .separation import Separation


def as_start(data: Data, warm_start: Any, norm: str | float) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Multipliers per entry, and weights where they can serve: those of a nuclear answer, for another."""
    entries = int(data.indptr[-1])
    if isinstance(warm_start, Separation):
        dual: np.ndarray = warm_start.flat_dual
        W: Any = warm_start.W
        if len(dual) != entries:
            raise ValueError(
                f"warm_start must be an answer on data with as many entries as these, {entries}, got {len(dual)}"
            )
        serves = norm == warm_start.norm == "nuclear" and W is not None and W.shape == (data.dk, data.dz)
        return _finite(dual), W if serves and np.isfinite(W).all() else None
    if hasattr(warm_start, "multipliers"):  # a run: its gradient at the end has their form
        warm_start = warm_start.multipliers
    return as_entries(data, "warm_start", warm_start), None


def _finite(dual: np.ndarray) -> np.ndarray:
    """Multipliers of extreme data may overflow: those say nothing."""
    return np.where(np.isfinite(dual), dual, 0.0)
