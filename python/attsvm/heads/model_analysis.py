"""Analysis of all heads of a model, on threads or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..common.check import as_choice
from ..common.progress import counted
from ..common.storage import state_of
from ..common.threads import as_jobs, on_workers
from .analysis import analyze_head
from .head import Head, as_heads
from .kept import Kept, digest
from .report import HeadReport, Reports


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
    done = {k: HeadReport(head, **kept.found[head.name]) for k, head in enumerate(heads) if head.name in kept.found}
    missing = [k for k in range(len(heads)) if k not in done]
    try:
        with on_workers(_found, (tasks[k] for k in missing), n_jobs, "analyze_model") as results:
            each = counted(results, len(missing), "solve", "head", progress)
            for found, k in zip(each, missing, strict=True):
                kept.add(heads[k].name, found)
                done[k] = HeadReport(heads[k], **found)
    except KeyboardInterrupt as interrupt:
        interrupt.partial = Reports(done[k] for k in sorted(done))  # type: ignore[attr-defined]
        raise
    reports = Reports(done[k] for k in sorted(done))
    if null == "layer":
        of = {heads[k].layer: done[k] for k in middle}
        layers = [of[report.head.layer] for report in reports]
        return Reports(
            replace(report, null=same.null, shuffled=same.shuffled)
            for report, same in zip(reports, layers, strict=True)
        )
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
    counts = [(head.choices.top > (head.threshold if threshold is None else threshold)).sum() for head in heads]
    for k in np.argsort(counts, kind="stable").tolist():
        layers.setdefault(heads[k].layer, []).append(k)
    return {own[len(own) // 2] for own in layers.values()}
