"""Figures of the paper, one file each: settings, ``run``, ``claims``, ``curves``, ``plot``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

__all__ = ["FIGURES", "load", "replicate"]

FIGURES = ("local-convergence",)


def load(name: str) -> Any:
    """The module of a figure."""
    return importlib.import_module("." + name.replace("-", "_"), __name__)


def replicate(
    experiment: Callable[[int], dict[str, Any]], runs: int, seed: int, jobs: int | None, name: str
) -> dict[str, np.ndarray]:
    """``experiment(seed), experiment(seed + 1), ...`` on threads (all cores unless ``jobs``), with a progress bar.

    An experiment spends its time in C without the GIL, and takes its randomness from its own seed, so neither the
    number of threads nor their order changes a result.  Returned is each of its numbers stacked over runs.
    """
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=jobs or -1, prefer="threads", return_as="generator")
    results = pool(delayed(experiment)(seed + i) for i in range(runs))
    done = list(_progress(results, runs, name))
    return {key: np.stack([result[key] for result in done]) for key in done[0]}


def _progress(results: Iterable[Any], total: int, name: str) -> Iterator[Any]:
    """A tqdm bar, or a line now and then where tqdm is not installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        every = max(1, total // 10)
        for i, result in enumerate(results, start=1):
            yield result
            if i % every == 0 or i == total:
                print(f"{name}: {i} of {total} runs", file=sys.stderr)
        return
    yield from tqdm(results, total=total, desc=name, unit="run")
