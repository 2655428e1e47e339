"""Substitutes for a head's attention: another W, given or made from choices of the head, or a rule for the token."""

import bisect
import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..common.check import as_floats
from ..heads.cases import Cases, as_cases
from ..heads.choices import all_queries, hard_queries
from ..heads.controls import gaussian_factors, shuffled_factors
from ..heads.directions import directions
from ..heads.faithful import DRAWN, FIXED, OF_CHOICES
from ..heads.fit import scatter
from ..heads.head import Head, Logits
from ..svm.solve import solve_svm
from .standard_form import attend, capped

RULE = re.compile(r"offset ([+-]?\d+)|the query itself|first token")
OF_WORDS = ("frequent token", "same word", "induction")
KNOWN = "an array, 'uniform', 'none', 'offset +1' (any number), 'the query itself', 'first token' or 'nearest query'"
# The scale of a substitute W is found from this number of logits, such as 8,000 queries with 25 tokens each.
LOGITS = 200_000  # With this number of logits, the mean of the queries' largest probabilities has an error of .003.
WIDEST = 12.0  # the scale is one of those at which the largest logit is between exp(-WIDEST) and exp(WIDEST)
SCALES = 2**40  # number of these scales; bisection finds one in 40 steps

TOL = 1e-4  # tolerance of the SVMs; their W has an error of about 1 %, which matters far less than a draw of choices
DECAY = 1e-4  # weight decay of the logistic regressions, whose tokens and queries are scaled to mean length 1
ITERATIONS = 20  # number of iterations of L-BFGS; on MiniLM, W then has cosine .9999 with the W of 100 iterations
WHITENED = 2000  # largest number of queries on whose logits the W of lower rank ("whitened cut") is fitted
HIDDEN = -1e300  # logit of a hidden token: finite, so that probability 0 times its logarithm is 0, not nan
KEPT = 4  # the W of a "cut" has the rank of the head's own W divided by this number

DRAWN_FACTORS = dict(zip(DRAWN, (gaussian_factors, shuffled_factors), strict=True))
Weights = tuple[np.ndarray, np.ndarray] | None  # K and Q of a substitute; None if the substitute has no W


class Call(NamedTuple):
    """The arrays of one head in an attention call.

    ``x`` are tokens (B, T, dk), ``z`` queries (B, S, dz).  ``seen`` (B, S, T) says whether a query sees a token.
    ``bias`` (B, S, T), ``sink`` (B, S) and ``cap`` act on the logits, or are None.
    """

    x: Tensor
    z: Tensor
    seen: Tensor
    bias: Tensor | None
    sink: Tensor | None
    cap: float | None


Replacement = Callable[[Call], Tensor]  # a substitute: returns attention probabilities (B, S, T)


@dataclass(eq=False)
class Form:
    """A substitute for a head: attention whose logits are ``x^T W z`` with ``W = K Q^T``."""

    K: np.ndarray
    Q: np.ndarray

    def __call__(self, call: Call) -> Tensor:
        product, bias = _parts(call, self.K, self.Q)
        return attend(capped(product, call.cap), call.seen, bias, call.sink)


def nothing(call: Call) -> Tensor:
    """A substitute without attention: all probabilities are zero, and so is the head's output."""
    return torch.zeros_like(call.seen, dtype=call.x.dtype)


def offset(places: int | None, cross: bool) -> Replacement:
    """A substitute with all attention on the token ``places`` after the query (None: on the first token).

    A query that does not see this token attends to all tokens equally.
    """

    def attention(call: Call) -> Tensor:
        at = torch.arange(call.z.shape[1], device=call.x.device)
        begin = call.seen.any(1).int().argmax(1, keepdim=True)  # the first token that is not padding
        return _one_hot(call, begin if places is None else at + places + begin * cross)

    return attention


def nearest(head: Head) -> Replacement:
    """A substitute with all attention on the token nearest to the one that the nearest recorded hard query selected."""
    rows, text = hard_queries(head)[: head.most], head.text
    if not len(rows):
        raise ValueError(
            f"values[{head.label}] = 'nearest query' needs queries to copy, and {head.label} has none that are hard"
        )
    recorded = head.queries[text.query_rows(rows)], text.keys[text.begin[rows[:, 0]] + rows[:, 2]]

    def attention(call: Call) -> Tensor:
        known, tokens = (torch.from_numpy(np.array(x)).to(call.x) for x in recorded)
        wanted = tokens[torch.cdist(call.z, known[None]).argmin(-1)]
        distances = torch.where(call.seen, torch.cdist(wanted, call.x), torch.inf)
        return _one_hot(call, distances.argmin(-1))

    return attention


def as_replacement(head: Head, value: Any, scale: str | None = None) -> Replacement:
    """The substitute for a head that ``value`` describes: the name of a rule, or an array W."""
    name = f"values[{head.label}]"
    if not isinstance(value, str):
        return as_form(head, as_floats(name, value, "dk, dz", (len(head.K), len(head.Q))), scale)
    if value == "uniform":
        return uniform
    if value == "none":
        return nothing
    if value == "nearest query":
        return nearest(head)
    rule = RULE.fullmatch(value)
    if rule is None:
        why = ": that rule needs the tokens as text, which a forward pass does not hold" * (value in OF_WORDS)
        raise ValueError(f"{name} must be {KNOWN}, got {value!r}{why}")
    return offset(None if value == "first token" else int(rule[1] or 0), head.kind == "cross")


