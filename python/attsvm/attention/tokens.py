"""Reads tokens, queries and values, rectangular or ragged, into arrays with one row per vector."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..common.check import as_floats, as_numeric, is_ragged

CACHE_LINE = 64  # bytes
# Copies of at most SMALL elements are not aligned to a cache line, since a training step copies small windows anyway.
SMALL = 1024


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised array that begins at a cache line.

    C reads rows of eight doubles as one vector; aligned, each row is one cache line.  In unaligned arrays of NumPy a
    row is in two cache lines, and a training step from cache takes 1.1 to 1.3 times as long.
    """
    room = np.empty(math.prod(shape) * np.dtype(dtype).itemsize + CACHE_LINE, np.uint8)
    begin = -room.ctypes.data % CACHE_LINE
    return room[begin : room.size - CACHE_LINE + begin].view(dtype).reshape(shape)


def own(array: Any, copy: bool) -> Any:
    """A copy of an array that C could otherwise read in place, so that later changes by the caller have no effect.  A
    memory map is not copied, and no array unless ``copy``."""
    if not copy or isinstance(array, (list, tuple, np.memmap, np.ma.MaskedArray)):
        return array
    try:
        numbers = np.asarray(array)
    except (ValueError, TypeError, RuntimeError):  # no array: the function that reads it later raises the error
        return array
    if numbers.dtype.kind != "f":  # not floats: a later conversion to floats makes the copy
        return array
    if numbers.size <= SMALL:
        return numbers.copy()
    aligned = empty(numbers.shape, numbers.dtype)
    aligned[...] = numbers
    return aligned


def has_none(X: Any) -> bool:
    """Whether X is an array of shape (0, T, d), which has no sequences but says the length d of a token."""
    shape = getattr(X, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 3 and shape[0] == 0


def read_tokens(name: str, X: Any, letters: str = "n, T, d") -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens of all sequences, one row each; and the number of tokens of each sequence."""
    if _is_ragged(X):
        return _read_ragged(name, X, "T_i, d", keep_single=True)
    array = as_floats(name, X, letters, keep_single=True)
    n, T, d = array.shape
    return array.reshape(n * T, d), np.full(n, T)


def with_sink(name: str, X: Any, letters: str = "n, T, d") -> Any:
    """The tokens, or values, with a zero vector added at the end of each sequence."""
    if has_none(X):
        _, T, d = X.shape
        return np.empty((0, T + 1, d))
    rows, lengths = read_tokens(name, X, letters)
    longer = np.insert(rows, np.cumsum(lengths), 0.0, axis=0)
    if np.ptp(lengths) == 0:
        return longer.reshape(len(lengths), lengths[0] + 1, -1)
    return np.split(longer, np.cumsum(lengths + 1)[:-1])


def read_queries(Z: Any, n: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Returns the queries of all sequences, one row each; the number of queries of each sequence; and whether Z is (n,
    dz), with one query per sequence and no axis for it."""
    if _is_ragged(Z):
        queries, counts = _read_ragged("Z", Z, "S_i, dz")
        if len(counts) != n:
            raise ValueError(f"Z must hold queries for each of the {n} sequences of X, got {len(counts)}")
        return queries, counts, False
    Z = as_numeric("Z", Z)
    if Z.ndim == 3:
        queries = as_floats("Z", Z, "n, S, dz", (n, None, None))
        return queries.reshape(-1, Z.shape[2]), np.full(n, Z.shape[1]), False
    return as_floats("Z", Z, "n, dz", (n, None)), np.full(n, 1), True


def _is_ragged(X: Any) -> bool:
    """Whether X is a list of sequences (2-D arrays) of different lengths; only shapes are read, not numbers."""
    return is_ragged(X) and all(np.ndim(x) == 2 for x in X)


def _read_ragged(name: str, X: Sequence[Any], letters: str, keep_single: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of all parts of a ragged list, concatenated; and the number of rows of each part."""
    sizes = None, np.shape(X[0])[1]
    parts = [as_floats(f"{name}[{i}]", x, letters, sizes, keep_single) for i, x in enumerate(X)]
    flat = empty((sum(map(len, parts)), parts[0].shape[1]), np.result_type(*parts))
    return np.concatenate(parts, out=flat), np.array([len(part) for part in parts])


def read_values(values: Any, lengths: np.ndarray) -> np.ndarray:
    flat, found = read_tokens("values", values, "n, T, dv")
    if not np.array_equal(found, lengths):
        raise ValueError(
            f"values must have as many tokens as X in each sequence, {_sizes(lengths)}, got {_sizes(found)}"
        )
    return flat


def _sizes(lengths: np.ndarray) -> str:
    if np.ptp(lengths) == 0:
        return f"{len(lengths)} x {lengths[0]}"
    return "(" + ", ".join(map(str, lengths[:8])) + (", ...)" if len(lengths) > 8 else ")")
