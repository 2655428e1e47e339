"""Preference cycles: queries with the same vector that prefer tokens in a cycle cannot be satisfied by any weights.

For one query vector z, each row ``(x_a - x_t) z^T`` is an edge a -> t of a graph over the tokens, and the rows along a
cycle add up to zero.  Inconsistent labels make such cycles, where sequences share tokens of a vocabulary.
"""

import numpy as np

from ..attention.data import Data
from ..attention.selection import Selection


def cycle(data: Data, selection: Selection) -> np.ndarray | None:
    """A preference cycle as multipliers, one for each pair of a query and a token: 1 on the rows (constraints) of the
    cycle, which add up to zero, and 0 elsewhere.

    None if there is no cycle, or if a query selects several tokens or has margins of its own.
    """
    # no search if a selected token lies outside its window, which C reports
    if selection.kept is not None or selection.rhs is not None or data._outside(selection.reference):
        return None
    same = kinds_of(data.queries)
    if (same == np.arange(len(same))).all():  # all query vectors differ: a cycle needs two queries with one vector
        return None
    query, chosen, token = data._rows_of(selection.reference)
    kinds = kinds_of(data.keys)
    tail, head = (kinds[at] + len(kinds) * same[query] for at in (chosen, token))
    edges = np.flatnonzero(tail != head)
    while not (onwards := np.isin(head[edges], tail[edges])).all():  # drop edges into nodes without an outgoing edge
        edges = edges[onwards]
    if not len(edges):
        return None
    onward = dict(zip(tail[edges].tolist(), edges.tolist(), strict=True))
    at: dict[int, int] = {}
    path: list[int] = []
    node = tail[edges[0]]
    while node not in at:
        at[node] = len(path)
        path.append(onward[node])
        node = head[path[-1]]
    dual = np.zeros(data._entries)
    dual[path[at[node] :]] = 1.0
    return dual


def kinds_of(rows: np.ndarray) -> np.ndarray:
    """For each row of a matrix, the index of the first row that equals it."""
    kinds = np.arange(len(rows))
    _, first, count = np.unique(rows[:, 0], return_inverse=True, return_counts=True)
    # rows whose first number occurs more than once; usually few, since the first numbers of most rows differ
    some = np.flatnonzero(count[first] > 1)
    words = rows[some].view(f"V{rows.itemsize * rows.shape[1]}").ravel()
    _, place, equal = np.unique(words, return_index=True, return_inverse=True)
    kinds[some] = some[place[equal]]
    return kinds
