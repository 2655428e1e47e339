"""Queries that repeat each other and prefer tokens in a circle: no weights can, which shows without solving anything.

Rows ``(x_a - x_t) z^T`` of one query vector z are the edges a -> t of a graph over the tokens; around a circle they add
up to zero.  Labels that are somebody's opinion, and tokens out of a vocabulary, make such circles.
"""

from __future__ import annotations

import numpy as np

from ._selection import Selection
from .data import Data

ALONE = -1


def circle(data: Data, selection: Selection) -> np.ndarray | None:
    """The entries of rows that add up to zero, of one selected token per query; None: there is no circle, or the
    selection is another one."""
    if selection.kept is not None or selection.rhs is not None:
        return None
    first = np.sort(data.queries[:, 0])
    if not (first[1:] == first[:-1]).any():  # rows of one query have the same tail: a circle takes two
        return None
    same = _classes(data.queries, np.arange(len(data)))
    queries = np.flatnonzero(same != ALONE)
    lengths = (data.stop - data.start)[queries]
    if ((selection.reference[queries] < 0) | (selection.reference[queries] >= lengths)).any():
        return None  # which C will say
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    entry = within + np.repeat(data.indptr[queries], lengths)
    token = within + np.repeat(data.start[queries], lengths)
    chosen = np.repeat(data.start[queries] + selection.reference[queries], lengths)
    kinds = np.full(len(data.keys), ALONE)
    met = np.flatnonzero(np.bincount(token))
    kinds[met] = _classes(data.keys, met)
    tail, head, vector = kinds[chosen], kinds[token], np.repeat(same[queries], lengths)
    edges = np.flatnonzero((tail != ALONE) & (head != ALONE) & (tail != head))
    nodes = np.array([tail, head])[:, edges] + vector[edges] * (kinds.max() + 1)
    tail, head = np.unique(nodes, return_inverse=True)[1].reshape(2, -1)
    found = _around(tail, head)
    return None if found is None else entry[edges[found]]


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


def _around(tail: np.ndarray, head: np.ndarray) -> list[int] | None:
    """Edges of a graph that lead around a circle."""
    edges = np.arange(len(tail))
    while True:  # without those that nothing leads to, or that lead nowhere
        reached, left = np.zeros((2, 1 + max(tail.max(initial=0), head.max(initial=0))), dtype=bool)
        reached[head[edges]] = left[tail[edges]] = True
        stay = reached[tail[edges]] & left[head[edges]]
        if stay.all():
            break
        edges = edges[stay]
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
