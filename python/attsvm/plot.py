"""Pictures of results.  Each function draws into ``ax`` (pyplot's current one by default) and returns it.

One look throughout: blue for W, orange for (K, Q); solid for the SVM in the norm that training prefers (Frobenius
for W, nuclear for K and Q), dashed for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from .common.check import as_choice, as_floats, as_numeric, check_shape, check_type
from .common.norms import norm_name
from .common.render import axes as _axes
from .common.render import drawing
from .common.types import Ball, Norm
from .next_token import NextToken
from .next_token.graph_picture import draw_graphs
from .soft_labels import SoftLabels
from .svm.separation import Separation
from .theory.diagnosis import Diagnosis
from .theory.margin_share import margin_share as share_of_margin
from .theory.regularization_path import Path
from .theory.token_sets import Decomposition
from .training.run import Run

__all__ = ["attention", "band", "correlation", "excess", "interval", "margin_share", "margins", "saturation", "scores"]

COLORS = {"W": "#0072B2", "(K, Q)": "#D55E00"}  # two of Okabe and Ito's colours, told apart by everybody
OWN_NORM: dict[str, Ball] = {"W": "frobenius", "(K, Q)": "nuclear"}
OVER = 3  # the top of a picture of an interval, over the least bound: the first ones are far above
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
    >>> import attsvm
    >>> from matplotlib.figure import Figure
    >>> ax = attsvm.plot.band([0, 1, 2], [[0, 1, 2], [0, 3, 4]], "two curves", ax=Figure().subplots())
    >>> ax.lines[0].get_ydata().tolist()
    [0.0, 2.0, 3.0]
    """
    as_choice("middle", middle, ("mean", "median"))
    steps = as_floats("steps", steps, "R")
    lines = np.atleast_2d(as_numeric("curves", curves))
    check_shape("curves", lines, "runs, R", (None, len(steps)))
    ax = _axes(ax)
    lines = lines[~np.isnan(lines).any(axis=1)]
    if len(lines) == 0:
        return ax
    centre = np.mean(lines, axis=0) if middle == "mean" else np.median(lines, axis=0)
    (line,) = ax.plot(steps, centre, label=label, **line_kw)
    if len(lines) > 1:
        low, high = np.percentile(lines, [LOW, HIGH], axis=0)
        ax.fill_between(steps, low, high, color=line.get_color(), alpha=0.14, linewidth=0)
    return ax


@drawing(Run)
def interval(run: Run, ax: Any = None, **line_kw: Any) -> Any:
    """Both ends of the largest margin as training goes on, proved by the weights and by the gradient: they close.

    Parameters
    ----------
    run : Run
    ax : matplotlib Axes, optional
    **line_kw
        For both lines.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import attsvm
    >>> from matplotlib.figure import Figure
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> run = attsvm.train(problem, steps=3000)
    >>> ax = attsvm.plot.interval(run, ax=Figure().subplots())
    >>> len(ax.lines)
    2
    """
    ax = _axes(ax)
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
    ax.set(xlabel="training step", ylabel=f"largest margin, {_title(run.own_norm)} norm")
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


def margin_share(run: Run, norm: Norm = "frobenius", selected: Any = None, ax: Any = None, **line_kw: Any) -> Any:
    """The margin of a run's weights, of unit norm, as a share of the largest one, as training goes on.

    Parameters
    ----------
    run : Run
    norm : as in :func:`attsvm.solve_svm`
    selected : integer array_like, optional
        What the run selects at its end, by default.
    ax : matplotlib Axes, optional
    **line_kw
        For the line.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        As :func:`attsvm.margin_share`, which says what the numbers are.

    Examples
    --------
    >>> import attsvm
    >>> from matplotlib.figure import Figure
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> run = attsvm.train(problem, rule="sign", steps=1000, lr=0.01)
    >>> ax = attsvm.plot.margin_share(run, "max", ax=Figure().subplots())
    >>> ax.get_legend_handles_labels()[1]
    ['W, max norm']
    """
    ax = _axes(ax)
    trained = _trained(run)
    low, _ = share_of_margin(run.data, run.selected if selected is None else selected, run.weights, norm)
    ax.plot(run.steps, low, **{"label": f"{trained}, {_title(norm)} norm", **line_kw})
    ax.set(xlabel="training step", ylabel="share of the largest margin")
    ax.set_ylim(top=1.03)
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
    W, ax, trained = weights_of(solution), _axes(ax), _trained(run)
    look = {"label": f"{trained} and its {_title(solution.norm)} SVM", **style(trained, solution.norm)}
    ax.plot(run.steps, correlations(run.weights, W), **{**look, **line_kw})
    ax.set(xlabel="training step", ylabel="correlation with the SVM solution")
    ax.set_ylim(top=1.03)
    return ax


