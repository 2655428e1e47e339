"""What many runs of an experiment found: arrays by name, with an axis for each parameter that was swept."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .check import as_choice
from .render import axes

__all__ = ["Cell", "Replicated", "cells_of"]

Cell = tuple[str, ...]  # the text of each parameter's value


class Replicated(dict[str, np.ndarray]):
    """The numbers of an experiment by name: arrays (runs, ...), and of a grid (length of each axis, ..., runs, ...).

    Made by :func:`attsvm.replicate`.

    Attributes
    ----------
    grid : dict of lists
        The values of each parameter, in the order of the axes.

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

    def to_dataframe(self) -> Any:
        """The numbers as a tidy table: a row for each run of each cell, with the values of the grid and the run.

        An array of numbers has a column for each, ``name[i]``.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ImportError
            Without pandas.

        Examples
        --------
        >>> import attsvm
        >>> found = attsvm.replicate(lambda rng, d: {"x": float(d)}, 2, grid={"d": [1, 2]}, progress=False)
        >>> found.to_dataframe().query("run == 1")
           d  run    x
        1  1    1  1.0
        3  2    1  2.0
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("to_dataframe needs pandas: pip install pandas") from None
        depth = len(self.grid) + 1
        runs = next((array.shape[depth - 1] for array in self.values()), 0)
        rows = list(itertools.product(*self.grid.values(), range(runs)))
        columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate([*self.grid, "run"])}
        for key, array in self.items():
            columns |= dict(named(key, array.reshape(len(rows), *array.shape[depth:])))
        return pandas.DataFrame(columns)

    def heatmap(self, x: str, y: str, value: str, ax: Any = None, **image_kw: Any) -> Any:
        """A picture of one number over two parameters: its mean over the runs, and over all other parameters.

        Parameters
        ----------
        x, y : str
            Parameters of the grid.
        value : str
            Which number.  NaN, as of undecided runs, does not count; a cell of nothing else stays empty.
        ax : matplotlib Axes, optional
        **image_kw
            For ``ax.imshow``.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            Other names, or a number that is an array.
        """
        x, y, value = as_choice("x", x, self.grid), as_choice("y", y, self.grid), as_choice("value", value, self)
        names, array = list(self.grid), self[value].astype(np.float64)
        if x == y or array.ndim != len(names) + 1:
            raise ValueError(f"heatmap needs two parameters and a single number, got {x!r}, {y!r} and {value!r}")
        array = np.moveaxis(array, (names.index(y), names.index(x)), (0, 1)).reshape(
            len(self.grid[y]), len(self.grid[x]), -1
        )
        known = ~np.isnan(array)
        with np.errstate(invalid="ignore"):
            mean = np.where(known, array, 0.0).sum(axis=2) / known.sum(axis=2)
        ax = axes(ax)
        image = ax.imshow(mean, **{"origin": "lower", "aspect": "auto"} | image_kw)
        ax.set(xlabel=x, ylabel=y, xticks=range(len(self.grid[x])), yticks=range(len(self.grid[y])))
        ax.set_xticklabels(map(str, self.grid[x]))
        ax.set_yticklabels(map(str, self.grid[y]))
        ax.figure.colorbar(image, ax=ax, label=f"{value}, mean of {array.shape[2]}")
        return ax


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
