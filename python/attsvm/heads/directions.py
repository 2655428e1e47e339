"""Names for the singular directions of a head's W: which queries and tokens load each of them most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .cases import Cases, as_cases
from .choices import all_queries
from .head import Head

QUERIES = 1000  # on which directions are named
LOADING = 40  # of these, that load a direction most
WORDS = 4  # of each side that are named
SAME = 0.6  # share of them at one place, from which on the place is named
PLACES = {0: "the query itself", 1: "the token after", -1: "the token before"}


@dataclass(frozen=True, eq=False)
class Direction:
    """One term ``s u v^T`` of W, as the queries and tokens say that load it most.

    Attributes
    ----------
    number : int
        From 0, the largest singular value first.
    value : float
        Its singular value s.
    share : float
        Its part of the mean margin of choices over their nearest rivals: they add up to 1 over all directions.
    queries, tokens : list of str
        The most frequent words among the queries that it moves most, and among the tokens they select.
    place : str
        Where these tokens stand, if most stand at one place relative to the query, or first; else empty.
    """

    number: int
    value: float
    share: float
    queries: list[str]
    tokens: list[str]
    place: str

    def __str__(self) -> str:
        """Such as: “the”, “a” → the token after; empty where no side has a name."""
        queries, tokens = (", ".join(f"“{word}”" for word in words) for words in (self.queries, self.tokens))
        known = queries or self.place or tokens
        return f"{queries or 'queries'} → {self.place or tokens or 'tokens'}" if known else ""


def name_directions(head: Head, rows: np.ndarray, W: np.ndarray | None = None, most: int = 8) -> list[Direction]:
    """Of W, by default the head's own, on these rows (sequence, query, selected).

    A query loads a direction by ``s (u . (x_selected - m)) (v . z)``, with the mean m of the tokens it sees: how much
    the direction moves its choice ahead of the others.  Without rows, all recorded queries are taken.
    """
    rows = all_queries(head) if len(rows) == 0 else rows
    rows = rows[(rows[:, 2] >= 0) & (head.window(rows) > 1)][:QUERIES]
    if len(rows) == 0:
        return []
    cases = as_cases(head, rows)
    data, (left, values, right) = cases.data, directions(head, W)
    ahead = data._flat_margins(head.W if W is None else W, cases.selected)
    margins = shares(cases, cases.nearest(ahead), left, values, right).mean(axis=0)
    loads, queries = np.asarray(data.keys, np.float64) @ left, data.queries @ right
    means = np.add.reduceat(loads[data._token_of()], data.indptr[:-1]) / data.lengths[:, None]
    moved = (loads[data.start + cases.selected] - means) * queries * values
    total = float(margins.sum())
    found = []
    for k in range(min(most, len(values))):
        top = np.argsort(-moved[:, k], kind="stable")[:LOADING]
        side = np.sign(queries[top, k]) == np.sign(queries[top, k].sum())  # the others load it with both signs changed
        at = cases.rows[top[side]]
        found.append(
            Direction(
                k, float(values[k]), float(margins[k]) / total if total else np.nan,
                _frequent(head.text.query_names(at[:, 0], at[:, 1]), head.text.query_words is not None),
                _frequent(head.text.names(at[:, 0], at[:, 2]), head.text.words is not None), _place(head, at),
            )
        )  # fmt: skip
    return found


def shares(cases: Cases, entries: np.ndarray, left: np.ndarray, values: np.ndarray, right: np.ndarray) -> np.ndarray:
    """What each direction adds to the margins of these entries, (k, r): ``s (u . (x_selected - x_t)) (v . z)``."""
    ahead, queries = cases.pairs(entries)
    return values * (ahead @ left) * (queries @ right)


def _frequent(names: np.ndarray, known: bool) -> list[str]:
    if not known or len(names) == 0:
        return []
    words, first, counts = np.unique(names, return_index=True, return_counts=True)
    return [str(words[i]) for i in np.lexsort((first, -counts))[:WORDS]]


def _place(head: Head, rows: np.ndarray) -> str:
    if len(rows) == 0:
        return ""
    if (rows[:, 2] == 0).mean() >= SAME:
        return "the first token"
    offsets, counts = np.unique(rows[:, 2] - rows[:, 1], return_counts=True)
    if head.kind == "cross" or counts.max() < SAME * len(rows):
        return ""
    offset = int(offsets[counts.argmax()])
    return PLACES.get(offset, f"the token {abs(offset)} {'after' if offset > 0 else 'before'}")


def directions(head: Head, W: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular directions u_i, values s_i and directions v_i of W (by default the head's own), as (dk, r), (r,) and
    (dz, r) arrays; rounding's are left out."""
    if W is None:
        (left, K), (right, Q) = np.linalg.qr(head.K), np.linalg.qr(head.Q)
        inner, values, outer = np.linalg.svd(K @ Q.T)
        left, right = left @ inner, right @ outer.T
    else:
        left, values, outer = np.linalg.svd(W, full_matrices=False)
        right = outer.T
    rank = max(1, int((values > 1e-12 * values[0]).sum()))
    return left[:, :rank], values[:rank], right[:, :rank]