def attention(
    probabilities: np.ndarray | Sequence[ArrayLike],
    selected: np.ndarray | Sequence[ArrayLike] | None = None,
    ax: Any = None,
    **image_kw: Any,
) -> Any:
    """Heat map of attention: one row per query, one column per token.

    Parameters
    ----------
    probabilities : (n, T) or (n, S, T) array_like, or a list of (T_i,) or (S_i, T_i) array_likes
        As :meth:`attsvm.Data.probabilities` gives them; what a query cannot see stays white.
    selected : integer array_like, optional
        One token per query, to be marked.
    ax : matplotlib Axes, optional
    **image_kw
        For the image.

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
    rows = [np.atleast_2d(part) for part in _parts("probabilities", probabilities)]
    for i, part in enumerate(rows):
        check_shape(f"probabilities[{i}]", part, "S, T")
    tokens = None
    if selected is not None:
        tokens = np.concatenate([np.ravel(part) for part in _parts("selected", selected)])
        check_shape("selected", tokens, "queries", (sum(map(len, rows)),))
    ax = _heat_map(rows, "attention probability", ax, image_kw)
    if tokens is not None:
        ax.plot(tokens, np.arange(len(tokens)), "o", color=COLORS["(K, Q)"], markersize=3)
    return ax


def _parts(name: str, value: Any) -> list[np.ndarray]:
    """The arrays of a list, or the rows of one array."""
    if isinstance(value, (list, tuple)):
        parts = [as_numeric(f"{name}[{i}]", part) for i, part in enumerate(value)]
    else:
        parts = list(np.atleast_1d(as_numeric(name, value)))
    if not parts:
        raise ValueError(f"{name} must not be empty")
    return parts


def _heat_map(rows: Any, label: str, ax: Any, image_kw: dict[str, Any]) -> Any:
    """Numbers in [0, 1], one row per query, one column per token."""
    ax = _axes(ax)
    parts = [np.atleast_2d(part) for part in rows]
    shown = np.full((sum(map(len, parts)), max(part.shape[1] for part in parts)), np.nan)
    row = 0
    for part in parts:
        shown[row : row + len(part), : part.shape[1]] = part
        row += len(part)
    look = {"aspect": "auto", "interpolation": "nearest", "cmap": "Blues", "vmin": 0, "vmax": 1}
    image = ax.imshow(shown, **(look | image_kw))
    bars = [one.colorbar for one in ax.images if one.colorbar is not None]  # of a map drawn here before
    if bars:
        bars[0].set_label(label)
    else:
        ax.figure.colorbar(image, ax=ax, label=label, pad=0.02)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="token", ylabel="query")
    return ax


@drawing(Decomposition)
def _composed(parts: Decomposition, ax: Any = None, **image_kw: Any) -> Any:
    return attention(parts.probabilities, ax=ax, **image_kw)


@drawing(SoftLabels)
def _shares(found: SoftLabels, ax: Any = None, **image_kw: Any) -> Any:
    """What the decoder's attention goes to within each support, on the scale of attention."""
    shares = found.counts / found.counts.max(axis=1, keepdims=True)  # whose sums stay in range
    ax = _heat_map(shares / shares.sum(axis=1, keepdims=True), "share of the next tokens", ax, image_kw)
    ax.set_ylabel("context")
    return ax


@drawing(NextToken)
def _graphs(found: NextToken, ax: Any = None, **arrow_kw: Any) -> Any:
    ax = _axes(ax)
    draw_graphs(ax, found.graphs, found.components, (COLORS["W"], COLORS["(K, Q)"]), arrow_kw)
    ax.set_xlabel("last token")
    return ax


@drawing(Separation)
def margins(solution: Separation, ax: Any = None, **line_kw: Any) -> Any:
    """The margin of every token that is not selected, query by query; support tokens stand out.

    Parameters
    ----------
    solution : Separation
        With weights.
    ax : matplotlib Axes, optional
    **line_kw
        For the points.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import attsvm
    >>> from matplotlib.figure import Figure
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> solution = attsvm.solve_svm(attsvm.cross_attention(X, Z), [0, 1, 2, 3, 4, 5])
    >>> ax = attsvm.plot.margins(solution, ax=Figure().subplots())
    >>> bool(ax.lines[0].get_ydata().min() > 1 - 1e-9)
    True
    """
    weights_of(solution)
    ax = _axes(ax)
    columns = solution.columns()
    others = ~columns["selected"] & ~columns["support"]
    _two_kinds(ax, columns["query"], columns["margin"], columns["support"], others, line_kw)
    ax.axhline(1, color="0.3", linewidth=0.8, zorder=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="query", ylabel="margin of the selected token")
    return ax


