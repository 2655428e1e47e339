"""One SVM of a head: its solution, a comparison with the head's own W, and its accuracy on unseen text."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..attention.data import Data
from ..attention.selection import Selection
from ..common.check import check_shapes
from ..common.result import Result
from ..svm.methods import solve_request
from ..svm.request import Request
from ..svm.solve import solve_svm
from .cases import Cases, as_cases, pulled
from .head import Head

ROUGH = 1e-2  # tolerance of SVMs that are solved approximately, by a few iterations
# Largest sum of squared window lengths for block ascent, which needs gigabytes of memory above it.
# Above this sum of squared window lengths the gradient method is used; its gap is about three times block ascent's.
PAIRS = 2e7
FEWEST = 20  # with fewer test queries than this an accuracy is nan, since it would say nothing
SPARE = 3  # this number of tokens per dimension nearly always spans the same space as all tokens
# Multipliers below this fraction of the largest are residue of an interior-point method, on rows that are not active.
REMAINS = 1e-10
NO_ROWS = np.empty((0, 4), dtype=np.intp)
SPANNED = 1e-6  # singular values of tokens or queries below this fraction of the largest are rounding


@dataclass(frozen=True, repr=False, eq=False)
class Fit(Result):
    """One SVM of an attention head's choices, compared with the head's own W.

    Attributes
    ----------
    norm : {"frobenius", "nuclear"}
    queries : int
        Number of training queries.
    status, margin, margin_bound, gap, rank
        As in :class:`attsvm.Separation`.  The unit of a margin is a token's length times a query's length.
    learned_margin : float
        Margin of the head's own W, scaled to unit Frobenius norm on the span of the tokens and queries.
    rows : (S, 4) integer array
        (sequence, query, selected, rival) of the support tokens, in the order of decreasing multipliers.
    multipliers : (S,) array
        Multipliers of the support tokens, in the same order.
    accuracy : float
        Share of test queries for which the SVM selects the token that the head selects.
    score_correlation : float
        Pearson correlation between the SVM's logits and the head's logits over the window of a test query, averaged
        over test queries.
    cosine : float
        Cosine of the SVM's W with the head's own W, on the span of the tokens and queries.
    missed : int
        Training queries for which the SVM selects another token: 0 unless the margin is soft.
    W : (d + 1, d + 1) array or None
        W of the SVM.  :func:`analyze_head` keeps it, :func:`analyze_model` does not.
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
        margin = f"{self.margin:.12g} (at most {self.margin_bound:.12g}), of the head's W {self.learned_margin:.6g}"
        return [
            ("margin", margin),
            ("rank", f"{self.rank}"),
            ("support", f"{len(self.rows)} tokens"),
            ("accuracy", f"{self.accuracy:.4g}, {self.missed} training queries missed"),
            ("with the head's W", f"cosine {self.cosine:.6g}, correlation of logits {self.score_correlation:.6g}"),
        ]

    def columns(self) -> dict[str, Any]:
        """The support tokens as columns by name, with one row for each support token."""
        names = "sequence query selected rival multiplier".split()
        return dict(zip(names, (*self.rows.T, self.multipliers), strict=True))


