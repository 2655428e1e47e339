"""One SVM of a head: solved, held against the head's own W, and tried on text it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..attention.data import Data
from ..attention.selection import Selection
from ..common.check import check_shapes
from ..common.result import Result
from ..svm.methods import solve_request
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from ..svm.transform import Request
from .cases import Cases, as_cases, pulled
from .head import Head

ROUGH = 1e-2  # tolerance of SVMs of a few iterations
PAIRS = 2e7  # of rows of one query, above which block ascent would hold gigabytes; gradient's bound is 3 times as far
FEWEST = 20  # queries below which an accuracy, or a margin beside that of other heads, says nothing
SPARE = 3  # as many tokens as dimensions, times this, nearly always span what all tokens do
# Multipliers below this part of the largest are what an interior point leaves on rows that hold nothing.
REMAINS = 1e-10
TINY = 1e-300
NO_ROWS = np.empty((0, 4), dtype=np.intp)
SPANNED = 1e-6  # singular values of tokens or queries below this part of the largest are rounding


@dataclass(frozen=True, repr=False, eq=False)
class Fit(Result):
    """One SVM of a head, and how it compares with the head.

    Attributes
    ----------
    norm : {"frobenius", "nuclear"}
    queries : int
        Training queries.
    status, margin, margin_bound, gap, rank
        Of the :class:`attsvm.Separation`; margins in units of a token's length times a query's.
    learned_margin : float
        What the head's own W reaches, scaled to unit Frobenius norm on the directions that tokens and queries have.
    rows : (S, 4) integer array
        (sequence, query, selected, rival) of the support tokens, the hardest first.
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

    norm: Literal["frobenius", "nuclear"]
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

    def _check(self) -> None:
        check_shapes(vars(self), {"rows": "S, 4", "multipliers": "S", "W": "dk, dz"})

    def _title(self) -> str:
        return f"SVM of {self.queries} queries in the {self.norm} norm: {self.status}"

    def _lines(self) -> list[tuple[str, str]]:
        return [
            (
                "margin",
                f"{self.margin:.12g} (at most {self.margin_bound:.12g}), of the head's W {self.learned_margin:.6g}",
            ),
            ("rank", f"{self.rank}"),
            ("support", f"{len(self.rows)} tokens"),
            ("accuracy", f"{self.accuracy:.4g}, {self.missed} training queries missed"),
            ("with the head's W", f"cosine {self.cosine:.6g}, correlation of logits {self.score_correlation:.6g}"),
        ]

    def columns(self) -> dict[str, Any]:
        """A row for each support token."""
        names = ("sequence", "query", "selected", "rival")
        return dict(zip(names, self.rows.T, strict=True)) | {"multiplier": self.multipliers}


def fit_svm(
    head: Head,
    train: np.ndarray,
    test: np.ndarray,
    norm: Literal["frobenius", "nuclear"],
    C: float | None = None,
    tol: float = 1e-9,
    iterations: int | None = None,
    near: Fit | None = None,
) -> Fit:
    """The SVM of the training rows, beside the head's own W and tried on the test rows.

    ``iterations``: no more than these; the margin's upper bound is then nearer to it than what was reached, and where
    no W meets every row yet, W is that of the multipliers, or None of very long windows.  ``near``: another SVM of the
    same training rows, whose multipliers to start from.
    """
    cases = as_cases(head, train)
    data, method = cases.data, ""
    if iterations is not None and C is None:
        method = "block" if short(head, train) else "gradient"
        solution = solve_request(data, Request(Selection(data, cases.selected), norm, method, ROUGH, iterations))
    else:
        start = None if near is None else _multipliers(near, cases)
        solution = solve_svm(data, cases.selected, norm, C=C, tol=tol, warm_start=start)
    support, multipliers = _support(solution, cases)
    W, own = solution.W, head.W
    if W is None and method == "block" and solution.status != "infeasible" and len(support):
        W = pulled(head, support, multipliers)
    size = norm_on_span(own, cases) or np.inf
    learned = float(data._flat_margins(own, cases.selected).min() / size)
    accuracy = scores = cosine = np.nan
    missed = 0
    if W is not None:
        missed = int(np.sum(data.select(W) != cases.selected))
        # The SVM's W lies in the span, so that the own one's part outside adds nothing.
        cosine = float((own * W).sum() / (size * np.linalg.norm(W)))
        if len(test) >= FEWEST:
            unseen = as_cases(head, test)
            accuracy = float(np.mean(unseen.data.select(W) == unseen.selected))
            scores = _score_correlation(unseen.data, W, own)
    return Fit(
        norm, len(train), solution.status, solution.margin, solution.margin_bound, solution.gap, solution.rank, learned,
        support, multipliers, accuracy, scores, cosine, missed, W,
    )  # fmt: skip


