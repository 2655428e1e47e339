"""Which tokens each query selects, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from .data import Data


class Selection:
    """A checked selection: the reference (first selected) token of each query, and all of them when several are.

    ``rhs``: what the rows of the entries must reach instead of 1 (margins) and 0 (equalities).
    """

    __slots__ = ("kept", "reference", "rhs")

    def __init__(self, data: Data, selected: Any):
        layout = data.layout
        if not layout.uniform and isinstance(selected, (list, tuple)) and any(map(_has_parts, selected)):
            array: Any = [_as_integers_or_bools(f"selected[{i}]", part) for i, part in enumerate(selected)]
            boolean = array[0].dtype == bool
        else:
            array = _as_integers_or_bools("selected", selected)
            boolean = array.dtype.kind == "b"
        self.kept = self.rhs = None
        if boolean:
            self.kept = np.ascontiguousarray(layout.flatten_entries("selected", array))
            some = np.logical_or.reduceat(self.kept, data.indptr[:-1])
            if not some.all():
                raise ValueError(f"selected must hold a token for every query, got none for query {some.argmin()}")
            self.reference = _core.top(data._handle, self.kept.astype(np.float64))
            return
        self.reference = np.ascontiguousarray(layout.flatten_queries("selected", array), dtype=np.intp)

    def outside(self, data: Data) -> str:
        """What to say when C has found a reference outside its window (checked there, since it is on every call)."""
        lengths = data.stop - data.start
        q = int(((self.reference < 0) | (self.reference >= lengths)).argmax())
        return (
            f"selected must be token indices of each window, 0 .. {lengths[q] - 1} for query {q}, "
            f"got {self.reference[q]}"
        )


def _has_parts(part: Any) -> bool:
    return isinstance(part, (list, tuple)) or getattr(part, "ndim", 0) > 0


def _as_integers_or_bools(name: str, value: Any) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a plain array, got a masked array")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name} must be a rectangular array: {error}") from None
    if array.dtype.kind not in "iub":
        raise TypeError(f"{name} must hold integers (one token per query) or bools (per entry), got {array.dtype}")
    return array
