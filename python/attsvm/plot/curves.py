"""Curves: their look, the band of many of them, and the numbers they show.

One look throughout: blue for W, orange for (K, Q); solid for the SVM in the norm that training prefers (Frobenius
for W, nuclear for K and Q), dashed for the other.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..common.check import as_choice, as_floats, as_numeric, check_shape, check_type
from ..common.render import axes
from ..common.types import Ball
from ..svm.separation import Separation

__all__ = ["COLORS", "HIGH", "LOW", "OWN_NORM", "band", "correlations", "finish", "largest", "style", "weights_of"]

COLORS = {"W": "#0072B2", "(K, Q)": "#D55E00"}  # two of Okabe and Ito's colours, told apart by everybody
OWN_NORM: dict[str, Ball] = {"W": "frobenius", "(K, Q)": "nuclear"}
SATURATED = 0.99  # below, a query's largest softmax leaves open which token it will select
LOW, HIGH = 10, 90  # percentiles a band reaches: unlike mean and deviation they never leave [-1, 1]


def style(trained: str, norm: str | float | None = None) -> dict[str, Any]:
    """Colour and line of a curve: ``trained`` is "W" or "(K, Q)", ``norm`` that of the SVM it is compared with."""
    return {"color": COLORS[trained], "linestyle": "-" if norm in (None, OWN_NORM[trained]) else (0, (4, 2))}


def band(
    steps: ArrayLike,
    curves: ArrayLike,
    label: str | None = None,
    ax: Any = None,
    *,
    middle: Literal["mean", "median"] = "mean",
    **line_kw: Any,
) -> Any:
    """The mean of many curves, or their median, and a band from their 10th to their 90th percentile.

    Parameters
    ----------
    steps : (R,) array_like
    curves : (runs, R) array_like
        NaN where a run gave no number.
    label : str, optional
    ax : matplotlib Axes, optional
    middle : {"mean", "median"}
    **line_kw
        For the line in the middle; the band takes its colour.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = attsvm.plot.band([0, 1, 2], [[0, 1, 2], [0, 3, 4]], "two curves", ax=Figure().subplots())
    >>> ax.lines[0].get_ydata().tolist()
    [0.0, 2.0, 3.0]
    """
    as_choice("middle", middle, ("mean", "median"))
    steps = as_floats("steps", steps, "R")
    lines = np.atleast_2d(as_numeric("curves", curves))
    check_shape("curves", lines, "runs, R", (None, len(steps)))
    ax = axes(ax)
    lines = lines[~np.isnan(lines).any(axis=1)]
    if len(lines) == 0:
        return ax
    centre = np.mean(lines, axis=0) if middle == "mean" else np.median(lines, axis=0)
    (line,) = ax.plot(steps, centre, label=label, **line_kw)
    if len(lines) > 1:
        low, high = np.percentile(lines, [LOW, HIGH], axis=0)
        ax.fill_between(steps, low, high, color=line.get_color(), alpha=0.14, linewidth=0)
    return ax


def finish(ax: Any, title: str, loc: str | None = "lower right", **legend_kw: Any) -> None:
    """The look of a panel of curves: a pale grid below, no box, a legend at ``loc``, where curves rarely are."""
    ax.grid(color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title, loc="left", fontsize=11)
    ax.margins(x=0)
    if "handles" in legend_kw or ax.get_legend_handles_labels()[1]:
        ax.legend(loc=loc, frameon=False, **legend_kw)


def weights_of(solution: Separation) -> np.ndarray:
    """W of a solution that must have one."""
    check_type("solution", solution, Separation, "attsvm.solve_svm")
    if solution.W is None:
        raise ValueError(f"solution must have weights, got one that is {solution.status}")
    return solution.W


def correlations(weights: np.ndarray, W: np.ndarray | None) -> np.ndarray:
    """Correlation of each of ``weights (R, dk, dz)`` with ``W``; NaN without W and where weights are zero."""
    flat = weights.reshape(len(weights), -1)
    if W is None:
        return np.full(len(flat), np.nan)
    with np.errstate(invalid="ignore"):  # zero weights, 0 / 0, have no direction
        return flat @ W.ravel() / (np.linalg.norm(flat, axis=1) * np.linalg.norm(W))


def largest(probabilities: Any) -> np.ndarray:
    """Largest probability of every query, from an array or a list of them."""
    if isinstance(probabilities, list):
        return np.concatenate([np.atleast_2d(part).max(axis=1) for part in probabilities])
    return probabilities.max(axis=-1).ravel()