def as_form(head: Head, W: np.ndarray, scale: str | None, kept: int = 1) -> Form:
    """The substitute made of W, cut to the head's rank divided by ``kept``.

    If ``scale`` is "top", :func:`matching_scale` scales it.
    """
    left, sizes, right = (part[..., : max(1, head.rank // kept)] for part in directions(head, W))
    K, Q = left * np.sqrt(sizes), right * np.sqrt(sizes)
    return Form(K, Q * matching_scale(head, K, Q) if scale == "top" else Q)


def matching_scale(head: Head, K: np.ndarray, Q: np.ndarray) -> float:
    """The factor on ``K Q^T`` at which the queries' largest attention on recorded text has the head's own mean.

    The mean is over the queries of the first sequences, up to ``LOGITS`` logits, that see several tokens.
    """
    calls, tops = zip(*_recorded(head), strict=True)
    rows = [row for call in calls for row in zip(*_parts(call, K, Q), call.seen, strict=True)]
    if not rows:
        raise ValueError(f"scale='top' needs queries that see several tokens, and {head.label} recorded none")
    product, bias, seen = (pad_sequence(part, batch_first=True) for part in zip(*rows, strict=True))
    cap, sink = calls[0].cap, None if calls[0].sink is None else torch.cat([call.sink for call in calls])
    size, wanted = float(torch.where(seen, product + bias, 0).abs().max()), float(np.concatenate(tops).mean())
    if size == 0:
        return 1.0

    def numbered(i: int) -> float:
        return math.exp(WIDEST * (2 * i / SCALES - 1)) / size

    def top(i: int) -> float:
        scale = numbered(i)
        return float(attend(capped(scale * product, cap), seen, scale * bias, sink).amax(1).mean())

    return numbered(bisect.bisect_left(range(SCALES), wanted, key=top))


def _recorded(head: Head) -> Iterator[tuple[Call, np.ndarray]]:
    """Yields recorded sequences as calls without the batch axis, and the top attention of their queries.

    Only the queries that see several tokens are among them.
    """
    text = head.text
    given = Logits(head.queries, text.keys, 1.0) if head.given is None else head.given
    held = np.cumsum(text.counts * text.lengths)
    for i in range(max(1, int((held <= LOGITS).sum()))):
        seen = text.seen(i)
        several = seen.sum(axis=1) > 1
        rows = text.query_begin[i] + np.flatnonzero(several)
        x, z, bias, sink = (
            None if a is None else torch.from_numpy(np.array(a, np.float64))
            for a in (
                text.keys[text.begin[i] :][: text.lengths[i]], head.queries[rows],
                None if given.bias is None else np.broadcast_to(given.bias[i], seen.shape)[several],
                None if given.sink is None else given.sink[i][several],
            )
        )  # fmt: skip
        yield Call(x, z, torch.from_numpy(seen[several]), bias, sink, given.cap), head.choices.top[rows]


def _parts(call: Call, *factors: np.ndarray) -> tuple[Tensor, Tensor]:
    """Returns two terms of the logits: products of tokens and queries through K and Q; and the bias, zero if none.

    If K and Q have a last row for the bias, the bias is multiplied through that row.  Otherwise it is added unchanged.
    """
    K, Q = (torch.from_numpy(factor).to(call.x) for factor in factors)
    dk, dz = call.x.shape[-1], call.z.shape[-1]
    queries = call.z @ Q[:dz] + Q[dz:].sum(0)
    product = queries @ (call.x @ K[:dk]).mT
    if call.bias is None:
        return product, torch.zeros_like(product)
    return product, call.bias * (queries @ K[dk])[..., None] if len(K) > dk else call.bias


def uniform(call: Call) -> Tensor:
    seen = call.seen.to(call.x.dtype)
    return seen / seen.sum(-1, keepdim=True)


def _one_hot(call: Call, wanted: Tensor) -> Tensor:
    there = (wanted[..., None] == torch.arange(call.seen.shape[-1], device=wanted.device)) & call.seen
    return torch.where(there.any(-1, keepdim=True), there.to(call.x.dtype), uniform(call))


class Source(NamedTuple):
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
    windows = cases.split(cases.tokens)
    return np.concatenate([attention(i)[q, window] for (i, q, _), window in zip(cases.rows, windows, strict=True)])


def regression(cases: Cases, targets: np.ndarray) -> np.ndarray:
    """The W whose attention has the least cross-entropy with the targets, found by L-BFGS with weak weight decay.

    ``targets`` has the probability of each entry (query, token).
    """
    data = cases.data

    def padded(entries: np.ndarray) -> Tensor:
        """The entries of each query as a row, with zeros after its last token."""
        return pad_sequence([torch.from_numpy(row) for row in cases.split(entries)], batch_first=True)

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
