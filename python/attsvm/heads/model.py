"""One attention head as this package sees it: tokens with a 1 appended, and the factors K and Q of its logits."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._check import as_count, as_floats, as_number
from ..data import read_tokens


@dataclass(frozen=True, eq=False)
class Text:
    """The sentences at the input of a layer.

    ``keys (N, d + 1)``: all tokens below each other, a 1 appended (it carries the biases); ``lengths (n)`` of the
    sentences; ``words``: the tokens as text, or None.
    """

    keys: np.ndarray
    lengths: np.ndarray
    words: Sequence[Sequence[str]] | None

    @functools.cached_property
    def begin(self) -> np.ndarray:
        """First token of each sentence."""
        return np.cumsum(self.lengths) - self.lengths

    def names(self, sentences: Any, tokens: Any) -> np.ndarray:
        """Tokens of sentences as text; their indices where there is none."""
        pairs = zip(sentences, tokens, strict=True)
        return np.array([f"{t}" if self.words is None else self.words[i][t] for i, t in pairs], dtype=str)


@dataclass(frozen=True, eq=False)
class Head:
    """A head of a trained model: which sentences it read, and its bilinear form ``W = K Q^T``.

    Attributes
    ----------
    layer, head : int
    text : Text
        Tokens at the input of the layer, with a 1 appended; the same object for all heads of a layer.
    K, Q : (d + 1, m) arrays
        Logits are ``(K^T x_t) . (Q^T x_q)``; the last row holds the biases, and Q the factor ``1 / sqrt(m)``.
    causal : bool
        Whether a token sees only those at or before it.
    """

    layer: int
    head: int
    text: Text
    K: np.ndarray
    Q: np.ndarray
    causal: bool = False

    @property
    def W(self) -> np.ndarray:
        return self.K @ self.Q.T

    @property
    def label(self) -> str:
        """Short name, as people write it of transformers."""
        return f"L{self.layer}H{self.head}"

    @property
    def name(self) -> str:
        return f"layer {self.layer} head {self.head}"

    def __repr__(self) -> str:
        text = self.text
        return (
            f"<attsvm head {self.head} of layer {self.layer}: {len(text.lengths)} sentences, {len(text.keys)} tokens, "
            f"d={text.keys.shape[1] - 1}, m={self.K.shape[1]}>"
        )

    def window(self, rows: np.ndarray) -> np.ndarray:
        """How many tokens the query of each row (sentence, query, ..) sees."""
        return rows[:, 1] + 1 if self.causal else self.text.lengths[rows[:, 0]]

    def logits(self, sentence: int) -> np.ndarray:
        """Logits (T, T) of a sentence, one row per query; -inf after a causal query."""
        text = self.text
        x = text.keys[text.begin[sentence] :][: text.lengths[sentence]].astype(np.float64)
        found = (x @ self.Q) @ (x @ self.K).T
        return np.where(np.tri(len(x), dtype=bool), found, -np.inf) if self.causal else found

    def attention(self, sentence: int) -> np.ndarray:
        """Softmax (T, T) of the logits, one row per query."""
        logits = self.logits(sentence)
        prob = np.exp(logits - logits.max(axis=1, keepdims=True))
        return prob / prob.sum(axis=1, keepdims=True)


def from_arrays(
    inputs: Any,
    Wq: Any,
    bq: Any,
    Wk: Any,
    bk: Any,
    *,
    heads: int = 1,
    scale: float | None = None,
    tokens: Sequence[Sequence[str]] | None = None,
    causal: bool = False,
    layer: int = 0,
) -> list[Head]:
    """The heads of a layer of any model, from its inputs and the weights of its query and key maps.

    Parameters
    ----------
    inputs : (n, T, d) array_like, or list of n (T_i, d) array_likes
        What the query and key maps are applied to (after the layer norm, where the model has one there).
    Wq, Wk : (heads * m, d) array_like
        Stored as ``torch.nn.Linear`` does: ``queries = inputs Wq^T + bq``; head h owns the rows ``h m .. h m + m - 1``.
    bq, bk : (heads * m,) array_like or None
    heads : int
    scale : float, optional
        Factor on the logits; ``1 / sqrt(m)`` by default.
    tokens : list of n lists of str, optional
        The tokens as text, for tables and pictures.
    causal : bool
        Whether a token attends only to those at or before it.
    layer : int
        For tables and pictures.

    Returns
    -------
    list of Head

    Notes
    -----
    The logits must be a bilinear form of the inputs: with rotary positions, or with a layer norm on queries and keys,
    they are not.

    Examples
    --------
    >>> import attsvm
    >>> (head,) = attsvm.heads.from_arrays([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0]], [0.5], [[0.0, 2.0]], None)
    >>> head.logits(0)
    array([[0., 3.],
           [0., 1.]])
    """
    flat, lengths = read_tokens("inputs", inputs)
    heads = as_count("heads", heads, 1)
    Wq = as_floats("Wq", Wq, "heads * m, d", (None, flat.shape[1]))
    if len(Wq) % heads:
        raise ValueError(f"Wq must have a multiple of heads = {heads} rows, got {len(Wq)}")
    Wk = as_floats("Wk", Wk, "heads * m, d", Wq.shape)
    rows = (len(Wq),)
    bq, bk = (
        np.zeros(rows) if bias is None else as_floats(name, bias, "heads * m", rows)
        for name, bias in (("bq", bq), ("bk", bk))
    )
    if tokens is not None and [len(some) for some in tokens] != lengths.tolist():
        raise ValueError(f"tokens must name every token of the {len(lengths)} sentences of inputs")
    text = Text(np.append(flat, np.ones((len(flat), 1), flat.dtype), axis=1), lengths, tokens)
    m = len(Wq) // heads
    factor = 1 / math.sqrt(m) if scale is None else as_number("scale", scale)
    K, Q = np.column_stack([Wk, bk]).T, np.column_stack([Wq, bq]).T * factor
    return [Head(layer, h, text, K[:, h * m : h * m + m], Q[:, h * m : h * m + m], causal) for h in range(heads)]