def fit_svm(
    head: Head,
    train: np.ndarray,
    test: np.ndarray = NO_ROWS,
    C: float | None = None,
    *,
    norm: Literal["frobenius", "nuclear"] = "frobenius",
    tol: float = 1e-9,
    iterations: int | None = None,
    near: Fit | None = None,
) -> Fit:
    """The SVM of the training rows, compared with the head's own W and tried on the test rows.

    ``iterations``: solve approximately, by at most that number of iterations.  The upper bound of the margin is then
    more accurate than the margin that was reached.  If no W meets all rows yet, the W of the multipliers is used, or
    None if the windows are very long.  ``near``: an SVM of the same training rows; its multipliers are the warm start.
    """
    cases = as_cases(head, train)
    data, method = cases.data, ""
    if iterations is not None and C is None:
        method = "block" if short(head, train) else "gradient"
        solution = solve_request(data, Request(Selection(data, cases.selected), norm, method, ROUGH, iterations))
    else:
        start = None
        if near:
            start = cases.split(np.bincount(cases.entries(near.rows), near.multipliers, len(cases.tokens)))
        solution = solve_svm(data, cases.selected, norm, C=C, tol=tol, warm_start=start)
    dual = solution.flat_dual
    held = np.flatnonzero(dual > REMAINS * dual.max())
    held = held[np.argsort(-dual[held], kind="stable")]
    support, multipliers = np.column_stack([cases.rows[data._query_at(held)], cases.tokens[held]]), dual[held]
    W, own = solution.W, head.W
    if W is None and method == "block" and solution.status != "infeasible" and len(support):
        W = pulled(head, support, multipliers)
    size = norm_on_span(own, cases) or np.inf
    learned = float(data._flat_margins(own, cases.selected).min() / size)
    accuracy = scores = cosine = np.nan
    missed = 0
    if W is not None:
        missed = int(np.sum(data.select(W) != cases.selected))
        # The SVM's W lies in the span of tokens and queries; the head's own W outside this span is orthogonal to it.
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
    """Returns the support tokens of an SVM; and each one's share of the sum of multipliers.  Empty without an SVM."""
    if not fit:
        return NO_ROWS, np.empty(0)
    return fit.rows, fit.multipliers / fit.multipliers.sum()


def support_share(fit: Fit, train: np.ndarray) -> float:
    """Share of the training sequences that have a support token, or nan if no W separates the training rows."""
    if fit.status == "infeasible":
        return np.nan
    return len(np.unique(fit.rows[:, 0])) / len(np.unique(train[:, 0]))


def short(head: Head, rows: np.ndarray) -> bool:
    """Whether the windows of the queries of these rows are short enough to solve their SVM by block ascent."""
    return float((head.window(rows) ** 2.0).sum()) <= PAIRS


def norm_on_span(W: np.ndarray, cases: Cases) -> float:
    """Frobenius norm of ``P_keys W P_queries``, the part of W that acts on the span of the tokens and queries.

    P_keys projects on the span of the differences of tokens of one sequence, P_queries on the span of the queries.  The
    first blocks usually span what all blocks do.  The other blocks are used only if they have a part outside that span.
    """
    keys, queries, blocks = cases.data.keys, cases.data.queries, cases.blocks
    sizes = np.cumsum(np.diff(blocks))
    few = np.searchsorted(sizes, SPARE * W.shape[0]) + 1
    left, outside, least = _bases(scatter(keys, blocks[:few]))
    parts = (keys[begin:end] @ outside for begin, end in blocks[few:])
    if sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts) > least * sizes[-1] / sizes[:few][-1]:
        left = _bases(sum(scatter(keys, blocks[k : k + few]) for k in range(0, len(blocks), few)))[0]
    return float(np.linalg.norm(left.T @ W @ _bases(queries.T @ queries)[0]))


def scatter(keys: np.ndarray, blocks: np.ndarray) -> Any:
    """``X^T X`` in double precision, where X has a row for each token of these blocks, minus the mean of its block."""
    parts = (keys[begin:end].astype(np.float64) for begin, end in blocks)
    points = np.concatenate([part - part.mean(axis=0) for part in parts])
    return points.T @ points


def _bases(products: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns from ``X^T X``: bases of the span of X's rows; and of its complement; the largest eigenvalue taken as 0.

    The bases are orthonormal.  An eigenvalue is the sum of the squares of X's rows along a direction.
    """
    eigenvalues, vectors = np.linalg.eigh(products)
    least = SPANNED**2 * max(eigenvalues[-1], 0.0)
    return vectors[:, eigenvalues > least], vectors[:, eigenvalues <= least], least


def _score_correlation(data: Data, A: np.ndarray, B: np.ndarray) -> float:
    """Pearson correlation of the logits under the weights A and B within a query's window, averaged over queries."""
    lengths = data.lengths

    def total(x: np.ndarray) -> np.ndarray:
        return np.add.reduceat(x, data._begin)

    a, b = (x - np.repeat(total(x) / lengths, lengths) for x in map(data._logits, (A, B)))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = total(a * b) / np.sqrt(total(a * a) * total(b * b))
    return float(np.nanmean(found)) if np.isfinite(found).any() else np.nan
