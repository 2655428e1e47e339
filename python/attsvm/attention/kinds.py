"""Functions that make the data of cross-, self-, causal and prompt attention from arrays or lists."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..common.check import as_count, as_doubles, as_floats, check_finite
from .data import Data, read_only
from .layout import Layout
from .tokens import empty, has_none, own, read_queries, read_tokens, read_values, with_sink


def _make(
    name: str,
    X: Any,
    Z: Any,
    values: Any,
    copy: bool,
    causal: bool = False,
    window: int | None = None,
    tokens: tuple[np.ndarray, np.ndarray] | None = None,
) -> Data:
    """Data of queries Z that attend to the tokens X of their sequence.  ``tokens`` are X as ``read_tokens`` reads it,
    if the caller has done so.  The caller has copied X and Z, but not the values."""
    if has_none(X):
        return _without_sequences(name, X, Z, values, causal)
    data = Data._of_plain(name, X, Z, causal) if window is None else None
    if data is None:
        keys, lengths = tokens or read_tokens("X", X)
        queries, counts, single = (as_doubles(keys), lengths, False) if Z is X else read_queries(Z, len(lengths))
        data = Data(name, keys, queries, None, Layout(lengths, counts, single, causal, window))
    if values is not None:
        data._given_values = read_only(read_values(own(values, copy), data._layout.lengths))
    return data


def _without_sequences(name: str, X: Any, Z: Any, values: Any, causal: bool = False) -> Data:
    """Makes data without sequences, for tokens X (0, T, d), queries Z (0, dz) or (0, S, dz), and values (0, T, dv)."""
    keys, lengths = _placeholder("X", X)
    queries, counts = _placeholder("Z", Z, "0, dz) or (0, S, dz")
    given = None if values is None else _placeholder("values", values)[0]
    return Data(name, keys, queries, given, Layout(lengths, counts, np.ndim(Z) == 2, causal, none=True))


def _placeholder(name: str, array: Any, letters: str = "0, T, d") -> tuple[np.ndarray, np.ndarray]:
    """Returns one zero row in place of the rows of an array without sequences; and, as an array of one number, the
    number of rows that each sequence would have."""
    shape = np.shape(array)
    if len(shape) not in (2, 3) or shape[0] != 0 or 0 in shape[1:]:
        raise ValueError(f"X has no sequences, so {name} must have shape ({letters}), got {shape}")
    return np.zeros((1, shape[-1])), np.array(shape[1:-1] or [1])


def cross_attention(
    X: ArrayLike, Z: ArrayLike, values: ArrayLike | None = None, *, sink: bool = False, copy: bool = True
) -> Data:
    """Data of cross-attention: queries ``Z`` attend to the tokens ``X`` of their sequence, with logits ``X_i W z_i``.

    Parameters
    ----------
    X : (n, T, d) array_like, or list of n (T_i, d) array_likes
        Tokens, (0, T, d) of a shard without sequences (:class:`Data`).  float32 tokens stay float32 (and may be
        memory-mapped); anything else becomes float64.
    Z : (n, dz) or (n, S, dz) array_like, or list of n (S_i, dz) array_likes
        One query per sequence, S of them, or as many as each has.
    values : (n, T, dv) array_like or list, optional
        What attention returns; the tokens by default.
    sink : bool
        Adds a zero token at the end of each window, with logit 0 and value 0, as in "softmax1" and attention with a
        sink.  Its score is 0, as that of every token whose value is 0.
    copy : bool
        True: the data have their own copy of X, Z and values.  False: they are views of arrays that are C-contiguous
        and of float64 (X and values may be of float32), which saves memory for large arrays.  If X is then changed,
        so are the data: later calls read the new numbers, and earlier answers no longer describe them.  With
        ``sink`` there is always a copy.  A memory map (``numpy.memmap``) is never copied as a whole: its file must stay
        as it is.

    Returns
    -------
    Data

    Raises
    ------
    ValueError, TypeError
        If an argument has a wrong shape, or is empty, NaN, infinite, complex or not numbers.  The message names it.

    Examples
    --------
    >>> attsvm.cross_attention(X, Z)
    <attsvm cross_attention: 6 queries over 48 tokens, 8 tokens each, dk=10, dz=10>
    >>> attsvm.cross_attention([[[1.0]]], [[1.0]], sink=True).logits([[3.0]])
    array([[3., 0.]])
    """
    if sink:
        X = with_sink("X", X)
        values = values if values is None else with_sink("values", values, "n, T, dv")
    return _make("cross_attention", own(X, copy), own(Z, copy), values, copy)


def self_attention(X: ArrayLike, query: int | None = 0, values: ArrayLike | None = None, *, copy: bool = True) -> Data:
    """Data of self-attention: one token of each sequence, or every token, attends to all tokens of the sequence.

    The logits are ``X_i W x`` for a querying token x, or ``X_i W X_i^T`` if every token queries.

    Parameters
    ----------
    X : (n, T, d) array_like, or list of n (T_i, d) array_likes
    query : int or None
        The token of each sequence that queries (negative counts from its end); None: every token queries.
    values : (n, T, dv) array_like or list, optional
    copy : bool
        As for :func:`cross_attention`.

    Returns
    -------
    Data

    Examples
    --------
    >>> X, Z, y, v = attsvm.sample.unit_sphere(3, 4, 5)
    >>> attsvm.self_attention(X, query=None)
    <attsvm self_attention: 12 queries over 12 tokens, 4 tokens each, dk=5, dz=5>
    """
    X, tokens = own(X, copy), None
    if query is None:
        Z: Any = X
    elif has_none(X):
        Z = np.empty((0, np.shape(X)[2]))
    elif type(X) is np.ndarray and X.ndim == 3 and type(query) is int and -X.shape[1] <= query < X.shape[1]:
        Z = np.ascontiguousarray(X[:, query])  # the usual case, which needs no reading of X
    else:
        keys, lengths = tokens = read_tokens("X", X)
        index = as_count("query", query, least=-int(lengths.min()))
        if index >= lengths.min():
            raise ValueError(f"query must be a token of every sequence, below {lengths.min()}, got {index}")
        Z = as_doubles(keys[np.cumsum(lengths) - lengths + index % lengths])
    return _make("self_attention", X, Z, values, copy, tokens=tokens)


def causal_attention(
    X: ArrayLike, values: ArrayLike | None = None, *, window: int | None = None, copy: bool = True
) -> Data:
    """Data of causal attention: token k of a sequence attends to its tokens t <= k, with logits ``x_t^T W x_k``.

    Parameters
    ----------
    X : (n, T, d) array_like, or list of n (T_i, d) array_likes
    values : (n, T, dv) array_like or list, optional
    window : int, optional
        A query sees only the last ``window`` of these tokens, its own included (``k - window < t <= k``); all by
        default.  A selected token is then counted from the first token that its query sees.
    copy : bool
        As for :func:`cross_attention`.

    Returns
    -------
    Data
        Per-entry results are ``(n, T, T)``, with probability 0 and logit ``-inf`` where a query does not see a token.

    Examples
    --------
    >>> data = attsvm.causal_attention([[[1.0], [2.0]]])
    >>> data.probabilities([[0.0]])
    array([[[1. , 0. ],
            [0.5, 0.5]]])

    A sliding window of two tokens:

    >>> attsvm.causal_attention([[[1.0], [2.0], [3.0]]], window=2).probabilities([[0.0]])
    array([[[1. , 0. , 0. ],
            [0.5, 0.5, 0. ],
            [0. , 0.5, 0.5]]])
    """
    window = None if window is None else as_count("window", window, 1)
    X = own(X, copy)
    return _make("causal_attention", X, X, values, copy, causal=True, window=window)


def prompt_attention(X: ArrayLike, key: ArrayLike | None = None, *, copy: bool = True) -> Data:
    """Data of prompt attention: one trained prompt p queries the tokens of all sequences.

    The logits are ``(X_i key^T) p``, and the values ``X_i``.

    The trained weight is the prompt: ``W`` has shape ``(dk, 1)``.  It is the setting of "Max-Margin Token Selection in
    Attention Mechanism" (Tarzanagh, Li, Zhang, Oymak, 2023).

    Parameters
    ----------
    X : (n, T, d) array_like, or list of n (T_i, d) array_likes
    key : (dk, d) array_like, optional
        The fixed key matrix; the identity by default.
    copy : bool
        As for :func:`cross_attention`.

    Returns
    -------
    Data

    Examples
    --------
    >>> attsvm.prompt_attention([[[1.0, 0.0], [0.0, 1.0]]]).logits([[1.0], [3.0]])
    array([[1., 3.]])
    """
    if has_none(X):
        T, d = np.shape(X)[1:]
        keys = X if key is None else np.empty((0, T, len(as_floats("key", key, "dk, d", (None, d)))))
        return _without_sequences("prompt_attention", keys, np.empty((0, 1)), None if key is None else X)
    X = own(X, copy)
    if key is None and type(X) is np.ndarray and X.ndim == 3:  # the usual case, which needs no reading of X
        return _make("prompt_attention", X, np.ones((len(X), 1)), None, copy)
    values, lengths = tokens = read_tokens("X", X)
    Z = np.ones((len(lengths), 1))
    if key is None:
        return _make("prompt_attention", X, Z, None, copy, tokens=tokens)
    matrix = as_floats("key", key, "dk, d", (None, values.shape[1]))
    keys = np.matmul(as_doubles(values), matrix.T, out=empty((len(values), len(matrix)), np.float64))
    check_finite("X key^T", keys)
    return Data("prompt_attention", keys, Z, values, Layout(lengths, np.ones_like(lengths), single=True))
