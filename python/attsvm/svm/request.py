"""What a solver is asked, and what it answers, in the units of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..attention.selection import Selection
from ..common.progress import Report


@dataclass(slots=True)
class Request:
    """The checked arguments of a solve, but for the data.  Slots, which are read four times as fast as named tuples."""

    selection: Selection
    norm: Any  # as as_norm gives it, or a Metric
    method: str
    tol: float
    max_iter: int = 0  # 0: the method's own limit
    C: float | None = None
    rank: int | None = None
    dual: np.ndarray | None = None  # multipliers of all entries to begin with
    W: np.ndarray | None = None  # weights to begin with
    report: Report | None = None


class Answer(NamedTuple):
    """What a method in C returns."""

    status: int
    W: np.ndarray
    dual: np.ndarray
    lower: float
    upper: float
    iterations: int = 0
    entry: int = -1  # the entry that cannot be; -1: none
    method: str | None = None
    exception: BaseException | None = None
