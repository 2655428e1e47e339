"""Pictures of attention, of SVM answers, and of results of the theory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..common.check import as_numeric, as_parts, check_shape
from ..common.render import axes, drawing
from ..svm.influence import Influence
from ..svm.separable import Plane
from ..svm.separation import Separation
from ..theory.diagnosis import Diagnosis
from ..theory.next_tokens import NextToken, SoftLabels
from ..theory.regularization_path import Path
from ..theory.token_sets import Decomposition
from .curves import COLORS, style, weights_of

DRAWN, NAMED = 8, 20  # largest numbers of graphs in a picture, and of nodes in a graph with numbered nodes
ARROW = {"angles": "xy", "scale_units": "xy", "scale": 1, "zorder": 1, "units": "inches"}  # how arrows look
ARROW |= {"width": 0.015, "headwidth": 7, "headlength": 10, "headaxislength": 9}


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
        As :meth:`attsvm.Data.probabilities` returns them.  Tokens that a query cannot see are white.
    selected : integer array_like, optional
        One token per query, which is marked.
    ax : matplotlib Axes, optional
    **image_kw
        For the image.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
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
    ax = axes(ax)
    _heat_map(rows, "attention probability", ax, image_kw)
    if tokens is not None:
        ax.plot(tokens, np.arange(len(tokens)), "o", color=COLORS["(K, Q)"], markersize=3)
    return ax


def _parts(name: str, value: Any) -> list[np.ndarray]:
    """The arrays of a list, or the rows of a single array."""
    parts = as_parts(name, value, True, as_numeric)
    parts = parts if isinstance(parts, list) else list(np.atleast_1d(parts))
    if not parts:
        raise ValueError(f"{name} must not be empty")
    return parts


def _heat_map(parts: list[np.ndarray], label: str, ax: Any, image_kw: dict[str, Any]) -> None:
    """Draws numbers in [0, 1] as a heat map: one row per query, one column per token."""
    width = max(part.shape[1] for part in parts)
    padded = [np.pad(part * 1.0, ((0, 0), (0, width - part.shape[1])), constant_values=np.nan) for part in parts]
    look = {"aspect": "auto", "interpolation": "nearest", "cmap": "Blues", "vmin": 0, "vmax": 1}
    image = ax.imshow(np.concatenate(padded), **(look | image_kw))
    # colour bars of heat maps that were drawn into these axes before
    bars = [one.colorbar for one in ax.images if one.colorbar is not None]
    if bars:
        bars[0].set_label(label)
    else:
        ax.figure.colorbar(image, ax=ax, label=label, pad=0.02)
    ax.locator_params(integer=True)
    ax.set(xlabel="token", ylabel="query")


@drawing(Decomposition)
def _composed(parts: Decomposition, ax: Any, **image_kw: Any) -> None:
    attention(parts.probabilities, ax=ax, **image_kw)


@drawing(SoftLabels)
def _shares(found: SoftLabels, ax: Any, **image_kw: Any) -> None:
    """Draws a heat map of the shares to which the next-token probabilities of a linear decoder converge, among the
    tokens that follow each context."""
    shares = found.counts / found.counts.max(axis=1, keepdims=True)  # scaled counts, whose sum cannot overflow
    _heat_map([shares / shares.sum(axis=1, keepdims=True)], "share of the next tokens", ax, image_kw)
    ax.set_ylabel("context")


def in_order(edges: np.ndarray, component: np.ndarray) -> np.ndarray:
    """The nodes of ``edges (E, 2)`` in order: each comes before the nodes of other components it has a path to.

    ``component`` is the result of :func:`~attsvm.theory.next_tokens.strong_components`.  Components are ordered by the
    length of the longest path to them.

    Examples
    --------
    >>> from attsvm.plot.answers import in_order
    >>> in_order(np.array([[3, 2], [1, 3], [3, 1]]), np.array([0, 1, 2, 1]))
    array([1, 3, 2])
    """
    pairs = component[edges]
    before, after = pairs[pairs[:, 0] != pairs[:, 1]].T
    depth, deeper = np.full(len(component), -1), np.zeros(len(component), dtype=np.intp)
    while (depth != deeper).any():
        depth = deeper.copy()
        np.maximum.at(deeper, after, depth[before] + 1)
    nodes = np.unique(edges)
    return nodes[np.lexsort((nodes, component[nodes], depth[component[nodes]]))]


@drawing(NextToken)
def _graphs(found: NextToken, ax: Any, **arrow_kw: Any) -> None:
    draw_graphs(ax, found.graphs, found.components, **arrow_kw)


def draw_graphs(ax: Any, graphs: dict[int, np.ndarray], components: dict[int, np.ndarray], **arrow_kw: Any) -> None:
    """Draws the first DRAWN graphs side by side.  Edges within a strong component have the second colour; all other
    edges point down.

    The nodes of a graph lie on an ellipse, so that no edge runs through a third node.
    """
    shown = list(graphs)[:DRAWN]
    ends, alike = [], []
    for column, k in enumerate(shown):
        edges, component = graphs[k], components[k]
        nodes = in_order(edges, component)
        height = np.linspace(1, -1, len(nodes))
        width = 0.35 * np.sqrt(1 - height**2) * (-1.0) ** np.arange(len(nodes))
        places = np.full((len(component), 2), np.nan)
        places[nodes] = np.stack([column + width, height], axis=1)
        ends.append(places[edges])
        alike.append(np.equal(*component[edges].T))
        named = len(nodes) <= NAMED
        ax.plot(*places[nodes].T, "o", color="white", markeredgecolor="0.6", markersize=12 if named else 3)
        for node in nodes.tolist() if named else ():
            ax.text(*places[node], str(node), ha="center", va="center", fontsize="small")
    both, one = np.concatenate(ends), np.concatenate(alike)
    for part, color, label in ((~one, COLORS["W"], "ranked"), (one, COLORS["(K, Q)"], "one component")):
        start, end = both[part].transpose(1, 2, 0)
        ax.quiver(*start, *(end - start), **{"color": color, "label": label, **ARROW, **arrow_kw})
    ax.set_xticks(range(len(shown)), shown)
    ax.set(xlabel="last token", yticks=[], xlim=(-0.5, len(shown) - 0.5), ylim=(-1.2, 1.2))
    ax.legend(frameon=False, fontsize="small", ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))


@drawing(Separation)
def _margins(solution: Separation, ax: Any, **line_kw: Any) -> None:
    """Draws the margin of every token that is not selected, by query; support tokens are highlighted."""
    weights_of(solution)
    columns = solution.columns()
    query, margin, support = (columns[name][~columns["selected"]] for name in ("query", "margin", "support"))
    _two_kinds(ax, query, margin, support, line_kw)
    ax.axhline(1, color="0.3", linewidth=0.8, zorder=0)
    ax.locator_params("x", integer=True)
    ax.set(xlabel="query", ylabel="margin of the selected token")


@drawing(Plane)
def _plane(plane: Plane, ax: Any, **line_kw: Any) -> None:
    """Draws the points, the line and its margins in two dimensions, else the multiplier of every point.

    Support points are highlighted.
    """
    columns = plane.columns()
    planar = plane.points.shape[1] == 2
    x, y = plane.points.T if planar else (columns["point"], plane.dual)
    _two_kinds(ax, x, y, columns["support"], line_kw, "points")
    if not planar:
        ax.set(xlabel="point", ylabel="multiplier")
        return
    ax.plot(*plane.points[plane.positive].T, "o", fillstyle="none", color="0.3", label=f"class {plane.labels[1]}")
    # the limits stay as they are for the points, whatever the lines need
    ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim(), xlabel="x[0]", ylabel="x[1]")
    for height, width in ((-1, "--"), (0, "-"), (1, "--")) if plane.w is not None else ():
        near = plane.w * (height - plane.b) / (plane.w @ plane.w)
        ax.axline(near, near + [-plane.w[1], plane.w[0]], linestyle=width, color="0.3", linewidth=0.8, zorder=0)
    ax.legend(frameon=False, fontsize="small")


@drawing(Influence)
def _turns(found: Influence, ax: Any, **line_kw: Any) -> None:
    """Draws a point for each sequence: how far W turns if the sequence is left out, and the sequence's multiplier.
    Support sequences are highlighted."""
    _two_kinds(ax, found.turn, found.multiplier, found.solved, line_kw, "sequences")
    ax.set(xlabel="turn of W without the sequence", ylabel="its multiplier")


@drawing(Path)
def _excess(path: Path, ax: Any, **line_kw: Any) -> None:
    """Draws the excess of the loss over that of the best tokens along a regularisation path, as a power of ten."""
    trained = "(K, Q)" if path.norm == "nuclear" else "W"
    ax.plot(path.radii, path.log_excess / np.log(10), **{"marker": ".", **style(trained), **line_kw})
    ax.set(xlabel="radius", ylabel="log10 of loss above that of the best tokens")


@drawing(Diagnosis)
def _scores(diagnosis: Diagnosis, ax: Any, **line_kw: Any) -> None:
    """Draws every token at two coordinates: its margin, and its score minus the score of the selected token.

    The selection is locally optimal if no tight token (a token at margin 1) is above zero.
    """
    solution = diagnosis.solution
    if solution.W is None:
        raise ValueError(f"diagnosis must be of tokens that can be separated, got {solution.status}")
    columns, layout = solution.columns(), solution.data._layout
    selected = columns["selected"]
    score = layout.flatten_entries("scores", diagnosis.scores, hidden=True)
    ahead = score - score[selected][columns["query"]]
    tight = layout.flatten_entries("tight", diagnosis.tight, hidden=True)
    margin, ahead, tight = (part[~selected] for part in (columns["margin"], ahead, tight))
    _two_kinds(ax, margin, ahead, tight, line_kw)
    ax.axhline(0, color="0.3", linewidth=0.8, zorder=0)
    ax.set(xlabel="margin of the selected token", ylabel="score above the selected token's")


def _two_kinds(ax: Any, x: Any, y: Any, support: Any, line_kw: dict[str, Any], what: str = "tokens") -> None:
    """Draws the points of the support highlighted, and the other points grey."""
    look = {"linestyle": "none", "marker": ".", "markersize": 5}
    for part, color, label in ((~support, "0.65", f"other {what}"), (support, COLORS["(K, Q)"], f"support {what}")):
        ax.plot(x[part], y[part], label=label, **{**look, "color": color, **line_kw})
    ax.legend(frameon=False, fontsize="small")
