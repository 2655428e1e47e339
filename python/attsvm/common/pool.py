"""Tasks on the workers of joblib: threads, or what its ``parallel_config`` says; or processes."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import _core
from .check import as_count


def as_jobs(n_jobs: Any) -> int | None:
    """Workers, counted as joblib does: -1 is all cores; None: these, or what ``joblib.parallel_config`` says."""
    return None if n_jobs is None else as_count("n_jobs", n_jobs, -sys.maxsize)


@contextlib.contextmanager
def on_workers(
    function: Callable[..., Any],
    tasks: Iterable[tuple[Any, ...]],
    n_jobs: int | None,
    name: str,
    processes: bool = False,
) -> Iterator[Iterator[Any]]:
    """``function(*task)`` of every task, with one BLAS thread each; ``name`` is who needs joblib.

    Results come in the order of the tasks, those of ``processes`` as they are done.  One worker needs no joblib.
    """
    if n_jobs == 1 or (n_jobs is None and importlib.util.find_spec("joblib") is None):
        with one_blas_thread():
            yield (function(*task) for task in tasks)
        return
    Parallel, delayed, effective_n_jobs = _joblib(name)
    if n_jobs is None and effective_n_jobs(None) == 1:  # nothing configured: joblib would take one worker
        n_jobs = -1
    with one_blas_thread():
        if processes:
            pool = Parallel(n_jobs=n_jobs, backend="loky", return_as="generator_unordered")
        else:
            pool = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
        with contextlib.closing(pool(delayed(_call)(function, task, os.getpid()) for task in tasks)) as found:
            yield found


def _joblib(name: str) -> tuple[Any, Any, Any]:
    try:
        from joblib import Parallel, delayed, effective_n_jobs
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name} needs joblib: pip install joblib", name=error.name) from None
    return Parallel, delayed, effective_n_jobs


def _call(function: Callable[..., Any], task: tuple[Any, ...], parent: int) -> Any:
    if os.getpid() != parent:
        _one_blas_thread_for_good()
    return function(*task)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """In this process: attsvm's own BLAS, and where threadpoolctl is installed NumPy's and any other."""
    before, set_threads = _core.config()["threads"], _core.set_num_threads  # at exit the module may be gone before this
    set_threads(1)
    try:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError):
                from threadpoolctl import threadpool_limits

                stack.enter_context(threadpool_limits(1, "blas"))
            yield
    finally:
        set_threads(before)


@functools.cache
def _one_blas_thread_for_good() -> contextlib.ExitStack:
    """In a process that works for others."""
    stack = contextlib.ExitStack()
    stack.enter_context(one_blas_thread())
    return stack
