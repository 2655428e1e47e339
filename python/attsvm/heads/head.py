"""One attention head: its sequences, its queries and the factors K and Q of its logits; lists of heads by name."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..common.check import as_list, as_number, check_type
from ..common.storage import Mapped, storable
from .sequences import Text

THRESHOLD = 0.9  # a query is hard, and counts, if its attention on one token exceeds this
QUERIES = 1500  # default for the largest number of queries that train an SVM
NAME = re.compile(r"L?(\d+)[H.](\d+)", re.IGNORECASE)


@storable
class Choices(NamedTuple):
    """The token that each of M queries selects, its probability, and the effective number of tokens attended to.

    ``selected`` is the token with the most attention, ``top`` its probability, and ``effective`` the effective number
    of tokens, ``1 / sum p^2``.  A query that sees no token has -1, nan and nan.
    """

    selected: np.ndarray
    top: np.ndarray
    effective: np.ndarray


@storable
@dataclass(frozen=True, eq=False)
class Logits(Mapped):
    """Parts of the input of a head's softmax, ``cap tanh(scaling q.k / cap) + bias``, and its extra logit (the sink).

    Attributes
    ----------
    queries, keys : (M, m) and (N, m) arrays
        Queries and keys that attention compares, after rotations and norms.
    scaling : float
    cap : float or None
        Soft cap on the logits; None: no tanh.
    bias : list of n (S, T) arrays, or None
        Bias of positions (ALiBi, relative positions), an array for each sequence.
    sink : list of n (S,) arrays, or None
        A logit for each query that takes probability and belongs to no token.
    """

    queries: np.ndarray
    keys: np.ndarray
    scaling: float
    cap: float | None = None
    bias: Sequence[np.ndarray] | None = None
    sink: Sequence[np.ndarray] | None = None


@storable
@dataclass(frozen=True, eq=False)
class Head(Mapped):
    """A head of a trained model: the sequences that it read, and its bilinear form ``W = K Q^T``.

    Attributes
    ----------
    layer, number : int
        Number of the attention call within one forward pass, and of the query head within the call.
    text : Text
        Sequences and tokens; the same object for all heads that share keys.
    K, Q : (dk, m), (dz, m) arrays
        Factors of the logits ``(K^T x_t) . (Q^T z_q)``.  In the residual space their last row holds the biases, and Q
        contains the factor ``1 / sqrt(m)``.  In the head space ``K Q^T`` is the scaling times the identity.
    queries : (M, dz) array
        The queries of all sequences, stacked; by default the keys.
    kind : {"self", "cross"}
    module : str
        Dotted name in the model.
    space : {"residual", "head"}
        "residual": tokens and queries are inputs of the layer, and W is the head's own weights.  This is the space of
        the theorem.  "head": tokens and queries are the keys and queries that attention compares, which contain the
        head's weights.  This space serves for prediction, margins and support tokens; it is no evidence that training
        went to the SVM.
    given : Logits or None
        Input of the model's softmax; None: it follows from ``K`` and ``Q``.
    value_norms : (N,) array or None
        Length of each token's value.
    known : Choices or None
        The choices of all queries, if they were computed when the head was read.
    threshold, most : float, int
        A query counts if its attention on one token exceeds ``threshold``; at most ``most`` queries train an SVM.
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
    def keys(self) -> np.ndarray:
        """Tokens (N, dk), the same array for all heads that share keys."""
        return self.text.keys

    @property
    def W(self) -> np.ndarray:
        return self.K @ self.Q.T

    @property
    def singular_values(self) -> np.ndarray:
        """Singular values of W, the largest first, as many as K and Q have columns."""
        return np.linalg.svd(np.linalg.qr(self.K).R @ np.linalg.qr(self.Q).R.T, compute_uv=False)

    @property
    def rank(self) -> int:
        """Number of columns of K and Q."""
        return self.K.shape[1]

    @property
    def causal(self) -> bool:
        """Whether every token sees exactly itself and all tokens before it."""
        text = self.text
        whole = text.counts is text.lengths and not text.visible and not text.start.any()
        return whole and np.array_equal(text.stop, text.queries[:, 1] + 1)

    @property
    def label(self) -> str:
        """Short name, such as L5H3 for head 3 of layer 5."""
        return f"L{self.layer}H{self.number}"

    @property
    def name(self) -> str:
        return f"layer {self.layer} head {self.number}"

    def __repr__(self) -> str:
        module = f" ({self.module})" if self.module else ""
        begin = (
            f"<attsvm head {self.number} of layer {self.layer}{module}: {self.space} space of {self.keys.shape[1]}, "
            f"{len(self.text.lengths)} sequences, {self.tokens} tokens"
        )
        if self.known is None and "choices" not in self.__dict__:
            return begin + ">"
        return f"{begin}, {share_of((self.choices.top > self.threshold).sum(), self.asking)} queries hard>"

    @property
    def tokens(self) -> int:
        """Number of tokens in all sequences together."""
        return len(self.keys)

    @property
    def asking(self) -> int:
        """Number of queries that see at least one token."""
        return int(np.isfinite(self.choices.top).sum())

    def window(self, rows: np.ndarray) -> np.ndarray:
        """Number of tokens that the query of each row (sequence, query, ..) sees."""
        return self.text.sizes[self.text.query_rows(rows)]

    def sequence_logits(self, i: int) -> np.ndarray:
        """Logits (S, T) of the i-th kept sequence, one row per query, with -inf at tokens that a query does not see."""
        text, given = self.text, self.given
        of = given or self
        queries = of.queries[text.query_begin[i] :][: text.counts[i]].astype(np.float64)
        keys = of.keys[text.begin[i] :][: text.lengths[i]].astype(np.float64)
        if not given:
            found = (queries @ self.Q) @ (keys @ self.K).T
        else:
            found = given.scaling * (queries @ keys.T)
            if given.cap is not None:
                found = given.cap * np.tanh(found / given.cap)
            if given.bias is not None:
                found += given.bias[i]
        return np.where(text.seen(i), found, -np.inf)

    def sequence_attention(self, i: int) -> np.ndarray:
        """Attention probabilities (S, T) of the i-th kept sequence, with rows of nan for queries that see no token."""
        logits = self.sequence_logits(i)
        sinks = getattr(self.given, "sink", None)
        whole = logits if sinks is None else np.column_stack([logits, sinks[i].astype(np.float64)])
        with np.errstate(invalid="ignore"):
            prob = np.exp(whole - whole.max(axis=1, initial=-np.inf, keepdims=True))
            prob = (prob / prob.sum(axis=1, keepdims=True))[:, : logits.shape[1]]
        prob[np.isneginf(logits).all(axis=1)] = np.nan
        return prob

    def _whole(self, sequence: int, part: Any, fill: float) -> np.ndarray:
        """The array ``part(i)`` of a sequence, extended by ``fill`` at padded tokens and by nan at padded queries."""
        i = self.text.find(sequence)
        S, T, query, token = self.text.places[i]
        found = part(i)
        whole = np.full((S, T), np.nan)
        rows = slice(query, query + len(found))
        whole[rows] = np.where(np.isnan(found[:, :1]), np.nan, fill)
        whole[rows, token : token + found.shape[1]] = found
        return whole

    def logits(self, sequence: int) -> np.ndarray:
        """Logits (S, T) of a sequence, one row per query, with -inf at tokens that the query does not see."""
        return self._whole(sequence, self.sequence_logits, -np.inf)

    def attention(self, sequence: int) -> np.ndarray:
        """Attention probabilities (S, T) of a sequence, one row per query.

        ``sequence`` counts all sequences that the model was given.  Probabilities are zero at tokens that the query
        does not see.  Rows of padding, and of queries that see no token, are nan.

        Raises
        ------
        LookupError
            If the sequence was not kept.
        """
        return self._whole(sequence, self.sequence_attention, 0.0)

    @functools.cached_property
    def choices(self) -> Choices:
        """The token that each query attends to most, and its probability."""
        if self.known:
            return self.known
        found = []
        for prob in map(self.sequence_attention, range(len(self.text.lengths))):
            top = prob.max(axis=1)  # top is nan if the query sees no token
            found.append((np.where(np.isnan(top), -1, prob.argmax(axis=1)), top, 1 / (prob**2).sum(axis=1)))
        return Choices(*map(np.concatenate, zip(*found, strict=True)))


