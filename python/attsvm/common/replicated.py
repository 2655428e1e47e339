"""The results of many runs of an experiment: arrays by name, with an axis for each parameter of the grid."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .check import as_choice
from .render import drawing
from .result import Lines, Result

Cell = tuple[str, ...]  # a cell of the grid: its parameter values as text


class Replicated(Result, dict[str, np.ndarray]):
    """The numbers of an experiment by name: arrays (runs, ...), or, with a grid, arrays (length of each axis, ...,
    runs, ...).

    Made by :func:`attsvm.replicate`.

    Attributes
    ----------
    grid : dict of lists
        The values of each parameter, in the order of the axes.

    Notes
    -----
    ``plot(ax, x=, hue=, value=, **line_kw)`` draws one number over one parameter of the grid: its mean over the runs
    and over all other parameters, with its 95 % interval.  With ``hue`` there is one curve, in its own colour, for each
    value of a second parameter.  ``plot(ax, x=, y=, value=, **image_kw)``, where there are two parameters and no
    ``hue``, draws the means over both.  NaN, as of undecided runs, does not count.  A cell with only NaN stays empty.

    Printed means come with their standard error and the number of NaN.

    Examples
    --------
    >>> found = attsvm.replicate(lambda rng, d: {"x": rng.random(d).sum()}, 5, grid={"d": [1, 2]}, progress=False)
    >>> found["x"].shape, found.grid
    ((2, 5), {'d': [1, 2]})
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], grid: Mapping[str, list[Any]]):
        super().__init__(arrays)
        self.grid = dict(grid)

    @property
    def _runs(self) -> int:
        return next((array.shape[len(self.grid)] for array in self.values()), 0)

    def _title(self) -> str:
        return f"{self._runs} runs" + "".join(f", {name} in {values}" for name, values in self.grid.items())

    def _lines(self) -> Lines:
        return [(key, f"{array.shape}, {_summary(array.reshape(-1))}") for key, array in self.items()]

    def columns(self) -> dict[str, Any]:
        """One row for each run of each cell: the parameter values, the run and the numbers.  A number that is an array
        gets one column per entry, ``name[i]``."""
        rows = list(itertools.product(*self.grid.values(), range(self._runs)))
        columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate([*self.grid, "run"])}
        for key, array in self.items():
            shape = array.shape[len(self.grid) + 1 :]
            flat = array.reshape(len(rows), *shape)
            for i in np.ndindex(shape):
                columns[f"{key}[{','.join(map(str, i))}]" if shape else key] = flat[:, *i]
        return columns

    def _state(self) -> dict[str, Any]:
        return {"arrays": dict(self), "grid": self.grid}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Replicated:
        lengths = tuple(map(len, state["grid"].values()))
        for key, array in state["arrays"].items():
            shape = np.shape(array)
            if len(shape) <= len(lengths) or shape[: len(lengths)] != lengths:
                raise ValueError(f"{key} must have the axes {lengths} of the grid and one of runs, got {shape}")
        return cls(**state)


