"""Turns queries of an attention head, with the tokens that they select, into the data of an SVM."""

from typing import NamedTuple

import numpy as np

from ..attention.data import Data
from ..attention.layout import Layout
from .head import Head


class Cases(NamedTuple):
    """Queries of a head with the tokens that they see, as the data of an SVM.

    Attributes
    ----------
    data : Data
    selected : (M,) integer array
        Position of the token that each query selects, within the window of the query.
    rows : (M, 3) integer array
        (sequence, query, selected) of each query of the data, in the same order.
    tokens : (entries,) integer array
        Position in its sequence of the token of each entry of the data.
    blocks : (b, 2) integer array
        Where the tokens of each sequence begin and end in the data's keys.
    """

    data: Data
    selected: np.ndarray
    rows: np.ndarray
    tokens: np.ndarray
    blocks: np.ndarray

    def entries(self, rows: np.ndarray) -> np.ndarray:
        """Index of the entry (query, token) for the query and rival of each row (sequence, query, selected, rival)."""
        every = np.column_stack([np.repeat(self.rows[:, :2], self.data.lengths, axis=0), self.tokens])
        known, wanted = (np.ravel_multi_index(at.T, every.max(axis=0) + 1) for at in (every, rows[:, [0, 1, 3]]))
        return np.searchsorted(known, wanted)

    def split(self, flat: np.ndarray) -> list[np.ndarray]:
        """An array of all entries (query, token) as one array for each query."""
        return np.split(flat, self.data.indptr[1:-1])

    def pairs(self, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ``x_selected - x_t`` and z for each of ``entries``, the indices of pairs (query z, token t)."""
        query, selected, rival = self.data._rows_of(self.selected, entries)
        return self.data._differences(selected, rival), self.data.queries[query]

    def shares(self, entries: np.ndarray, left: np.ndarray, values: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Terms of k margins (k, r), one for each of r singular directions: ``s (u . (x_selected - x_t)) (v . z)``."""
        ahead, queries = self.pairs(entries)
        return values * (ahead @ left) * (queries @ right)

    def nearest(self, margins: np.ndarray) -> np.ndarray:
        """The index of each query's entry (query, token) with the smallest of ``margins``, one margin per entry."""
        return self.data._begin + [part.argmin() for part in self.split(margins)]


def as_cases(head: Head, rows: np.ndarray) -> Cases:
    """The :class:`Cases` of these rows (sequence, query, selected), sorted by sequence and query.

    The windows are views of the head's own keys, which are not copied since they may be memory-mapped.  If the mask has
    gaps or the logits have a bias, each query gets a copy of its window.  A bias becomes one more coordinate of each
    token, for which the query has a 1.
    """
    text, bias = head.text, getattr(head.given, "bias", None)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    at, first = text.query_rows(rows), text.begin[rows[:, 0]]
    seen = [text.window(i, q) for i, q, _ in rows.tolist()]
    tokens, sizes = np.concatenate(seen), text.sizes[at]
    queries = head.queries[at].astype(np.float64)
    if bias is None and not text.visible:
        keys, start = text.keys, first + text.start[at]
        own = np.unique(rows[:, 0], return_index=True)[1]
    else:
        keys, start = text.keys[np.repeat(first, sizes) + tokens], np.cumsum(sizes) - sizes
        own = np.arange(len(rows))
    blocks = np.column_stack([np.minimum.reduceat(start, own), np.maximum.reduceat(start + sizes, own)])
    if bias is not None:
        added = [
            np.broadcast_to(bias[i], (text.counts[i], text.lengths[i]))[q, window]
            for (i, q, _), window in zip(rows, seen, strict=True)
        ]
        keys = np.column_stack([keys, np.concatenate(added).astype(keys.dtype)])
        queries = np.column_stack([queries, np.ones(len(rows))])
    data = Data("head", np.ascontiguousarray(keys), queries, None, Layout(sizes, np.ones_like(at), True, begin=start))
    hits = np.flatnonzero(tokens == np.repeat(rows[:, 2], sizes))
    return Cases(data, hits - data._begin, rows, tokens, blocks)


def support_pairs(head: Head, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each row (sequence, query, selected, rival): ``x_selected - x_rival``; and the query's vector z."""
    held = as_cases(head, np.unique(rows[:, :3], axis=0))
    return held.pairs(held.entries(rows))


def pulled(head: Head, rows: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
    """W from the support tokens of an SVM: the sum of ``multiplier (x_selected - x_rival) z^T`` over these rows."""
    ahead, queries = support_pairs(head, rows)
    return ahead.T @ (multipliers[:, None] * queries)
