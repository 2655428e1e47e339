"""Conversion between flat arrays, over queries or over pairs of a query and a token, and the shape of the user's
data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..common.check import as_count, as_index, check_parts, check_shape
from ..common.storage import storable


@storable
@dataclass(frozen=True, eq=False)
class Layout:
    """The shape of the data: how many tokens (``lengths``) and queries (``counts``) each of the n sequences has.

    ``single``: each sequence has one query, and results have no axis for it.  ``causal``: query k of a sequence sees
    its tokens 0 .. k, with ``window=m`` only the last m of these; otherwise a query sees the whole sequence.
    ``begin (n,)``: the row of the keys at which each sequence begins; None if the sequences follow each other.

    ``none``: there are no sequences, and all results are empty arrays of the right shape.  ``lengths`` and ``counts``
    then hold the numbers that each sequence would have.  The arrays that C reads hold one zero token and one zero query
    as placeholders.  The placeholder query has no margin row, no weights change its attention, and means over the
    queries of all shards leave it out.
    """

    lengths: np.ndarray
    counts: np.ndarray
    single: bool
    causal: bool = False
    window: int | None = None
    begin: np.ndarray | None = None
    none: bool = False

    @cached_property
    def uniform(self) -> bool:
        return bool(np.ptp(self.lengths) == np.ptp(self.counts) == 0)

    def check(self, tokens: int, queries: int) -> None:
        """Raises ValueError unless the layout fits data of the given total numbers of tokens and queries.

        It is called on layouts from files, before arrays of their size are allocated.
        """
        lengths, counts = self.lengths, self.counts
        if self.none:
            if (tokens, queries) != (1, 1):
                raise ValueError(
                    f"data without sequences must hold one token and one query, got {tokens} and {queries}"
                )
            tokens, queries = int(lengths[0]), int(counts[0])
        if self.begin is None:
            check_parts("lengths", lengths, tokens)
        else:  # C checks that the windows lie within the tokens
            check_shape("begin", self.begin, "n", lengths.shape)
        check_parts("counts", counts, queries)
        if self.window is not None:
            as_count("window", self.window, 1)
        check_shape("counts", counts, "n", lengths.shape)
        if self.single and (counts != 1).any():
            raise ValueError("counts must be 1 where a sequence has a single query")
        if self.causal and (counts != lengths).any():
            raise ValueError("counts must be the lengths in causal attention")

    def windows(self) -> tuple[np.ndarray, np.ndarray]:
        """The windows of all queries as arrays (start, stop): query q sees the rows ``start[q] .. stop[q] - 1`` of the
        keys."""
        if self.none:
            return np.array([0]), np.array([1])
        begin = self.first_tokens()
        start, stop = np.repeat(begin, self.counts), np.repeat(begin + self.lengths, self.counts)
        if self.causal:
            stop = _places(begin, self.counts) + 1
            if self.window is not None:
                start = np.maximum(start, stop - self.window)
        return start.astype(np.intp), stop.astype(np.intp)

    def first_tokens(self) -> np.ndarray:
        """The row of the keys at which each sequence begins."""
        return np.cumsum(self.lengths) - self.lengths if self.begin is None else self.begin

    def take(self, index: Any) -> tuple[Layout, np.ndarray, np.ndarray]:
        chosen = as_index(index, self._shape[0])
        counts = self.counts[chosen]
        rows = _places((np.cumsum(self.counts) - self.counts)[chosen], counts)
        part = replace(self, lengths=self.lengths[chosen], counts=counts, begin=self.first_tokens()[chosen])
        return part, chosen, rows

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape (n,) or (n, S) of an array with one number per query, if each sequence has S queries."""
        n = 0 if self.none else len(self.counts)
        return (n,) if self.single else (n, int(self.counts[0]))

    def _seen(self, T: int) -> np.ndarray:
        """Which of the T tokens of a sequence each of its T causal queries sees, as a bool array (T, T)."""
        seen = np.tri(T, dtype=bool)
        return seen if self.window is None else np.triu(seen, 1 - self.window)

    def shape_queries(self, flat: np.ndarray) -> Any:
        """Reshapes a flat array over queries (M, ...) to the shape of the user's data: (n, ...), (n, S, ...), or a list
        of (S_i, ...)."""
        if self.none:
            flat = flat[:0]
        if self.single:
            return flat
        if self.uniform:
            return flat.reshape(*self._shape, *flat.shape[1:])
        return np.split(flat, np.cumsum(self.counts)[:-1])

    def shape_entries(self, flat: np.ndarray, fill: Any = 0) -> Any:
        """Reshapes a flat array over entries (pairs of a query and a token) to the shape of the user's data: (n, T),
        (n, S, T), or a list.  Tokens that a causal query cannot see get ``fill``."""
        if self.none:
            return np.empty((*self._shape, self.lengths[0]), dtype=flat.dtype)
        if self.uniform:
            return self._filled(flat.reshape(len(self.lengths), -1), self.lengths[0], fill)
        start, stop = self.windows()
        ends = np.cumsum(stop - start)[np.cumsum(self.counts) - 1]
        parts = zip(np.split(flat, ends[:-1]), self.lengths, strict=True)
        return [self._filled(part, T, fill) for part, T in parts]

    def _filled(self, entries: np.ndarray, T: int, fill: Any) -> np.ndarray:
        """The entries (..., size) of sequences of T tokens each, as arrays (..., T) or (..., S, T)."""
        if self.single:
            return entries
        if not self.causal:
            return entries.reshape(*entries.shape[:-1], -1, T)
        shaped = np.full((*entries.shape[:-1], T, T), fill, dtype=entries.dtype)
        shaped[..., self._seen(T)] = entries
        return shaped

    def flatten_queries(self, name: str, array: Any, dv: int | None = None) -> Any:
        """Flattens an array, or list of arrays, with one value per query in the shape of the user's data, as the
        inverse of ``shape_queries``.  With ``dv`` a value is a vector of this length.  Raises ValueError for another
        shape."""
        extra, more = ((), "") if dv is None else ((dv,), ", dv")
        if isinstance(array, np.ndarray) and (self.single or self.uniform):
            check_shape(name, array, ("n" if self.single else "n, S") + more, (*self._shape, *extra), self.none)
            return _placeholder(array, extra) if self.none else array.reshape(-1, *extra)
        parts = self._parts(name, array)
        for i, part in enumerate(parts):
            check_shape(f"{name}[{i}]", part, "S_i" + more, (int(self.counts[i]), *extra))
        return np.concatenate(parts)

    def flatten_entries(self, name: str, array: Any, hidden: bool = False) -> np.ndarray:
        """Flattens an array, or list of arrays, with one value per query and token in the shape of the user's data, as
        the inverse of ``shape_entries``.  Raises ValueError for another shape.

        Tokens that a causal query cannot see must be 0 unless ``hidden``.
        """
        if isinstance(array, np.ndarray) and self.uniform:
            sizes = *self._shape, int(self.lengths[0])
            check_shape(name, array, "n, T" if self.single else "n, S, T", sizes, self.none)
            if self.none:
                return _placeholder(array, ())
            if not self.causal:
                return array.reshape(-1)
            parts = list(array)
        else:
            parts = self._parts(name, array)
        for i, (part, T, S) in enumerate(zip(parts, self.lengths.tolist(), self.counts.tolist(), strict=True)):
            check_shape(f"{name}[{i}]", part, "T_i" if self.single else "S_i, T_i", (T,) if self.single else (S, T))
            if self.causal:
                seen = self._seen(T)
                if not hidden and part[~seen].any():
                    outside = "after its query" if self.window is None else "outside its query's window"
                    raise ValueError(f"{name}[{i}] must not select a token {outside}")
                parts[i] = part[seen]
        return np.concatenate(parts, axis=None)

    def _parts(self, name: str, array: Any) -> list[np.ndarray]:
        n = self._shape[0]
        if isinstance(array, np.ndarray) or len(array) != n:
            came = array.shape if isinstance(array, np.ndarray) else f"{len(array)}"
            raise ValueError(f"{name} must be a list with one array for each of the {n} sequences, got {came}")
        return [np.asarray(part) for part in array]


def _placeholder(array: np.ndarray, each: tuple[int, ...]) -> np.ndarray:
    """Replaces a user's empty array, given for data without sequences, by a flat array with one row of shape ``each``:
    zeros, or True for bools.  As a selection, either row selects token 0."""
    return np.full((1, *each), array.dtype.kind == "b", dtype=array.dtype)


def _places(begin: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The ranges ``begin[i] .. begin[i] + counts[i] - 1`` for all i, concatenated into one array."""
    return np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