MADE_BY = "attsvm.torch.read or attsvm.heads.from_arrays"


def check_head(head: Any) -> None:
    check_type("head", head, Head, MADE_BY)


def as_threshold(value: Any) -> float:
    """A threshold in (0, 1)."""
    threshold = as_number("threshold", value, above=0.0)
    if threshold >= 1:
        raise ValueError(f"threshold must lie below 1, got {threshold}")
    return threshold


def as_heads(heads: Any) -> list[Head]:
    return as_list("heads", heads, Head, MADE_BY)


def share_of(some: Any, total: int) -> str:
    """Text such as "277 of 6,786 (4 %)"."""
    percent = 100 * some / max(total, 1)
    return f"{some:,} of {total:,} ({'< 1' if 0 < percent < 0.5 else f'{percent:.0f}'} %)"


def count_heads(number: int) -> str:
    """Text such as "1 head"."""
    return f"{number} head{'s' * (number != 1)}"


def place_of(name: str) -> tuple[int, int] | None:
    """Layer and number from the name of a head, such as "L5H3" or "5.3", or None for any other text."""
    found = NAME.fullmatch(name.strip())
    return (int(found[1]), int(found[2])) if found else None


class ByName(list[Any]):
    """A list of heads, or of their reports, that can be indexed by name too.

    ``found["L3H5"]`` and ``found[3, 5]`` are head 5 of layer 3.  Slices and sums are lists of the same kind.
    """

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, (str, tuple)):
            found = super().__getitem__(index)
            return type(self)(found) if isinstance(index, slice) else found
        place = place_of(index) if isinstance(index, str) else index
        for item in self:
            head = getattr(item, "head", item)
            if (head.layer, head.number) == place:
                return item
        raise KeyError(f"{index!r} is none of {count_heads(len(self))}: they have names such as 'L3H5', or [3, 5]")

    def __add__(self, other: Any) -> Any:
        return type(self)([*self, *other])
