"""What many runs of an experiment found: arrays by name, with an axis for each parameter that was swept."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .check import as_choice
from .render import axes, drawing
from .result import Result

__all__ = ["Cell", "Replicated", "cells_of"]

Cell = tuple[str, ...]  # the text of each parameter's value


class Replicated(Result, dict[str, np.ndarray]):
    """The numbers of an experiment by name: arrays (runs, ...), and of a grid (length of each axis, ..., runs, ...).

    Made by :func:`attsvm.replicate`.

    Attributes
    ----------
    grid : dict of lists
        The values of each parameter, in the order of the axes.

    Notes
    -----
    ``plot(ax, x=, y=, value=, **image_kw)`` draws one number over two parameters of the grid, the first ones unless
    named: its mean over the runs, and over all other parameters.  NaN, as of undecided runs, does not count; a cell of
    nothing else stays empty.

    Examples
    --------
    >>> import attsvm
    >>> found = attsvm.replicate(lambda rng, d: {"x": rng.random(d).sum()}, 5, grid={"d": [1, 2]}, progress=False)
    >>> found["x"].shape, found.grid
    ((2, 5), {'d': [1, 2]})
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], grid: Mapping[str, list[Any]]):
        super().__init__(arrays)
        self.grid = dict(grid)

    def _title(self) -> str:
        depth = len(self.grid) + 1
        runs = next((array.shape[depth - 1] for array in self.values()), 0)
        return f"{runs} runs" + "".join(f", {name} in {values}" for name, values in self.grid.items())

    def _lines(self) -> list[tuple[str, str]]:
        return [(key, f"{array.shape}, mean {float(_mean(array.reshape(-1))):.6g}") for key, array in self.items()]

    def columns(self) -> dict[str, Any]:
        """A row for each run of each cell, with the values of the grid and the run; an array of numbers has a column
        for each, ``name[i]``."""
        depth = len(self.grid) + 1
        runs = next((array.shape[depth - 1] for array in self.values()), 0)
        rows = list(itertools.product(*self.grid.values(), range(runs)))
        columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate([*self.grid, "run"])}
        for key, array in self.items():
            columns |= dict(named(key, array.reshape(len(rows), *array.shape[depth:])))
        return columns

    def _state(self) -> dict[str, Any]:
        return {"arrays": dict(self), "grid": self.grid}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Replicated:
        arrays, grid = state["arrays"], state["grid"]
        lengths = tuple(len(values) for values in grid.values())
        for key, shape in ((key, np.shape(array)) for key, array in arrays.items()):
            if len(shape) <= len(lengths) or shape[: len(lengths)] != lengths:
                raise ValueError(f"{key} must have the axes {lengths} of the grid and one of runs, got {shape}")
        return cls(arrays, grid)


@drawing(Replicated)
def _over_two(
    found: Replicated,
    ax: Any = None,
    x: str | None = None,
    y: str | None = None,
    value: str | None = None,
    **image_kw: Any,
) -> Any:
    grid, names = found.grid, list(found.grid)
    if not found:
        raise ValueError("there is no run yet to draw")
    if len(names) < 2:
        raise ValueError(f"grid must have two parameters to draw over, got {names}")
    x, y = as_choice("x", x or names[0], grid), as_choice("y", y or names[1], grid)
    value = as_choice("value", value or next(iter(found)), found)
    array = found[value].astype(np.float64)
    if x == y or array.ndim != len(names) + 1:
        raise ValueError(f"plot needs two parameters and a single number, got {x!r}, {y!r} and {value!r}")
    array = np.moveaxis(array, (names.index(y), names.index(x)), (0, 1)).reshape(len(grid[y]), len(grid[x]), -1)
    ax = axes(ax)
    image = ax.imshow(_mean(array), **{"origin": "lower", "aspect": "auto"} | image_kw)
    ax.set(xlabel=x, ylabel=y, xticks=range(len(grid[x])), yticks=range(len(grid[y])))
    ax.set_xticklabels(map(str, grid[x]))
    ax.set_yticklabels(map(str, grid[y]))
    ax.figure.colorbar(image, ax=ax, label=f"{value}, mean of {array.shape[2]}")
    return ax


def _mean(array: np.ndarray) -> np.ndarray:
    """Over the last axis, of what is known; NaN where nothing is."""
    known = ~np.isnan(array)
    with np.errstate(invalid="ignore"):
        return np.where(known, array, 0.0).sum(axis=-1) / known.sum(axis=-1)


def named(key: str, array: np.ndarray) -> Iterable[tuple[str, np.ndarray]]:
    """The columns of an array (rows, ...), each with its name."""
    shape = array.shape[1:]
    for i in np.ndindex(shape):
        yield (f"{key}[{','.join(map(str, i))}]" if shape else key), array[(slice(None), *i)]


def cells_of(grid: Mapping[str, Iterable[Any]]) -> tuple[dict[str, list[Any]], dict[Cell, dict[str, Any]]]:
    """The grid with Python's own numbers, and what the experiment is called with in each of its cells."""
    if not isinstance(grid, Mapping):
        raise TypeError(f'grid must be a mapping of names to values, as {{"d": [1, 2]}}, got {type(grid).__name__}')
    plain: dict[str, list[Any]] = {}
    for name, values in grid.items():
        if not isinstance(name, str) or not name.isidentifier() or name in ("run", "rng"):
            raise ValueError(f"grid must have names that a function can take, but for 'run' and 'rng', got {name!r}")
        if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
            raise TypeError(f"grid[{name!r}] must be a list of values, got {type(values).__name__}")
        plain[name] = [value.item() if isinstance(value, np.generic) else value for value in values]
        for value in plain[name]:
            if not isinstance(value, (int, float, str, bool, type(None))):
                raise TypeError(f"grid[{name!r}] must hold numbers, words, bool or None, got {type(value).__name__}")
        texts = [str(value) for value in plain[name]]
        if not texts or len(set(texts)) < len(texts):
            raise ValueError(f"grid[{name!r}] must hold values, each of them once, got {plain[name]}")
    cells = itertools.product(*plain.values())
    return plain, {tuple(map(str, cell)): dict(zip(plain, cell, strict=True)) for cell in cells}


def seed_of(cell: Mapping[str, Any]) -> tuple[int, ...]:
    """What a cell adds to the seed of a run: the text of its own values alone, whatever else the grid holds."""
    text = ",".join(sorted(f"{name}={value!r}" for name, value in cell.items()))
    return (int.from_bytes(text.encode(), "big"),) if cell else ()
