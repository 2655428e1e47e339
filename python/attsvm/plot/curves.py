"""Curves: their style, the band of many curves, and the pictures of a training run.

All pictures use one style.  Blue is for W, orange for (K, Q).  A solid line is for the SVM in the norm that training
prefers (Frobenius for W, nuclear for K and Q), a dashed line for the SVM in another norm.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..common.check import as_choice, as_floats, as_numeric, check_shape, check_type
from ..common.norms import norm_name
from ..common.render import axes, drawing
from ..common.types import Ball, Norm
from ..svm.separation import Separation
from ..theory.conditions import margin_share as share_of_margin
from ..training.run import Run

COLORS = {"W": "#0072B2", "(K, Q)": "#D55E00"}  # colours of Okabe and Ito; colour-blind readers can tell them apart
OWN_NORM: dict[str, Ball] = {"W": "frobenius", "(K, Q)": "nuclear"}
SATURATED = 0.99  # least softmax at which a query counts as having selected its token
LOW, HIGH = 10, 90  # percentiles at the lower and upper edge of a band of curves
OVER = 3  # the axis of margins ends at this multiple of a run's smallest upper bound; the first bounds are far larger


def style(trained: str, norm: str | float | None = None) -> dict[str, Any]:
    """Colour and line style of a curve; ``trained`` is "W" or "(K, Q)", ``norm`` the norm of the SVM that W is compared
    with."""
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
    """Draws the mean or median of many curves, and a band from their 10th to their 90th percentile.

    Parameters
    ----------
    steps : (R,) array_like
    curves : (runs, R) array_like
        A curve with a NaN is left out.
    label : str, optional
    ax : matplotlib Axes, optional
    middle : {"mean", "median"}
    **line_kw
        For the line in the middle; the band takes the colour of the line.

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
    (line,) = ax.plot(steps, getattr(np, middle)(lines, axis=0), label=label, **line_kw)
    if len(lines) > 1:
        low, high = np.percentile(lines, [LOW, HIGH], axis=0)
        ax.fill_between(steps, low, high, color=line.get_color(), alpha=0.14, linewidth=0)
    return ax


def finish(ax: Any, title: str, loc: str | None = "lower right", **legend_kw: Any) -> None:
    """Finishes a panel of curves: title, pale grid, no box, and a legend at ``loc`` if any curve has a label."""
    ax.grid(color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title, loc="left", fontsize=11)
    ax.margins(x=0)
    if "handles" in legend_kw or ax.get_legend_handles_labels()[1]:
        ax.legend(loc=loc, frameon=False, **legend_kw)


def weights_of(solution: Separation) -> np.ndarray:
    """W of a solution; raises ValueError if it has none."""
    check_type("solution", solution, Separation, "attsvm.solve_svm")
    if solution.W is None:
        raise ValueError(f"solution must have weights, got one that is {solution.status}")
    return solution.W


def correlations(weights: np.ndarray, W: np.ndarray | None) -> np.ndarray:
    """The correlation of each of ``weights (R, dk, dz)`` with ``W``; NaN if W is None or the weights are zero."""
    flat = weights.reshape(len(weights), -1)
    if W is None:
        return np.full(len(flat), np.nan)
    with np.errstate(invalid="ignore"):  # 0 / 0 for zero weights
        return flat @ W.ravel() / (np.linalg.norm(flat, axis=1) * np.linalg.norm(W))


def largest(probabilities: Any) -> np.ndarray:
    """The largest probability of every query, from an array of probabilities or a list of arrays."""
    return np.concatenate([part.max(axis=-1).ravel() for part in probabilities])


