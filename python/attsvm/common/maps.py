"""Objects whose memory-mapped arrays are pickled as places in their files, not by value."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Place(NamedTuple):
    """Of an array in a file."""

    path: str
    dtype: str
    offset: int
    shape: tuple[int, ...]


class Mapped:
    """Goes to another process with the places of its memory-mapped arrays; that one must see the same files."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: _place(value) for name, value in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            if isinstance(value, Place):
                value = np.memmap(value.path, value.dtype, "r", value.offset, value.shape)
            vars(self)[name] = value


def _place(value: Any) -> Any:
    """Where a contiguous array lies in the file that it, or what it is a view of, maps; other values as they are."""
    root = value
    while isinstance(root, np.ndarray) and isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or not value.size or not value.flags.c_contiguous:
        return value
    begin = value.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return Place(str(root.filename), value.dtype.str, root.offset + begin, value.shape)
