"""Random data of the paper's experiments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._check import as_count, as_number

__all__ = ["positional_encoding", "unit_sphere"]


def unit_sphere(n: int, T: int, d: int, rng: Any = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, queries and head uniform on the unit sphere, labels fair coins.

    Parameters
    ----------
    n, T, d : int
        Sequences, tokens in each, dimension.
    rng : int, SeedSequence or Generator

    Returns
    -------
    X : (n, T, d) array
    Z : (n, d) array
    y : (n,) array of -1 and +1
    v : (d,) array

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10, rng=1)
    >>> X.shape, Z.shape, y.shape, v.shape
    ((6, 8, 10), (6, 10), (6,), (10,))
    """
    n, T, d = as_count("n", n, 1), as_count("T", T, 1), as_count("d", d, 1)
    if n * T * d > np.iinfo(np.intp).max // 8:
        raise ValueError(f"n, T, d must make an array that memory can address, got ({n}, {T}, {d})")
    try:
        rng = np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rng must be a seed or a Generator: {error}") from None
    v = _normalized(rng.standard_normal(d))
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    X = _normalized(rng.standard_normal((n, T, d)))
    Z = _normalized(rng.standard_normal((n, d)))
    return X, Z, y, v


def positional_encoding(T: int, d: int, base: float = 10000.0) -> np.ndarray:
    """Sines and cosines that tell positions apart, to be added to tokens: ``X + positional_encoding(T, d)``.

    ``P[t, 2j] = sin(t / base^(2j/d))`` and ``P[t, 2j + 1] = cos(t / base^(2j/d))``.

    Parameters
    ----------
    T, d : int
        Tokens of a sequence, dimension.
    base : float
        Above 1; the longest wave has ``2 pi base`` tokens.

    Returns
    -------
    (T, d) array

    Notes
    -----
    Source: "Attention Is All You Need" (Vaswani et al., 2017).

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> data = attsvm.causal_attention(X + attsvm.sample.positional_encoding(8, 10))
    """
    T, d, base = as_count("T", T, 1), as_count("d", d, 1), as_number("base", base, above=1.0)
    j = np.arange(d)
    angle = np.arange(T)[:, None] / base ** (2 * (j // 2) / d)
    return np.where(j % 2 == 0, np.sin(angle), np.cos(angle))


def _normalized(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
