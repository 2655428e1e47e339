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
    # a cycle needs two queries with one vector: none if all vectors differ, as their first numbers mostly do
    if len(np.unique(data.queries[:, 0])) == len(data.queries):
        return None
    _, same, count = equal_rows(data.queries)
    if count.max() == 1:
        return None
    query, chosen, token = data._rows_of(selection.reference)
    kinds = np.arange(len(data.keys))
    _, first, count = np.unique(data.keys[:, 0], return_inverse=True, return_counts=True)
    # compare tokens whose first number occurs more than once; usually few, since the first numbers of most differ
    some = np.flatnonzero(count[first] > 1)
    kinds[some] = some[equal_rows(data.keys[some])[1]]
    tail, head = (kinds[at] + len(kinds) * same[query] for at in (chosen, token))
    edges = np.flatnonzero(tail != head)
    while not (onwards := np.isin(head[edges], tail[edges])).all():  # drop edges into nodes without an outgoing edge
        edges = edges[onwards]
    if not len(edges):
        return None
    onward = dict(zip(tail[edges].tolist(), edges.tolist(), strict=True))
    node = tail[edges[0]]
    for _ in onward:  # after one step for each node, the walk has reached a cycle
        node = head[onward[node]]
    dual = np.zeros(data._entries)
    while not dual[onward[node]]:
        dual[onward[node]] = 1.0
        node = head[onward[node]]
    return dual


def equal_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct rows of a matrix: the index of the first row of each kind; the kind of each row; and the number of
    rows of each kind.  Rows of one kind have equal bytes."""
    words = np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}").ravel()
    return np.unique(words, return_index=True, return_inverse=True, return_counts=True)[1:]
