"""Strongly connected components of a directed graph."""

from __future__ import annotations

import numpy as np

__all__ = ["strong_components"]


def strong_components(edges: np.ndarray, nodes: int) -> np.ndarray:
    """For each of 0 .. nodes - 1 the least node of its strongly connected component.

    Two nodes are in one component when each can be reached from the other along ``edges (E, 2)``, from the first
    column to the second.

    Notes
    -----
    Source: "Depth-First Search and Linear Graph Algorithms" (Tarjan, 1972), with a stack instead of recursion: one
    visit per node and edge.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.next_token.components import strong_components
    >>> strong_components(np.array([[1, 3], [3, 1], [3, 2]]), 4)
    array([0, 1, 2, 1])
    """
    component = np.arange(nodes)
    successors: dict[int, list[int]] = {}
    for node, following in edges.tolist():
        successors.setdefault(node, []).append(following)
    found: dict[int, int] = {}  # when a node was reached first
    lowest: dict[int, int] = {}  # the earliest open node that it, or what was reached from it, leads to
    opened: list[int] = []  # reached, and not yet in a component
    is_open: set[int] = set()
    for root in successors:
        path = [] if root in found else [(root, iter(successors[root]))]
        while path:
            node, following = path[-1]
            if node not in found:
                found[node] = lowest[node] = len(found)
                opened.append(node)
                is_open.add(node)
            for other in following:
                if other not in found:
                    path.append((other, iter(successors.get(other, ()))))
                    break
                if other in is_open:
                    lowest[node] = min(lowest[node], found[other])
            else:
                path.pop()
                if path:
                    parent = path[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == found[node]:  # nothing reached since leads further back: these are a component
                    members = [opened.pop()]
                    while members[-1] != node:
                        members.append(opened.pop())
                    is_open.difference_update(members)
                    component[members] = min(members)
    return component
