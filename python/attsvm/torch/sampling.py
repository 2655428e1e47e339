"""Which sequences are kept, and where their arrays lie."""

from __future__ import annotations

import heapq
import math
import random
from pathlib import Path
from typing import Any

import numpy as np

from ..common.storage import replacing


class Sample:
    """Whole sequences drawn at random while they pass, until they hold ``tokens`` tokens.

    Every sequence draws a number; those with the smallest numbers are kept, the last of them reaching ``tokens``.
    """

    def __init__(self, tokens: int, seed: int):
        self.tokens, self.random = tokens, random.Random(seed)
        self.heap: list[tuple[float, int, int]] = []  # -number, sequence, tokens
        self.held = 0

    def take(self, sequence: int, tokens: int) -> list[int]:
        """Which sequences not to keep now that this one is there, itself or earlier ones."""
        heapq.heappush(self.heap, (-self.random.random(), sequence, tokens))
        self.held += tokens
        dropped = []
        while self.held - self.heap[0][2] >= self.tokens:
            _, last, size = heapq.heappop(self.heap)
            self.held -= size
            dropped.append(last)
        return dropped


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

    def collect(self, handles: list[Any]) -> list[np.ndarray]:
        """Of each group the array (rows of all sequences, width); the file that held them is gone afterwards."""
        parts = handles
        if self.store is not None:
            self.file.flush()
            raw = np.memmap(self.file.name, np.uint8, "r") if self.at else np.empty(0, np.uint8)
            parts = [
                raw[at : at + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
                for at, shape, dtype in handles
            ]
        _, groups, width = parts[0].shape
        if self.store is None:
            return [np.concatenate([part[:, group] for part in parts]) for group in range(groups)]
        path, dtype = self.store / f"{self.name}.npy", parts[0].dtype
        layout = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        with replacing(path) as file:  # not through a map, which has no error for a disk that is full
            np.lib.format.write_array_header_2_0(file, layout | {"shape": (groups, sum(map(len, parts)), width)})
            for group in range(groups):
                for part in parts:
                    file.write(part[:, group].tobytes())
        self.close()
        return list(np.load(path, mmap_mode="r"))

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            Path(self.file.name).unlink(missing_ok=True)
            self.file = None
