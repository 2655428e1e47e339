"""Tables in CSV: written whole, or row by row as the runs of an experiment finish, and resumed."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from .files import replacing

__all__ = ["Sheet", "write_lines", "write_table"]


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


class Sheet:
    """Rows of numbers, one per run, and the CSV that holds them, if any; ``again(run)`` finds the numbers of a run."""

    def __init__(self, path: str | os.PathLike[str] | None, again: Callable[[int], dict[str, np.ndarray]]):
        self.path = None if path is None else Path(path)
        self.again = again
        self.rows: dict[int, dict[str, np.ndarray]] = {}
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

    def add(self, run: int, numbers: dict[str, np.ndarray]) -> None:
        first = next(iter(self.rows.values()), numbers)
        mine, others = ({key: array.shape for key, array in row.items()} for row in (numbers, first))
        if mine != others:
            raise ValueError(
                f"experiment must return the same names and shapes in every run, got {mine} in run {run} "
                f"and {others} before"
            )
        if self.file is not None:
            if not self.rows and self.file.tell() == 0:
                write_lines(self.file, [_header(numbers)])
            write_lines(self.file, [_cells(run, numbers)])
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
        again = self.again(run)
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
            write_table(path, whole, (_cells(run, numbers) for run, numbers in self.rows.items()))


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
