"""The base class of results: they print, appear in notebooks, become tables, pictures and files, and can be
compared."""

from __future__ import annotations

import dataclasses
import html
import math
import textwrap
from collections.abc import Sequence
from os import PathLike
from typing import IO, Any, ClassVar

import numpy as np

from . import render, storage

Lines = list[tuple[str, str]]  # lines of a printed result: pairs of a name and a text
LONGEST = 120  # longest printed line, in characters


class Result:
    """Base class of the results.  Every subclass can be saved, and defines how its objects are printed and tabulated.

    ``_title()``, ``_lines()`` (pairs of a name and a text) and ``_tables()`` (headers with their rows) make the printed
    and the notebook form.  ``_meaning()`` is the text that can be unfolded in a notebook.  ``columns()`` makes the data
    frame.
    """

    _hidden: ClassVar[tuple[str, ...]] = ("data",)  # attributes that to_dict leaves out
    _derived: ClassVar[tuple[str, ...]] = ()  # properties that to_dict adds
    _least_width = 0  # least width of the column of names when printed, so that results of one class line up alike

    def __init_subclass__(cls) -> None:
        storage.storable(cls)

    def _title(self) -> str:
        raise NotImplementedError

    def _lines(self) -> Lines:
        return []

    def _tables(self) -> list[Table]:
        return []

    def _meaning(self) -> str:
        return ""

    def columns(self) -> dict[str, Any]:
        """The columns of :meth:`to_dataframe` as a dictionary; this needs no pandas."""
        raise NotImplementedError

    def _values(self) -> dict[str, Any]:
        """The content of :meth:`to_dict` before it is converted to plain numbers: the state without hidden parts, and
        derived properties."""
        state = {name: value for name, value in storage.state_of(self).items() if name not in self._hidden}
        return state | {name: getattr(self, name) for name in self._derived}

    def __repr__(self) -> str:
        lines = self._lines()
        width = max([self._least_width, *(len(name) + 2 for name, _ in lines)])
        below = (f"\n{table(header, rows)}" for header, rows in self._tables())
        return "\n".join([self._title(), *(_wrapped(name, text, width) for name, text in lines), *below])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(text).replace(chr(10), "<br>")}</td></tr>'
            for name, text in self._lines()
        )
        shown = "".join(html_table(header, rows) for header, rows in self._tables()) or render.picture(self) or ""
        meaning = html.escape(self._meaning())
        unfolded = f"<details><summary>What the columns mean</summary><pre>{meaning}</pre></details>" if meaning else ""
        return (
            f'<div class="attsvm"><strong>{html.escape(self._title())}</strong>{self._html_bar()}'
            f"{rows and f'<table>{rows}</table>'}{shown}{unfolded}</div>"
        )

    def _html_bar(self) -> str:
        return ""

    def __eq__(self, other: object) -> bool:
        """Whether the other result has the same type and the same numbers (NaN equal to NaN)."""
        if type(self) is not type(other):
            return NotImplemented
        return storage.same(storage.state_of(self), storage.state_of(other))

    # Without this method, results that are lists or dicts too would use the != of list or dict.
    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """The result as nested dictionaries and lists of numbers, strings and None, ready for JSON (NaN and infinities
        as floats).

        Returns
        -------
        dict
        """
        return plain(self._values())

    def to_dataframe(self) -> Any:
        """The result as a table: one row per record, point, query or token, depending on the kind of result.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ImportError
            Without pandas.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("to_dataframe needs pandas: pip install pandas") from None
        return pandas.DataFrame(self.columns())

    def plot(self, ax: Any = None, **line_kw: Any) -> Any:
        """Draw the result into ``ax``, a new figure by default, and return the axes.

        What is drawn depends on the result:

        - a run: both ends of the largest margin over the steps;
        - an SVM: the margin of every token, query by query;
        - its influence: each sequence's multiplier against the turn of W without that sequence;
        - a plane: the points, in two dimensions; else their multipliers;
        - a regularisation path: how far the loss is above that of the best tokens;
        - a diagnosis: the tokens by margin and score;
        - a decomposition: its attention;
        - next tokens: their graphs; a linear decoder: the shares of the next tokens;
        - one head: the accuracy over the number of training queries; several heads: the accuracy of each;
        - the SVM of a head: its multipliers; the reason of a choice: the shares of its margin;
        - replicated runs: the means over a parameter, with intervals.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **line_kw
            For the line, the points, the arrows or the image.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            Where there is no one picture: several runs, several attention heads, no weights, numbers of a grid.
        """
        return render.draw(self, ax, **line_kw)

    def save(self, file: str | PathLike[str] | IO[bytes]) -> None:
        """Write the result, its data included, as an npz file that :func:`attsvm.load` reads.

        Parameters
        ----------
        file : path or binary file
        """
        storage.save(self, file)


class Solved(Result):
    """A result derived from an SVM answer, which it holds as ``solution``.  Its data, status and message are those of
    the answer."""

    solution: Any

    @property
    def data(self) -> Any:
        return self.solution.data

    @property
    def status(self) -> str:
        return self.solution.status

    @property
    def message(self) -> str:
        return self.solution.message


def plain(value: Any) -> Any:
    """The value as Python numbers, lists and dictionaries: arrays become lists, and results and their parts become
    dictionaries."""
    if isinstance(value, Result):
        return plain(value._values())
    if dataclasses.is_dataclass(value):
        return plain(storage.state_of(value))
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


def _wrapped(name: str, text: str, width: int) -> str:
    """A name and its text as printed: a long text continues on further lines, indented."""
    before = f"  {name:<{width}}" if name else "  "
    fit = textwrap.TextWrapper(LONGEST - len(before), break_long_words=False, break_on_hyphens=False)
    parts = [part for line in text.split("\n") for part in fit.wrap(line) or [""]]
    return before + ("\n" + " " * len(before)).join(parts)


def interval_bar(low: float, high: float) -> str:
    """An HTML bar of the certified interval [low, high] of the margin, drawn from 0: the reached part dark, the rest up
    to the bound pale.  Empty if the gap is too small to see."""
    if not (0 < low < 0.99 * high and math.isfinite(high)):
        return ""
    reached = 100 * low / high
    return (
        '<div style="width:100%;max-width:22em;height:0.7em;margin:0.4em 0;border-radius:3px;overflow:hidden;'
        f'background:#9ec9e2" title="margin reached {low:.12g}, at most {high:.12g}">'
        f'<div style="width:{reached:.6f}%;height:100%;background:#0072B2"></div></div>'
        "<small>margin: reached (dark), not excluded (pale)</small>"
    )


Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # a header and its rows


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows as text in left-aligned columns two spaces apart, with a line under the header.  A row of one cell is a
    heading."""
    full = [header, *(row for row in rows if len(row) > 1)]
    widths = [max(map(len, cells)) for cells in zip(*full, strict=True)]
    every = [header, ["-" * (sum(widths) + 2 * len(widths) - 2)], *rows]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in every)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows as an HTML table."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
