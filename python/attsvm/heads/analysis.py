"""What the SVM says of a head: separable or not, by what margin, held by which tokens, how close to the head's own W."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._check import as_count, as_numeric, check_shape
from ..data import Data
from ..separation import Separation
from ..svm import solve_svm
from .choices import as_data, baselines, flat, hard_queries, is_sink, split
from .model import Head

SIZES = (100, 400, 1500, 4000, 16_000)  # of the curve over the number of queries
TEST = 500  # queries; an accuracy of 0.9 is then known to 0.013
FEWEST = 20  # queries below which a held-out accuracy says nothing
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


@dataclass(frozen=True, eq=False)
class HeadReport:
    """What :func:`analyze_head` found.

    Attributes
    ----------
    head : Head
    threshold : float
    hard : int
        Queries that give one token more than the threshold (or labels given).
    sinks : float
        Share of those that select the first token of their sentence or its end.
    train, test : (k, 3) integer arrays
        Rows (sentence, query, selected), from different sentences.
    baselines : dict of str to float
        Accuracy on the test queries of rules that need no SVM; empty without test queries.
    curve : list of Fit
        Frobenius SVMs of the first 100, 400, 1500, .. training queries, and of all of them; the last is the report's.
    nuclear : Fit or None
        The nuclear SVM of the first training queries.
    """

    head: Head
    threshold: float
    hard: int
    sinks: float
    train: np.ndarray
    test: np.ndarray
    baselines: dict[str, float]
    curve: list[Fit]
    nuclear: Fit | None

    @property
    def fit(self) -> Fit | None:
        """The Frobenius SVM of all training queries; None without queries."""
        return self.curve[-1] if self.curve else None

    @property
    def best_baseline(self) -> tuple[str, float]:
        """Name and accuracy of the best rule that needs no SVM."""
        return max(self.baselines.items(), key=lambda item: item[1], default=("", float("nan")))

    def __repr__(self) -> str:
        from .report import describe

        return describe(self)


def analyze_head(
    head: Head,
    *,
    threshold: float = 0.9,
    drop_sinks: bool = False,
    queries: int = 1500,
    nuclear_queries: int = 400,
    labels: Any = None,
    C: float | None = None,
    seed: int = 0,
) -> HeadReport:
    """Read one head as a support vector machine.

    Parameters
    ----------
    head : Head
        From ``read_bert(folder).read(sentences)`` or :func:`from_arrays`.
    threshold, drop_sinks
        Which queries count, as in :func:`hard_queries`.
    queries : int
        At most so many train the SVM, drawn at random from 70 % of the sentences.  At most 500 of the other sentences
        test it.
    nuclear_queries : int
        At most so many train the nuclear-norm SVM, which takes far longer; 0: none.
    labels : (k, 3) integer array_like, optional
        Rows (sentence, query, selected) to separate in place of the head's own choices: of another head, another model,
        or by hand.
    C : float, optional
        Soft margin, for labels that cannot be separated: as in :func:`attsvm.solve_svm`, and without a nuclear SVM.
    seed : int
        Of the split; the same seed and text give the same table.

    Returns
    -------
    HeadReport

    Raises
    ------
    ValueError, TypeError
        Naming the argument that does not fit.
    KeyboardInterrupt
        On Ctrl-C.

    Notes
    -----
    A head's own choices are separable in its own bilinear form, since its W does it; the question is by how much, and
    whether the W of largest margin knows what the head knows.

    Examples
    --------
    >>> import attsvm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk = rng.standard_normal((2, 4, 8))
    >>> (head,) = attsvm.heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None)
    >>> report = attsvm.heads.analyze_head(head, queries=40)
    >>> report.fit.status, report.fit.margin > report.fit.learned_margin
    ('optimal', True)
    """
    queries, nuclear_queries = as_count("queries", queries, 1), as_count("nuclear_queries", nuclear_queries)
    rows = hard_queries(head, threshold, drop_sinks) if labels is None else _labels(head, labels)
    train, test = split(rows, queries, TEST, np.random.default_rng([seed, head.layer, head.head]))
    sinks = float(is_sink(head, rows).mean()) if len(rows) else 0.0
    rules = baselines(head, train, test) if len(test) >= FEWEST else {}
    sizes = [size for size in SIZES if size < len(train)] + [len(train)] if len(train) else []
    curve = [fit_svm(head, train[:size], test, "frobenius", C) for size in sizes]
    nuclear = None
    if len(train) and nuclear_queries and C is None and curve[-1].status != "infeasible":
        nuclear = fit_svm(head, train[:nuclear_queries], test, "nuclear")
    return HeadReport(head, threshold, len(rows), sinks, train, test, rules, curve, nuclear)


def analyze_model(
    heads: Sequence[Head],
    *,
    n_jobs: int | None = None,
    progress: Callable[..., Any] | None = None,
    **options: Any,
) -> list[HeadReport]:
    """Read many heads as support vector machines, several at a time on threads.

    Parameters
    ----------
    heads : list of Head
    n_jobs : int, optional
        Threads; by default as many as there are processors.  Changes no result.
    progress : callable, optional
        Put around the reports as they come, such as ``tqdm.tqdm``; it is given ``total=``.
    **options
        As for :func:`analyze_head`.

    Returns
    -------
    list of HeadReport
        In the order of ``heads``, without the weights W.  :func:`results_table` and :func:`results_columns` show them.

    Raises
    ------
    ValueError, TypeError
        Naming the argument that does not fit.
    KeyboardInterrupt
        On Ctrl-C, once the heads under way are done; its ``.partial`` holds the reports so far.

    Examples
    --------
    >>> import attsvm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk = rng.standard_normal((2, 8, 8))
    >>> heads = attsvm.heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None, heads=2)
    >>> [report.fit.status for report in attsvm.heads.analyze_model(heads, queries=40, n_jobs=2)]
    ['optimal', 'optimal']
    """
    jobs = as_count("n_jobs", n_jobs or os.cpu_count() or 1, 1)
    done: dict[int, HeadReport] = {}
    with ThreadPoolExecutor(jobs) as pool:
        tasks = {pool.submit(analyze_head, head, **options): k for k, head in enumerate(heads)}
        finished: Any = as_completed(tasks)
        try:
            for task in finished if progress is None else progress(finished, total=len(tasks)):
                report = task.result()
                curve = [replace(fit, W=None) for fit in report.curve]
                nuclear = None if report.nuclear is None else replace(report.nuclear, W=None)
                done[tasks[task]] = replace(report, curve=curve, nuclear=nuclear)
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                error.partial = [done[k] for k in sorted(done)]
            raise
    return [done[k] for k in sorted(done)]


def _labels(head: Head, labels: Any) -> np.ndarray:
    rows = as_numeric("labels", labels)
    check_shape("labels", rows, "k, 3", (None, 3))
    if rows.dtype.kind == "f":
        raise TypeError(f"labels must hold integers, got {rows.dtype}")
    if rows[:, 0].min() < 0 or rows[:, 0].max() >= len(head.text.lengths):
        raise ValueError(f"labels must name sentences 0 .. {len(head.text.lengths) - 1}")
    bad = (rows[:, 1:] < 0).any(axis=1) | (rows[:, 1] >= head.text.lengths[rows[:, 0]])
    bad |= rows[:, 2] >= head.window(rows)
    if bad.any():
        raise ValueError(f"labels must name tokens that the query sees, got {rows[bad.argmax()].tolist()}")
    return rows.astype(np.intp)


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
    products = [np.add.reduceat(a * b, starts) for a, b in ((0, 0), (0, 1), (1, 1)) for a, b in [(centred[a], centred[b])]]
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
