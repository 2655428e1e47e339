"""Tables in CSV: written whole, or row by row as the runs of an experiment finish, and resumed."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from .files import replacing
from .replicated import Cell, named

__all__ = ["Sheet", "write_csv", "write_lines", "write_table"]

Numbers = dict[str, np.ndarray]


def write_lines(file: IO[str], rows: Iterable[Sequence[Any]]) -> None:
    """All at once; floats so that they read back exactly."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    file.write(text.getvalue())


def write_table(path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """The table anew, in the place of another."""
    with replacing(path, "w") as file:
        write_lines(file, [header])
        write_lines(file, rows)


def write_csv(path: str | os.PathLike[str], columns: Mapping[str, Any]) -> None:
    """Columns of one length below their names; floats so that they read back exactly."""
    write_table(path, list(columns), zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True))


class Sheet:
    """Rows of numbers, one per run and cell of a grid, and the CSV that holds them, if any.

    ``again(run, cell)`` finds the numbers of a run; ``names`` are those of the grid; without one the only cell is ().
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        again: Callable[[int, Cell], Numbers],
        names: Sequence[str],
        cells: Collection[Cell],
    ):
        self.path = None if path is None else Path(path)
        self.again, self.names, self.cells = again, ["run", *names], cells
        self.rows: dict[Cell, dict[int, Numbers]] = {cell: {} for cell in cells}
        self.first: Numbers | None = None
        self.file: Any = None

    def __enter__(self) -> Sheet:
        if self.path is not None:
            if self.path.exists() and self.path.stat().st_size > 0:
                self._resume(self.path)
            self.file = open(self.path, "a", newline="", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def add(self, run: int, cell: Cell, numbers: Numbers) -> None:
        if self.first is None and (taken := [name for name in self.names[1:] if name in numbers]):
            raise ValueError(f"experiment must return other names than those of the grid, got {taken[0]!r}")
        first = numbers if self.first is None else self.first
        mine, others = ({key: array.shape for key, array in row.items()} for row in (numbers, first))
        if mine != others:
            raise ValueError(
                f"experiment must return the same names and shapes in every run, got {mine} in run {run} "
                f"and {others} before"
            )
        if self.file is not None:
            if self.first is None and self.file.tell() == 0:
                write_lines(self.file, [self._header(numbers)])
            write_lines(self.file, [_texts(run, cell, numbers)])
            self.file.flush()
        self.first = first
        self.rows[cell][run] = numbers

    def stacked(self, runs: int, shape: tuple[int, ...]) -> Numbers:
        """Of the first ``runs``, where every cell has them: a file may hold more.  ``shape``: of the grid."""
        done = set.intersection(*(set(self.rows[cell]) for cell in self.cells))
        complete = sorted(run for run in done if run < runs)
        if not complete:
            return {}
        rows = [self.rows[cell][run] for cell in self.cells for run in complete]
        arrays = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        return {key: array.reshape(*shape, len(complete), *array.shape[1:]) for key, array in arrays.items()}

    def _header(self, numbers: Numbers) -> list[str]:
        return [*self.names, *(name for key, array in numbers.items() for name, _ in named(key, array[None]))]

    def _resume(self, path: Path) -> None:
        """The complete rows of the file; a last row that an interruption cut short is dropped."""
        header, known, torn = _read(path, self.names)
        checked = next((row for row in reversed(known) if row[1] in self.rows), None)
        run, cell = (0, next(iter(self.cells))) if checked is None else checked[:2]
        again = self.again(run, cell)
        whole = self._header(again)
        same = checked is not None and checked[2] == _texts(run, cell, again)
        if header != whole and not (torn and not known and ",".join(whole).startswith(",".join(header))):
            what = "the same numbers as" if same else "another experiment, which returns"
            raise ValueError(
                f"{path} holds {what} {_shown(header[len(self.names) :])}, but the experiment returns "
                f"{_shown(whole[len(self.names) :])}: "
                "give another file, or return those names"
            )
        if checked is not None and not same:
            raise ValueError(f"{path} holds another experiment or seed: its run {run} comes out differently")
        lines: dict[tuple[int, Cell], list[str]] = {}
        for run, cell, line in known:
            if lines.setdefault((run, cell), line) != line:
                raise ValueError(f"{path} holds two runs {run} that differ: keep the one that is right")
            numbers = _parsed(path, line, len(self.names), again)
            if cell in self.rows:  # others are of another grid, and stay in the file
                self.rows[cell][run] = self.first = numbers
        if torn or len(lines) < len(known):
            write_table(path, whole, lines.values())


def _read(path: Path, names: list[str]) -> tuple[list[str], list[tuple[int, Cell, list[str]]], bool]:
    """Header and rows (run, cell, all) of a file that replicate has written, and whether its last line was torn."""
    try:
        text = path.read_text(encoding="utf-8")
        complete, _, rest = text.rpartition("\n")
        lines = list(csv.reader(complete.splitlines() or [rest]))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a file of replicate: {error}") from None
    header, rows = lines[0] if lines else [], lines[1:]
    begin = ",".join(names)
    if header[: len(names)] != names and not (not complete and begin.startswith(rest)):
        raise ValueError(
            f"{path} is not one of replicate's, which begin with {begin} here: its columns are {_shown(header)}"
        )
    known = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header) or not re.fullmatch("[0-9]{1,15}", row[0]):
            raise ValueError(f"{path} is damaged in line {number}: expected a run and {len(header) - 1} numbers")
        known.append((int(row[0]), tuple(row[1 : len(names)]), row))
    return header, known, bool(rest)


def _shown(header: list[str]) -> str:
    names = ", ".join(header[:6]) or "none"
    return names[:60] + ("..." if len(header) > 6 or len(names) > 60 else "")


def _texts(run: int, cell: Cell, numbers: Numbers) -> list[str]:
    """Floats so that they read back exactly."""
    cells = [str(run), *cell]
    for array in numbers.values():
        flat = array.astype(int) if array.dtype == bool else array
        cells += [repr(number) for number in flat.ravel().tolist()]
    return cells


def _parsed(path: Path, cells: list[str], at: int, like: Numbers) -> Numbers:
    """The numbers from column ``at`` on."""
    numbers = {}
    for key, array in like.items():
        part, at = cells[at : at + array.size], at + array.size
        kind = float if array.dtype.kind == "f" else int
        try:
            numbers[key] = np.array([kind(cell) for cell in part]).astype(array.dtype).reshape(array.shape)
        except (ValueError, OverflowError):
            raise ValueError(f"{path} is damaged: {key!r} of run {cells[0]} is {part[0]!r:.40}") from None
    return numbers
