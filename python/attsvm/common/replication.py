"""Many random instances of an experiment, side by side."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .check import as_count
from .progress import counted
from .replicated import Cell, Replicated, cells_of, seed_of
from .sheet import Sheet
from .threads import as_jobs, on_workers

__all__ = ["replicate"]

TASKS, LONGEST_TASK = 64, 32  # a task is a few runs: enough tasks for all workers, few enough to cost nothing


def replicate(
    experiment: Callable[..., Mapping[str, Any]],
    runs: int,
    seed: int = 0,
    n_jobs: int | None = None,
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    file: str | os.PathLike[str] | None = None,
    progress: bool = True,
    name: str | None = None,
) -> Replicated:
    """``experiment(rng)`` for ``runs`` random generators; each of its numbers stacked over runs.

    Run i draws from the i-th child of ``SeedSequence(seed)`` and computes with one BLAS thread, so neither the
    number of workers, nor their kind, nor the number of runs changes what it finds.

    Parameters
    ----------
    experiment : callable
        Takes a Generator (and the parameters of the grid), returns a mapping of names to numbers or arrays of numbers,
        of the same shapes every time; NaN where there is none.
    runs : int
    seed : int
    n_jobs : int, optional
        Workers, counted as joblib does; all cores by default, or what ``joblib.parallel_config`` says.
    grid : mapping of names to lists of values, optional
        Calls ``experiment(rng, name=value, ...)`` ``runs`` times in each cell of their product.  Values are numbers,
        words, bool or None.  The random numbers of a cell are its own: of its values, whatever else the grid holds.
    file : path, optional
        A CSV with a row per run and cell, written as runs finish.  If it is there already, its runs are not done again;
        one of them is, to see that the file belongs to this experiment and seed.  Runs beyond ``runs`` stay in it, as
        do cells of other values; what is not of this function's making is refused, and left as it is.
    progress : bool
        Show a bar, where tqdm is installed.
    name : str, optional
        Of the bar.

    Returns
    -------
    Replicated
        A dictionary of arrays (runs, ...), with a grid (length of each axis, ..., runs, ...).

    Raises
    ------
    ValueError, TypeError
        When the experiment's numbers change their names or shapes, or a file holds another experiment, or something
        else.  What ``experiment`` itself raises passes, with a note of the run it happened in.
    ModuleNotFoundError
        Without joblib: ``pip install joblib``.
    KeyboardInterrupt
        On Ctrl-C, with the runs so far in ``.partial``: those that every cell has.

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

    Over a grid:

    >>> def experiment(rng, n, d):
    ...     X, Z, y, v = attsvm.sample.unit_sphere(n, 3, d, rng)
    ...     return {"feasible": attsvm.feasible(attsvm.cross_attention(X, Z), [0] * n).W is not None}
    >>> found = attsvm.replicate(experiment, runs=20, grid={"n": [2, 4, 8], "d": [1, 4]}, progress=False)
    >>> found["feasible"].shape
    (3, 2, 20)
    """
    if not callable(experiment):
        raise TypeError(f"experiment must be a function, got {type(experiment).__name__}")
    runs, seed, n_jobs = as_count("runs", runs, 1), as_count("seed", seed), as_jobs(n_jobs)
    axes, cells = cells_of({} if grid is None else grid)
    shape = tuple(map(len, axes.values()))
    sheet = Sheet(file, lambda run, cell: _run(experiment, seed, run, cells[cell]), list(axes), cells)
    try:
        with sheet:
            done = {cell: frozenset(run for run in sheet.rows[cell] if run < runs) for cell in cells}
            missing = ((run, cell) for run in range(runs) for cell in cells if run not in done[cell])
            total = runs * len(cells) - sum(map(len, done.values()))
            size = min(max(1, total // TASKS), LONGEST_TASK)
            tasks = iter(lambda: list(itertools.islice(missing, size)), [])
            calls = ((experiment, seed, task, cells) for task in tasks)
            with on_workers(_task, calls, n_jobs, "replicate") as found:
                for run, cell, numbers in _each(found, total, name, progress):
                    sheet.add(run, cell, numbers)
    except KeyboardInterrupt as interrupt:
        interrupt.partial = Replicated(sheet.stacked(runs, shape), axes)  # type: ignore[attr-defined]
        raise
    return Replicated(sheet.stacked(runs, shape), axes)


def _task(
    experiment: Callable[..., Any], seed: int, runs: list[tuple[int, Cell]], cells: dict[Cell, dict[str, Any]]
) -> list[tuple[int, Cell, dict[str, np.ndarray]]]:
    return [(run, cell, _run(experiment, seed, run, cells[cell])) for run, cell in runs]


def _run(experiment: Callable[..., Any], seed: int, run: int, cell: dict[str, Any]) -> dict[str, np.ndarray]:
    key = (run, *seed_of(cell))  # without a cell the run-th of SeedSequence(seed).spawn()
    try:
        return _numbers(experiment(np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key)), **cell))
    except Exception as error:
        where = "".join(f" at {name} = {value!r}" for name, value in cell.items())
        error.add_note(f"in run {run}{where} of replicate, of np.random.SeedSequence({seed}, spawn_key={key})")
        raise


def _numbers(result: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if not isinstance(result, Mapping) or not result:
        raise TypeError(f"experiment must return a mapping of names to numbers, got {type(result).__name__}")
    arrays = {str(key): np.asarray(value) for key, value in result.items()}
    for key, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"experiment must return numbers, got {array.dtype} for {key!r}")
    return arrays


def _each(tasks: Iterable[list[Any]], total: int, name: str | None, progress: bool) -> Iterator[Any]:
    """The runs of every task, with a tqdm bar, or a line now and then where tqdm is not installed."""
    flat = (run for task in tasks for run in task)
    if not progress or total == 0:
        yield from flat
        return
    yield from counted(flat, total, name or "replicate", "run")
