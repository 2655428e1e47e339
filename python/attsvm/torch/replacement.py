"""Substitutes for a head's attention: another W, or a rule that gives the token of each query."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..common.check import as_floats
from ..heads.choices import hard_queries
from ..heads.directions import directions
from ..heads.head import Head, Logits
from .standard_form import attend, capped

RULE = re.compile(r"offset ([+-]?\d+)|the query itself|first token")
OF_WORDS = ("frequent token", "same word", "induction")
KNOWN = "an array, 'uniform', 'none', 'offset +1' (any number), 'the query itself', 'first token' or 'nearest query'"
# The scale of a substitute W is found from this number of logits, such as 8,000 queries with 25 tokens each.
LOGITS = 200_000  # With this number of logits, the mean of the queries' largest probabilities has an error of .003.
WIDEST = 12.0  # the scale is one of those at which the largest logit is between exp(-WIDEST) and exp(WIDEST)
SCALES = 2**40  # number of these scales; bisection finds one in 40 steps


@dataclass(eq=False)
class Call:
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
    product, bias, seen = (torch.nn.utils.rnn.pad_sequence(part, batch_first=True) for part in zip(*rows, strict=True))
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
    tokens = torch.arange(call.seen.shape[-1], device=wanted.device)
    there = (wanted[..., None] == tokens) & call.seen
    return torch.where(there.any(-1, keepdim=True), there.to(call.x.dtype), uniform(call))
