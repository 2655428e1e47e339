"""Pictures of a run: curves along training."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common.check import check_type
from ..common.norms import norm_name
from ..common.render import axes, drawing
from ..common.types import Norm
from ..svm.separation import Separation
from ..theory.conditions import margin_share as share_of_margin
from ..training.run import Run
from .curves import band, correlations, largest, style, weights_of

__all__ = ["correlation", "margin_share", "saturation"]

OVER = 3  # the axis of margins ends at this multiple of a run's smallest upper bound; the first bounds are far larger


@drawing(Run)
def _interval(run: Run, ax: Any, **line_kw: Any) -> None:
    """Draws proved bounds of the largest margin along training: below, the margin of W; above, the gradient's bound."""
    trained = _trained(run)
    low, high = run.margins()
    look = {**style(trained), **line_kw}
    (line,) = ax.plot(run.steps, low, **{"label": f"margin of {trained}", **look})
    ax.plot(run.steps, high, **{**look, "label": "bound by the gradient", "linestyle": ":"})
    some = np.isfinite(high)
    ax.fill_between(run.steps[some], low[some], high[some], color=line.get_color(), alpha=0.14, linewidth=0)
    least = float(high.min())
    if np.isfinite(least) and least > 0:
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
    ax = axes(ax)
    trained = _trained(run)
    curves = np.stack([largest(run.data.probabilities(W)) for W in run.weights])
    band(run.steps, curves.T, ax=ax, **{"label": trained, **style(trained), **line_kw})
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
    ax = axes(ax)
    trained = _trained(run)
    low, _ = share_of_margin(run.data, run.selected if selected is None else selected, run.weights, norm)
    label = f"{trained}, {norm_name(norm)} norm"
    return _along(run, low, ax, "share of the largest margin", {"label": label} | line_kw)


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
    W, ax, trained = weights_of(solution), axes(ax), _trained(run)
    look = {"label": f"{trained} and its {norm_name(solution.norm)} SVM"} | style(trained, solution.norm) | line_kw
    return _along(run, correlations(run.weights, W), ax, "correlation with the SVM solution", look)


def _along(run: Run, numbers: np.ndarray, ax: Any, label: str, look: dict[str, Any]) -> Any:
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
