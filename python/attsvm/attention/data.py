"""The data model: a query attends to a window of tokens.

Cross-, self-, causal and prompt attention, rectangular or ragged, are one object: ``keys (N, dk)``, ``queries (M, dz)``
and, for each query, the contiguous tokens ``start .. stop - 1`` it sees.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _core
from ._check import as_count, as_floats, as_numeric, check_finite, check_shape
from ._layout import Layout

__all__ = ["Data", "causal_attention", "cross_attention", "prompt_attention", "self_attention"]


# Tokens or queries further from 1 than this could overflow or underflow when their products are squared.
SAFE = 2.0**200


class Data:
    """Tokens, queries and who sees what: logits ``keys[t] . (W query)`` over each query's window.

    Made by :func:`cross_attention`, :func:`self_attention`, :func:`causal_attention` and :func:`prompt_attention`.
    Per-query and per-entry results come in the shape of the data: ``(n,)`` and ``(n, T)`` for one query a sequence,
    ``(n, S)`` and ``(n, S, T)`` for several, a list with one array per sequence when lengths differ.

    Attributes
    ----------
    keys : (N, dk) array, float64 or float32
    queries : (M, dz) array
    values : (N, dv) array
        What attention returns; the keys unless given.
    start, stop : (M,) integer arrays
        Query q sees the tokens ``start[q] .. stop[q] - 1``.
    """

    def __init__(
        self, name: str, keys: np.ndarray, queries: np.ndarray, values: np.ndarray | None, layout: Layout
    ):
        self.name = name
        self.keys = keys
        self.queries = queries
        self._values = values
        self.layout = layout
        self.start, self.stop = layout.windows()
        self.indptr = np.concatenate([[0], np.cumsum(self.stop - self.start)]).astype(np.intp)
        self._rows = int(self.indptr[-1]) - len(queries)  # one for every token that is not selected
        self._handle = _core.windows(keys, queries, self.start, self.stop, self.indptr)

    def __reduce__(self) -> tuple:
        return Data, (self.name, self.keys, self.queries, self._values, self.layout)

    @property
    def values(self) -> np.ndarray:
        return self.keys if self._values is None else self._values

    @property
    def dk(self) -> int:
        """Length of a key."""
        return self.keys.shape[1]

    @property
    def dz(self) -> int:
        """Length of a query."""
        return self.queries.shape[1]

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.queries)

    def __repr__(self) -> str:
        lengths = self.stop - self.start
        window = f"{lengths[0]}" if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
        single = ", float32 keys" if self.keys.dtype == np.float32 else ""
        return (
            f"<attsvm {self.name}: {len(self)} queries over {len(self.keys)} tokens, {window} tokens each, "
            f"dk={self.dk}, dz={self.dz}{single}>"
        )

    @functools.cached_property
    def in_range(self) -> tuple[Any, tuple[int, int] | None]:
        """For the SVM, the windows with products that can be squared safely, and the powers of two by which keys and
        queries had to be divided (None when they are given as they are)."""
        largest = [float(np.abs(a).max()) for a in (self.keys, self.queries)]
        if all(size == 0 or 1 / SAFE < size < SAFE for size in largest):
            return self._handle, None
        powers = [math.frexp(size)[1] if size > 0 else 0 for size in largest]
        keys = np.ldexp(self.keys.astype(np.float64), -powers[0])
        queries = np.ldexp(self.queries, -powers[1])
        return _core.windows(keys, queries, self.start, self.stop, self.indptr), (powers[0], powers[1])

    def logits(self, W: Any) -> np.ndarray | list[np.ndarray]:
        """Logit ``keys[t] . (W query)`` of every token a query sees.

        Parameters
        ----------
        W : (dk, dz) array_like

        Returns
        -------
        (n, T) array, (n, S, T) array, or a list of arrays
            In causal data, ``-inf`` after the query.

        Examples
        --------
        >>> import attsvm
        >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 2.0]]], [[1.0, 1.0]])
        >>> data.logits([[1.0, 0.0], [0.0, 1.0]])
        array([[1., 2.]])
        """
        return self.layout.shape_entries(_core.logits(self._handle, self._weights(W)), -np.inf)

    def probabilities(self, W: Any) -> np.ndarray | list[np.ndarray]:
        """Softmax of the logits within each window, in the shape of :meth:`logits` (0 after a causal query).

        Examples
        --------
        >>> import attsvm
        >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 1.0]])
        >>> data.probabilities([[1.0, 0.0], [0.0, 1.0]])
        array([[0.5, 0.5]])
        """
        return self.layout.shape_entries(_core.probabilities(self._handle, self._weights(W)), 0.0)

    def attended(self, W: Any, hard: bool = False) -> np.ndarray | list[np.ndarray]:
        """Attention's output: the probability-weighted mean of the values each query sees.

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
        >>> import attsvm
        >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 1.0]]], [[1.0]])
        >>> data.attended([[2.0], [1.0]], hard=True)
        array([[1., 0.]])
        """
        if hard:
            top = _core.top(self._handle, _core.logits(self._handle, self._weights(W)))
            return self.layout.shape_queries(self.values[self.start + top].astype(np.float64))
        values = np.ascontiguousarray(self.values, dtype=np.float64)
        prob = _core.probabilities(self._handle, self._weights(W))
        return self.layout.shape_queries(_core.attended(self._handle, values, prob))

    def select(self, W: Any) -> np.ndarray | list[np.ndarray]:
        """The token with the largest logit for each query, counted within its window; the lowest index on a tie.

        Returns
        -------
        (n,) or (n, S) integer array, or a list of (S_i,) arrays
        """
        return self.layout.shape_queries(_core.top(self._handle, _core.logits(self._handle, self._weights(W))))

    def _weights(self, W: Any) -> np.ndarray:
        return as_floats("W", W, "dk, dz", (self.dk, self.dz))


def read_tokens(name: str, X: Any, letters: str = "n, T, d") -> tuple[np.ndarray, np.ndarray]:
    """Tokens of all sequences below each other, and the length of each sequence."""
    if _is_ragged(X):
        return _read_ragged(name, X, "T_i, d", keep_single=True)
    array = as_floats(name, X, letters, keep_single=True)
    n, T, d = array.shape
    return array.reshape(n * T, d), np.full(n, T, dtype=np.intp)


def _read_queries(Z: Any, n: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Queries of all sequences below each other, how many each sequence has, and whether it is one without an axis."""
    if _is_ragged(Z):
        queries, counts = _read_ragged("Z", Z, "S_i, dz")
        if len(counts) != n:
            raise ValueError(f"Z must hold queries for each of the {n} sequences of X, got {len(counts)}")
        return queries, counts, False
    Z = as_numeric("Z", Z)
    if Z.ndim == 3:
        queries = as_floats("Z", Z, "n, S, dz", (n, None, None))
        return queries.reshape(-1, Z.shape[2]), np.full(n, Z.shape[1], dtype=np.intp), False
    return as_floats("Z", Z, "n, dz", (n, None)), np.ones(n, dtype=np.intp), True


