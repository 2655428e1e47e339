"""The tokens that a head selects, as rows (sequence, query, selected), and simple rules that predict them."""

from collections import Counter

import numpy as np

from ..common.check import as_flag
from .head import Head, as_threshold, check_head

TRAINING = 0.7  # share of the sequences whose queries may train the SVM; the others test it
# The best rule is chosen by FOLDS-fold validation on the training rows, which stops once TRIED rows were predicted.
FOLDS, TRIED = 3, 500
FEW = 30  # a head with fewer hard queries is listed apart, since its choices are too few to analyse
ENDS = ("[SEP]", "</s>", "<|endoftext|>")  # end tokens, which heads attend to when no token is of use


def hard_queries(head: Head, threshold: float | None = None, drop_sinks: bool = False) -> np.ndarray:
    """The queries that give one token more attention than a threshold, each with that token.

    Parameters
    ----------
    head : Head
    threshold : float, optional
        Attention probability, in (0, 1), that the selected token must exceed.  By default the head's own threshold,
        which is 0.9 unless :func:`attsvm.torch.read` set another.
    drop_sinks : bool
        Leave out queries that select a sink: the first token of their sequence ([CLS] in BERT) or its end ([SEP]).
        Heads attend to sinks when no other token is of use to them.

    Returns
    -------
    (k, 3) integer array
        Rows (sequence, query, selected): indices of a sequence among those kept, of a query in it and of a token in
        it (padding not counted).  Queries that see only one token are left out, since they have no choice.

    Examples
    --------
    >>> (head,) = attsvm.heads.from_arrays([[[9.0, 0.0], [0.0, 9.0]]], [[1.0, 0.0]], [0.5], [[0.0, 2.0]], None)
    >>> attsvm.heads.hard_queries(head, threshold=0.9)
    array([[0, 0, 1],
           [0, 1, 1]])
    """
    check_head(head)
    threshold = head.threshold if threshold is None else as_threshold(threshold)
    rows = all_queries(head)[(head.choices.top > threshold) & (head.text.sizes > 1)]
    return rows[~is_sink(head, rows)] if as_flag("drop_sinks", drop_sinks) else rows


def all_queries(head: Head) -> np.ndarray:
    """All queries as rows (sequence, query, selected), where selected is -1 for a query that sees no token."""
    return np.column_stack([head.text.queries, head.choices.selected]).astype(np.intp)


def is_sink(head: Head, rows: np.ndarray) -> np.ndarray:
    """Whether the query of each row selects the first token of its sequence or an end token."""
    return (rows[:, 2] == 0) | np.isin(head.text.names(rows[:, 0], rows[:, 2]), ENDS)


def sink_value(head: Head, parked: np.ndarray) -> float:
    """Mean value length of the sinks that these rows select, over the mean value length in their sequences.

    If this ratio is far below 1, a query that selects a sink adds next to nothing to the residual stream.  If it is
    near 1, each such query adds the same vector.
    """
    if head.value_norms is None or len(parked) == 0:
        return np.nan
    text = head.text
    mean, seen = np.empty(len(text.lengths)), text.lengths > 0
    mean[seen] = np.add.reduceat(head.value_norms, text.begin[seen], dtype=np.float64) / text.lengths[seen]
    ratio = head.value_norms[text.begin[parked[:, 0]] + parked[:, 2]] / np.maximum(mean[parked[:, 0]], 1e-300)
    return float(ratio.mean())


def split(rows: np.ndarray, train: int, test: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns at most ``train`` training rows; and at most ``test`` test rows, drawn at random from other sequences."""
    sequences = rng.permutation(np.unique(rows[:, 0]))
    seen = np.isin(rows[:, 0], sequences[: round(TRAINING * len(sequences))])
    return rng.permutation(rows[seen])[:train], rng.permutation(rows[~seen])[:test]


def baselines(head: Head, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Accuracy on the rows ``test`` of six simple rules that guess the selected token without an SVM, by name.

    - "offset k": the token k places after the query, for the k that is most frequent in ``train``;
    - "first token": the first token of the sequence, [CLS] in BERT;
    - "frequent token": the token of the window whose text ``train`` selected most often;
    - "same word": the nearest other token with the query's own text;
    - "induction": the token after the last earlier token with the query's own text;
    - "nearest query": the token nearest to the token that the nearest training query selected.
    """
    text = head.text
    offsets, counts = np.unique(train[:, 2] - train[:, 1], return_counts=True)
    offset = offsets[counts.argmax()]
    by_offset = f"offset {offset:+d}" if offset else "the query itself"
    often = Counter(text.words[i][t] for i, _, t in train.tolist() if text.words is not None)
    points, among = (head.queries[text.query_rows(rows)].astype(np.float64) for rows in (test, train))
    nearest = ((among**2).sum(axis=1) - 2 * points @ among.T).argmin(axis=1)  # index of a training row
    copied = text.keys[text.begin[train[nearest, 0]] + train[nearest, 2]]
    right = []
    for (i, q, selected), x in zip(test.tolist(), copied, strict=True):
        window = text.window(i, q)
        guesses = {by_offset: q + offset, "first token": 0}
        if text.words is not None:
            words, tokens = text.words[i], window.tolist()
            guesses["frequent token"] = max(tokens, key=lambda t: often[words[t]])
            if head.kind == "self":  # -1 if there is no such token
                same = [t for t in tokens if words[t] == words[q] and t != q]
                guesses["same word"] = min(same, key=lambda t: abs(t - q), default=-1)
                after = [t for t in tokens if 0 < t <= q and words[t - 1] == words[q]]
                guesses["induction"] = max(after, default=-1)
        guesses["nearest query"] = window[np.square(text.keys[text.begin[i] + window] - x).sum(axis=1).argmin()]
        right.append([token == selected for token in guesses.values()])
    return dict(zip(guesses, np.mean(right, axis=0).tolist(), strict=True))


def best_rule(head: Head, train: np.ndarray, test: np.ndarray) -> tuple[str, dict[str, float]]:
    """Returns the name of the rule that is best in validation on training rows; and each rule's accuracy on test rows.

    In the validation a rule is fitted on two thirds of the training sequences and tried on the other third.  The rule
    is not chosen on the test rows: the best of several equal rules would look better there than any of them is.
    """
    fold = np.unique(train[:, 0], return_inverse=True)[1] % FOLDS
    right, tried = np.zeros(1), 0
    for k in range(FOLDS):
        seen, unseen = train[fold != k], train[fold == k]
        if len(seen) and len(unseen) and tried < TRIED:
            right = right + len(unseen) * np.array(list(baselines(head, seen, unseen).values()))
            tried += len(unseen)
    found = baselines(head, train, test)
    return list(found)[right.argmax()], found
