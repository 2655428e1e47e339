"""Preference cycles: equal queries that prefer tokens in a cycle cannot be satisfied by any weights.

Rows ``(x_a - x_t) z^T`` of one query vector z are the edges a -> t of a graph over the tokens; along a cycle they add
up to zero.  Inconsistent labels, and tokens out of a vocabulary, make such cycles.
"""

from __future__ import annotations

import numpy as np

from ..attention.data import Data
from ..attention.selection import Selection

ALONE = -1


def cycle(data: Data, selection: Selection) -> np.ndarray | None:
    """Multipliers (entries): 1 on the rows of a preference cycle, which add up to zero.  None when there is no cycle,
    and for selections of several tokens per query or with margins of their own."""
    if selection.kept is not None or selection.rhs is not None:
        return None
    first = np.sort(data.queries[:, 0])
    if not (first[1:] == first[:-1]).any():  # rows of one query have the same tail: a cycle takes two
        return None
    if ((selection.reference < 0) | (selection.reference >= data.lengths)).any():
        return None  # C reports it
    same = _classes(data.queries, np.arange(len(data)))
    entry = np.flatnonzero(np.repeat(same != ALONE, data.lengths))
    query, chosen, token = data._rows_of(selection.reference, entry)
    kinds = np.full(len(data.keys), ALONE)
    met = np.flatnonzero(np.bincount(token))
    kinds[met] = _classes(data.keys, met)
    tail, head = kinds[chosen], kinds[token]
    edges = np.flatnonzero((tail != ALONE) & (head != ALONE) & (tail != head))
    nodes = np.array([tail, head])[:, edges] + same[query[edges]] * (kinds.max() + 1)
    found = _edges_of_a_cycle(*np.unique(nodes, return_inverse=True)[1].reshape(2, -1))
    if found is None:
        return None
    dual = np.zeros(data.indptr[-1])
    dual[entry[edges[found]]] = 1.0
    return dual


def _classes(rows: np.ndarray, among: np.ndarray) -> np.ndarray:
    """A number for each of the rows `among`, the same for equal ones, and ALONE where no other is equal."""
    numbers = np.full(len(among), ALONE)
    _, kind, count = np.unique(rows[among, 0], return_inverse=True, return_counts=True)
    seen: dict[bytes, int] = {}
    for i in np.flatnonzero(count[kind] > 1):  # few, as a rule: others differ in the first coordinate already
        numbers[i] = seen.setdefault(rows[among[i]].tobytes(), len(seen))
    several = np.bincount(numbers[numbers != ALONE], minlength=1) > 1
    numbers[~several[numbers]] = ALONE
    return numbers


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
