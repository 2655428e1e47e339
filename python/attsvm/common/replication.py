"""Many random instances of an experiment, side by side."""

from __future__ import annotations

import contextlib
import csv
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from ._check import as_count
from ._counted import counted

__all__ = ["replicate"]

TASKS, LONGEST_TASK = 64, 32  # a task is a few runs: enough tasks to share out, few enough to cost nothing


def replicate(
    experiment: Callable[[np.random.Generator], Mapping[str, Any]],
    runs: int,
    seed: int = 0,
    n_jobs: int | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    progress: bool = True,
    name: str | None = None,
) -> dict[str, np.ndarray]:
    """``experiment(rng)`` for ``runs`` random generators; each of its numbers stacked over runs.

    Run i draws from the i-th child of ``SeedSequence(seed)`` and computes with one BLAS thread, so neither the
    number of workers, nor their kind, nor the number of runs changes what it finds.

    Parameters
    ----------
    experiment : callable
        Takes a Generator, returns a mapping of names to numbers or arrays of numbers, of the same shapes every time.
    runs : int
    seed : int
    n_jobs : int, optional
        Workers, counted as joblib does; all cores by default, or what ``joblib.parallel_config`` says.
    file : path, optional
        A CSV with a row per run, written as runs finish.  If it is there already, its runs are not done again; one of
        them is, to see that the file belongs to this experiment and seed.
    progress : bool
        Show a bar, where tqdm is installed.
    name : str, optional
        Of the bar.

    Returns
    -------
    dict of (runs, ...) arrays

    Raises
    ------
    ValueError, TypeError
        When the experiment's numbers change their names or shapes, or a file holds another experiment.
    ModuleNotFoundError
        Without joblib: ``pip install "attsvm[reproduce]"``.
    KeyboardInterrupt
        On Ctrl-C, with the runs so far in ``.partial``.

    Notes
    -----
    Workers are threads, since computations in C release the GIL; inside ``with joblib.parallel_config("loky")`` (or
    "dask", "ray") they are what that backend offers.  An experiment for processes must be one they can import, or a
    function that cloudpickle can send.

    Examples
    --------
    >>> import attsvm
    >>> def experiment(rng):
    ...     X, Z, y, v = attsvm.sample.unit_sphere(4, 3, 2, rng)
    ...     return {"feasible": attsvm.feasible(attsvm.cross_attention(X, Z), [0, 0, 0, 0]).W is not None}
    >>> found = attsvm.replicate(experiment, runs=20, progress=False)
    >>> found["feasible"].shape, found["feasible"].dtype
    ((20,), dtype('bool'))
    """
    from joblib import Parallel, delayed, effective_n_jobs

    runs, seed = as_count("runs", runs, 1), as_count("seed", seed)
    if n_jobs is None and effective_n_jobs(None) == 1:  # nothing configured: joblib would take one worker
        n_jobs = -1
    seeds = np.random.SeedSequence(seed).spawn(runs)
    with one_blas_thread(), _Sheet(file, experiment, seeds) as sheet:
        missing = [i for i in range(runs) if i not in sheet.rows]
        size = min(max(1, len(missing) // TASKS), LONGEST_TASK)
        tasks = [missing[i : i + size] for i in range(0, len(missing), size)]
        pool = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
        found = pool(delayed(_task)(experiment, [seeds[i] for i in task], os.getpid()) for task in tasks)
        try:
            for i, numbers in zip(missing, _each(found, len(missing), name, progress), strict=True):
                sheet.add(i, numbers)
        except KeyboardInterrupt as interrupt:
            interrupt.partial = sheet.stacked()  # type: ignore[attr-defined]
            raise
        return sheet.stacked()


def _task(experiment: Callable, seeds: list[np.random.SeedSequence], parent: int) -> list[dict[str, np.ndarray]]:
    if os.getpid() != parent:
        _one_blas_thread_for_good()
    return [_numbers(experiment(np.random.default_rng(seed))) for seed in seeds]


def _numbers(result: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if not isinstance(result, Mapping) or not result:
        raise TypeError(f"experiment must return a mapping of names to numbers, got {type(result).__name__}")
    arrays = {str(key): np.asarray(value) for key, value in result.items()}
    for key, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"experiment must return numbers, got {array.dtype} for {key!r}")
    return arrays


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """In this process: attsvm's own BLAS, and where threadpoolctl is installed NumPy's and any other."""
    before = _core.config()["threads"]
    _core.set_num_threads(1)
    try:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError):
                from threadpoolctl import threadpool_limits

                stack.enter_context(threadpool_limits(1, "blas"))
            yield
    finally:
        _core.set_num_threads(before)


@functools.cache
def _one_blas_thread_for_good() -> contextlib.ExitStack:
    """In a process that works for others."""
    stack = contextlib.ExitStack()
    stack.enter_context(one_blas_thread())
    return stack


def _each(tasks: Iterable[list[Any]], total: int, name: str | None, progress: bool) -> Iterator[Any]:
    """The runs of every task, with a tqdm bar, or a line now and then where tqdm is not installed."""
    flat = (run for task in tasks for run in task)
    if not progress or total == 0:
        yield from flat
        return
    yield from counted(flat, total, name or "replicate", "run")


class _Sheet:
    """Rows of numbers, one per run, and the CSV that holds them."""

    def __init__(self, path: str | os.PathLike[str] | None, experiment: Callable, seeds: list):
        self.path = None if path is None else Path(path)
        self.rows: dict[int, dict[str, np.ndarray]] = {}
        self.file: Any = None
        if self.path is not None and self.path.exists():
            self._resume(experiment, seeds)

    def __enter__(self) -> _Sheet:
        if self.path is not None:
            self.file = open(self.path, "a" if self.rows else "w", newline="", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def add(self, run: int, numbers: dict[str, np.ndarray]) -> None:
        first = next(iter(self.rows.values()), numbers)
        mine, others = ({key: array.shape for key, array in row.items()} for row in (numbers, first))
        if mine != others:
            raise ValueError(
                f"experiment must return the same names and shapes in every run, got {mine} and {others}"
            )
        if self.file is not None:
            writer = csv.writer(self.file, lineterminator="\n")
            if not self.rows:
                writer.writerow(_header(numbers))
            writer.writerow(_cells(run, numbers))
            self.file.flush()
        self.rows[run] = numbers

    def stacked(self) -> dict[str, np.ndarray]:
        rows = [self.rows[run] for run in sorted(self.rows)]
        return {key: np.stack([row[key] for row in rows]) for key in (rows[0] if rows else ())}

    def _resume(self, experiment: Callable, seeds: list) -> None:
        """The complete rows of the file; a row that an interruption cut short is dropped."""
        text = self.path.read_text(encoding="utf-8")  # type: ignore[union-attr]
        lines = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
        if len(lines) < 2:
            return
        header, cells = lines[0], lines[1:]
        known = [
            row for row in cells if len(row) == len(header) and row[0].isdecimal() and int(row[0]) < len(seeds)
        ]
        if not known:
            raise ValueError(f"{self.path} does not hold runs of this experiment")
        run = int(known[-1][0])
        (again,) = _task(experiment, [seeds[run]], os.getpid())
        if header != _header(again) or known[-1] != _cells(run, again):
            raise ValueError(f"{self.path} holds another experiment or seed: its run {run} comes out differently")
        for row in known:
            self.rows[int(row[0])] = _parsed(row[1:], again)
        if len(known) < len(cells) or not text.endswith("\n"):
            self._rewrite(header)

    def _rewrite(self, header: list[str]) -> None:
        with open(self.path, "w", newline="", encoding="utf-8") as file:  # type: ignore[arg-type]
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(_cells(run, numbers) for run, numbers in self.rows.items())


def _header(numbers: dict[str, np.ndarray]) -> list[str]:
    names = ["run"]
    for key, array in numbers.items():
        names += [key if array.ndim == 0 else f"{key}[{','.join(map(str, i))}]" for i in np.ndindex(array.shape)]
    return names


def _cells(run: int, numbers: dict[str, np.ndarray]) -> list[str]:
    """Floats so that they read back exactly."""
    cells = [str(run)]
    for array in numbers.values():
        flat = array.astype(int) if array.dtype == bool else array
        cells += [repr(number) for number in flat.ravel().tolist()]
    return cells


def _parsed(cells: list[str], like: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    numbers, at = {}, 0
    for key, array in like.items():
        part, at = cells[at : at + array.size], at + array.size
        kind = float if array.dtype.kind == "f" else int
        numbers[key] = np.array([kind(cell) for cell in part]).astype(array.dtype).reshape(array.shape)
    return numbers
