"""Controls for the numbers of a trained attention head: random choices, untrained heads, and several random splits.

The tokens that a head selects are the argmax of its own bilinear form, which separates them unless they tie.  In many
dimensions some W separates random choices too.  A margin, a cosine or an accuracy therefore means something only beside
the same number of a control.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..common.storage import storable
from .choices import TRAINING, all_queries, is_sink
from .directions import decompose
from .head import Choices, Head
from .sequences import Text

# After this number of logits an untrained head's scale is estimated.  Queries not hard at that scale are dropped.
ENTRIES = 2_000_000
# Once queries have been dropped, reading stops when the remaining queries have more logits than this.
MOST = 16_000_000
BLOCK = 1_000_000  # largest number of logits that are computed at one time
RANK = 1e-6  # singular values below this fraction of the largest are rounding of weights in single precision
STEPS = 40  # largest number of bisection steps for the scale of an untrained head's logits
# The type of functions that make K and Q of an untrained head.
Factors = Callable[[Head, np.random.Generator], tuple[np.ndarray, np.ndarray]]
# Indices of some queries, all their logits (each minus its query's largest logit), and each query's number of logits.
Part = tuple[np.ndarray, np.ndarray, np.ndarray]
# Two-sided 95 % points of Student's t for 1, 2, .. degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@storable
@dataclass(frozen=True, eq=False)
class Null:
    """Results of untrained heads of one kind, which read a trained head's tokens and have about as many hard queries.

    Attributes
    ----------
    hard, queries : (draws,) integer arrays
        Number of hard queries, and number of those that trained the SVM.
    cosine, own, accuracy, rule_accuracy : (draws,) arrays
        The same numbers as for a trained head: cosine of the SVM's W with the head's own W, margin of the own W divided
        by the largest margin, accuracy of the SVM on held-out queries, and accuracy of the best rule there.
    support_share : (1,) array
        Share of the training sequences that have a support token, for the first draw, whose SVM is solved exactly; nan
        if its windows are too long for that.
    """

    hard: np.ndarray
    queries: np.ndarray
    cosine: np.ndarray
    own: np.ndarray
    accuracy: np.ndarray
    rule_accuracy: np.ndarray
    support_share: np.ndarray

    @property
    def gain(self) -> np.ndarray:
        """(draws,) array: accuracy of the SVM minus accuracy of the best rule."""
        return self.accuracy - self.rule_accuracy


def random_rows(head: Head, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The queries of these rows, each with a token drawn at random from the tokens that the query sees."""
    chosen = [rng.choice(head.text.window(i, q)) for i, q in rows[:, :2]]
    return np.column_stack([rows[:, :2], np.array(chosen, dtype=np.intp)])


