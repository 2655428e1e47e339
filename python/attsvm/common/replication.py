"""Many random instances of an experiment, side by side."""

from __future__ import annotations

import contextlib
import csv
import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from .check import as_count
from .files import replacing
from .progress import counted

__all__ = ["replicate"]

TASKS, LONGEST_TASK = 64, 32  # a task is a few runs: enough tasks for all workers, few enough to cost nothing


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
        them is, to see that the file belongs to this experiment and seed.  Runs beyond ``runs`` stay in it; what is not
        of this function's making is refused, and left as it is.
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
        When the experiment's numbers change their names or shapes, or a file holds another experiment, or something
        else.  What ``experiment`` itself raises passes, with a note of the run it happened in.
    ModuleNotFoundError
        Without joblib: ``pip install joblib``.
    KeyboardInterrupt
        On Ctrl-C, with the runs so far in ``.partial``.

    Notes
    -----
    Workers are threads, since computations in C release the GIL; inside ``with joblib.parallel_config("loky")`` (or
    "dask", "ray") they are those of that backend.  An experiment for processes must be one they can import, or a
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
    if not callable(experiment):
        raise TypeError(f"experiment must be a function, got {type(experiment).__name__}")
    runs, seed = as_count("runs", runs, 1), as_count("seed", seed)
    n_jobs = None if n_jobs is None else as_count("n_jobs", n_jobs, -sys.maxsize)  # as joblib counts, -1 is all
    sheet = _Sheet(file, experiment, seed)
    try:
        Parallel, delayed, effective_n_jobs = _joblib()
        if n_jobs is None and effective_n_jobs(None) == 1:  # nothing configured: joblib would take one worker
            n_jobs = -1
        with one_blas_thread(), sheet:
            done = frozenset(run for run in sheet.rows if run < runs)
            missing = (run for run in range(runs) if run not in done)
            total = runs - len(done)
            size = min(max(1, total // TASKS), LONGEST_TASK)
            tasks = iter(lambda: list(itertools.islice(missing, size)), [])
            pool = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
            calls = (delayed(_task)(experiment, seed, task, os.getpid()) for task in tasks)
            with contextlib.closing(pool(calls)) as found:
                for run, numbers in _each(found, total, name, progress):
                    sheet.add(run, numbers)
    except KeyboardInterrupt as interrupt:
        interrupt.partial = sheet.stacked(runs)  # type: ignore[attr-defined]
        raise
    return sheet.stacked(runs)


def _joblib() -> tuple[Any, Any, Any]:
    try:
        from joblib import Parallel, delayed, effective_n_jobs
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("replicate needs joblib: pip install joblib", name=error.name) from None
    return Parallel, delayed, effective_n_jobs


def _task(experiment: Callable[..., Any], seed: int, runs: list[int], parent: int) -> list[tuple[int, dict[str, Any]]]:
    if os.getpid() != parent:
        _one_blas_thread_for_good()
    return [(run, _run(experiment, seed, run)) for run in runs]


def _run(experiment: Callable[..., Any], seed: int, run: int) -> dict[str, np.ndarray]:
    child = np.random.SeedSequence(seed, spawn_key=(run,))  # the run-th of SeedSequence(seed).spawn()
    try:
        return _numbers(experiment(np.random.default_rng(child)))
    except Exception as error:
        error.add_note(f"in run {run} of replicate, of np.random.SeedSequence({seed}, spawn_key=({run},))")
        raise


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

    def __init__(self, path: str | os.PathLike[str] | None, experiment: Callable[..., Any], seed: int):
        self.path = None if path is None else Path(path)
        self.experiment, self.seed = experiment, seed
        self.rows: dict[int, dict[str, np.ndarray]] = {}
        self.file: Any = None

    def __enter__(self) -> _Sheet:
        if self.path is not None:
            if self.path.exists() and self.path.stat().st_size > 0:
                self._resume(self.path)
            self.file = open(self.path, "a", newline="", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def add(self, run: int, numbers: dict[str, np.ndarray]) -> None:
        first = next(iter(self.rows.values()), numbers)
        mine, others = ({key: array.shape for key, array in row.items()} for row in (numbers, first))
        if mine != others:
            raise ValueError(
                f"experiment must return the same names and shapes in every run, got {mine} in run {run} "
                f"and {others} before"
            )
        if self.file is not None:
            writer = csv.writer(self.file, lineterminator="\n")
            if not self.rows and self.file.tell() == 0:
                writer.writerow(_header(numbers))
            writer.writerow(_cells(run, numbers))
            self.file.flush()
        self.rows[run] = numbers

    def stacked(self, runs: int) -> dict[str, np.ndarray]:
        """Of the first ``runs``: a file may hold more."""
        rows = [self.rows[run] for run in sorted(self.rows) if run < runs]
        return {key: np.stack([row[key] for row in rows]) for key in (rows[0] if rows else ())}

    def _resume(self, path: Path) -> None:
        """The complete rows of the file; a last row that an interruption cut short is dropped."""
        header, known, torn = _read(path)
        run = known[-1][0] if known else 0
        again = _run(self.experiment, self.seed, run)
        whole = _header(again)
        same = bool(known) and known[-1][1] == _cells(run, again)
        if header != whole and not (torn and not known and ",".join(whole).startswith(",".join(header))):
            what = "the same numbers as" if same else "another experiment, which returns"
            raise ValueError(
                f"{path} holds {what} {_shown(header[1:])}, but the experiment returns {_shown(whole[1:])}: "
                "give another file, or return those names"
            )
        if known and not same:
            raise ValueError(f"{path} holds another experiment or seed: its run {run} comes out differently")
        for run, cells in known:
            if run in self.rows and _cells(run, self.rows[run]) != cells:
                raise ValueError(f"{path} holds two runs {run} that differ: keep the one that is right")
            self.rows[run] = _parsed(path, cells, again)
        if torn or len(self.rows) < len(known):
            self._rewrite(path, whole)

    def _rewrite(self, path: Path, header: list[str]) -> None:
        with replacing(path, "w") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(_cells(run, numbers) for run, numbers in self.rows.items())


def _read(path: Path) -> tuple[list[str], list[tuple[int, list[str]]], bool]:
    """Header and rows (with their runs) of a file that replicate has written, and whether its last line was torn."""
    try:
        text = path.read_text(encoding="utf-8")
        complete, _, rest = text.rpartition("\n")
        lines = list(csv.reader(complete.splitlines() or [rest]))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a file of replicate: {error}") from None
    header, rows = lines[0] if lines else [], lines[1:]
    if header[:1] != ["run"] and not (not complete and "run".startswith(rest)):
        raise ValueError(f"{path} is not one of replicate's, which begin with run: its columns are {_shown(header)}")
    known = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header) or not re.fullmatch("[0-9]{1,15}", row[0]):
            raise ValueError(f"{path} is damaged in line {number}: expected a run and {len(header) - 1} numbers")
        known.append((int(row[0]), row))
    return header, known, bool(rest)


def _shown(header: list[str]) -> str:
    names = ", ".join(header[:6]) or "none"
    return names[:60] + ("..." if len(header) > 6 or len(names) > 60 else "")


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


def _parsed(path: Path, cells: list[str], like: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    numbers, at = {}, 1
    for key, array in like.items():
        part, at = cells[at : at + array.size], at + array.size
        kind = float if array.dtype.kind == "f" else int
        try:
            numbers[key] = np.array([kind(cell) for cell in part]).astype(array.dtype).reshape(array.shape)
        except (ValueError, OverflowError):
            raise ValueError(f"{path} is damaged: {key!r} of run {cells[0]} is {part[0]!r:.40}") from None
    return numbers
