"""Makes substitutes for the weights W of an attention head from a few of its choices, from a rule, or at random."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..heads.cases import Cases, as_cases
from ..heads.choices import all_queries, hard_queries
from ..heads.controls import gaussian_factors, shuffled_factors
from ..heads.faithful import DRAWN, FIXED, OF_CHOICES
from ..heads.fit import scatter
from ..heads.head import Head
from ..svm.solve import solve_svm
from .replacement import as_form

TOL = 1e-4  # tolerance of the SVMs; their W has an error of about 1 %, which matters far less than a draw of choices
DECAY = 1e-4  # weight decay of the logistic regressions, whose tokens and queries are scaled to mean length 1
ITERATIONS = 20  # number of iterations of L-BFGS; on MiniLM, W then has cosine .9999 with the W of 100 iterations
WHITENED = 2000  # largest number of queries on whose logits the W of lower rank ("whitened cut") is fitted
HIDDEN = -1e300  # logit of a hidden token: finite, so that probability 0 times its logarithm is 0, not nan
KEPT = 4  # the W of a "cut" has the rank of the head's own W divided by this number


DRAWN_FACTORS = dict(zip(DRAWN, (gaussian_factors, shuffled_factors), strict=True))
Weights = tuple[np.ndarray, np.ndarray] | None  # K and Q of a substitute; None if the substitute has no W


@dataclass(frozen=True, eq=False)
class Source:
    """A head, its hard queries, and its best positional rule.

    ``rows`` has a row (sequence, query, selected token) for each hard query.  The rule selects the token ``offset``
    places after the query, or the first token if ``offset`` is None.  ``follows`` is the share of the hard queries that
    follow the rule.
    """

    head: Head
    rows: np.ndarray
    offset: int | None
    follows: float

    @property
    def rule(self) -> str:
        if self.offset is None:
            return "first token"
        return f"offset {self.offset:+d}" if self.offset else "the query itself"

    def labels(self, rows: np.ndarray) -> np.ndarray:
        """Rows (sequence, query, selected) of the queries that see the rule's token, with that token selected."""
        said = rows.copy()
        said[:, 2] = 0 if self.offset is None else rows[:, 1] + self.offset
        return said[[t in self.head.text.window(i, q) for i, q, t in said]]


def as_source(head: Head) -> Source:
    """The head with its hard queries and its best positional rule, as a source of substitutes.

    The rule is the most frequent offset or the first token, whichever more of the recorded hard queries follow.
    """
    rows = hard_queries(head)
    if not len(rows):
        return Source(head, rows, 0, float("nan"))
    offsets, counts = np.unique(rows[:, 2] - rows[:, 1], return_counts=True)
    first = int((rows[:, 2] == 0).sum())
    offset = None if first > counts.max() else int(offsets[counts.argmax()])
    return Source(head, rows, offset, max(first, int(counts.max())) / len(rows))


def made(source: Source, plan: list[tuple[str, int, int]], seed: int) -> list[Weights]:
    """The weights K and Q of a substitute for each item (column of the table, number of choices, draw) of a plan.

    The random numbers of a draw depend on the head, the draw and the seed only.  PyTorch computes on one thread: the
    matrices are small, so that a second thread doubles the time, and other workers run at the same time.
    """
    head, found = source.head, list[Weights]()
    with torch_threads(1):
        for column, n, draw in plan:
            W = _of_column(source, column, n, np.random.default_rng([seed, head.layer, head.number, draw]))
            kept = KEPT if column == "cut" else 1
            form = None if W is None else as_form(head, W, None if column in FIXED else "top", kept)
            found.append(None if form is None else (form.K.astype(np.float32), form.Q.astype(np.float32)))
    return found


@contextlib.contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """A context with this number of PyTorch threads; the old number is restored, since new threads would inherit it."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _of_column(source: Source, column: str, queries: int, rng: np.random.Generator) -> np.ndarray | None:
    """The W of a column of the table, or None if the column has no W or its SVM has no solution.

    For the column "cut" it is the head's own W, which the caller cuts.

    The columns of choices are made from ``queries`` hard queries, the same in all columns of a draw.
    """
    head = source.head
    if column in DRAWN:
        K, Q = DRAWN_FACTORS[column](head, rng)
        return K @ Q.T
    if column in ("own", "cut"):
        return head.W
    if column == "whitened cut":
        return _whitened_cut(head, max(1, head.rank // KEPT))
    rows = rng.permutation(source.rows)[:queries]
    if column == "SVM of the rule":
        rows = source.labels(rows)
    if column not in OF_CHOICES or not len(rows):
        return None
    cases = as_cases(head, rows)
    if column in ("SVM", "SVM of the rule"):
        return solve_svm(cases.data, cases.selected, tol=TOL).W
    if column == "distilled":
        return regression(cases, _probabilities(head, cases))
    targets = np.zeros(len(cases.tokens))
    targets[cases.data._begin + cases.selected] = 1.0
    return regression(cases, targets)


def _whitened_cut(head: Head, rank: int) -> np.ndarray:
    """The W of this rank whose logits differ least, in mean square over tokens and queries, from the head's logits."""
    rows = all_queries(head)
    cases = as_cases(head, rows[rows[:, 2] >= 0][:WHITENED])
    queries = cases.data.queries
    (root_x, back_x), (root_z, back_z) = map(_roots, (scatter(cases.data.keys, cases.blocks), queries.T @ queries))
    left, values, right = np.linalg.svd(root_x @ head.W @ root_z)
    return back_x @ (left[:, :rank] * values[:rank]) @ right[:rank] @ back_z


def _roots(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the square root of a matrix of second moments; and the pseudo-inverse of this root."""
    values, vectors = np.linalg.eigh(moments)
    kept = values > 1e-10 * values[-1]
    sizes, vectors = np.sqrt(values[kept]), vectors[:, kept]
    return (vectors * sizes) @ vectors.T, (vectors / sizes) @ vectors.T


def _probabilities(head: Head, cases: Cases) -> np.ndarray:
    """The head's own attention probability of each entry (query, token) of the cases."""
    attention = functools.lru_cache(1)(head.sequence_attention)  # rows come by sequence: only the last one is kept
    pairs = zip(cases.rows.tolist(), cases.split(cases.tokens), strict=True)
    return np.concatenate([attention(i)[q, window] for (i, q, _), window in pairs])


def regression(cases: Cases, targets: np.ndarray) -> np.ndarray:
    """The W whose attention has the least cross-entropy with the targets, found by L-BFGS with weak weight decay.

    ``targets`` has the probability of each entry (query, token).
    """
    data = cases.data

    def padded(entries: np.ndarray) -> torch.Tensor:
        """The entries of each query as a row, with zeros after its last token."""
        rows = list(map(torch.from_numpy, cases.split(entries)))
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    x, y, seen = map(padded, (data.keys[data._token_of()].astype(np.float64), targets, np.ones(len(targets))))
    z, hidden = torch.from_numpy(np.array(data.queries)), seen == 0
    x, z = x / x[~hidden].norm(dim=1).mean(), z / z.norm(dim=1).mean()
    W = torch.zeros(x.shape[2], z.shape[1], dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([W], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Any:
        solver.zero_grad()
        logits = torch.einsum("ntk,nk->nt", x, z @ W.mT).masked_fill(hidden, HIDDEN)
        value = torch.nn.functional.cross_entropy(logits, y) + DECAY / 2 * (W**2).sum()
        value.backward()
        return value

    with torch.enable_grad():
        solver.step(loss)
    return W.detach().numpy()
