"""Pictures of training runs.  Each function draws into ``ax`` (pyplot's current one by default) and returns it.

One look throughout: blue for W, orange for (K, Q); solid for the SVM in the norm that training prefers (Frobenius
for W, nuclear for K and Q), dashed for the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .run import Run
from .separation import Separation

__all__ = ["attention", "band", "correlation", "saturation"]

COLORS = {"W": "#0072B2", "(K, Q)": "#D55E00"}  # two of Okabe and Ito's colours, told apart by everybody
OWN_NORM = {"W": "frobenius", "(K, Q)": "nuclear"}
LOW, HIGH = 10, 90  # percentiles a band reaches: unlike mean and deviation they never leave [-1, 1]


def style(trained: str, norm: str | None = None) -> dict[str, Any]:
    """Colour and line of a curve: ``trained`` is "W" or "(K, Q)", ``norm`` that of the SVM it is compared with."""
    return {"color": COLORS[trained], "linestyle": "-" if norm in (None, OWN_NORM[trained]) else (0, (4, 2))}


def band(steps: Any, curves: Any, label: str | None = None, ax: Any = None, **line_kw: Any) -> Any:
    """The mean of many curves, and a band from their 10th to their 90th percentile.

    Parameters
    ----------
    steps : (R,) array_like
    curves : (runs, R) array_like
        NaN where a run gave no number.
    label : str, optional
    ax : matplotlib Axes, optional
    **line_kw
        For the line of the mean; the band takes its colour.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import attsvm
    >>> from matplotlib.figure import Figure
    >>> ax = attsvm.plot.band([0, 1, 2], [[0, 1, 2], [0, 3, 4]], "two curves", ax=Figure().subplots())
    >>> ax.lines[0].get_ydata().tolist()
    [0.0, 2.0, 3.0]
    """
    ax = _axes(ax)
    curves = np.atleast_2d(curves)
    curves = curves[~np.isnan(curves).any(axis=1)]
    if len(curves) == 0:
        return ax
    (line,) = ax.plot(steps, curves.mean(axis=0), label=label, **line_kw)
    if len(curves) > 1:
        low, high = np.percentile(curves, [LOW, HIGH], axis=0)
        ax.fill_between(steps, low, high, color=line.get_color(), alpha=0.14, linewidth=0)
    return ax


def saturation(run: Run, ax: Any = None, **line_kw: Any) -> Any:
    """The largest attention probability of a query as training goes on: mean over queries, and their band.

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
    >>> import attsvm
    >>> from matplotlib.figure import Figure
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> run = attsvm.train(problem, steps=1000)
    >>> ax = attsvm.plot.saturation(run, ax=Figure().subplots())
    >>> ax.get_ylabel()
    'largest softmax probability'
    """
    ax = _axes(ax)
    trained = _trained(run)
    curves = np.stack([largest(run.data.probabilities(W)) for W in run.weights])
    band(run.steps, curves.T, ax=ax, **{"label": trained, **style(trained), **line_kw})
    ax.set(xlabel="training step", ylabel="largest softmax probability", ylim=(0, 1.03))
    return ax


def correlation(run: Run, solution: Separation, ax: Any = None, **line_kw: Any) -> Any:
    """Correlation of a run's weights with an SVM solution as training goes on.

    Parameters
    ----------
    run : Run
    solution : Separation
        With weights.
    ax : matplotlib Axes, optional
    **line_kw
        For the line.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import attsvm
    >>> from matplotlib.figure import Figure
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> run = attsvm.train(problem, steps=1000)
    >>> solution = attsvm.solve_svm(run.data, run.selected)
    >>> ax = attsvm.plot.correlation(run, solution, ax=Figure().subplots())
    >>> ax.get_legend_handles_labels()[1]
    ['W and its Frobenius SVM']
    """
    if solution.W is None:
        raise ValueError(f"solution must have weights, got one that is {solution.status}")
    ax = _axes(ax)
    trained = _trained(run)
    look = {"label": f"{trained} and its {_title(solution.norm)} SVM", **style(trained, solution.norm)}
    ax.plot(run.steps, correlations(run.weights, solution.W), **{**look, **line_kw})
    ax.set(xlabel="training step", ylabel="correlation with the SVM solution")
    ax.set_ylim(top=1.03)
    return ax


def attention(probabilities: Any, selected: Any = None, ax: Any = None) -> Any:
    """Heat map of attention: one row per query, one column per token.

    Parameters
    ----------
    probabilities : (n, T) or (n, S, T) array_like, or a list of (T_i,) or (S_i, T_i) array_likes
        As :meth:`attsvm.Data.probabilities` gives them; what a query cannot see stays white.
    selected : integer array_like, optional
        One token per query, to be marked.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import attsvm
    >>> from matplotlib.figure import Figure
    >>> ax = attsvm.plot.attention([[0.1, 0.9], [0.7, 0.3]], selected=[1, 0], ax=Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('token', 'query')
    """
    ax = _axes(ax)
    parts = [np.atleast_2d(part) for part in probabilities]
    shown = np.full((sum(map(len, parts)), max(part.shape[1] for part in parts)), np.nan)
    row = 0
    for part in parts:
        shown[row : row + len(part), : part.shape[1]] = part
        row += len(part)
    image = ax.imshow(shown, aspect="auto", interpolation="nearest", cmap="Blues", vmin=0, vmax=1)
    if selected is not None:
        tokens = np.concatenate([np.ravel(part) for part in selected])
        ax.plot(tokens, np.arange(len(tokens)), "o", color=COLORS["(K, Q)"], markersize=3)
    ax.figure.colorbar(image, ax=ax, label="attention probability", pad=0.02)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="token", ylabel="query")
    return ax


def finish(ax: Any, title: str) -> None:
    """The look of a panel of curves: a pale grid below them, no box, a legend where curves rarely are."""
    ax.grid(color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title, loc="left", fontsize=11)
    ax.margins(x=0)
    if ax.lines:
        ax.legend(loc="lower right", frameon=False)


def correlations(weights: np.ndarray, W: np.ndarray | None) -> np.ndarray:
    """Correlation of each of ``weights (R, dk, dz)`` with ``W``; NaN without W and where weights are zero."""
    flat = weights.reshape(len(weights), -1)
    if W is None:
        return np.full(len(flat), np.nan)
    with np.errstate(invalid="ignore"):  # zero weights, 0 / 0, have no direction
        return flat @ W.ravel() / (np.linalg.norm(flat, axis=1) * np.linalg.norm(W))


def _trained(run: Run) -> str:
    if run.W.ndim != 2:
        raise ValueError(
            f"run must be a single one with one attention head, got weights of shape {run.W.shape}: plot each by itself"
        )
    return "W" if run.K is None else "(K, Q)"


def _title(norm: str) -> str:
    return "Frobenius" if norm == "frobenius" else norm


def largest(probabilities: Any) -> np.ndarray:
    """Largest probability of every query, from an array or a list of them."""
    if isinstance(probabilities, list):
        return np.concatenate([np.atleast_2d(part).max(axis=1) for part in probabilities])
    return probabilities.max(axis=-1).ravel()


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt  # an extra, and only whoever lets us find the axes needs all of pyplot

    return plt.gca()
