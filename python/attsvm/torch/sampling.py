"""The random choice of sequences that are kept, and the storage of their arrays."""

from __future__ import annotations

import heapq
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..common.storage import replacing


class Sample:
    """A random sample of whole sequences with about ``tokens`` tokens, drawn while the sequences arrive.

    Each sequence draws a number.  The sequences with the smallest numbers are kept, the fewest with ``tokens`` tokens.
    """

    def __init__(self, tokens: int, seed: int):
        self.tokens, self.random = tokens, random.Random(seed)
        self.heap: list[tuple[float, int, int]] = []  # the sample: (-random number, sequence, number of its tokens)
        self.held = 0

    def take(self, sequence: int, tokens: int) -> None:
        """Adds a sequence; others, or the new one, may leave the sample."""
        heapq.heappush(self.heap, (-self.random.random(), sequence, tokens))
        self.held += tokens
        while self.held - self.heap[0][2] >= self.tokens:
            self.held -= heapq.heappop(self.heap)[2]

    def sequences(self) -> set[int]:
        """The sequences of the sample."""
        return {sequence for _, sequence, _ in self.heap}


class Column:
    """Arrays (rows, groups, width) of sequences, kept in memory or appended to a file."""

    def __init__(self, name: str, store: Path | None):
        self.name, self.store = name, store
        self.file: Any = None

    def add(self, array: np.ndarray) -> Any:
        """Keeps an array; returns its handle for :meth:`collect`."""
        array = np.ascontiguousarray(array)
        if self.store is None:
            return array
        if self.file is None:
            self.file = tempfile.TemporaryFile(dir=self.store)  # it is deleted when collect closes it
        handle = (array.shape, array.dtype, self.file.tell())
        self.file.write(array.data)
        return handle

    def collect(self, handles: list[Any]) -> list[np.ndarray]:
        """One array (rows of all sequences, width) for each group, joined from the arrays that were added."""
        parts = handles
        if self.store is not None:
            # np.memmap moves to the end of the file, which writes what is buffered.
            raw = np.memmap(self.file, np.uint8, "r") if self.file.tell() else np.empty(0, np.uint8)
            parts = [np.ndarray(shape, dtype, raw, at) for shape, dtype, at in handles]
        _, groups, width = parts[0].shape
        if self.store is None:
            return [np.concatenate([part[:, group] for part in parts]) for group in range(groups)]
        path, shape = self.store / f"{self.name}.npy", (groups, sum(map(len, parts)), width)
        layout = {"descr": np.lib.format.dtype_to_descr(parts[0].dtype), "fortran_order": False, "shape": shape}
        with replacing(path) as file:  # the file is not memory-mapped, since only a write reports a full disk
            np.lib.format.write_array_header_2_0(file, layout)
            for group in range(groups):
                for part in parts:  # one by one, since all parts together may not fit into memory
                    file.write(part[:, group].tobytes())
        self.close()
        return list(np.load(path, mmap_mode="r"))

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