def gaussian_factors(head: Head, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Factors K and Q of an untrained head, with independent standard Gaussian entries."""
    K, Q = (rng.standard_normal((width, head.rank)) for width in (head.keys.shape[1], head.queries.shape[1]))
    return K, Q


def shuffled_factors(head: Head, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """K and Q of the head's own W after its left and its right singular vectors were permuted separately.

    The result keeps the singular values and the spans of the vectors, but pairs other left and right vectors.
    """
    K, Q = (  # without the row of K and Q by which a position bias enters
        factor[:width].astype(np.float64)
        for factor, width in ((head.K, head.keys.shape[1]), (head.Q, head.queries.shape[1]))
    )
    left, values, right = decompose(K, Q, RANK)
    return left[:, rng.permutation(len(values))] * values, right[:, rng.permutation(len(values))]


def own_rank(head: Head) -> int:
    """Rank of the head's W, without the singular values that are only rounding errors."""
    values = head.singular_values
    return int((values > RANK * values[0]).sum())


def null_head(
    head: Head, factors: Factors, hard: int, threshold: float, drop_sinks: bool, rng: np.random.Generator
) -> Head:
    """The head with untrained K and Q, scaled until about ``hard`` queries attend to one token above ``threshold``.

    If there are too many logits to keep them all, the largest probability is known for the hard queries only.  It is
    nan for the others.
    """
    K, Q = factors(head, rng)
    text, unknown = head.text, np.full(len(head.text.start), np.nan)
    known = Choices(np.full(len(unknown), -1), unknown, unknown.copy())
    found = replace(head, K=K, Q=Q, given=None, value_norms=None, known=known)
    choosing = int((text.stop - text.start > 1).sum())
    parts: list[Part] = []
    looked, held, steep = 0, 0, 0.0

    def scaled(wanted: float) -> tuple[float, np.ndarray, np.ndarray]:
        at, fall, sizes = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        counted = ~(drop_sinks & is_sink(head, all_queries(found)[at]))
        return *_scale(fall, np.cumsum(sizes) - sizes, counted, wanted, threshold), at

    for block in rng.permutation(_blocks(text)):
        at, known.selected[at], fall, sizes = _falls(found, *block)
        looked += len(at)
        parts.append(_steepest((at, fall, sizes), steep, threshold))
        held += len(parts[-1][1])
        if steep and held > MOST:
            break
        if not steep and held > ENTRIES:
            # Three standard deviations are added to the expected number, so that hardly any hard query is dropped.
            wanted = hard * looked / choosing
            steep = scaled(wanted + 3 * math.sqrt(wanted) + 3)[0]
            parts = [_steepest(part, steep, threshold) for part in parts]
            held = sum(len(part[1]) for part in parts)
    scale, top, at = scaled(hard * looked / choosing)
    known.top[at] = top
    return replace(found, Q=Q * scale)


def _steepest(part: Part, scale: float, threshold: float) -> Part:
    """Keeps the queries of ``part`` that are hard with logits times ``scale``, and all queries if the scale is 0."""
    at, fall, sizes = part
    if len(at) == 0 or scale == 0:
        return part
    hard = _tops(fall, np.cumsum(sizes) - sizes, scale) > threshold
    return at[hard], fall[np.repeat(hard, sizes)], sizes[hard]


def _blocks(text: Text) -> list[tuple[int, int, int]]:
    """Divides all queries into blocks (sequence, first query, end) with at most ``BLOCK`` logits, or with one query."""
    found = []
    for i, (S, T) in enumerate(zip(text.counts.tolist(), text.lengths.tolist(), strict=True)):
        rows = max(BLOCK // max(T, 1), 1)
        found += [(i, a, min(a + rows, S)) for a in range(0, max(S, 1), rows)]
    return found


def _falls(head: Head, i: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Choices and logits of those queries of a block that see several tokens.

    Returns the indices of these queries among all queries; the tokens that they select; all their logits (entries,),
    each minus the largest logit of its query; and the number of logits of each query.
    """
    text = head.text
    own = text.query_begin[i] + np.arange(first, last)
    low, high = int(text.start[own].min(initial=0)), int(text.stop[own].max(initial=0))
    seen = text.seen(i, slice(first, last))[:, low:high]
    sizes = seen.sum(axis=1)
    several = np.flatnonzero(sizes > 1)
    seen, sizes = seen[several], sizes[several]
    keys = text.keys[text.begin[i] + low : text.begin[i] + high]
    logits = np.where(seen, (head.queries[own[several]] @ head.Q) @ (keys @ head.K).T, -np.inf)
    fall = (logits - logits.max(axis=1, keepdims=True, initial=-np.inf))[seen].astype(np.float32)
    return own[several], low + logits.argmax(axis=1) if high > low else several, fall, sizes


def _scale(
    fall: np.ndarray, start: np.ndarray, counted: np.ndarray, wanted: float, threshold: float
) -> tuple[float, np.ndarray]:
    """Returns the scale at which ``wanted`` of the ``counted`` queries are hard; and each query's top probability."""
    # bounds on log(scale * m), where m is the mean distance of a logit from the largest logit of its query
    low, high = -12.0, 12.0
    unit = 1 / max(float(-np.mean(fall, dtype=np.float64)), 1e-300)
    for _ in range(STEPS):
        middle = (low + high) / 2
        top = _tops(fall, start, unit * math.exp(middle))
        hard = int((top[counted] > threshold).sum())
        if abs(hard - wanted) <= 0.02 * wanted:
            break
        low, high = (middle, high) if hard < wanted else (low, middle)
    return unit * math.exp(middle), top


def _tops(fall: np.ndarray, start: np.ndarray, scale: float) -> np.ndarray:
    return 1 / np.add.reduceat(np.exp(np.float32(scale) * fall), start)


def interval(values: Sequence[float] | np.ndarray, least: float) -> tuple[float, float]:
    """95 % interval for the mean of a number over random splits into training and test, cut to ``least`` .. 1.

    The splits share sequences, so that the variance of their mean is ``1 / k + test / train`` times the variance of one
    split (Nadeau and Bengio, "Inference for the generalization error", 2003).  The interval is infinite for one split.
    """
    k = len(values)
    if k < 2:
        return -math.inf, math.inf
    mean, variance = float(np.mean(values)), float(np.var(values, ddof=1))
    half = student(k - 1) * math.sqrt((1 / k + (1 - TRAINING) / TRAINING) * variance)
    return max(mean - half, least), min(mean + half, 1.0)  # the interval from two splits can reach from least to 1


def student(degrees: int) -> float:
    """Two-sided 95 % point of Student's t distribution with this number of degrees of freedom."""
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    # The point of Student's t, expanded in powers of 1 / degrees around z, the point of the normal distribution.
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
