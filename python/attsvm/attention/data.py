"""The data model: each query attends to a window of tokens.

Cross-, self-, causal and prompt attention, rectangular or ragged, are all stored in one class: ``keys (N, dk)``,
``queries (M, dz)`` and, for each query, the contiguous tokens ``start .. stop - 1`` that it sees.  ``kinds.py`` makes
the data from arrays.  An *entry* is a pair of a query and a token that it sees; entries are ordered by query.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..common.check import as_count, as_doubles, as_floats, as_numeric, as_parts
from ..common.storage import storable
from .layout import Layout

# Tokens or queries are scaled before a solve if their largest number lies outside LEAST .. SAFE.
# Squares of products of numbers outside LEAST .. SAFE could overflow or underflow.
SAFE, LEAST = 2.0**200, 2.0**-200


@storable
class Data:
    """The data of a softmax-attention problem: tokens, queries, and which tokens each query sees.

    Under weights W, a query gives token t the logit ``keys[t] . (W query)``.

    Made by :func:`cross_attention`, :func:`self_attention`, :func:`causal_attention` and :func:`prompt_attention`.
    Per-query and per-entry results come in the shape of the data: ``(n,)`` and ``(n, T)`` for one query a sequence,
    ``(n, S)`` and ``(n, S, T)`` for several, a list with one array per sequence when lengths differ.

    Attributes
    ----------
    keys : (N, dk) array, float64 or float32
        If the tokens are a vocabulary these are the identity, stored as a view of 2 N numbers; training makes no matrix
        of it.
    queries : (M, dz) array
    values : (N, dv) array
        The vectors that attention averages; the keys unless others were given.  All three arrays are read-only.  They
        are copies of the given arrays; with ``copy=False``, and for memory maps, they are views.
    start, stop : (M,) integer arrays
        Query q sees the tokens ``start[q] .. stop[q] - 1``; read-only.

    Notes
    -----
    Data without sequences, from X (0, T, d), are for a worker of ``reduce`` for which no sequence is left.  Their
    ``len`` is 0 and their results are empty.  Training and the SVM accept them with ``reduce``; every other function
    that needs a query refuses them.  Their arrays hold one zero token and one zero query, which are ignored.
    """

    _handle: Any  # the windows of all queries as a C object
    _identity = False  # whether the tokens are a vocabulary, with the identity as keys
    _none = False  # whether there are no sequences
    _shapes: tuple[tuple[int, ...], tuple[int, ...]]  # shapes of X and Z, from which the layout is made on demand
    _causal: bool

    def __init__(self, name: str, keys: np.ndarray | int, queries: np.ndarray, values: np.ndarray | None, layout: Any):
        self._name = name
        if isinstance(keys, int):
            self._identity, keys = True, _identity(keys)
        self._handle = _core.windows(None if self._identity else keys, queries, *layout.windows())
        self.keys = read_only(keys)
        self.queries = read_only(queries)
        self._given_values = None if values is None else read_only(values)
        self._layout = layout
        self._none = layout.none
        # _single is False for data without sequences, so that Python checks their empty selection, not C
        self._single = layout.single and not self._none

    @classmethod
    def _of_plain(cls, name: str, X: Any, Z: Any, causal: bool = False) -> Data | None:
        """Fast path: the data of arrays X and Z that C accepts without conversion.  None if an array must be converted
        or is wrong; the caller then reads the arrays in Python, which raises the error."""
        made = _core.plain_windows(X, Z, causal)
        if made is None:
            return None
        data = cls.__new__(cls)
        data._handle, data.keys, data.queries, largest_key, largest_query, entries = made
        data._stored, data._rows = data._handle, entries - len(data.queries)
        data._name, data._given_values, data._shapes, data._causal = name, None, (X.shape, Z.shape), causal
        data._single = len(Z.shape) == 2
        # Tokens and queries whose largest numbers lie within LEAST .. SAFE need no scaling by powers of two.
        # Powers of two for other data are computed by the first solve, since X may still change with copy=False.
        if powers_of(largest_key, largest_query) is None:
            data._powers = None
        if not causal:
            data._choosing = None
        return data

    @cached_property
    def _layout(self) -> Any:
        """The layout (numbers of tokens and queries in each sequence) of rectangular arrays, made on demand."""
        (n, T, _), queries = self._shapes
        counts = np.full(n, 1 if self._single else queries[1], dtype=np.intp)
        return Layout(np.full(n, T, dtype=np.intp), counts, self._single, self._causal)

    def __reduce__(self) -> tuple[Any, ...]:
        return Data, tuple(self._state().values())

    def _state(self) -> dict[str, Any]:
        """The constructor arguments that make these data again, by name."""
        return {
            "name": self._name,
            "keys": self.dk if self._identity else self.keys,
            "queries": self.queries,
            "values": self._given_values,
            "layout": self._layout,
        }

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Data:
        """Makes data from the state read from a file, after checking it."""
        keys, values, layout = state["keys"], state["values"], state["layout"]
        if isinstance(keys, int):
            N = as_count("keys", keys, 1)
        else:
            keys = as_floats("keys", keys, "N, dk", keep_single=True)
            N = len(keys)
        queries = as_floats("queries", state["queries"], "M, dz")
        if values is not None:
            values = as_floats("values", values, "N, dv", (N, None), keep_single=True)
        layout.check(N, len(queries))
        return cls(state["name"], keys, queries, values, layout)

    @property
    def dk(self) -> int:
        """Length of a key."""
        return self.keys.shape[1]

    @property
    def dz(self) -> int:
        """Length of a query."""
        return self.queries.shape[1]

    @property
    def _W_shape(self) -> tuple[int, int]:
        """The shape (dk, dz) of attention weights W for these data."""
        return self.dk, self.dz

    @cached_property
    def _stored(self) -> Any:
        """The windows as a C object with every key stored, as solvers and linear heads read them."""
        if not self._identity:
            return self._handle
        return _core.windows(as_doubles(self.keys), self.queries, self.start, self.stop)

    @cached_property
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
        """The number of tokens that each query sees."""
        return self.stop - self.start

    @property
    def indptr(self) -> np.ndarray:
        """Offsets into flat arrays: the tokens of query q are at ``indptr[q] .. indptr[q + 1] - 1``; read-only."""
        return self._index[2]

    @property
    def _begin(self) -> np.ndarray:
        """The index of each query's first entry in flat arrays."""
        return self.indptr[:-1]

    @property
    def _entries(self) -> int:
        """The number of entries."""
        return int(self.indptr[-1])

    @cached_property
    def _longest(self) -> int:
        """The number of tokens of the longest window."""
        return int(self.lengths.max())

    def _query_of(self) -> np.ndarray:
        """The index of the query to which each entry (pair of a query and a token that it sees) belongs."""
        return np.repeat(np.arange(len(self.queries)), self.lengths)

    def _rows_of(self, reference: np.ndarray | int, entries: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns for each given entry (default all): its query; the row of ``keys`` that holds the query's selected
        token; and the row of ``keys`` that holds the entry's own token.

        ``reference`` is the selected token of each query, counted in its window.
        """
        entries = np.arange(self._entries) if entries is None else entries
        query = self._query_at(entries)
        return query, (self.start + reference)[query], entries - self.indptr[query] + self.start[query]

    def _differences(self, chosen: np.ndarray, token: np.ndarray) -> np.ndarray:
        """``keys[chosen] - keys[token]`` in double precision."""
        return self.keys[chosen].astype(np.float64) - self.keys[token]

    def _token_of(self) -> np.ndarray:
        """The row of ``keys`` that holds the token of each entry (pair of a query and a token)."""
        return self._rows_of(0)[2]

    def _query_at(self, entries: Any) -> Any:
        """The index of the query to which each given entry (pair of a query and a token) belongs."""
        return np.searchsorted(self.indptr, entries, side="right") - 1

    @cached_property
    def _rows(self) -> int:
        """The number of constraints (rows) of the SVM: one for each token that a query sees, except its selected
        token."""
        return self._entries - len(self.queries)

    @cached_property
    def _powers(self) -> tuple[int, int] | None:
        """The powers of two by which keys and queries are divided before a solve, so that squares of their products are
        in range; None if no scaling is needed."""
        sizes = self._largest_key, largest(self.queries)
        if not all(map(math.isfinite, sizes)):
            self._check_finite()
        return powers_of(*sizes)

    @cached_property
    def _largest_key(self) -> float:
        """The largest absolute value in the keys (of all keys, whether or not a query sees them)."""
        return 1.0 if self._identity else largest(self.keys)

    @cached_property
    def _choosing(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Two bool arrays: which queries see several tokens, and which entries (pairs of a query and a token) belong to
        such queries.  None if all queries see several tokens, or none does.

        A query that sees one token has no constraint in the SVM, and a solve leaves it out.
        """
        several = self.lengths > 1
        return None if several.all() == several.any() else (several, np.repeat(several, self.lengths))

    def _in_range(self, choosing: Any = None) -> Any:
        """The windows as a C object with keys and queries divided by the powers of two of ``_powers``; of the queries
        flagged in ``choosing[0]`` alone, if given."""
        if choosing is None and self._powers is None:
            return self._stored
        keys, queries, start, stop = np.ascontiguousarray(self.keys), self.queries, self.start, self.stop
        if self._powers is not None:
            keys = np.ldexp(keys.astype(np.float64), -self._powers[0])
            queries = np.ldexp(queries, -self._powers[1])
        if choosing is not None:
            queries, start, stop = (array[choosing[0]] for array in (queries, start, stop))
        return _core.windows(keys, queries, start, stop)

    def _check_finite(self) -> None:
        """Raises ValueError if X or Z is no longer finite because it was changed after the data were made."""
        for name, array in (("X", self.keys), ("Z", self.queries)):
            if not (self._identity and name == "X") and not math.isfinite(largest(array)):
                row, column = np.argwhere(~np.isfinite(array))[0]
                raise ValueError(
                    f"{name} must stay finite, got {array[row, column]} in row {row}, column {column} of its vectors: "
                    "it was changed after the data were made"
                )

    @property
    def values(self) -> np.ndarray:
        return self.keys if self._given_values is None else self._given_values

    def __len__(self) -> int:
        """The number of queries."""
        return 0 if self._none else len(self.queries)

    def __getitem__(self, index: Any) -> Data:
        """The data of the chosen sequences alone; keys and values are shared with the original data.

        The index counts sequences, the first axis of all results, while ``len`` counts queries: with S queries in each
        sequence there are S times as many.

        Parameters
        ----------
        index : int, slice, list of integers or (n,) array of bool
            Which sequences, in which order; one may come several times.

        Returns
        -------
        Data
            Equal to data made of those sequences alone.

        Raises
        ------
        IndexError, TypeError, ValueError
            An index out of range; an index of another type; an index that chooses no sequence.

        Examples
        --------
        >>> attsvm.cross_attention(X, Z)[:2]
        <attsvm cross_attention: 2 queries over 48 tokens, 8 tokens each, dk=10, dz=10>
        """
        return self._take(index)[0]

    __iter__ = None  # without this line, Python would iterate over data by calling __getitem__ with 0, 1, 2, ...

    def _take(self, index: Any) -> tuple[Data, np.ndarray, np.ndarray]:
        """Returns the data of the chosen sequences; the numbers of these sequences; and the rows of their queries."""
        layout, chosen, rows = self._layout.take(index)
        part = Data(self._name, self._state()["keys"], self.queries[rows], self._given_values, layout)
        part._largest_key = self._largest_key
        return part, chosen, rows

    def __repr__(self) -> str:
        if self._none:
            return f"<attsvm {self._name}: no queries, dk={self.dk}, dz={self.dz}>"
        lengths = self.lengths
        window = f"{lengths[0]}" if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
        single = ", float32 keys" if self.keys.dtype == np.float32 else ""
        return (
            f"<attsvm {self._name}: {len(self)} queries over {len(self.keys)} tokens, {window} tokens each, "
            f"dk={self.dk}, dz={self.dz}{single}>"
        )

    def logits(self, W: ArrayLike) -> np.ndarray | Any:
        """The logit ``keys[t] . (W query)`` of every token t that a query sees, for all queries.

        Parameters
        ----------
        W : (dk, dz) array_like

        Returns
        -------
        (n, T) array, (n, S, T) array, or a list of arrays
            In causal data, ``-inf`` after the query.

        Examples
        --------
        >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 2.0]]], [[1.0, 1.0]])
        >>> data.logits([[1.0, 0.0], [0.0, 1.0]])
        array([[1., 2.]])
        """
        return self._layout.shape_entries(self._logits(W), -np.inf)

    def probabilities(self, W: ArrayLike) -> np.ndarray | Any:
        """Softmax of the logits over the tokens that a query sees: ``p_t = exp(logit_t) / sum_s exp(logit_s)``.

        Parameters
        ----------
        W : (dk, dz) array_like

        Returns
        -------
        (n, T) array, (n, S, T) array, or a list of arrays
            In causal data, 0 after the query.

        Examples
        --------
        >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 1.0]])
        >>> data.probabilities([[1.0, 0.0], [0.0, 1.0]])
        array([[0.5, 0.5]])
        """
        return self._layout.shape_entries(_core.probabilities(self._handle, self._weights(W)))

    def attended(self, W: ArrayLike, hard: bool = False) -> np.ndarray | Any:
        """Attention's output for each query: the mean of the values that it sees, weighted by probability.

        Parameters
        ----------
        W : (dk, dz) array_like
        hard : bool
            The value of the token with the largest logit instead (the lowest index on a tie).

        Returns
        -------
        (n, dv) array, (n, S, dv) array, or a list of (S_i, dv) arrays

        Examples
        --------
        >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 1.0]]], [[1.0]])
        >>> data.attended([[2.0], [1.0]], hard=True)
        array([[1., 0.]])
        """
        if hard:
            top = _core.top(self._handle, self._logits(W))
            o = self.values[self.start + top].astype(np.float64)
        else:
            o = _core.probabilities(self._handle, self._weights(W))
            if self._identity and self._given_values is None:
                o = o.reshape(len(self), -1)
            else:
                o = _core.attended(self._handle, as_doubles(self.values), o)
        return self._layout.shape_queries(o)

    def select(self, W: ArrayLike) -> np.ndarray | Any:
        """The token with the largest logit for each query, counted within its window; the lowest index on a tie.

        Parameters
        ----------
        W : (dk, dz) array_like

        Returns
        -------
        (n,) or (n, S) integer array, or a list of (S_i,) arrays

        Examples
        --------
        >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 2.0]]], [[1.0, 1.0]])
        >>> data.select([[1.0, 0.0], [0.0, 1.0]])
        array([1])
        """
        return self._layout.shape_queries(_core.top(self._handle, self._logits(W)))

    def margins(self, W: Any, selected: Any) -> np.ndarray | Any:
        """The margin ``(keys[selected] - keys[t]) . (W query)`` of every token t that a query sees, for all queries.

        The margin is the logit of the selected token minus that of token t.  It is computed from the difference of the
        two tokens, so it is exactly zero for a copy.  A W with all margins at least 1 separates the selected tokens.

        Parameters
        ----------
        W : (dk, dz) array_like
        selected : (n,) or (n, S) integer array_like, or a list of (S_i,)
            One token per query, counted within its window.

        Returns
        -------
        (n, T) array, (n, S, T) array, or a list of arrays
            Infinite at the selected token itself and, in causal data, after the query.

        Examples
        --------
        >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 2.0]]], [[1.0, 1.0]])
        >>> data.margins([[1.0, 0.0], [0.0, 1.0]], [1])
        array([[ 1., inf]])
        """
        array = as_parts("selected", selected, not self._layout.uniform, as_numeric)
        flat = self._layout.flatten_queries("selected", array)
        if flat.dtype.kind not in "iu":
            raise TypeError(f"selected must hold token indices, got {flat.dtype}")
        if said := self._outside(flat):
            raise ValueError(said)
        flat = np.ascontiguousarray(flat, dtype=np.intp)
        return self._layout.shape_entries(self._flat_margins(W, flat), np.inf)

    def _flat_margins(self, W: Any, reference: np.ndarray) -> np.ndarray:
        """The margins of all entries (pairs of a query and a token) as a flat array; infinite at the selected
        tokens."""
        margins = _core.margins(self._handle, self._weights(W), reference)
        margins[self._begin + reference] = np.inf
        return margins

    def _outside(self, selected: np.ndarray) -> str:
        """The error message that names a query whose selected token lies outside its window; empty if there is none.

        C only reports that there is such a query.
        """
        wrong = (selected < 0) | (selected >= self.lengths)
        q = int(wrong.argmax())
        said = f"selected must be token indices of each window, 0 .. {self.lengths[q] - 1} for query {q}, "
        return f"{said}got {selected[q]}" if wrong[q] else ""

    def _logits(self, W: Any) -> np.ndarray:
        return _core.logits(self._handle, self._weights(W))

    def _weights(self, W: Any) -> np.ndarray:
        return as_floats("W", W, "dk, dz", self._W_shape)


def check_data(name: str, data: Any, shard: bool = False) -> None:
    """Raises an error unless ``data`` is a Data object.  Data without sequences pass only if ``shard``: they may be one
    worker's part of the data."""
    if not isinstance(data, Data):
        inside = ": pass its .data" if isinstance(getattr(data, "data", None), Data) else ""
        raise TypeError(f"{name} must come from cross_attention or its siblings, got {type(data).__name__}{inside}")
    if data._none and not shard:
        raise ValueError(f"{name} must have sequences: without any they go with reduce alone, got {data!r}")


def fits(data: Any, W: np.ndarray) -> None:
    """Raises an error unless ``data`` is a Data object with tokens of length dk and queries of length dz, for weights W
    (..., dk, dz)."""
    check_data("data", data, shard=True)
    if data._W_shape != W.shape[-2:]:
        raise ValueError(
            f"data must have tokens and queries of lengths (dk, dz) = {W.shape[-2:]} as the weights, "
            f"got {data._W_shape}"
        )


def _identity(N: int) -> np.ndarray:
    """The identity matrix (N, N) as a view of only 2 N - 1 numbers: N - 1 zeros, a one, N - 1 zeros.  Its row t begins
    at the number with index N - 1 - t."""
    numbers = np.zeros(2 * N - 1)
    numbers[N - 1] = 1
    return np.lib.stride_tricks.sliding_window_view(numbers, N)[::-1]


def read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def largest(array: np.ndarray) -> float:
    """The largest absolute value in an array of data."""
    size = _core.largest(array)
    assert size is not None  # _core.largest returns None for an array that C cannot read; C reads all arrays of data
    return size


def powers_of(largest_key: float, largest_query: float) -> tuple[int, int] | None:
    """Exponents (k, q) such that keys are divided by 2^k and queries by 2^q before a solve; None if both are in range
    already."""
    if (largest_key == 0 or LEAST < largest_key < SAFE) and (largest_query == 0 or LEAST < largest_query < SAFE):
        return None
    return math.frexp(largest_key)[1], math.frexp(largest_query)[1]
