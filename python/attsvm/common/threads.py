"""Threads: how many one call may use, and workers for many tasks."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .. import _core
from .check import as_count

__version__ = "0.1.0"

# NumPy's OpenBLAS ends the process when it cannot map its work buffer, and keeps the one that it has: while there is
# memory to ask for, a product large enough to want one (_core does the same for its own).
np.matmul(np.zeros((128, 128)), np.zeros((128, 128)))


def set_num_threads(k: int) -> None:
    """Let one large problem use ``k`` threads; the default is 1.

    They share the loops over queries and live for one call, so a fork between calls finds none.  The carried OpenBLAS,
    which nobody else uses, stays on one thread of its own: they call it side by side.  Results repeat bit for bit with
    the same number of threads, of which there are 64 at most.

    Parameters
    ----------
    k : int
        At least 1; more than 64 counts as 64.

    Raises
    ------
    ValueError, TypeError
        For anything but a whole number from 1 on.

    Examples
    --------
    >>> attsvm.set_num_threads(1)
    """
    _core.set_num_threads(min(as_count("k", k, 1), 64))


def get_num_threads() -> int:
    """How many threads one large problem may use: what :func:`set_num_threads` has set, 1 until then.

    Examples
    --------
    >>> attsvm.set_num_threads(2)
    >>> attsvm.get_num_threads()
    2
    >>> attsvm.set_num_threads(1)
    """
    return int(_core.config()["threads"])


def show_config() -> None:
    """Print versions, the BLAS in use and the threads of a call.

    Examples
    --------
    >>> attsvm.show_config()  # doctest: +ELLIPSIS
    attsvm ...
    BLAS: ...
    """
    config: dict[str, Any] = _core.config()
    print(f"attsvm {__version__}, NumPy {np.__version__}, Python {platform.python_version()}, {platform.machine()}")
    print(f"BLAS: {config['blas']}, {config['threads']} thread{'s' if config['threads'] != 1 else ''}")


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

    Results come in the order of the tasks, those of ``processes`` as they are done.  Where one worker is asked for, or
    joblib is not in use and there is one core, or no joblib at hand, this is a loop.
    """
    alone = n_jobs is None and sys.modules.get("joblib") is None
    alone = alone and (_cores() == 1 or importlib.util.find_spec("joblib") is None)
    if n_jobs == 1 or alone:
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


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
