"""Analysis of one attention head: the SVM of the tokens it selects, simple rules that predict them, and controls.

Also the analysis of all heads of a model, on threads or on a cluster.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..common.check import as_choice, as_count, as_flag, as_numeric, check_shape
from ..common.progress import counted
from ..common.storage import state_of
from ..common.threads import as_jobs, on_workers
from .choices import best_rule, hard_queries, is_sink, sink_value, split
from .controls import Factors, Null, gaussian_factors, null_head, own_rank, random_rows, shuffled_factors
from .fit import FEWEST, Fit, fit_svm, short, support_share
from .head import Head, as_heads, check_head
from .kept import Kept, digest
from .report import HeadReport, Reports

SIZES = (100, 400, 1500, 4000, 16_000)  # numbers of training queries: the accuracy curve has an SVM for each
TEST = 500  # largest number of test queries; the standard error of an accuracy of 0.9 is then 0.013
SPLITS = 5
DRAWS = 3  # number of untrained heads of each kind, enough to see how far their numbers differ
# ITERATIONS: block ascent steps for the SVM of random choices, and for an SVM of fewer than MANY training queries.
# For random choices, the margin's upper bound after ITERATIONS steps is within 10 % of the bound after 40 steps.
# FEW_ITERATIONS: block ascent steps for an SVM of MANY training queries or more.
# After FEW_ITERATIONS steps, the SVM's accuracy is within .01 of the exact SVM's (.024 for untrained heads).
ITERATIONS, FEW_ITERATIONS, MANY = 20, 8, 500
FEW_DIRECTIONS = 2  # permuting the singular vectors of a W of at most this rank leaves W nearly as it was
NULL_TOL = 1e-4  # tolerance of an SVM that is solved anew because a few iterations gave no W
RANDOM_CHOICES, RANDOM_HEAD, SHUFFLED = 1, 2, 3  # each number, appended to the seed, gives a control its random stream


def analyze_head(
    head: Head,
    *,
    threshold: float | None = None,
    drop_sinks: bool = False,
    queries: int | None = None,
    nuclear_queries: int = 400,
    labels: Any = None,
    C: float | None = None,
    splits: int = SPLITS,
    null: bool = True,
    seed: int = 0,
) -> HeadReport:
    """A report on one attention head: the SVM of the tokens it selects, its accuracy on unseen text, and its controls.

    Parameters
    ----------
    head : Head
        From :func:`attsvm.torch.read` or :func:`from_arrays`.
    threshold, drop_sinks
        Select the queries that count, as in :func:`hard_queries`.
    queries : int, optional
        Largest number of training queries.  They are drawn at random from 70 % of the sequences.  By default the
        head's own number, which is 1,500 unless :func:`attsvm.torch.read` set another.  At most 500 queries of the
        other sequences test the SVM.
    nuclear_queries : int
        Largest number of training queries of the nuclear-norm SVM, which takes far longer than the Frobenius SVM.
        0: no nuclear-norm SVM.
    labels : (k, 3) integer array_like, optional
        Rows (sequence, query, selected) to separate in place of the head's own choices: those of another head or
        model, or chosen by hand.  The report then has no untrained heads.
    C : float, optional
        Weight of a soft margin, for labels that cannot be separated, as in :func:`attsvm.solve_svm`.  There is then no
        nuclear-norm SVM.  The unit of C is 1 / (token * query)^2: on real tokens it begins to matter at 1e-4 to 1e-2.
    splits : int
        Number of random splits of the sequences into training and test.  The accuracy and its interval use all of
        them; the rest of the report uses the first.
    null : bool
        Whether to solve the controls too.  One control has random choices of the same queries.  Two others are
        untrained heads with as many hard queries, three draws each: heads with Gaussian K and Q, and heads with the
        own singular values and permuted singular vectors.  A head of rank 1 or 2 has no permuted control, since the
        permutation leaves it nearly as it is.
    seed : int
        Seed of the splits and controls.  The same seed and text give the same table.

    Returns
    -------
    HeadReport

    Notes
    -----
    At a threshold of 1/2 or more the head's own W separates its choices.  In many dimensions some W separates random
    choices too.  Three comparisons say something: the SVM's margin with the margin of random choices, the SVM's
    accuracy with that of simple rules, and the cosine of the SVM with the head's own W beside the same cosine for
    untrained heads.

    The best rule is chosen on the training rows of each split, by three-fold validation over their sequences.  The SVM
    beats the best rule (a positive ``gain``) for random heads, too: no rule imitates a random bilinear form.

    The SVM of the first split is exact.  The SVMs of the controls, and those of other splits with many queries, are
    solved approximately by a few iterations, which changes accuracies by less than their interval.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk = rng.standard_normal((2, 4, 8))
    >>> (head,) = attsvm.heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None)
    >>> report = attsvm.heads.analyze_head(head, queries=40)
    >>> report.fit.status, report.fit.margin > report.random.margin
    ('optimal', True)
    """
    check_head(head)
    queries = head.most if queries is None else as_count("queries", queries, 1)
    nuclear_queries, splits = as_count("nuclear_queries", nuclear_queries), as_count("splits", splits, 1)
    threshold, seed = head.threshold if threshold is None else threshold, as_count("seed", seed)
    null = as_flag("null", null)
    rows = hard_queries(head, threshold, drop_sinks) if labels is None else _labels(head, labels)
    name = [seed, head.layer, head.number]
    train, test = split(rows, queries, TEST, np.random.default_rng(name))
    sizes = {min(size, len(train)) for size in (*SIZES, len(train))} - {0}
    curve = [fit_svm(head, train[:size], test, C) for size in sorted(sizes)]
    accuracies, rules = [], []  # for each split: accuracy of the SVM; name of the best rule and accuracies of all rules
    for again in range(splits if len(test) >= FEWEST else 0):
        seen, unseen = split(rows, queries, TEST, np.random.default_rng([*name, 0, again])) if again else (train, test)
        if len(unseen) >= FEWEST:
            rough = C is None and len(seen) >= MANY and short(head, seen)
            fit = curve[-1]
            if again:
                fit = _rough_fit(head, seen, unseen) if rough else fit_svm(head, seen, unseen, C)
            accuracies.append(fit.accuracy)
            rules.append(best_rule(head, seen, unseen))
    nuclear = None
    if curve and nuclear_queries and C is None and curve[-1].status != "infeasible":
        some = train[:nuclear_queries]
        near = next((fit for fit in curve if fit.queries == len(some)), None)
        nuclear = fit_svm(head, some, test, norm="nuclear", near=near)
    random = gaussian = shuffled = None
    if null and curve:
        rng = np.random.default_rng([*name, RANDOM_CHOICES])
        random = fit_svm(head, random_rows(head, train, rng), random_rows(head, test, rng), C, iterations=ITERATIONS)
        if labels is None:
            wanted = len(rows), threshold, drop_sinks
            gaussian = _null(head, gaussian_factors, wanted, queries, [*name, RANDOM_HEAD])
            if own_rank(head) > FEW_DIRECTIONS:
                shuffled = _null(head, shuffled_factors, wanted, queries, [*name, SHUFFLED])
    rule, found = rules[0] if rules else ("", {})
    parked = rows[is_sink(head, rows)]
    return HeadReport(
        head, threshold, len(rows), len(parked) / max(len(rows), 1), train, test, found, rule, curve, nuclear, random,
        gaussian, shuffled, np.array(accuracies), np.array([right[best] for best, right in rules]),
        sink_value(head, parked), labelled=labels is not None,
    )  # fmt: skip


def _rough_fit(head: Head, train: np.ndarray, test: np.ndarray) -> Fit:
    """An approximate Frobenius SVM, accurate to the two digits that the table shows."""
    fit = fit_svm(head, train, test, iterations=FEW_ITERATIONS if len(train) >= MANY else ITERATIONS)
    return fit_svm(head, train, test, tol=NULL_TOL) if fit.W is None else fit


def _null(head: Head, factors: Factors, wanted: tuple[int, float, bool], queries: int, name: list[int]) -> Null | None:
    """Results of DRAWS untrained heads, analysed like the trained head; None if none of them has training queries."""
    draws, share = [], np.nan
    for draw in range(DRAWS):
        rng = np.random.default_rng([*name, draw])
        other = null_head(head, factors, *wanted, rng)
        hard = hard_queries(other, *wanted[1:])
        train, test = split(hard, queries, TEST, rng)
        if not len(train):
            continue
        fit = _rough_fit(other, train, test)
        own, rule = fit.learned_margin / fit.margin_bound if fit.margin_bound > 0 else np.nan, np.nan
        if len(test) >= FEWEST:
            best, right = best_rule(other, train, test)
            rule = right[best]
        draws.append((len(hard), len(train), fit.cosine, own, fit.accuracy, rule))
        # This SVM is exact: in an approximate SVM, up to twice as many sequences have a positive multiplier.
        if len(draws) == 1 and short(other, train):
            share = support_share(fit_svm(other, train, near=fit), train)
    return Null(*map(np.array, (*zip(*draws, strict=True), [share]))) if draws else None


def _labels(head: Head, labels: Any) -> np.ndarray:
    rows = as_numeric("labels", labels)
    check_shape("labels", rows, "k, 3", (None, 3))
    if rows.dtype.kind == "f":
        raise TypeError(f"labels must hold integers, got {rows.dtype}")
    for i, q, t in rows.tolist():
        if not 0 <= i < len(head.text.lengths):
            raise ValueError(f"labels must name sequences 0 .. {len(head.text.lengths) - 1}, got {i}")
        if not 0 <= q < head.text.counts[i] or t not in head.text.window(i, q):
            raise ValueError(f"labels must name tokens that the query sees, got {[i, q, t]}")
    return rows.astype(np.intp)


def analyze_model(
    heads: Sequence[Head],
    *,
    null: bool | str = True,
    n_jobs: int | None = None,
    file: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Reports:
    """Reports on many attention heads, from :func:`analyze_head` on each, several heads at a time.

    Parameters
    ----------
    heads : list of Head
    null : bool or "layer"
        Whether to solve the controls too.  "layer": untrained heads are drawn only for one head of each layer, the one
        with the median number of hard queries.
    n_jobs : int, optional
        Number of workers, counted as joblib does.  By default all cores, or the number that ``joblib.parallel_config``
        sets, or one without joblib.  It changes no result.
    file : path, optional
        Reports are appended to this file as they are done.  Reports that it already holds are not computed again.
    progress : bool, optional
        Whether to show a bar; by default at a terminal or in a notebook.
    **options
        Options of :func:`analyze_head`.

    Returns
    -------
    Reports
        A list of :class:`HeadReport` in the order of ``heads``, without the weights W.  A notebook shows it as a table;
        ``to_dataframe()`` makes a DataFrame.  :func:`results_table` explains the columns.

    Raises
    ------
    ValueError
        If the file holds other heads or options, or is no such file.
    ModuleNotFoundError
        If more than one worker is asked for and joblib is missing: ``pip install joblib``.
    KeyboardInterrupt
        On Ctrl-C, when the heads that are being computed are done.  Its ``.partial`` holds the reports so far.

    Notes
    -----
    Workers are threads, since computations in C release the GIL.  Inside ``with joblib.parallel_config("loky")`` (or
    "dask", "ray") they are workers of that backend.  Heads that :func:`attsvm.torch.read` stored in files (``store=``)
    are sent to workers as file paths and offsets, so that every worker must see the files.  Other heads are sent by
    value.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk = rng.standard_normal((2, 8, 8))
    >>> heads = attsvm.heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None, heads=2)
    >>> [report.fit.status for report in attsvm.heads.analyze_model(heads, queries=40, n_jobs=2)]
    ['optimal', 'optimal']
    """
    n_jobs = as_jobs(n_jobs)
    if not isinstance(null, bool):
        as_choice("null", null, ("layer",))
    heads = as_heads(heads)
    middle = _middle_heads(heads, options.get("threshold")) if null == "layer" else set(range(len(heads)))
    tasks = [(head, options | {"null": bool(null) and k in middle}) for k, head in enumerate(heads)]
    kept = Kept(file, {head.name: digest(head, asked) for head, asked in tasks} if file else {}, "analyze_model")
    done = [HeadReport(head, **kept.found[head.name]) if head.name in kept.found else None for head in heads]
    missing = [k for k, report in enumerate(done) if report is None]
    try:
        with on_workers(_found, (tasks[k] for k in missing), n_jobs, "analyze_model") as results:
            for k, found in zip(missing, counted(results, len(missing), "solve", "head", progress), strict=True):
                kept.add(heads[k].name, found)
                done[k] = HeadReport(heads[k], **found)
    except KeyboardInterrupt as interrupt:
        interrupt.partial = Reports(filter(None, done))  # type: ignore[attr-defined]
        raise
    reports = Reports(filter(None, done))
    if null == "layer":
        of = {heads[k].layer: {"null": reports[k].null, "shuffled": reports[k].shuffled} for k in middle}
        reports = Reports(replace(report, **of[report.head.layer]) for report in reports)
    return reports


def _found(head: Head, options: dict[str, Any]) -> dict[str, Any]:
    """Analyses a head; returns its report as a dict, without the head (which the caller has) and the matrices W."""
    found = state_of(analyze_head(head, **options))
    del found["head"]
    *curve, nuclear, random = (
        fit and replace(fit, W=None) for fit in (*found["curve"], found["nuclear"], found["random"])
    )
    return found | {"curve": curve, "nuclear": nuclear, "random": random}


def _middle_heads(heads: Sequence[Head], threshold: float | None) -> set[int]:
    """Indices of one head of each layer, the one with the median number of hard queries."""
    layers: dict[int, list[int]] = {}
    counts = [len(hard_queries(head, threshold)) for head in heads]
    for k in np.argsort(counts, kind="stable").tolist():
        layers.setdefault(heads[k].layer, []).append(k)
    return {own[len(own) // 2] for own in layers.values()}