@drawing(Run)
def _interval(run: Run, ax: Any, **line_kw: Any) -> None:
    """Draws proved bounds of the largest margin along training: below, the margin of W; above, the gradient's bound."""
    trained = _trained(run)
    low, high = run.margins()
    look = {**style(trained), **line_kw}
    (line,) = ax.plot(run.steps, low, **{"label": f"margin of {trained}", **look})
    ax.plot(run.steps, high, **{**look, "label": "bound by the gradient", "linestyle": ":"})
    ax.fill_between(run.steps, low, high, color=line.get_color(), alpha=0.14, linewidth=0)
    least = float(high.min())
    if 0 < least < np.inf:
        ax.set_ylim(0, OVER * least)
    ax.set(xlabel="training step", ylabel=f"largest margin, {norm_name(run.own_norm)} norm")


def saturation(run: Run, ax: Any = None, **line_kw: Any) -> Any:
    """Draws the largest attention probability of queries along training: its mean, and a band of its percentiles.

    Parameters
    ----------
    run : Run
    ax : matplotlib Axes, optional
    **line_kw
        For the line.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> run = attsvm.train(problem, steps=1000)
    >>> ax = attsvm.plot.saturation(run, ax=Figure().subplots())
    >>> ax.get_ylabel()
    'largest softmax probability'
    """
    trained = _trained(run)
    curves = np.stack([largest(run.data.probabilities(W)) for W in run.weights])
    ax = band(run.steps, curves.T, ax=ax, **{"label": trained, **style(trained), **line_kw})
    ax.set(xlabel="training step", ylabel="largest softmax probability", ylim=(0, 1.03))
    return ax


def margin_share(run: Run, norm: Norm = "frobenius", selected: Any = None, ax: Any = None, **line_kw: Any) -> Any:
    """Draws the margin of a run's weights, scaled to norm 1, as a share of the largest margin along training.

    Parameters
    ----------
    run : Run
    norm : as in :func:`attsvm.solve_svm`
    selected : integer array_like, optional
        By default, the tokens that the run selects at its end.
    ax : matplotlib Axes, optional
    **line_kw
        For the line.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        As :func:`attsvm.theory.margin_share`, which computes the shares.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> run = attsvm.train(problem, rule="sign", steps=1000, lr=0.01)
    >>> ax = attsvm.plot.margin_share(run, "max", ax=Figure().subplots())
    >>> ax.get_legend_handles_labels()[1]
    ['W, max norm']
    """
    trained = _trained(run)
    low, _ = share_of_margin(run.data, run.selected if selected is None else selected, run.weights, norm)
    look = {"label": f"{trained}, {norm_name(norm)} norm"} | line_kw
    return _along(run, low, ax, "share of the largest margin", look)


def correlation(run: Run, solution: Separation, ax: Any = None, **line_kw: Any) -> Any:
    """Draws the correlation of a run's weights with an SVM solution along training.

    Parameters
    ----------
    run : Run
    solution : Separation
        It must have weights.
    ax : matplotlib Axes, optional
    **line_kw
        For the line.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> run = attsvm.train(problem, steps=1000)
    >>> solution = attsvm.solve_svm(run.data, run.selected)
    >>> ax = attsvm.plot.correlation(run, solution, ax=Figure().subplots())
    >>> ax.get_legend_handles_labels()[1]
    ['W and its Frobenius SVM']
    """
    W, trained = weights_of(solution), _trained(run)
    look = {"label": f"{trained} and its {norm_name(solution.norm)} SVM"} | style(trained, solution.norm) | line_kw
    return _along(run, correlations(run.weights, W), ax, "correlation with the SVM solution", look)


def _along(run: Run, numbers: np.ndarray, ax: Any, label: str, look: dict[str, Any]) -> Any:
    ax = axes(ax)
    ax.plot(run.steps, numbers, **look)
    ax.set(xlabel="training step", ylabel=label)
    ax.set_ylim(top=1.03)
    return ax


def _trained(run: Run) -> str:
    check_type("run", run, Run, "attsvm.train")
    if run.W.ndim != 2:
        raise ValueError(
            f"run must be a single one with one attention head, got weights of shape {run.W.shape}: plot each by itself"
        )
    return "W" if run.K is None else "(K, Q)"
