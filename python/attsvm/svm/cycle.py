"""Preference cycles: equal queries that prefer tokens in a cycle cannot be satisfied by any weights.

Rows ``(x_a - x_t) z^T`` of one query vector z are the edges a -> t of a graph over the tokens; along a cycle they add
up to zero.  Inconsistent labels, and tokens out of a vocabulary, make such cycles.
"""

from __future__ import annotations

import numpy as np

from ..attention.data import Data
from ..attention.selection import Selection


def cycle(data: Data, selection: Selection) -> np.ndarray | None:
    """Multipliers (entries): 1 on the rows of a preference cycle, which add up to zero.  None when there is no cycle,
    and for selections of several tokens per query or with margins of their own."""
    if selection.kept is not None or selection.rhs is not None or selection.outside(data):  # C reports the last
        return None
    same = _kinds(data.queries)
    if same.max() == len(same) - 1:  # a cycle takes two rows of one query
        return None
    query, chosen, token = data._rows_of(selection.reference)
    kinds = _kinds(data.keys)
    tail, head = (kinds[at] + len(kinds) * same[query] for at in (chosen, token))
    edges = np.flatnonzero(tail != head)
    found = _edges_of_a_cycle(tail[edges], head[edges])
    if found is None:
        return None
    dual = np.zeros(data._entries)
    dual[edges[found]] = 1.0
    return dual


def _kinds(rows: np.ndarray) -> np.ndarray:
    """A number for each row, the same for equal ones."""
    words = np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}").ravel()
    return np.unique(words, return_inverse=True)[1]


def _edges_of_a_cycle(tail: np.ndarray, head: np.ndarray) -> list[int] | None:
    """The edges of one cycle of a directed graph, None when there is none."""
    edges = np.arange(len(tail))
    while not (onwards := np.isin(head[edges], tail[edges])).all():  # drop edges into nodes that no edge leaves
        edges = edges[onwards]
    if not len(edges):
        return None
    onward = dict(zip(tail[edges].tolist(), edges.tolist(), strict=True))
    at: dict[int, int] = {}
    path: list[int] = []
    node = int(tail[edges[0]])
    while node not in at:
        at[node] = len(path)
        path.append(onward[node])
        node = int(head[path[-1]])
    return path[at[node] :]
