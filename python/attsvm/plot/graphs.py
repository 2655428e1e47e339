"""Pictures of directed graphs side by side, with nodes in the order of the edges."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["draw_graphs", "in_order"]

DRAWN, NAMED = 8, 20  # largest numbers of graphs in a picture, and of nodes in a graph with numbered nodes
ARROW = {"units": "inches", "width": 0.015, "headwidth": 7, "headlength": 10, "headaxislength": 9}


def in_order(edges: np.ndarray, component: np.ndarray) -> np.ndarray:
    """The nodes of ``edges (E, 2)`` in order: each comes before the nodes of other components it has a path to.

    ``component`` is the result of :func:`~attsvm.theory.next_tokens.strong_components`.  Components are ordered by the
    length of the longest path to them.

    Examples
    --------
    >>> from attsvm.plot.graphs import in_order
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


def draw_graphs(
    ax: Any,
    graphs: dict[int, np.ndarray],
    components: dict[int, np.ndarray],
    colors: tuple[str, str],
    arrow_kw: dict[str, Any],
) -> None:
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
    look = {"angles": "xy", "scale_units": "xy", "scale": 1, "zorder": 1, **ARROW, **arrow_kw}
    both, one = np.concatenate(ends), np.concatenate(alike)
    for part, color, label in ((~one, colors[0], "ranked"), (one, colors[1], "one component")):
        start, end = both[part].transpose(1, 2, 0)
        ax.quiver(*start, *(end - start), **{"color": color, "label": label, **look})
    ax.set_xticks(range(len(shown)), shown)
    ax.set(yticks=[], xlim=(-0.5, len(shown) - 0.5), ylim=(-1.2, 1.2))
    ax.legend(frameon=False, fontsize="small", ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
