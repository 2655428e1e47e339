"""One SVM of a head: solved, held against the head's own W, and tried on text it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data import Data
from ..separation import Separation
from ..svm import solve_svm
from .choices import as_data, flat
from .model import Head

FEWEST = 20  # queries below which an accuracy, or a margin beside that of other heads, says nothing
SPANNED = 1e-6  # singular values of tokens or queries below this part of the largest are rounding


@dataclass(frozen=True, eq=False)
class Fit:
    """One SVM of a head, and how it compares with the head.

    Attributes
    ----------
    norm : str
    queries : int
        Training queries.
    status, margin, margin_bound, gap, rank
        Of the :class:`attsvm.Separation`; margins in units of a token's length times a query's.
    learned_margin : float
        What the head's own W reaches, scaled to unit Frobenius norm on the directions that tokens and queries have.
    rows : (S, 4) integer array
        (sentence, query, selected, rival) of the support tokens, the hardest first.
    multipliers : (S,) array
        Theirs, in the same order.
    accuracy : float
        Share of test queries for which the SVM selects the token that the head selects.
    score_correlation : float
        Pearson correlation of the SVM's logits with the head's over a test query's window, mean over test queries.
    cosine : float
        Of the SVM's W and the head's own, on the directions that tokens and queries have.
    missed : int
        Training queries for which the SVM selects another token: 0 unless the margin is soft.
    W : (d + 1, d + 1) array or None
        Kept by :func:`analyze_head`, not by :func:`analyze_model`.
    """

    norm: str
    queries: int
    status: str
    margin: float
    margin_bound: float
    gap: float
    rank: int | None
    learned_margin: float
    rows: np.ndarray
    multipliers: np.ndarray
    accuracy: float
    score_correlation: float
    cosine: float
    missed: int
    W: np.ndarray | None


def fit_svm(head: Head, train: np.ndarray, test: np.ndarray, norm: str, C: float | None = None) -> Fit:
    """The SVM of the training rows, beside the head's own W and tried on the test rows."""
    data, selected, rows = as_data(head, train)
    solution = solve_svm(data, selected, norm, C=C)
    own = _on_span(head.W, data)
    size = np.linalg.norm(own)
    learned = float(_least_margin(data, own, rows[:, 2]) / size) if size > 0 else 0.0
    support, multipliers = _support(solution, rows)
    accuracy = scores = cosine = float("nan")
    missed = 0
    if solution.W is not None:
        missed = int((flat(data.select(solution.W)) != rows[:, 2]).sum())
        cosine = float((own * solution.W).sum() / (size * np.linalg.norm(solution.W))) if size > 0 else 0.0
    if solution.W is not None and len(test) >= FEWEST:
        unseen, _, truth = as_data(head, test)
        accuracy = float((flat(unseen.select(solution.W)) == truth[:, 2]).mean())
        scores = _score_correlation(unseen, solution.W, head.W)
    return Fit(
        norm,
        len(train),
        solution.status,
        solution.margin,
        solution.margin_bound,
        solution.gap,
        solution.rank,
        learned,
        support,
        multipliers,
        accuracy,
        scores,
        cosine,
        missed,
        solution.W,
    )


def _on_span(W: np.ndarray, data: Data) -> np.ndarray:
    """``P_keys W P_queries``: W on the directions that tokens of one window differ in, and that queries have."""
    lengths = data.layout.lengths
    sums = np.add.reduceat(data.keys, np.cumsum(lengths) - lengths, axis=0, dtype=np.float64)
    centred = data.keys - np.repeat(sums / lengths[:, None], lengths, axis=0)
    return _projector(centred) @ W @ _projector(data.queries)


def _projector(points: np.ndarray) -> np.ndarray:
    """Onto the row space."""
    eigenvalues, vectors = np.linalg.eigh(points.T @ points)
    basis = vectors[:, eigenvalues > SPANNED**2 * max(eigenvalues[-1], 0.0)]
    return basis @ basis.T


def _least_margin(data: Data, W: np.ndarray, selected: np.ndarray) -> float:
    logits = flat(data.logits(W))
    at = data.indptr[:-1] + selected
    chosen = logits[at]
    logits[at] = -np.inf
    return float((chosen - np.maximum.reduceat(logits, data.indptr[:-1])).min())


def _score_correlation(data: Data, A: np.ndarray, B: np.ndarray) -> float:
    """Mean over queries of the Pearson correlation of the logits within the window."""
    starts, lengths = data.indptr[:-1], np.diff(data.indptr)
    centred = []
    for W in (A, B):
        logits = flat(data.logits(W))
        centred.append(logits - np.repeat(np.add.reduceat(logits, starts) / lengths, lengths))
    products = [np.add.reduceat(centred[i] * centred[j], starts) for i, j in ((0, 0), (0, 1), (1, 1))]
    with np.errstate(invalid="ignore", divide="ignore"):
        found = products[1] / np.sqrt(products[0] * products[2])
    return float(np.nanmean(found)) if np.isfinite(found).any() else float("nan")


def _support(solution: Separation, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (sentence, query, selected, rival) of the support tokens and their multipliers, the largest first."""
    shaped = solution.certificate if solution.status == "infeasible" else solution.dual
    if shaped is None:
        return np.empty((0, 4), dtype=np.intp), np.empty(0)
    dual, indptr = flat(shaped), solution.data.indptr
    entries = np.flatnonzero(dual > 0)
    entries = entries[np.argsort(-dual[entries], kind="stable")]
    query = np.searchsorted(indptr, entries, side="right") - 1
    return np.column_stack([rows[query], entries - indptr[query]]), dual[entries]
