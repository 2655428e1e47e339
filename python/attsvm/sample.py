"""Random data for the experiments of the paper and its follow-ups."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .common.check import as_count, as_floats, as_number, check_shape
from .common.types import Random

__all__ = ["markov", "next_token", "positional_encoding", "signal_noise", "unit_sphere"]


def unit_sphere(n: int, T: int, d: int, rng: Random = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Random tokens, queries and head, uniform on the unit sphere, and labels by fair coins.

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
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10, rng=1)
    >>> X.shape, Z.shape, y.shape, v.shape
    ((6, 8, 10), (6, 10), (6,), (10,))
    """
    n, T, d = _counts(n=n, T=T, d=d)
    rng = _generator(rng)
    v = _normalized(rng.standard_normal(d))
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    X = _normalized(rng.standard_normal((n, T, d)))
    Z = _normalized(rng.standard_normal((n, d)))
    return X, Z, y, v


def positional_encoding(T: int, d: int, base: float = 10000.0) -> np.ndarray:
    """Sines and cosines that encode positions, to be added to tokens: ``X + positional_encoding(T, d)``.

    ``P[t, 2j] = sin(t / base^(2j/d))`` and ``P[t, 2j + 1] = cos(t / base^(2j/d))``.

    Parameters
    ----------
    T, d : int
        Tokens of a sequence, dimension.
    base : float
        Above 1.  Wavelengths range from 2 pi up to nearly ``2 pi base`` tokens.

    Returns
    -------
    (T, d) array

    Notes
    -----
    Source: "Attention Is All You Need" (Vaswani et al., 2017).

    Examples
    --------
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> data = attsvm.causal_attention(X + attsvm.sample.positional_encoding(8, 10))
    """
    T, d, base = as_count("T", T, 1), as_count("d", d, 1), as_number("base", base, above=1.0)
    j = np.arange(d)
    angle = np.arange(T)[:, None] / base ** (2 * (j // 2) / d)
    return np.where(j % 2 == 0, np.sin(angle), np.cos(angle))


def next_token(n: int, T: int, K: int, d: int, rng: Random = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random sequences of distinct tokens, each labelled by one of them; embeddings are uniform on the sphere.

    Parameters
    ----------
    n, T : int
        Sequences, tokens in each.
    K, d : int
        Tokens of the vocabulary, at least T; dimension of their embeddings.
    rng : int, SeedSequence or Generator

    Returns
    -------
    sequences : (n, T) integer array
    labels : (n,) integer array
    embeddings : (K, d) array

    Notes
    -----
    Source: the experiments of "Mechanics of Next Token Prediction with Self-Attention" (Li, Huang, Ildiz, Rawat,
    Oymak, 2024).

    Examples
    --------
    >>> found = attsvm.theory.next_token(*attsvm.sample.next_token(n=6, T=4, K=6, d=8, rng=1))
    >>> found.data
    <attsvm cross_attention: 6 queries over 24 tokens, 4 tokens each, dk=8, dz=8>
    """
    n, K, d = _counts(n=n, K=K, d=d)
    if (T := as_count("T", T, 1)) > K:
        raise ValueError(f"T must be at most K = {K}, since no token comes twice, got {T}")
    rng = _generator(rng)
    embeddings = _normalized(rng.standard_normal((K, d)))
    sequences = rng.random((n, K)).argsort(axis=1)[:, :T]
    return sequences, sequences[np.arange(n), rng.integers(T, size=n)], embeddings


def signal_noise(
    n: int, T: int, d: int, signal: float, weak: float = 0.1, wrong: float = 0.2, rng: Random = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of Gaussian noise, three of them with a signal; and labels, some of them wrong.

    Token 0 has ``signal`` added to coordinate 0 if the true label is +1, and to coordinate 1 if it is -1.  Token 1 has
    ``weak * signal`` added to the same coordinate, token 2 to the other of the two.

    Parameters
    ----------
    n, T, d : int
        Sequences, tokens in each (at least 3), dimension (at least 2).
    signal, weak : float
        The signal, in standard deviations of the noise of a coordinate; its factor in tokens 1 and 2.
    wrong : float
        Probability that a label is flipped, between 0 and 1.
    rng : int, SeedSequence or Generator

    Returns
    -------
    X : (n, T, d) array
    y : (n,) array of -1 and +1
        The labels to train on.
    truth : (n,) array of -1 and +1
        The labels before some were flipped.

    Notes
    -----
    Source: the setting of "Benign Overfitting in Token Selection of Attention Mechanism" (2024, arXiv 2409.17625).

    Examples
    --------
    >>> X, y, truth = attsvm.sample.signal_noise(20, 8, 100, signal=8.0, rng=1)
    >>> X.shape, int((y != truth).sum())
    ((20, 8, 100), 3)
    """
    n, T, d = _counts(n=n, T=as_count("T", T, 3), d=as_count("d", d, 2))
    signal, weak = as_number("signal", signal), as_number("weak", weak)
    wrong = as_number("wrong", wrong, least=0.0)
    if wrong > 1:
        raise ValueError(f"wrong must be a chance between 0 and 1, got {wrong:g}")
    rng = _generator(rng)
    truth = rng.choice([-1.0, 1.0], n)
    X = rng.standard_normal((n, T, d))
    own = (truth < 0).astype(int)
    for t, part, coordinate in ((0, 1.0, own), (1, weak, own), (2, weak, 1 - own)):
        X[np.arange(n), t, coordinate] += part * signal
    return X, np.where(rng.random(n) < wrong, -truth, truth), truth


def markov(P: ArrayLike, n: int, T: int, rng: Random = 0) -> tuple[np.ndarray, np.ndarray]:
    """Prompts of uniform random tokens, and the next token of each by a Markov chain within the prompt.

    After a prompt that ends in token k the next token is j with probability ``m_j P_kj / sum_l m_l P_kl``, where m_j is
    the count of j in the prompt.  Self-attention with ``exp(W_jk) = P_kj`` on one-hot tokens predicts the same.

    Parameters
    ----------
    P : (K, K) array_like
        Transition probabilities, positive; rows sum to 1.
    n, T : int
        Prompts, tokens in each.
    rng : int, SeedSequence or Generator

    Returns
    -------
    sequences : (n, T) integer array
    labels : (n,) integer array

    Notes
    -----
    Source: "From Self-Attention to Markov Models" (Ildiz, Huang, Li, Rawat, Oymak, 2024).

    Examples
    --------
    >>> sequences, labels = attsvm.sample.markov([[0.2, 0.8], [0.5, 0.5]], n=2000, T=4)
    >>> found = attsvm.theory.next_token(sequences, labels, np.eye(2))
    >>> run = attsvm.train(found.problem, rule="constant", lr=1.0, steps=500)
    >>> after = np.exp(run.W) / np.exp(run.W).sum(axis=0)
    >>> print(after.T.round(1))
    [[0.2 0.8]
     [0.5 0.5]]
    """
    P = as_floats("P", P, "K, K")
    check_shape("P", P, "K, K", (None, len(P)))
    if P.min() <= 0:
        raise ValueError(f"P must be positive, got {P.min():g}")
    if np.abs(P.sum(axis=1) - 1).max() > 1e-9:
        raise ValueError(f"P must have rows that sum to 1, got {P.sum(axis=1)[np.abs(P.sum(axis=1) - 1).argmax()]:g}")
    n, T = _counts(n=n, T=T)
    rng = _generator(rng)
    sequences = rng.integers(len(P), size=(n, T))
    reached = P[sequences[:, -1:], sequences].cumsum(axis=1)
    chosen = (reached <= rng.random((n, 1)) * reached[:, -1:]).sum(axis=1)
    return sequences, sequences[np.arange(n), np.minimum(chosen, T - 1)]


def _generator(rng: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rng must be a seed or a Generator: {error}") from None


def _counts(**sizes: Any) -> list[int]:
    """The sizes of an array, each an integer of at least 1.  Raises ValueError if memory cannot hold the array."""
    counts = [as_count(name, size, 1) for name, size in sizes.items()]
    if math.prod(counts) > sys.maxsize // 8:
        raise ValueError(f"{', '.join(sizes)} must make an array that memory can address, got {tuple(counts)}")
    return counts


def _normalized(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
