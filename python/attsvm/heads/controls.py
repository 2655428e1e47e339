"""Controls for the numbers of a trained attention head: random choices, untrained heads, and several random splits.

The tokens that a head selects are the argmax of its own bilinear form, which separates them unless they tie.  In many
dimensions some W separates random choices too.  A margin, a cosine or an accuracy therefore means something only beside
the same number of a control.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..common.storage import storable
from .choices import TRAINING, all_queries, is_sink
from .directions import decompose
from .head import Choices, Head

# After this number of logits an untrained head's scale is estimated.  Queries not hard at that scale are dropped.
ENTRIES = 2_000_000
# Once queries have been dropped, reading stops when the remaining queries have more logits than this.
MOST = 16_000_000
BLOCK = 1_000_000  # largest number of logits that are computed at one time
RANK = 1e-6  # singular values below this fraction of the largest are rounding of weights in single precision
STEPS = 40  # largest number of bisection steps for the scale of an untrained head's logits
# The type of functions that make K and Q of an untrained head.
Factors = Callable[[Head, np.random.Generator], tuple[np.ndarray, np.ndarray]]
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
    drawn = rows.copy()
    drawn[:, 2] = [rng.choice(head.text.window(i, q)) for i, q in rows[:, :2]]
    return drawn


def gaussian_factors(head: Head, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Factors K and Q of an untrained head, with independent standard Gaussian entries."""
    K, Q = (rng.standard_normal((points.shape[1], head.rank)) for points in (head.keys, head.queries))
    return K, Q


def shuffled_factors(head: Head, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """K and Q of the head's own W after its left and its right singular vectors were permuted separately.

    The result keeps the singular values and the spans of the vectors, but pairs other left and right vectors.
    """
    K, Q = (  # without the row of K and Q by which a position bias enters
        factor[: points.shape[1]].astype(np.float64) for factor, points in ((head.K, head.keys), (head.Q, head.queries))
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
    text, several = head.text, head.text.sizes > 1
    known = Choices(np.full(len(several), -1), *np.full((2, len(several)), np.nan))
    found = replace(head, K=K, Q=Q, given=None, known=known)
    parts: list[Part] = []
    looked, held, steep = 0, 0, 0.0

    def scaled(deviations: int) -> tuple[float, Part]:
        """The scale of the logits at which the wanted number of queries in ``parts`` is hard; and these parts as one.

        That number is ``hard``, scaled to the queries read so far, plus this number of its standard deviations.
        """
        part = Part(*map(np.concatenate, zip(*parts, strict=True)))
        counted = ~(drop_sinks & is_sink(head, all_queries(found)[part.at]))
        wanted = hard * looked / several.sum()
        wanted += deviations * (math.sqrt(wanted) + 1)
        # bounds on log(scale * m), where m is the mean distance of a logit from the largest logit of its query
        low, high = -12.0, 12.0
        unit = 1 / max(-np.mean(part.fall, dtype=np.float64), 1e-300)
        for _ in range(STEPS):
            middle = (low + high) / 2
            scale = unit * math.exp(middle)
            reached = np.count_nonzero(part.tops(scale)[counted] > threshold)
            if abs(reached - wanted) <= 0.02 * wanted:
                break
            low, high = (middle, high) if reached < wanted else (low, middle)
        return scale, part

    # (sequence, first query, end), with at most BLOCK logits or with one query; a sequence without queries has an empty
    # block, since the random order depends on their number
    blocks = []
    for i, (S, T) in enumerate(zip(text.counts.tolist(), text.lengths.tolist(), strict=True)):
        rows = max(BLOCK // max(T, 1), 1)
        blocks += [(i, first, first + rows) for first in range(0, max(S, 1), rows)]
    for block in rng.permutation(blocks):
        part = _falls(found, *block)
        looked += len(part.at)
        parts.append(part.hard(steep, threshold) if steep else part)
        held += len(parts[-1].fall)
        if steep and held > MOST:
            break
        if not steep and held > ENTRIES:
            steep, part = scaled(3)  # three standard deviations, so that hardly any hard query is dropped
            parts = [part.hard(steep, threshold)]
            held = len(parts[0].fall)
    scale, part = scaled(0)
    known.top[part.at] = part.tops(scale)
    return replace(found, Q=Q * scale)


class Part(NamedTuple):
    """Some queries: their indices, all their logits (each minus its query's largest), and the number of each's."""

    at: np.ndarray
    fall: np.ndarray
    sizes: np.ndarray

    def tops(self, scale: float) -> np.ndarray:
        """The largest probability of each query, if the logits are multiplied by ``scale``."""
        return 1 / np.add.reduceat(np.exp(np.float32(scale) * self.fall), np.cumsum(self.sizes) - self.sizes)

    def hard(self, scale: float, threshold: float) -> Part:
        """The queries whose largest probability is above the threshold, if the logits are multiplied by ``scale``."""
        hard = self.tops(scale) > threshold
        return Part(self.at[hard], self.fall[np.repeat(hard, self.sizes)], self.sizes[hard])


def _falls(head: Head, i: int, first: int, last: int) -> Part:
    """The queries of a block that see several tokens.  The tokens that they select are written into the choices."""
    text = head.text
    seen = text.seen(i, slice(first, last))
    several = np.flatnonzero(seen.sum(axis=1) > 1)
    at = text.query_begin[i] + first + several
    tokens = np.flatnonzero(seen.any(axis=0))
    seen = seen[several][:, tokens]
    logits = (head.queries[at] @ head.Q) @ (text.keys[text.begin[i] + tokens] @ head.K).T
    logits[~seen] = -np.inf
    if len(at):
        head.choices.selected[at] = tokens[logits.argmax(axis=1)]
    fall = (logits - logits.max(axis=1, keepdims=True, initial=-np.inf))[seen]
    return Part(at, fall.astype(np.float32), text.sizes[at])


def interval(values: np.ndarray, least: float) -> tuple[float, float]:
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