def _is_ragged(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and len(X) > 0 and not _is_rectangular(X)


def _read_ragged(
    name: str, X: Sequence[Any], letters: str, keep_single: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of all parts below each other, and how many each part has."""
    parts = [as_floats(f"{name}[{i}]", x, letters, keep_single=keep_single) for i, x in enumerate(X)]
    for i, part in enumerate(parts):
        check_shape(f"{name}[{i}]", part, letters, (None, parts[0].shape[1]))
    return np.concatenate(parts), np.array([len(part) for part in parts], dtype=np.intp)


def _is_rectangular(X: Sequence[Any]) -> bool:
    """Whether a list of sequences has one shape throughout (judged without converting its numbers)."""
    try:
        shapes = {np.shape(x) for x in X}
    except ValueError:  # a ragged element: not a sequence of tokens at all, which the array conversion reports
        return True
    return len(shapes) == 1 or any(len(shape) != 2 for shape in shapes)


def _read_values(values: Any, lengths: np.ndarray) -> np.ndarray | None:
    if values is None:
        return None
    flat, found = read_tokens("values", values, "n, T, dv")
    if len(found) != len(lengths) or (found != lengths).any():
        raise ValueError(
            f"values must have as many tokens as X in each sequence, {_sizes(lengths)}, got {_sizes(found)}"
        )
    return flat


def _sizes(lengths: np.ndarray) -> str:
    if (lengths == lengths[0]).all():
        return f"{len(lengths)} x {lengths[0]}"
    return "(" + ", ".join(map(str, lengths[:8])) + (", ...)" if len(lengths) > 8 else ")")


def cross_attention(X: Any, Z: Any, values: Any = None) -> Data:
    """Queries ``Z`` attend to the tokens ``X`` of their sequence: logits ``X_i W z_i``.

    Parameters
    ----------
    X : (n, T, d) array_like, or list of n (T_i, d) array_likes
        Tokens.  float32 tokens stay float32 (and may be memory-mapped); anything else becomes float64.
    Z : (n, dz) or (n, S, dz) array_like, or list of n (S_i, dz) array_likes
        One query per sequence, S of them, or as many as each has.
    values : (n, T, dv) array_like or list, optional
        What attention returns; the tokens by default.

    Returns
    -------
    Data

    Raises
    ------
    ValueError, TypeError
        Naming the argument: wrong shape, empty, NaN, infinite, complex or not numbers.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> attsvm.cross_attention(X, Z)
    <attsvm cross_attention: 6 queries over 48 tokens, 8 tokens each, dk=10, dz=10>
    """
    keys, lengths = read_tokens("X", X)
    queries, counts, single = _read_queries(Z, len(lengths))
    layout = Layout(lengths, counts, single)
    return Data("cross_attention", keys, queries, _read_values(values, lengths), layout)


def self_attention(X: Any, query: int | None = 0, values: Any = None) -> Data:
    """The tokens of a sequence attend to each other: logits ``X_i W x_i,query``, or ``X_i W X_i^T``.

    Parameters
    ----------
    X : (n, T, d) array_like, or list of n (T_i, d) array_likes
    query : int or None
        The token of each sequence that queries (negative counts from its end); None: every token queries.
    values : (n, T, dv) array_like or list, optional

    Returns
    -------
    Data

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(3, 4, 5)
    >>> attsvm.self_attention(X, query=None)
    <attsvm self_attention: 12 queries over 12 tokens, 4 tokens each, dk=5, dz=5>
    """
    keys, lengths = read_tokens("X", X)
    values = _read_values(values, lengths)
    as_queries = np.ascontiguousarray(keys, dtype=np.float64)
    if query is None:
        return Data("self_attention", keys, as_queries, values, Layout(lengths, lengths, single=False))
    index = as_count("query", query, least=-int(lengths.min()))
    if index >= lengths.min():
        raise ValueError(f"query must be a token of every sequence, below {lengths.min()}, got {index}")
    first = np.cumsum(lengths) - lengths
    rows = first + (index if index >= 0 else lengths + index)
    layout = Layout(lengths, np.ones_like(lengths), single=True)
    return Data("self_attention", keys, np.ascontiguousarray(as_queries[rows]), values, layout)


def causal_attention(X: Any, values: Any = None) -> Data:
    """Every token queries the tokens at or before it: ``X_i W x_ik`` over ``t <= k``.

    Parameters
    ----------
    X : (n, T, d) array_like, or list of n (T_i, d) array_likes
    values : (n, T, dv) array_like or list, optional

    Returns
    -------
    Data
        Per-entry results are ``(n, T, T)``, with probability 0 and logit ``-inf`` after the query.

    Examples
    --------
    >>> import attsvm
    >>> data = attsvm.causal_attention([[[1.0], [2.0]]])
    >>> data.probabilities([[0.0]])
    array([[[1. , 0. ],
            [0.5, 0.5]]])
    """
    keys, lengths = read_tokens("X", X)
    queries = np.ascontiguousarray(keys, dtype=np.float64)
    layout = Layout(lengths, lengths, single=False, causal=True)
    return Data("causal_attention", keys, queries, _read_values(values, lengths), layout)


def prompt_attention(X: Any, key: Any = None) -> Data:
    """Prompt attention of the precursor paper: logits ``(X_i key^T) p``, values ``X_i``.

    The trained weight is the prompt: ``W`` has shape ``(dk, 1)``.

    Parameters
    ----------
    X : (n, T, d) array_like, or list of n (T_i, d) array_likes
    key : (dk, d) array_like, optional
        The fixed key matrix; the identity by default.

    Returns
    -------
    Data

    Examples
    --------
    >>> import attsvm
    >>> attsvm.prompt_attention([[[1.0, 0.0], [0.0, 1.0]]]).logits([[1.0], [3.0]])
    array([[1., 3.]])
    """
    values, lengths = read_tokens("X", X)
    keys = values
    if key is not None:
        matrix = as_floats("key", key, "dk, d", (None, values.shape[1]))
        keys = np.ascontiguousarray(values.astype(np.float64, copy=False) @ matrix.T)
        check_finite("X key^T", keys)
    layout = Layout(lengths, np.ones_like(lengths), single=True)
    return Data("prompt_attention", keys, np.ones((len(lengths), 1)), values if key is not None else None, layout)