def support_of(fit: Fit | None) -> tuple[np.ndarray, np.ndarray]:
    """Its support tokens, and the share of each in all multipliers; none without an SVM."""
    if fit is None:
        return NO_ROWS, np.empty(0)
    return fit.rows, fit.multipliers / max(float(fit.multipliers.sum()), TINY)


def support_share(fit: Fit, train: np.ndarray) -> float:
    """Share of the sequences of its training rows that hold a support token; nan where no W separates them."""
    if fit.status == "infeasible" or len(train) == 0:
        return np.nan
    return len(np.unique(fit.rows[:, 0])) / len(np.unique(train[:, 0]))


def short(head: Head, rows: np.ndarray) -> bool:
    """Whether the windows of these rows are short enough for block ascent."""
    return float((head.window(rows).astype(np.float64) ** 2).sum()) <= PAIRS


def norm_on_span(W: np.ndarray, cases: Cases) -> float:
    """Frobenius norm of ``P_keys W P_queries``: of W on the directions that tokens of one window differ in, and that
    queries have."""
    keys, queries, blocks = cases.data.keys, cases.data.queries, cases.blocks
    sizes = np.cumsum(blocks[:, 1] - blocks[:, 0])
    few = int(np.searchsorted(sizes, SPARE * W.shape[0])) + 1
    left, outside, least = _bases(_scatter(keys, blocks[:few]))
    parts = (keys[begin:end] @ outside for begin, end in blocks[few:])
    if sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts) > least * sizes[-1] / sizes[:few][-1]:
        left = _bases(sum(_scatter(keys, blocks[k : k + few]) for k in range(0, len(blocks), few)))[0]
    return float(np.linalg.norm(left.T @ W @ _bases(queries.T @ queries)[0]))


def _scatter(keys: np.ndarray, blocks: np.ndarray) -> Any:
    """``X^T X`` of the tokens of these blocks, each around its mean, in double precision."""
    parts = (keys[begin:end].astype(np.float64) for begin, end in blocks)
    points = np.concatenate([part - part.mean(axis=0) for part in parts])
    return points.T @ points


def _bases(scatter: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Orthonormal columns that span the rows of X, given ``X^T X``; those of the directions they lack; and the sum of
    squares along one of these up to which it is rounding."""
    eigenvalues, vectors = np.linalg.eigh(scatter)
    least = SPANNED**2 * max(float(eigenvalues[-1]), 0.0)
    return vectors[:, eigenvalues > least], vectors[:, eigenvalues <= least], least


def _score_correlation(data: Data, A: np.ndarray, B: np.ndarray) -> float:
    """Mean over queries of the Pearson correlation of the logits within the window."""
    starts, lengths = data.indptr[:-1], data.lengths
    logits = [np.concatenate(data.logits(W)) for W in (A, B)]
    a, b = (x - np.repeat(np.add.reduceat(x, starts) / lengths, lengths) for x in logits)
    aa, ab, bb = (np.add.reduceat(product, starts) for product in (a * a, a * b, b * b))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = ab / np.sqrt(aa * bb)
    return float(np.nanmean(found)) if np.isfinite(found).any() else np.nan


def _support(solution: Separation, cases: Cases) -> tuple[np.ndarray, np.ndarray]:
    """Rows (sequence, query, selected, rival) of the support tokens and their multipliers, the largest first."""
    dual = solution.flat_dual
    entries = np.flatnonzero(dual > REMAINS * dual.max(initial=0.0))
    entries = entries[np.argsort(-dual[entries], kind="stable")]
    query = cases.data._query_at(entries)
    return np.column_stack([cases.rows[query], cases.tokens[entries]]), dual[entries]


def _multipliers(fit: Fit, cases: Cases) -> list[np.ndarray]:
    """Those of an SVM of the same rows, of every query's entries."""
    found = np.zeros(len(cases.tokens))
    found[cases.entries(fit.rows)] = fit.multipliers
    return np.split(found, cases.data.indptr[1:-1])
