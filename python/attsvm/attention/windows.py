"""Which tokens each query sees, in flat arrays, and the range of their numbers."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from .. import _core
from ..common.check import as_doubles

# Tokens or queries further from 1 than this could overflow or underflow when their products are squared.
SAFE, LEAST = 2.0**200, 2.0**-200


class Windows:
    """Keys, queries and, for each query, the contiguous tokens ``start .. stop - 1`` it sees, as C has them."""

    _handle: Any
    keys: np.ndarray
    queries: np.ndarray
    _identity = False  # of the tokens of a vocabulary

    @property
    def dk(self) -> int:
        """Length of a key."""
        return self.keys.shape[1]

    @property
    def dz(self) -> int:
        """Length of a query."""
        return self.queries.shape[1]

    @functools.cached_property
    def _stored(self) -> Any:
        """The windows with every key in memory, as solvers and fixed scores need them."""
        if not self._identity:
            return self._handle
        return _core.windows(as_doubles(self.keys), self.queries, self.start, self.stop)

    @functools.cached_property
    def _index(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _core.index(self._handle)

    @property
    def start(self) -> np.ndarray:
        return self._index[0]

    @property
    def stop(self) -> np.ndarray:
        return self._index[1]

    @property
    def lengths(self) -> np.ndarray:
        """How many tokens each query sees."""
        return self.stop - self.start

    @property
    def indptr(self) -> np.ndarray:
        """Where the entries of query q lie in flat arrays: ``indptr[q] .. indptr[q + 1] - 1``; read-only."""
        return self._index[2]

    @functools.cached_property
    def _longest(self) -> int:
        """Tokens of the longest window."""
        return int(self.lengths.max())

    def _query_of(self) -> np.ndarray:
        """The query of every entry."""
        return np.repeat(np.arange(len(self.queries)), self.lengths)

    def _rows_of(self, reference: np.ndarray, entries: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of entries, all unless given: the query, and the selected and the own token, as rows of ``keys``."""
        entries = np.arange(self.indptr[-1]) if entries is None else entries
        query = self._query_at(entries)
        return query, (self.start + reference)[query], entries - self.indptr[query] + self.start[query]

    def _token_of(self) -> np.ndarray:
        """Of every entry the token, as a row of ``keys``."""
        return self._rows_of(np.zeros(len(self.queries), dtype=np.intp))[2]

    def _query_at(self, entries: Any) -> Any:
        """The query of these entries."""
        return np.searchsorted(self.indptr, entries, side="right") - 1

    @functools.cached_property
    def _rows(self) -> int:
        """One for every token that is not selected."""
        return int(self.indptr[-1]) - len(self.queries)

    @functools.cached_property
    def _powers(self) -> tuple[int, int] | None:
        """Powers of two by which keys and queries are divided for the SVM, so that squares of their products are in
        range; None: they are as they come."""
        sizes = self._largest_key, largest(self.queries)
        if not all(map(math.isfinite, sizes)):
            self._check_finite()
        return powers_of(*sizes)

    @functools.cached_property
    def _largest_key(self) -> float:
        """Of the absolute values; that of all keys, whichever the queries see."""
        return 1.0 if self._identity else largest(self.keys)

    @functools.cached_property
    def _choosing(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Which queries see several tokens, and their entries; None: all do, or none does."""
        lengths = self.lengths
        several = lengths > 1
        return None if several.all() or not several.any() else (several, np.repeat(several, lengths))

    def _in_range(self, choosing: bool = True) -> Any:
        """The windows of keys and queries over their powers of two, of the ``choosing`` queries alone."""
        keys, queries, start, stop = np.ascontiguousarray(self.keys), self.queries, self.start, self.stop
        if self._powers is not None:
            keys = np.ldexp(keys.astype(np.float64), -self._powers[0])
            queries = np.ldexp(queries, -self._powers[1])
        if choosing and self._choosing is not None:
            queries, start, stop = (array[self._choosing[0]] for array in (queries, start, stop))
        return _core.windows(keys, queries, start, stop)

    def _check_finite(self) -> None:
        """Raises ValueError where X or Z, finite when the data were made, have been changed since."""
        for name, array in (("X", self.keys), ("Z", self.queries)):
            if not (self._identity and name == "X") and not math.isfinite(largest(array)):
                row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
                raise ValueError(
                    f"{name} must stay finite, got {array[row, column]} in row {row}, column {column} of its vectors: "
                    "it was changed after the data were made"
                )


def largest(array: np.ndarray) -> float:
    """Of the absolute values."""
    size = _core.largest(array)
    assert size is not None  # the arrays of data are as C reads them
    return size


def powers_of(largest_key: float, largest_query: float) -> tuple[int, int] | None:
    """See :attr:`Windows.powers`."""
    if (largest_key == 0 or LEAST < largest_key < SAFE) and (largest_query == 0 or LEAST < largest_query < SAFE):
        return None
    return math.frexp(largest_key)[1], math.frexp(largest_query)[1]
