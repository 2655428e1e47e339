"""Which tokens a head chooses, as rows (sentence, query, selected), and what can be said of them without an SVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._check import as_number
from ..data import Data, cross_attention
from .model import Head

TRAINING = 0.7  # share of the sentences whose queries may train the SVM; the others test it
ENDS = ("[SEP]", "</s>", "<|endoftext|>")  # besides a sentence's first token, what attention is parked on


def hard_queries(head: Head, threshold: float = 0.9, drop_sinks: bool = False) -> np.ndarray:
    """The queries that give one token most of their attention, and that token.

    Parameters
    ----------
    head : Head
    threshold : float
        In (0, 1): least attention probability of the selected token.
    drop_sinks : bool
        Leave out queries that select the first token of their sentence ([CLS] in BERT) or its end ([SEP]).  Heads park
        their attention there when they find nothing to do.

    Returns
    -------
    (k, 3) integer array
        Rows (sentence, query, selected): indices of the sentence, and of two of its tokens.  Queries that see only one
        token are left out, since they have no choice.

    Examples
    --------
    >>> import attsvm
    >>> (head,) = attsvm.heads.from_arrays([[[9.0, 0.0], [0.0, 9.0]]], [[1.0, 0.0]], [0.5], [[0.0, 2.0]], None)
    >>> attsvm.heads.hard_queries(head, threshold=0.9)
    array([[0, 0, 1],
           [0, 1, 1]])
    """
    threshold = as_number("threshold", threshold, above=0.0)
    if threshold >= 1:
        raise ValueError(f"threshold must lie below 1, got {threshold}")
    found = []
    for i in range(len(head.text.lengths)):
        prob = head.attention(i)
        queries = np.flatnonzero(prob.max(axis=1) > threshold)
        found.append(np.column_stack([np.full_like(queries, i), queries, prob[queries].argmax(axis=1)]))
    rows = np.concatenate(found)
    rows = rows[head.window(rows) > 1]
    return rows[~is_sink(head, rows)] if drop_sinks else rows


def is_sink(head: Head, rows: np.ndarray) -> np.ndarray:
    """Whether each row selects the first token of its sentence, or one that marks an end."""
    return (rows[:, 2] == 0) | np.isin(head.text.names(rows[:, 0], rows[:, 2]), ENDS)


def split(rows: np.ndarray, train: int, test: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """At most so many rows to train on and to test, in random order; no sentence gives rows to both."""
    sentences = rng.permutation(np.unique(rows[:, 0]))
    seen = np.isin(rows[:, 0], sentences[: round(TRAINING * len(sentences))])
    return rng.permutation(rows[seen])[:train], rng.permutation(rows[~seen])[:test]


def as_data(head: Head, rows: np.ndarray) -> tuple[Data, Any, np.ndarray]:
    """Windows, selected tokens in the shape of the data, and the rows in the order of its queries."""
    text = head.text
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    if head.causal:  # every query sees its own beginning of the sentence
        groups = list(rows[:, None])
        stops = rows[:, 1] + 1
    else:
        groups = np.split(rows, np.flatnonzero(np.diff(rows[:, 0])) + 1)
        stops = text.lengths[[group[0, 0] for group in groups]]
    begins = [text.begin[group[0, 0]] for group in groups]
    data = cross_attention(
        [text.keys[begin : begin + stop] for begin, stop in zip(begins, stops, strict=True)],
        [text.keys[begin + group[:, 1]] for begin, group in zip(begins, groups, strict=True)],
    )
    return data, data.layout.shape_queries(rows[:, 2]), rows


def flat(shaped: Any) -> np.ndarray:
    """Per-query or per-entry results one after the other, from an array or a list of them."""
    return np.concatenate([np.ravel(part) for part in shaped])


def baselines(head: Head, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Accuracy on ``test`` of five rules that need no SVM, by name.

    "offset k": the token k places after the query, for the k most frequent in ``train``.  "first token": [CLS] in
    BERT.  "frequent token": the token of the window that ``train`` selected most often, by its text.  "same word": the
    nearest other token with the query's own text.  "nearest query":
    as the training query nearest to this one did, that is the token nearest to the one it selected.
    """
    text = head.text
    offsets, counts = np.unique(train[:, 2] - train[:, 1], return_counts=True)
    offset = int(offsets[counts.argmax()])
    found = {
        f"offset {offset:+d}" if offset else "the query itself": test[:, 1] + offset == test[:, 2],
        "first token": test[:, 2] == 0,
    }
    windows = [text.begin[i] + np.arange(size) for i, size in zip(test[:, 0], head.window(test), strict=True)]
    if text.words is not None:
        names, counts = np.unique(text.names(train[:, 0], train[:, 2]), return_counts=True)
        often = dict(zip(names.tolist(), counts.tolist(), strict=True))
        guesses = [
            np.argmax([often.get(word, 0) for word in text.words[i][: len(window)]])
            for i, window in zip(test[:, 0], windows, strict=True)
        ]
        found["frequent token"] = np.array(guesses) == test[:, 2]
        guesses = [_twin(text.words[i][: len(window)], q) for (i, q, _), window in zip(test, windows, strict=True)]
        found["same word"] = np.array(guesses) == test[:, 2]
    nearest = _nearest(
        text.keys[text.begin[test[:, 0]] + test[:, 1]], text.keys[text.begin[train[:, 0]] + train[:, 1]]
    )
    copied = text.keys[text.begin[train[nearest, 0]] + train[nearest, 2]]
    guesses = [_nearest(x[None], text.keys[window])[0] for x, window in zip(copied, windows, strict=True)]
    found["nearest query"] = np.array(guesses) == test[:, 2]
    return {name: float(right.mean()) for name, right in found.items()}


def _twin(words: Sequence[str], query: int) -> int:
    """The nearest other place of the query's word, -1 if there is none."""
    places = [t for t, word in enumerate(words) if word == words[query] and t != query]
    return min(places, key=lambda t: abs(t - query), default=-1)


def _nearest(points: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Index of the row of ``among`` nearest to each of ``points``."""
    points, among = points.astype(np.float64), among.astype(np.float64)
    return ((among**2).sum(axis=1) - 2 * points @ among.T).argmin(axis=1)
