"""Names the singular directions of an attention head's W by the queries and tokens with the largest loadings."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from .cases import as_cases
from .choices import all_queries
from .head import Head
from .sequences import printable

QUERIES = 1000  # largest number of queries from which directions are named
LOADING = 40  # number of queries that name a direction: the queries with the largest loadings on it
WORDS = 4  # largest number of words of queries, and of tokens, in the name of a direction
SAME = 0.6  # a direction is named by a position if at least this share of its tokens stand there
PLACES = {0: "the query itself", 1: "the token after", -1: "the token before"}


class Direction(NamedTuple):
    """One term ``s u v^T`` of W, named by the queries and tokens that load it most.

    Attributes
    ----------
    number : int
        Counted from 0, in the order of decreasing singular values.
    value : float
        The singular value s.
    share : float
        The direction's share of the mean margin of the selected tokens over their nearest rivals.  The shares of all
        directions add up to 1.
    queries, tokens : list of str
        The most frequent words among the queries that load the direction most, and among the tokens they select.
    place : str
        Position of these tokens, if most of them are first or stand at one offset from their query; else empty.
    """

    number: int
    value: float
    share: float
    queries: list[str]
    tokens: list[str]
    place: str

    def __str__(self) -> str:
        """Name of the direction, such as “the”, “a” → the token after, or "" if it has neither words nor a place."""
        queries, tokens = (", ".join(f"“{word}”" for word in words) for words in (self.queries, self.tokens))
        known = queries or self.place or tokens
        return f"{queries or 'queries'} → {self.place or tokens or 'tokens'}" if known else ""


def name_directions(head: Head, rows: np.ndarray, W: np.ndarray | None = None, most: int = 8) -> list[Direction]:
    """The leading singular directions of W (by default the head's own), named by the words of these rows.

    The rows are (sequence, query, selected).

    A query loads a direction by ``s (u . (x_selected - m)) (v . z)``, where m is the mean of the tokens that it sees.
    This is what the direction adds to the logit of the selected token, relative to the mean logit.  Without rows, all
    recorded queries are used.
    """
    rows = all_queries(head) if len(rows) == 0 else rows
    rows = rows[(rows[:, 2] >= 0) & (head.window(rows) > 1)][:QUERIES]  # logits that overflow select no token
    if len(rows) == 0:
        return []
    cases = as_cases(head, rows)
    data, (left, values, right) = cases.data, directions(head, W)
    ahead = data._flat_margins(head.W if W is None else W, cases.selected)
    margins = cases.shares(cases.nearest(ahead), left, values, right).mean(axis=0)
    loads, queries = np.asarray(data.keys, np.float64) @ left, data.queries @ right
    means = np.add.reduceat(loads[data._token_of()], data._begin) / data.lengths[:, None]
    moved = (loads[data.start + cases.selected] - means) * queries * values
    total = float(margins.sum())
    found = []
    for k in range(min(most, len(values))):
        top = np.argsort(-moved[:, k], kind="stable")[:LOADING]
        # Keep the queries whose loading has the sign of the sum of all loadings; the other queries load -u and -v.
        side = (queries[top, k] >= 0) == (queries[top, k].sum() >= 0)
        at = cases.rows[top[side]]
        found.append(
            Direction(
                k, float(values[k]), float(margins[k]) / total if total else np.nan,
                _frequent(head.text.query_words, at[:, :2]), _frequent(head.text.words, at[:, ::2]), _place(head, at),
            )
        )  # fmt: skip
    return found


def _frequent(words: Any, places: np.ndarray) -> list[str]:
    """The most frequent of the words at these places (sequence, position)."""
    found = Counter(printable(words[i][t]) for i, t in places.tolist() if words is not None)
    return [word for word, _ in found.most_common(WORDS)]


def _place(head: Head, rows: np.ndarray) -> str:
    if (rows[:, 2] == 0).mean() >= SAME:
        return "the first token"
    ((offset, count),) = Counter((rows[:, 2] - rows[:, 1]).tolist()).most_common(1)
    if head.kind == "cross" or count < SAME * len(rows):
        return ""
    return PLACES.get(offset, f"the token {abs(offset)} {'after' if offset > 0 else 'before'}")


def directions(head: Head, W: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The singular value decomposition of W (by default the head's own): u (dk, r), s (r,) and v (dz, r).

    Singular values that are rounding are left out, with their vectors.
    """
    return decompose(head.K, head.Q) if W is None else decompose(W, np.eye(W.shape[1]))


def decompose(K: np.ndarray, Q: np.ndarray, least: float = 1e-12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The singular value decomposition of ``K Q^T``: u (dk, r), s (r,) and v (dz, r).

    Singular values below ``least`` times the largest are left out, except the first.
    """
    (left, R), (right, S) = np.linalg.qr(K), np.linalg.qr(Q)
    inner, values, outer = np.linalg.svd(R @ S.T, full_matrices=False)
    rank = max(1, np.count_nonzero(values > least * values[0]))
    return left @ inner[:, :rank], values[:rank], right @ outer[:rank].T