@drawing(Path)
def excess(path: Path, ax: Any = None, **line_kw: Any) -> Any:
    """How far the loss is above its infimum along a regularisation path, as a power of ten.

    Parameters
    ----------
    path : Path
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
    >>> path = attsvm.regularization_path(problem, [1.0, 4.0, 16.0])
    >>> attsvm.plot.excess(path, ax=Figure().subplots()).get_xlabel()
    'radius'
    """
    check_type("path", path, Path, "attsvm.regularization_path")
    ax = _axes(ax)
    trained = "(K, Q)" if path.norm == "nuclear" else "W"
    ax.plot(path.radii, path.log_excess / np.log(10), **{"marker": ".", **style(trained), **line_kw})
    ax.set(xlabel="radius", ylabel="log10 of loss above infimum")
    return ax


@drawing(Diagnosis)
def scores(diagnosis: Diagnosis, ax: Any = None, **line_kw: Any) -> Any:
    """Every token by its margin and by how much better than the selected one it scores.

    The selection is locally optimal when no support token, those at margin 1, lies above zero.

    Parameters
    ----------
    diagnosis : Diagnosis
        Of a selection that can be separated.
    ax : matplotlib Axes, optional
    **line_kw
        For the points.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import attsvm
    >>> from matplotlib.figure import Figure
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> ax = attsvm.plot.scores(attsvm.diagnose(problem), ax=Figure().subplots())
    >>> bool(ax.lines[0].get_ydata().max() < 0)  # the optimal tokens: nothing scores better
    True
    """
    check_type("diagnosis", diagnosis, Diagnosis, "attsvm.diagnose")
    solution = diagnosis.solution
    if solution.W is None:
        raise ValueError(f"diagnosis must be of tokens that can be separated, got {solution.status}")
    ax = _axes(ax)
    columns, layout = solution.columns(), solution.data.layout
    selected = columns["selected"]
    score = layout.flatten_entries("scores", diagnosis.scores, hidden=True)
    ahead = score - score[selected][columns["query"]]
    support = layout.flatten_entries("support", diagnosis.support, hidden=True)
    _two_kinds(ax, columns["margin"], ahead, support, ~selected & ~support, line_kw)
    ax.axhline(0, color="0.3", linewidth=0.8, zorder=0)
    ax.set(xlabel="margin of the selected token", ylabel="score above the selected token's")
    return ax


def _two_kinds(ax: Any, x: Any, y: Any, support: Any, others: Any, line_kw: dict[str, Any]) -> None:
    """Points of tokens that are not selected; support tokens stand out."""
    look = {"linestyle": "none", "marker": ".", "markersize": 5}
    for part, color, label in ((others, "0.65", "other tokens"), (support, COLORS["(K, Q)"], "support tokens")):
        ax.plot(x[part], y[part], label=label, **{**look, "color": color, **line_kw})
    ax.legend(frameon=False, fontsize="small")


def finish(ax: Any, title: str, loc: str | None = None, **legend_kw: Any) -> None:
    """The look of a panel of curves: a pale grid below, no box, a legend at ``loc`` or where curves rarely are."""
    ax.grid(color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title, loc="left", fontsize=11)
    ax.margins(x=0)
    if ax.lines or loc is not None:
        ax.legend(loc=loc or "lower right", frameon=False, **legend_kw)


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


def _trained(run: Run) -> str:
    check_type("run", run, Run, "attsvm.train")
    if run.W.ndim != 2:
        raise ValueError(
            f"run must be a single one with one attention head, got weights of shape {run.W.shape}: plot each by itself"
        )
    return "W" if run.K is None else "(K, Q)"


def _title(norm: Any) -> str:
    return "Frobenius" if norm == "frobenius" else norm_name(norm)


def largest(probabilities: Any) -> np.ndarray:
    """Largest probability of every query, from an array or a list of them."""
    if isinstance(probabilities, list):
        return np.concatenate([np.atleast_2d(part).max(axis=1) for part in probabilities])
    return probabilities.max(axis=-1).ravel()
