"""Which sequences are kept, and where their arrays lie."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..common.files import replacing


class Sample:
    """Whole sequences drawn at random while they pass, until they hold ``tokens`` tokens.

    Every sequence draws a number; those with the smallest numbers are kept, the last of them reaching ``tokens``.
    """

    def __init__(self, tokens: int, seed: int):
        self.tokens, self.random = tokens, random.Random(seed)
        self.heap: list[tuple[float, int, int]] = []  # -number, sequence, tokens
        self.held = 0

    def take(self, sequence: int, tokens: int) -> tuple[bool, list[int]]:
        """Whether to keep this sequence, and which earlier ones to drop for it."""
        heapq.heappush(self.heap, (-self.random.random(), sequence, tokens))
        self.held += tokens
        dropped = []
        while self.held - self.heap[0][2] >= self.tokens:
            _, last, size = heapq.heappop(self.heap)
            self.held -= size
            dropped.append(last)
        return sequence not in dropped, [other for other in dropped if other != sequence]


class Column:
    """Arrays (rows, groups, width) of sequences, one after the other: in memory, or appended to a file."""

    def __init__(self, name: str, store: Path | None):
        self.name, self.store = name, store
        self.file: Any = None
        self.at = 0

    def add(self, array: np.ndarray) -> Any:
        """A handle for :meth:`collect`."""
        array = np.ascontiguousarray(array)
        if self.store is None:
            return array
        if self.file is None:
            self.file = open(self.store / f"{self.name}.part", "w+b")  # closed by collect
        handle = (self.at, array.shape, array.dtype)
        self.file.write(array.data)
        self.at += array.nbytes
        return handle

    def _read(self, handle: Any) -> np.ndarray:
        if self.store is None:
            return handle
        at, shape, dtype = handle
        self.file.seek(at)
        return np.frombuffer(self.file.read(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)

    def collect(self, handles: list[Any]) -> list[np.ndarray]:
        """Of each group the arrays (rows of all sequences, width); the file that held them is gone afterwards."""
        first = self._read(handles[0])
        rows = sum(self._rows(handle) for handle in handles)
        shape = (first.shape[1], rows, first.shape[2])
        if self.store is None:
            whole = np.empty(shape, first.dtype)
            for at, part in self._parts(handles):
                whole[:, at : at + part.shape[1]] = part
            return list(whole)
        path = self.store / f"{self.name}.npy"
        with replacing(path) as file:  # not through a map, which has no error for a disk that is full
            np.lib.format.write_array_header_2_0(
                file, {"descr": np.lib.format.dtype_to_descr(first.dtype), "fortran_order": False, "shape": shape}
            )
            begin, row = file.tell(), first.dtype.itemsize * shape[2]
            for at, part in self._parts(handles):
                for group, some in enumerate(part):
                    file.seek(begin + (group * rows + at) * row)
                    file.write(some.tobytes())
        self.close()
        return list(np.load(path, mmap_mode="r"))

    def _parts(self, handles: list[Any]) -> Iterator[tuple[int, np.ndarray]]:
        """Of each sequence its first row and its array (groups, rows, width)."""
        at = 0
        for handle in handles:
            part = self._read(handle).swapaxes(0, 1)
            yield at, part
            at += part.shape[1]

    def _rows(self, handle: Any) -> int:
        return len(handle) if self.store is None else handle[1][0]

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            Path(self.file.name).unlink(missing_ok=True)
            self.file = None
