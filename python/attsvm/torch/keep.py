"""Which sequences are kept, and where their arrays lie."""

from __future__ import annotations

import heapq
import random
from pathlib import Path
from typing import Any

import numpy as np


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
            whole: Any = np.empty(shape, first.dtype)
        else:
            path = self.store / f"{self.name}.npy"
            whole = np.lib.format.open_memmap(path, "w+", first.dtype, shape)
        at = 0
        for handle in handles:
            part = self._read(handle).swapaxes(0, 1)
            whole[:, at : at + part.shape[1]] = part
            at += part.shape[1]
        self.close()
        if self.store is not None:
            whole.flush()
            # Pages that were written count as memory of the process as long as they are mapped.
            whole = np.load(path, mmap_mode="r")
        return list(whole)

    def _rows(self, handle: Any) -> int:
        return len(handle) if self.store is None else handle[1][0]

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            Path(self.file.name).unlink(missing_ok=True)
            self.file = None
