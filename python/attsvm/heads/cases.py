"""Rows (sequence, query, selected) of a head as the data of an SVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..attention.data import Data
from ..common.check import as_index
from .head import Head


@dataclass(frozen=True, eq=False)
class Windows:
    """The layout of queries that see any contiguous tokens; all results are flat."""

    start: np.ndarray
    stop: np.ndarray
    single = True
    causal = uniform = False

    def windows(self) -> tuple[np.ndarray, np.ndarray]:
        return self.start.copy(), self.stop.copy()

    def take(self, index: Any) -> tuple[Windows, np.ndarray, np.ndarray]:
        chosen = as_index("index", index, len(self.start))
        return Windows(self.start[chosen], self.stop[chosen]), chosen, chosen

    def shape_queries(self, flat: np.ndarray) -> np.ndarray:
        return flat

    def shape_entries(self, flat: np.ndarray, fill: Any) -> np.ndarray:
        return flat

    def flatten_queries(self, name: str, array: Any, trailing: str = "", trailing_size: int | None = None) -> Any:
        return array

    def flatten_entries(self, name: str, array: Any, hidden: bool = False) -> np.ndarray:
        return np.concatenate(array) if isinstance(array, list) else array


@dataclass(frozen=True, eq=False)
class Cases:
    """Queries of a head with what they see.

    Attributes
    ----------
    data : Data
    selected : (M,) integer array
        Token that each query selects, counted within its window.
    rows : (M, 3) integer array
        (sequence, query, selected), in the order of the data's queries.
    tokens : (entries,) integer array
        Which token of its sequence each entry of the data is.
    blocks : (b, 2) integer array
        Where the tokens of each sequence begin and end in the data's keys.
    """

    data: Data
    selected: np.ndarray
    rows: np.ndarray
    tokens: np.ndarray
    blocks: np.ndarray

    def entries(self, rows: np.ndarray) -> np.ndarray:
        """Which entry of the data each row (sequence, query, selected, rival) is."""
        width = 1 + max(int(self.tokens.max()), int(self.rows[:, 1].max()))
        query = np.searchsorted(self.rows[:, 0] * width + self.rows[:, 1], rows[:, 0] * width + rows[:, 1])
        owners = self.data._query_at(np.arange(len(self.tokens)))
        return np.searchsorted(owners * width + self.tokens, query * width + rows[:, 3])


def as_cases(head: Head, rows: np.ndarray) -> Cases:
    """The windows of these queries, in the order of sequences.

    Queries share the head's own keys, which are not copied (they may be memory-mapped), unless a mask with gaps or a
    bias makes each one's window its own: then it is a copy, with the bias as its last coordinate (and a 1 as that of
    the query).
    """
    text = head.text
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    at = text.query_rows(rows)
    queries = head.queries[at].astype(np.float64)
    given = None if head.given is None else head.given.bias
    if given is not None:
        queries = np.column_stack([queries, np.ones(len(rows))])
    if given is not None or text.visible:
        seen = [text.window(i, q) for i, q in rows[:, :2]]
        sizes = np.array([len(window) for window in seen], dtype=np.intp)
        tokens = np.concatenate(seen)
        keys = text.keys[np.repeat(text.begin[rows[:, 0]], sizes) + tokens]
        if given is not None:
            bias = [_bias(given[i], q, window) for (i, q), window in zip(rows[:, :2], seen, strict=True)]
            keys = np.column_stack([keys, np.concatenate(bias).astype(keys.dtype)])
        stop = np.cumsum(sizes)
        start = stop - sizes
        blocks = np.column_stack([start, stop])
    else:
        keys = np.asarray(text.keys)
        start, stop = ((text.begin[rows[:, 0]] + x[at]).astype(np.intp) for x in (text.start, text.stop))
        first = np.unique(rows[:, 0], return_index=True)[1]
        blocks = np.column_stack([np.minimum.reduceat(start, first), np.maximum.reduceat(stop, first)])
        sizes = stop - start
        tokens = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes - text.start[at], sizes)
    data = Data("head", np.ascontiguousarray(keys), np.ascontiguousarray(queries), None, Windows(start, stop))
    hits = np.flatnonzero(tokens == np.repeat(rows[:, 2], sizes))
    return Cases(data, (hits - data.indptr[:-1]).astype(np.intp), rows, tokens, blocks)


def _bias(given: np.ndarray, q: int, window: np.ndarray) -> np.ndarray:
    bias = np.asarray(given)
    return bias[q, window] if bias.ndim else np.zeros(len(window))
