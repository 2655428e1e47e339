"""One attention head as this package sees it: tokens, queries, who sees what, and the factors K and Q of its logits."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..attention.tokens import read_tokens
from ..common.check import as_count, as_floats, as_list, as_number, check_parts, check_type
from ..common.storage import storable

THRESHOLD = 0.9  # least attention on one token for a query to count
QUERIES = 1500  # that train an SVM at most


def printable(word: str) -> str:
    """The word with its control characters written out: a terminal would obey them."""
    return word if word.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in word)


@storable
@dataclass(frozen=True, eq=False)
class Text:
    """The sequences that a layer attends to, and who sees what.

    Attributes
    ----------
    keys : (N, dk) array
        All tokens below each other: inputs of the layer with a 1 appended (it carries the biases), or keys as
        attention gets them.
    lengths, counts : (n,) integer arrays
        Tokens and queries of each sequence; the same in self-attention.
    words, query_words : list of n lists of str, or None
        Tokens and queries as text.
    start, stop : (M,) integer arrays
        Query q sees the tokens ``start[q] .. stop[q] - 1`` of its sequence; none where both are equal.
    visible : dict of int to (S, T) bool array
        Who sees what in the sequences where these tokens have gaps.
    numbers : (n,) integer array
        Which of all sequences that the model was given these are.
    places : (n, 4) integer array
        Queries and tokens of each sequence with its padding, and where the first of those kept stood.
    total : int
        How many sequences the model was given.
    """

    keys: np.ndarray
    lengths: np.ndarray
    words: Sequence[Sequence[str]] | None = None
    counts: Any = None
    query_words: Sequence[Sequence[str]] | None = None
    start: Any = None
    stop: Any = None
    visible: Mapping[int, np.ndarray] = field(default_factory=dict)
    numbers: Any = None
    places: Any = None
    total: int = 0

    def __post_init__(self) -> None:
        if self.counts is None:
            object.__setattr__(self, "counts", self.lengths)
            object.__setattr__(self, "query_words", self.words)
        n, queries = len(self.lengths), int(self.counts.sum())
        check_parts("lengths", self.lengths, len(self.keys), least=0)
        if self.start is not None:
            check_parts("counts", self.counts, len(self.start), least=0)
        places = np.column_stack([self.counts, self.lengths, np.zeros((n, 2), dtype=np.intp)])
        defaults = {
            "start": np.zeros(queries, dtype=np.intp),
            "stop": np.repeat(self.lengths, self.counts),
            "numbers": np.arange(n),
            "places": places,
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        object.__setattr__(self, "total", max(self.total, n))

    @functools.cached_property
    def begin(self) -> np.ndarray:
        """First token of each sequence."""
        return np.cumsum(self.lengths) - self.lengths

    @functools.cached_property
    def query_begin(self) -> np.ndarray:
        """First query of each sequence."""
        return np.cumsum(self.counts) - self.counts

    def query_rows(self, rows: np.ndarray) -> np.ndarray:
        """Where the query of each row (sequence, query, ..) stands among all queries."""
        return self.query_begin[rows[:, 0]] + rows[:, 1]

    def seen(self, i: int, queries: slice = slice(None)) -> np.ndarray:
        """Which tokens each query of sequence i (or these of them) sees, (S, T)."""
        own = np.arange(self.query_begin[i], self.query_begin[i] + self.counts[i])[queries, None]
        at = np.arange(self.lengths[i])
        window = (at >= self.start[own]) & (at < self.stop[own])
        return window & self.visible[i][queries] if i in self.visible else window

    def window(self, i: int, query: int) -> np.ndarray:
        """The tokens that a query of sequence i sees."""
        if i in self.visible:
            return np.flatnonzero(self.visible[i][query])
        at = self.query_begin[i] + query
        return np.arange(self.start[at], self.stop[at])

    def find(self, number: int) -> int:
        """Index among the sequences kept of sequence ``number`` of all."""
        at = np.searchsorted(self.numbers, number)
        if at < len(self.numbers) and self.numbers[at] == number:
            return int(at)
        if not 0 <= number < self.total:
            raise LookupError(f"sequence must lie in 0 .. {self.total - 1}, got {number}")
        raise LookupError(
            f"sequence {number} was not kept: {len(self.numbers)} of {self.total} were, drawn at random; read again "
            "with a larger tokens=, and with store= (a folder) where memory is short"
        )

    def names(self, sentences: Any, tokens: Any) -> np.ndarray:
        """Tokens of sequences as text; their indices where there is none."""
        pairs = zip(sentences, tokens, strict=True)
        return np.array([f"{t}" if self.words is None else printable(self.words[i][t]) for i, t in pairs], dtype=str)

    def query_names(self, sentences: Any, queries: Any) -> np.ndarray:
        """Queries of sequences as text; their indices where there is none."""
        pairs = zip(sentences, queries, strict=True)
        known = self.query_words
        return np.array([f"{q}" if known is None else printable(known[i][q]) for i, q in pairs], dtype=str)


@storable
class Choices(NamedTuple):
    """Of each query (M,): the token with the most attention (-1 where it sees none), its probability, and the effective
    number of tokens ``1 / sum p^2`` (nan there)."""

    selected: np.ndarray
    top: np.ndarray
    effective: np.ndarray


@storable
@dataclass(frozen=True, eq=False)
class Logits:
    """What the model's softmax was given: ``cap tanh(scaling q.k / cap) + bias``, and a logit no token has.

    Attributes
    ----------
    queries, keys : (M, m) and (N, m) arrays
        As attention gets them, after rotations and norms.
    scaling : float
    cap : float or None
        Soft cap on the logits; None: no tanh.
    bias : list of n (S, T) arrays, or None
        Of positions: ALiBi, relative positions.
    sink : list of n (S,) arrays, or None
        A logit per query that takes probability and belongs to no token.
    """

    queries: np.ndarray
    keys: np.ndarray
    scaling: float
    cap: float | None = None
    bias: Sequence[np.ndarray] | None = None
    sink: Sequence[np.ndarray] | None = None


@storable
@dataclass(frozen=True, eq=False)
class Head:
    """A head of a trained model: which sequences it read, and its bilinear form ``W = K Q^T``.

    Attributes
    ----------
    layer, number : int
        The attention call within one forward pass, and the query head within it.
    text : Text
        Sequences and tokens; the same object for all heads that share keys.
    K, Q : (dk, m), (dz, m) arrays
        Logits are ``(K^T x_t) . (Q^T z_q)``.  In the residual space the last row holds the biases, and Q the factor
        ``1 / sqrt(m)``; in the head space ``K Q^T`` is the scaling times the identity.
    queries : (M, dz) array
        All queries of the sequences below each other; the keys unless given.
    kind : {"self", "cross"}
    module : str
        Dotted name in the model.
    space : {"residual", "head"}
        "residual": tokens and queries are what the layer is given, and W is the head's own weights: the space of the
        theorem.  "head": they are the keys and queries that attention compares; the head's weights are inside them, so
        this space is for prediction, margins and support tokens, and no evidence that W went to the SVM.
    given : Logits or None
        What the model's softmax was given; None: ``K`` and ``Q`` say it.
    value_norms : (N,) array or None
        Length of each token's value.
    threshold, most : float, int
        Least attention on one token for a query to count, and queries that train an SVM at most.
    """

    layer: int
    number: int
    text: Text
    K: np.ndarray
    Q: np.ndarray
    queries: Any = None
    kind: str = "self"
    module: str = ""
    space: str = "residual"
    given: Logits | None = None
    value_norms: np.ndarray | None = None
    known: Choices | None = None
    threshold: float = THRESHOLD
    most: int = QUERIES

    def __post_init__(self) -> None:
        if self.queries is None:
            object.__setattr__(self, "queries", self.text.keys)

    @property
    def head(self) -> int:
        """The same as ``number``."""
        return self.number

    @property
    def keys(self) -> np.ndarray:
        """Tokens (N, dk), shared by all heads that attend to the same."""
        return self.text.keys

    @property
    def W(self) -> np.ndarray:
        return self.K @ self.Q.T

    @property
    def singular_values(self) -> np.ndarray:
        """Of W, at most m of them, the largest first."""
        return np.linalg.svd(np.linalg.qr(self.K).R @ np.linalg.qr(self.Q).R.T, compute_uv=False)

    @property
    def rank(self) -> int:
        """Columns of K and Q."""
        return self.K.shape[1]

    @property
    def causal(self) -> bool:
        """Whether every token sees exactly itself and all before it."""
        text = self.text
        if text.counts is not text.lengths or text.visible:
            return False
        position = np.arange(len(text.stop)) - np.repeat(text.query_begin, text.counts)
        return bool((text.start == 0).all() and (text.stop == position + 1).all())

    @property
    def label(self) -> str:
        """Short name, as people write it of transformers."""
        return f"L{self.layer}H{self.number}"

    @property
    def name(self) -> str:
        return f"layer {self.layer} head {self.number}"

    def __repr__(self) -> str:
        text = self.text
        place = f"layer {self.layer}" + (f" ({self.module})" if self.module else "")
        space = f"{self.space} space of {text.keys.shape[1]}"
        size = f"{len(text.lengths)} sequences, {len(text.keys)} tokens"
        begin = f"<attsvm head {self.number} of {place}: {space}, {size}"
        if self.known is None and "choices" not in self.__dict__:
            return begin + ">"
        top = self.choices.top
        hard = int((top > self.threshold).sum())
        return f"{begin}, {hard} of {int(np.isfinite(top).sum())} queries hard>"

    def window(self, rows: np.ndarray) -> np.ndarray:
        """How many tokens the query of each row (sequence, query, ..) sees."""
        text = self.text
        at = text.query_rows(rows)
        sizes = text.stop[at] - text.start[at]
        for i in set(rows[:, 0].tolist()) & set(text.visible):
            here = rows[:, 0] == i
            sizes[here] = text.seen(i)[rows[here, 1]].sum(axis=1)
        return sizes

    def sequence_logits(self, i: int) -> np.ndarray:
        """Logits (S, T) of the i-th sequence kept, one row per query; -inf at hidden tokens."""
        text, given = self.text, self.given
        own = slice(text.query_begin[i], text.query_begin[i] + text.counts[i])
        tokens = slice(text.begin[i], text.begin[i] + text.lengths[i])
        if given is None:
            q, k = (a.astype(np.float64) for a in (self.queries[own], text.keys[tokens]))
            found = (q @ self.Q) @ (k @ self.K).T
        else:
            q, k = (a.astype(np.float64) for a in (given.queries[own], given.keys[tokens]))
            found = given.scaling * (q @ k.T)
            if given.cap is not None:
                found = given.cap * np.tanh(found / given.cap)
            if given.bias is not None:
                found += given.bias[i]
        return np.where(text.seen(i), found, -np.inf)

    def sequence_attention(self, i: int) -> np.ndarray:
        """Probabilities (S, T) of the i-th sequence kept; rows of nan for queries that see nothing."""
        logits = self.sequence_logits(i)
        top = logits.max(axis=1, initial=-np.inf, keepdims=True)
        sink = None
        if self.given is not None and self.given.sink is not None:
            sink = self.given.sink[i][:, None].astype(np.float64)
            top = np.where(np.isfinite(top), np.maximum(top, sink), top)
        with np.errstate(invalid="ignore"):
            prob = np.exp(logits - top)
            total = prob.sum(axis=1, keepdims=True)
            if sink is not None:
                total += np.exp(sink - top)
            return prob / total

    def _whole(self, number: int, part: Any, fill: float) -> np.ndarray:
        """A result of a sequence with its padding around it."""
        i = self.text.find(number)
        S, T, query, token = self.text.places[i]
        found = part(i)
        if found.shape == (S, T):
            return found
        whole = np.full((S, T), np.nan)
        rows = slice(query, query + len(found))
        whole[rows] = np.where(np.isnan(found[:, :1]), np.nan, fill)
        whole[rows, token : token + found.shape[1]] = found
        return whole

    def logits(self, sentence: int) -> np.ndarray:
        """Logits (S, T) of a sequence, one row per query; -inf at tokens it does not see."""
        return self._whole(sentence, self.sequence_logits, -np.inf)

    def attention(self, sentence: int) -> np.ndarray:
        """Attention probabilities (S, T) of sequence ``sentence`` of all that were given, one row per query.

        Zero at tokens the query does not see; nan in rows of queries that see none, and of padding.

        Raises
        ------
        LookupError
            For a sequence that was not kept.
        """
        return self._whole(sentence, self.sequence_attention, 0.0)

    @functools.cached_property
    def choices(self) -> Choices:
        """Which token each query attends to most, and how much."""
        if self.known is not None:
            return self.known
        found = []
        for i in range(len(self.text.lengths)):
            prob = self.sequence_attention(i)
            dead = np.isnan(prob).any(axis=1)
            selected = np.where(dead, -1, prob.argmax(axis=1))
            found.append((selected, np.where(dead, np.nan, prob.max(axis=1)), 1 / (prob**2).sum(axis=1)))
        return Choices(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


MADE_BY = "attsvm.torch.read, attsvm.heads.read_bert or attsvm.heads.from_arrays"


def check_head(head: Any) -> None:
    check_type("head", head, Head, MADE_BY)


def as_threshold(value: Any) -> float:
    """What the largest probability of a hard query is above."""
    threshold = as_number("threshold", value, above=0.0)
    if threshold >= 1:
        raise ValueError(f"threshold must lie below 1, got {threshold}")
    return threshold


def as_heads(heads: Any) -> list[Head]:
    return as_list("heads", heads, Head, MADE_BY)


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
    Wq : (heads * m, d) array_like
        Stored as ``torch.nn.Linear`` does: ``queries = inputs Wq^T + bq``; head h owns the rows ``h m .. h m + m - 1``.
    Wk : (groups * m, d) array_like
        As many rows as Wq, or fewer where ``heads / groups`` query heads share a key head (grouped queries).
    bq, bk : (heads * m,) and (groups * m,) array_like, or None
    heads : int
        Of the queries.
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
    they are not.  :func:`attsvm.torch.read` reads those.

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
    m = len(Wq) // heads
    Wk = as_floats("Wk", Wk, "groups * m, d", (None, flat.shape[1]))
    if len(Wk) == 0 or len(Wk) % m or heads % (len(Wk) // m):
        raise ValueError(f"Wk must have {len(Wq)} rows, or {m} for each key head that query heads share, got {len(Wk)}")
    bq, bk = (
        np.zeros(len(W)) if bias is None else as_floats(name, bias, f"{letters} * m", (len(W),))
        for name, bias, W, letters in (("bq", bq, Wq, "heads"), ("bk", bk, Wk, "groups"))
    )
    try:
        named = lengths.tolist() if tokens is None else [len(some) for some in tokens]
    except TypeError:
        raise TypeError(f"tokens must be a list of words for each sentence, got {tokens!r:.60}") from None
    if named != lengths.tolist():
        raise ValueError(
            f"tokens must name every token of the {len(lengths)} sentences of inputs, {lengths.sum()} in all, "
            f"got {sum(named)} in {len(named)} sentences"
        )
    stop = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1 if causal else None
    text = Text(np.append(flat, np.ones((len(flat), 1), flat.dtype), axis=1), lengths, tokens, stop=stop)
    factor = 1 / math.sqrt(m) if scale is None else as_number("scale", scale)
    K, Q = np.column_stack([Wk, bk]).T, np.column_stack([Wq, bq]).T * factor
    shared = heads // (len(Wk) // m)
    keys = [K[:, g * m : g * m + m] for g in range(len(Wk) // m)]
    return [Head(layer, h, text, keys[h // shared], Q[:, h * m : h * m + m]) for h in range(heads)]
