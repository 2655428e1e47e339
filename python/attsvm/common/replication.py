"""Repeats an experiment with many random generators, in parallel."""

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .check import as_count
from .progress import counted
from .replicated import Cell, Replicated, cells_of
from .threads import as_jobs, on_workers

# Number of tasks aimed at, and largest number of runs per task: all workers stay busy at little overhead.
TASKS, LONGEST_TASK = 64, 32
BEGIN = b'{"seed": '  # the first bytes of every file that replicate writes
Numbers = dict[str, np.ndarray]


def replicate(
    experiment: Callable[..., Mapping[str, Any]],
    runs: int,
    seed: int = 0,
    n_jobs: int | None = None,
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    file: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    name: str | None = None,
) -> Replicated:
    """Repeat ``experiment(rng)`` with ``runs`` random generators, and stack each of its numbers over the runs.

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
        words, bool or None.  The random numbers of a cell depend only on its own values, not on the rest of the grid.
    file : path, optional
        A line of JSON for each run and cell, written as runs finish: seed, run, cell and numbers.  Runs that are in it
        are not done again.  Runs beyond ``runs``, cells of other values and other seeds stay in it.  Give each
        experiment a file of its own: one with other names or shapes is refused, and left as it is.
    progress : bool, optional
        Whether to show a bar; by default at a terminal or in a notebook.
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
        If ``n_jobs`` asks for several workers and joblib is missing: ``pip install joblib``.
    KeyboardInterrupt
        On Ctrl-C, with the runs so far in ``.partial``: those that every cell has.

    Notes
    -----
    Workers are threads, since computations in C release the GIL; inside ``with joblib.parallel_config("loky")`` (or
    "dask", "ray") they are those of that backend.  An experiment for processes must be one they can import, or a
    function that cloudpickle can send.

    Examples
    --------
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
    found = _Found(seed, axes, cells)
    try:
        with found.kept_in(file):
            total = runs * len(cells) - sum(run < runs for run, _ in found.rows)
            missing = ((run, cell) for run in range(runs) for cell in cells if (run, cell) not in found.rows)
            size = min(max(1, total // TASKS), LONGEST_TASK)
            tasks = iter(lambda: list(itertools.islice(missing, size)), [])
            calls = ((experiment, seed, task, cells) for task in tasks)
            with on_workers(_task, calls, n_jobs, "replicate") as results:
                each = itertools.chain.from_iterable(results)
                for row in counted(each, total, name or "replicate", "run", progress):
                    found.add(*row)
    except KeyboardInterrupt as interrupt:
        interrupt.partial = found.stacked(runs)  # type: ignore[attr-defined]
        raise
    return found.stacked(runs)


def _task(
    experiment: Callable[..., Any], seed: int, runs: list[tuple[int, Cell]], cells: dict[Cell, dict[str, Any]]
) -> list[tuple[int, Cell, Numbers]]:
    found = []
    for run, cell in runs:
        given = cells[cell]
        # Without a grid, the key is that of the run-th child of SeedSequence(seed).spawn().  A cell adds a number that
        # depends on its own parameter values only, so that a larger grid does not change it.
        text = ",".join(sorted(f"{name}={value!r}" for name, value in given.items()))
        key = (run, int.from_bytes(text.encode())) if given else (run,)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        try:
            found.append((run, cell, _numbers(experiment(rng, **given))))
        except Exception as error:
            where = "".join(f" at {name} = {value!r}" for name, value in given.items())
            error.add_note(f"in run {run}{where} of replicate, of np.random.SeedSequence({seed}, spawn_key={key})")
            raise
    return found


def _numbers(result: Mapping[str, Any]) -> Numbers:
    """The experiment's result as arrays of bool, integers or doubles, exactly as they would be read back from a
    file."""
    if not isinstance(result, Mapping) or not result:
        raise TypeError(f"experiment must return a mapping of names to numbers, got {type(result).__name__}")
    arrays = {str(key): np.asarray(value) for key, value in result.items()}
    for key, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"experiment must return numbers, got {array.dtype} for {key!r}")
        arrays[key] = np.asarray(array.tolist())
    return arrays


class _Found:
    """The numbers of the runs so far, for each cell of the grid and each run; and the file that keeps these numbers,
    with a line {"seed", "run", "cell", "found"} for each run of a cell."""

    def __init__(self, seed: int, grid: dict[str, list[Any]], cells: dict[Cell, dict[str, Any]]):
        self.seed, self.grid, self.cells = seed, grid, cells
        self.rows: dict[tuple[int, Cell], Numbers] = {}
        self.shapes: dict[str, Any] = {}  # array shapes of the first run, which all runs must have
        self.file: Any = None

    @contextlib.contextmanager
    def kept_in(self, path: str | os.PathLike[str] | None) -> Iterator[None]:
        """Context: reads the rows that the file already has, and keeps the file open to append new rows."""
        if path is None:
            yield
            return
        with open(path, "ab+") as self.file:
            self.file.seek(0)
            *lines, torn = self.file.read().split(b"\n")
            for number, line in enumerate(lines, start=1):
                self._read(f"line {number} of {os.fspath(path)!r}", line)
            if not lines and not torn.startswith(BEGIN[: len(torn)]):
                raise ValueError(f"file must be one of replicate's, got {os.fspath(path)!r}: give another")
            self.file.truncate(self.file.tell() - len(torn))  # drops a last line that an interruption has cut short
            yield

    def _read(self, where: str, line: bytes) -> None:
        try:
            row = json.loads(line)
            seed, run, cell = row["seed"], as_count("run", row["run"]), row["cell"]
            names, key, numbers = list(cell), tuple(map(str, cell.values())), _numbers(row["found"])
        except Exception as error:  # a line of something else can fail in many ways
            raise ValueError(f"file must hold runs of replicate: {where} is none, {error!r:.100}") from None
        if names != (own := list(self.grid)):
            raise ValueError(f"file must hold this experiment: {where} is of the parameters {names}, not {own}")
        self._compare(numbers, where)
        if seed == self.seed and key in self.cells:  # rows of other seeds or cells stay in the file, unused
            self.rows[run, key] = numbers

    def _compare(self, numbers: Numbers, where: str) -> None:
        shapes = {key: array.shape for key, array in numbers.items()}
        self.shapes = self.shapes or shapes
        if shapes != self.shapes:
            raise ValueError(
                f"experiment must return the same names and shapes in every run, got {shapes} in {where} "
                f"and {self.shapes} before"
            )

    def add(self, run: int, cell: Cell, numbers: Numbers) -> None:
        if taken := self.grid.keys() & numbers:
            raise ValueError(f"experiment must return other names than those of the grid, got {min(taken)!r}")
        self._compare(numbers, f"run {run}")
        if self.file is not None:
            found = {key: array.tolist() for key, array in numbers.items()}
            row = {"seed": self.seed, "run": run, "cell": self.cells[cell], "found": found}
            self.file.write(json.dumps(row).encode() + b"\n")
            self.file.flush()
        self.rows[run, cell] = numbers

    def stacked(self, runs: int) -> Replicated:
        """The numbers of all runs below ``runs`` that are done in every cell of the grid."""
        begun = sorted({run for run, _ in self.rows if run < runs})
        done = [run for run in begun if all((run, cell) in self.rows for cell in self.cells)]
        axes = [*map(len, self.grid.values()), len(done)]
        arrays = {}
        for key, shape in self.shapes.items() if done else ():
            rows = [self.rows[run, cell][key] for cell in self.cells for run in done]
            arrays[key] = np.stack(rows).reshape(*axes, *shape)
        return Replicated(arrays, self.grid)
