"""Makes the pictures of figures from panels, gives all panels one look, and draws curves, bars and error bars."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from ..claims import binomial_interval
from ..plot.curves import band
from ..plot.curves import finish as look_of_curves

DASHED = (0, (4, 2))  # a line style
# Okabe and Ito's colours, which colour-blind readers can tell apart.
PALETTE = BLUE, ORANGE, GREEN, *_ = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000"


def medians(x: Any, curves: Any, label: str, ax: Any, **line: Any) -> None:
    """Draws the median of many curves (runs, x), and a band from their 10th to their 90th percentile."""
    band(x, curves, label, ax, middle="median", **line)


def finish(
    ax: Any, title: str, xlabel: str = "", ylabel: str = "", log: str = "", below: float | None = None, **axis: Any
) -> None:
    """Sets title, labels and logarithmic axes ("x", "y" or "xy") of a panel, and draws its legend.

    The legend is placed where there is room, or ``below`` the panel, at a distance of that fraction of its height.
    ``axis`` goes to ``ax.set``.
    """
    where = {"loc": "best"} if below is None else {"loc": "upper center", "bbox_to_anchor": (0.5, -below)}
    look_of_curves(ax, title, fontsize=8, **where)
    ax.set(xlabel=xlabel, ylabel=ylabel, **dict.fromkeys((f"{letter}scale" for letter in log), "log"), **axis)


def picture(
    size: tuple[float, float] = (11, 4.6), columns: int = 2, rows: int = 1, layout: Any = "constrained", **how: Any
) -> Callable[[Any], Any]:
    """Decorator that makes ``plot(results)``, which returns a figure, from ``draw(results, *axes)``, which draws on it.

    The size is in inches, and curves take the colours of the palette in turn.  ``draw`` gets the rows of panels where
    there are several.  It may return a title for above the figure and a note for below it.
    """

    def drawn_by(draw: Any) -> Any:
        def plot(results: Any) -> Figure:
            figure = Figure(figsize=size, layout=layout)
            with rc_context({"axes.prop_cycle": cycler(color=PALETTE)}):
                axes = figure.subplots(rows, columns, **how)
            if words := draw(results, *np.atleast_1d(axes)):
                title, note = words
                figure.suptitle(title, fontsize=12)
                figure.supxlabel(note, fontsize=9, color="0.3")
            return figure

        return plot

    return drawn_by


def error_bars(flags: Any) -> np.ndarray:
    """Computes error bars (2, ...) of the share of true ``flags (runs, ...)``: the lengths down and up to its 95 %
    interval."""
    return np.abs(np.array(binomial_interval(flags.sum(axis=0), len(flags))) - flags.mean(axis=0))


def shares(x: Any, flags: Any, label: str, ax: Any, **look: Any) -> None:
    """Draws the share of runs whose ``flags (runs, x)`` are true, with its 95 % interval."""
    ax.errorbar(x, flags.mean(axis=0), error_bars(flags), marker=".", label=label, **look)


def pairs(ax: Any, names: Any, *bars: tuple[str, str, Any], **ticks: Any) -> None:
    """Draws two bars side by side for each name.  Each of the two ``bars`` holds a label, a colour, and for each name
    the values of its runs.  The height is their mean; flags have error bars.  Without runs there is no bar."""
    at = np.arange(len(names))
    for shift, (label, color, samples) in zip((-0.2, 0.2), bars, strict=True):
        heights = [x.mean() if len(x) else np.nan for x in samples]
        errors = None
        if samples[0].dtype == bool:
            errors = np.transpose([error_bars(x) if len(x) else (np.nan, np.nan) for x in samples])
        ax.bar(at + shift, heights, 0.36, yerr=errors, color=color, capsize=3, label=label)
    ax.set_xticks(at, names, **ticks)


def cumulated(values: Any, label: str, ax: Any) -> None:
    """Draws the cumulative distribution of the finite ``values`` as a step curve."""
    values = values[np.isfinite(values)]
    if len(values):
        ax.ecdf(values, label=label)
