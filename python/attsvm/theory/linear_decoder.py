"""Next-token prediction by a linear decoder: contexts with several next tokens each, and its SVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.data import Data
from ..attention.layout import Layout
from ..common.check import as_floats, check_parts
from ..common.result import Result
from ..common.storage import storable
from ..training.output_head import LogarithmHead
from ..training.problem import Problem

__all__ = ["SoftLabels", "soft_labels"]


@storable
class _OneVocabulary(Layout):
    """Every query sees the same tokens, which are stored once."""

    def check(self, tokens: int, queries: int) -> None:
        check_parts("counts", self.counts, queries)
        self.check_kinds()
        if (self.lengths != tokens).any():
            raise ValueError(f"lengths must be the {tokens} tokens of the vocabulary, got {self.lengths}")

    def windows(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(self.lengths), dtype=np.intp), self.lengths


@dataclass(repr=False, eq=False)
class SoftLabels(Result):
    """A linear decoder as a problem of attention: the tokens are the vocabulary, the queries the contexts.

    Attributes
    ----------
    data : Data
        ``data.probabilities(W)`` is the decoder's next-token distribution ``softmax(W h)``, (m, K).
    problem : Problem
        Mean cross-entropy of the counts; convex in W (K, d).
    selected : (m, K) bool array
        The support of each context: the tokens that follow it.
    counts : (m, K) array
        As given.
    """

    data: Data
    problem: Problem
    selected: np.ndarray
    counts: np.ndarray

    def _title(self) -> str:
        several = int((self.selected.sum(axis=1) > 1).sum())
        return (
            f"Linear decoder of {self.data.dk} tokens from {len(self.data)} contexts of dimension {self.data.dz}, "
            f"{several} with several next tokens"
        )

    def _lines(self) -> list[tuple[str, str]]:
        return []

    def columns(self) -> dict[str, Any]:
        """A row for each token that follows a context."""
        context, token = self.selected.nonzero()
        return {"context": context, "token": token, "count": self.counts[context, token]}

    def _values(self) -> dict[str, Any]:
        return {"contexts": self.data.queries, "counts": self.counts, "selected": self.selected}

    def _state(self) -> dict[str, Any]:
        return {"contexts": self.data.queries, "counts": self.counts}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> SoftLabels:
        return soft_labels(**state)


def soft_labels(contexts: ArrayLike, counts: ArrayLike) -> SoftLabels:
    """Contexts with counts of their next tokens, as data, problem and selection of a linear decoder ``softmax(W h)``.

    Training on ``-sum_jz counts_jz log softmax(W h_j)_z / sum_jz counts_jz`` gives finite log-odds within each support
    S_j, the tokens with a positive count, and diverges towards

        ``min ||W||  s.t.  (W h_j)_z = (W h_j)_z'`` within S_j, ``(W h_j)_z >= (W h_j)_t + 1`` for t outside of it:

    ``solve_svm(found.data, found.selected)``; with free contexts and a vanishing ridge, in the nuclear norm.

    Parameters
    ----------
    contexts : (m, d) array_like
        Embedding of each context, a row h_j.
    counts : (m, K) array_like
        How often each token follows it, or in proportion to that: not negative, some positive in every row.

    Returns
    -------
    SoftLabels

    Notes
    -----
    Source: "Implicit Optimization Bias of Next-token Prediction in Linear Models" (Thrampoulidis, 2024).

    Tokens that follow the same contexts have the same weights in the SVM.  In the Frobenius norm that of a large
    vocabulary is solved by Newton's method in the levels of the contexts, the logits that tokens outside of S_j may
    reach (the answer's ``method`` is "newton"): given those, the weights of a token do not depend on the others.

    Examples
    --------
    >>> found = attsvm.theory.soft_labels([[1.0, 0.0], [0.0, 1.0]], [[3, 1, 0], [0, 0, 2]])
    >>> print(attsvm.solve_svm(found.data, found.selected).W.round(3))
    [[ 0.333 -0.333]
     [ 0.333 -0.333]
     [-0.667  0.667]]
    """
    H = as_floats("contexts", contexts, "m, d")
    counts = as_floats("counts", counts, "m, K", (len(H), None))
    m, K = counts.shape
    if counts.min() < 0:
        raise ValueError(f"counts must not be negative, got {counts.min():g}")
    most = counts.max(axis=1)
    if most.min() == 0:
        raise ValueError(f"counts must have a positive number in every row, got none in row {most.argmin()}")
    shares = counts / most.max()  # whose sums stay in range
    shares /= shares.sum() / m  # the mean over contexts becomes that over counts
    layout = _OneVocabulary(np.full(m, K, dtype=np.intp), np.ones(m, dtype=np.intp), single=True)
    data = Data("linear decoder", K, H, None, layout)
    problem = Problem(data, None, LogarithmHead(shares), loss="linear")
    return SoftLabels(data, problem, counts > 0, counts.copy())
