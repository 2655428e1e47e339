"""Heads analysed: one, or all of a model on threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._check import as_count, as_numeric, check_shape
from .._counted import counted
from ..replication import one_blas_thread
from .choices import baselines, hard_queries, is_sink, split
from .fit import FEWEST, Fit, fit_svm
from .model import Head

SIZES = (100, 400, 1500, 4000, 16_000)  # of the curve over the number of queries
TEST = 500  # queries; an accuracy of 0.9 is then known to 0.013


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
        Soft margin, for labels that cannot be separated: as in :func:`attsvm.solve_svm`, and without a nuclear SVM.  It
        is in units of 1 / (token * query)^2: on real tokens 1e-4 to 1e-2 is where it begins to matter.
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
    progress: bool = False,
    **options: Any,
) -> list[HeadReport]:
    """Read many heads as support vector machines, several at a time on threads.

    Parameters
    ----------
    heads : list of Head
    n_jobs : int, optional
        Threads; by default as many as there are processors.  Changes no result.
    progress : bool
        Show a bar.
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
    with one_blas_thread(), ThreadPoolExecutor(jobs) as pool:
        tasks = {pool.submit(analyze_head, head, **options): k for k, head in enumerate(heads)}
        finished: Any = as_completed(tasks)
        try:
            for task in counted(finished, len(tasks), "solve", "head") if progress else finished:
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
