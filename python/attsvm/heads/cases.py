"""Rows (sequence, query, selected) of a head as the data of an SVM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..attention.data import Data
from ..attention.layout import Layout
from .head import Head


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
        return np.searchsorted(self.data._query_of() * width + self.tokens, query * width + rows[:, 3])

    def pairs(self, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``x_selected - x_t`` and z of these entries."""
        query, selected, rival = self.data._rows_of(self.selected, entries)
        return self.data.keys[selected].astype(np.float64) - self.data.keys[rival], self.data.queries[query]

    def nearest(self, margins: np.ndarray) -> np.ndarray:
        """Of each query the entry of least margin."""
        ends = self.data.indptr
        return np.array([a + margins[a:b].argmin() for a, b in zip(ends[:-1], ends[1:], strict=True)])


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
    layout = Layout(stop - start, np.ones(len(rows), dtype=np.intp), True, begin=start)
    data = Data("head", np.ascontiguousarray(keys), np.ascontiguousarray(queries), None, layout)
    hits = np.flatnonzero(tokens == np.repeat(rows[:, 2], sizes))
    return Cases(data, (hits - data.indptr[:-1]).astype(np.intp), rows, tokens, blocks)


def support_pairs(head: Head, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``x_selected - x_rival`` and z of rows (sequence, query, selected, rival)."""
    held = as_cases(head, np.unique(rows[:, :3], axis=0))
    return held.pairs(held.entries(rows))


def pulled(head: Head, rows: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
    """The W of these support tokens: ``sum multiplier (x_selected - x_rival) z^T``."""
    ahead, queries = support_pairs(head, rows)
    return ahead.T @ (multipliers[:, None] * queries)


def _bias(given: np.ndarray, q: int, window: np.ndarray) -> np.ndarray:
    bias = np.asarray(given)
    return bias[q, window] if bias.ndim else np.zeros(len(window))
