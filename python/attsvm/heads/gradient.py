"""What the loss's gradient in a head's logits says: a dual point of its SVM, of which some parts may be negative.

With the probabilities P of a query and G, the loss's gradient in them, that in the logits is ``delta = P (G - P.G)``.
It sums to zero, so that in the head's own weights it is ``-dL/dW = sum delta (x_ref - x_t) z^T``: the adjoint of the
rows of the SVM of the tokens ``ref``.  A negative delta is a token that the loss wants nearer to the one selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..attention.intervals import intervals
from ..attention.selection import Selection
from .cases import as_cases
from .choices import all_queries
from .model import Head

__all__ = ["Gradient", "in_logits", "of_head"]


class Gradient(NamedTuple):
    """Of a head, from the gradients in its logits.

    ``negative``: share of negative multipliers in the sum of their sizes, over all queries that have a choice; each
    query's reference is the token that it attends to most.  ``low``, ``high``: both ends of the largest margin for the
    rows that were given, as the head's W reaches it and as the multipliers prove it, in units of a token's length times
    a query's.
    """

    negative: float
    low: float
    high: float


def of_head(head: Head, gradients: Sequence[np.ndarray], rows: np.ndarray) -> Gradient:
    """``gradients``: of each sequence kept, the loss's (S, T) in the head's probabilities; ``rows`` (k, 3) of queries
    and the tokens they select."""
    deltas = [in_logits(head.sequence_attention(i), gradients[i]) for i in range(len(head.text.lengths))]
    queries = all_queries(head)
    queries = queries[(queries[:, 2] >= 0) & (head.text.stop - head.text.start > 1)]
    less = size = 0.0
    for i, delta in enumerate(deltas):
        own = queries[queries[:, 0] == i]
        part = delta[own[:, 1]]
        part[np.arange(len(own)), own[:, 2]] = 0.0
        less, size = less - np.minimum(part, 0).sum(), size + np.abs(part).sum()
    low, high = float("nan"), float("nan")
    if len(rows):
        cases = as_cases(head, rows)
        counts = np.diff(cases.data.indptr)
        where = np.repeat(cases.rows[:, :2], counts, axis=0)
        found = np.array([deltas[i][q, t] for (i, q), t in zip(where, cases.tokens, strict=True)])
        found[cases.data.indptr[:-1] + cases.selected] = 0.0
        chosen = Selection(cases.data, cases.selected)
        low, high = (float(end[0]) for end in intervals(cases.data, chosen, head.W[None], found[None], "frobenius"))
    return Gradient(float(less / size) if size > 0 else float("nan"), low, high)


def in_logits(prob: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The gradient in the logits (S, T), by that in the probabilities."""
    prob = np.nan_to_num(prob)  # of padding
    return prob * (gradient - (prob * gradient).sum(axis=1, keepdims=True))
