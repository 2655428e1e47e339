"""The number of threads of one call, and workers that run many tasks in parallel."""

import contextlib
import functools
import importlib.util
import itertools
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .. import _core
from .check import as_count

__version__ = "0.1.0"

# NumPy's OpenBLAS aborts the process if it cannot allocate its work buffer, and keeps the buffer once it has one.
# This matrix product makes OpenBLAS allocate its work buffer at import, while memory is available.
# The extension _core does the same for its own OpenBLAS.
np.matmul(np.zeros((128, 128)), np.zeros((128, 128)))


def set_num_threads(k: int) -> None:
    """Let one large problem use ``k`` threads; the default is 1.

    The threads share the loops over queries.  They live for one call, so a fork between calls finds none.  The OpenBLAS
    that attsvm carries is used by attsvm alone and stays single-threaded; the threads call it side by side.  Results
    repeat bit for bit with the same number of threads.

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
    """The number of threads that one large problem may use: 1 unless :func:`set_num_threads` has changed it.

    Examples
    --------
    >>> attsvm.set_num_threads(2)
    >>> attsvm.get_num_threads()
    2
    >>> attsvm.set_num_threads(1)
    """
    return _core.config()["threads"]


def show_config() -> None:
    """Print the versions of attsvm, NumPy and Python, the BLAS in use, and the number of threads of a call.

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
    """The checked number of workers, counted as joblib does: -1 is all cores.  None leaves the choice to
    ``joblib.parallel_config``, all cores by default."""
    return None if n_jobs is None else as_count("n_jobs", n_jobs, -sys.maxsize)


@contextlib.contextmanager
def on_workers(
    function: Callable[..., Any],
    tasks: Iterable[tuple[Any, ...]],
    n_jobs: int | None,
    name: str,
    processes: bool = False,
) -> Iterator[Iterator[Any]]:
    """Context: an iterator over ``function(*task)`` for every task, computed by parallel workers with one BLAS thread
    each.  ``name`` is the caller's name for the error if joblib is missing.

    Results come in the order of the tasks; with ``processes`` they come as they are done.  The tasks run in a plain
    loop, without workers, if ``n_jobs`` is 1, or if it is None and joblib is not installed.
    """
    with one_blas_thread():
        if n_jobs == 1 or (n_jobs is None and importlib.util.find_spec("joblib") is None):
            yield itertools.starmap(function, tasks)
            return
        try:
            from joblib import Parallel, delayed, effective_n_jobs
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{name} needs joblib: pip install joblib", name=error.name) from None
        # no joblib backend is configured, so joblib would use one worker: use all cores
        if n_jobs is None and effective_n_jobs(None) == 1:
            n_jobs = -1
        if processes:
            pool = Parallel(n_jobs=n_jobs, backend="loky", return_as="generator_unordered")
        else:
            pool = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
        with contextlib.closing(pool(delayed(_call)(function, task, os.getpid()) for task in tasks)) as found:
            yield found


def _call(function: Callable[..., Any], task: tuple[Any, ...], parent: int) -> Any:
    if os.getpid() != parent:
        _one_blas_thread_for_good()
    return function(*task)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Context in which this process uses one BLAS thread: in attsvm's own BLAS and, if threadpoolctl is installed, in
    NumPy's and any other BLAS."""
    # looked up now, since at Python's exit the module _core may be cleared before this context ends
    before, set_threads = _core.config()["threads"], _core.set_num_threads
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
def _one_blas_thread_for_good() -> Any:
    """Limits a worker process to one BLAS thread until it ends."""
    context = one_blas_thread()
    context.__enter__()
    return context  # kept by the cache, since a context that nobody holds ends