@drawing(Replicated)
def _means(
    found: Replicated,
    ax: Any,
    x: str | None = None,
    y: str | None = None,
    value: str | None = None,
    hue: str | None = None,
    **look: Any,
) -> None:
    grid, names = found.grid, list(found.grid)
    if not (found and names):
        raise ValueError(
            "grid must have a parameter to draw over, got none" if found else "there is no run yet to draw"
        )
    value = as_choice("value", value or next(iter(found)), found)
    x = as_choice("x", x or names[0], grid)
    if y is None and hue is None:
        y = next((name for name in names if name != x), None)
    over = [as_choice("y or hue", name, grid) for name in (y, hue) if name is not None] + [x]
    array = found[value].astype(np.float64)
    if len(over) > 2 or len(set(over)) < len(over) or array.ndim != len(names) + 1:
        raise ValueError(f"plot needs two parameters and a single number, got {over} and {value!r}")
    array = np.moveaxis(array, [names.index(name) for name in over], range(len(over)))
    array = array.reshape(*array.shape[: len(over)], -1)
    mean = f"{value}, mean of {array.shape[-1]}"
    ticks: list[Any] = grid[x] if all(isinstance(each, (int, float)) for each in grid[x]) else list(map(str, grid[x]))
    if y is not None:
        image = ax.imshow(_statistics(array)[0], **{"origin": "lower", "aspect": "auto"} | look)
        ax.set_xticks(range(len(ticks)), ticks)
        ax.set_yticks(range(len(grid[y])), map(str, grid[y]))
        ax.figure.colorbar(image, ax=ax, label=mean)
    else:
        for curve, label in zip(array.reshape(-1, *array.shape[-2:]), grid[hue] if hue else [None], strict=True):
            middle, lengths = _interval(curve, found[value].dtype == bool)
            style = {"label": f"{hue} = {label}" if hue else None, "marker": "o", "capsize": 3}
            ax.errorbar(ticks, middle, lengths, **style | look)
        if hue is not None:
            ax.legend(frameon=False)
    ax.set(xlabel=x, ylabel=y or f"{mean} and its 95 % interval")


def _statistics(array: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the mean over the last axis without NaN; its standard error (NaN for fewer than two numbers); and the
    count of numbers."""
    count = (~np.isnan(array)).sum(axis=-1)
    with warnings.catch_warnings(action="ignore"):  # NumPy warns where all numbers are NaN
        return np.nanmean(array, axis=-1), np.nanstd(array, axis=-1, ddof=1) / np.sqrt(count), count


def _interval(array: np.ndarray, flags: bool) -> tuple[np.ndarray, Any]:
    """Returns the mean over the last axis; and the lengths from it down and up to the ends of its 95 % interval:
    Clopper-Pearson for flags, Student's t for numbers, where both lengths are one."""
    from scipy import special  # SciPy is an optional dependency

    middle, error, count = _statistics(array)
    if flags:
        true = middle * count
        low = special.betaincinv(true, count - true + 1, 0.025)  # SciPy gives NaN if no flag is true: 0 replaces it
        high = special.betaincinv(true + 1, count - true, 0.975)  # SciPy gives NaN if all flags are true: 1 replaces it
        return middle, [middle - np.nan_to_num(low), np.nan_to_num(high, nan=1.0) - middle]
    return middle, special.stdtrit(count - 1, 0.975) * error


def _summary(array: np.ndarray) -> str:
    mean, error, count = _statistics(array.astype(np.float64))
    silent = "" if count == array.size else f", {array.size - count} of {array.size} NaN"
    return f"mean {float(mean):.6g}" + (f" +- {float(error):.2g}" if count > 1 else "") + silent


def cells_of(grid: Mapping[str, Iterable[Any]]) -> tuple[dict[str, list[Any]], dict[Cell, dict[str, Any]]]:
    """Returns the grid with plain Python numbers; and, for each cell, the keyword arguments of the experiment."""
    if not isinstance(grid, Mapping):
        raise TypeError(f'grid must be a mapping of names to values, as {{"d": [1, 2]}}, got {type(grid).__name__}')
    plain: dict[str, list[Any]] = {}
    for name, values in grid.items():
        if not isinstance(name, str) or not name.isidentifier() or name in ("run", "rng"):
            raise ValueError(f"grid must have names that a function can take, but for 'run' and 'rng', got {name!r}")
        if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
            raise TypeError(f"grid[{name!r}] must be a list of values, got {type(values).__name__}")
        given = plain[name] = [value.item() if isinstance(value, np.generic) else value for value in values]
        for value in given:
            if not isinstance(value, (int, float, str, type(None))):
                raise TypeError(f"grid[{name!r}] must hold numbers, words, bool or None, got {type(value).__name__}")
        if not given or len(set(map(str, given))) < len(given):
            raise ValueError(f"grid[{name!r}] must hold values, each of them once, got {given}")
    cells = itertools.product(*plain.values())
    return plain, {tuple(map(str, cell)): dict(zip(plain, cell, strict=True)) for cell in cells}
