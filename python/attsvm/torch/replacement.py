"""What stands in a head's place: another W, or a rule that says which token each query attends to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..common.check import as_floats
from ..heads.choices import hard_queries
from ..heads.head import Head

RULE = re.compile(r"offset ([+-]?\d+)|the query itself|first token")
OF_WORDS = ("frequent token", "same word", "induction")
KNOWN = "an array, 'uniform', 'none', 'offset +1' (any number), 'the query itself', 'first token' or 'nearest query'"
LOGITS = 200_000  # on which a scale is found: tops of 8,000 queries with 25 tokens, their mean known to .003
STEPS = 40  # of its bisection, over WIDEST natural logarithms to either side
WIDEST = 12.0


@dataclass(eq=False)
class Call:
    """One head's part of an attention call: tokens (B, T, dk), queries (B, S, dz), who sees what (B, S, T), the logits'
    bias (B, S, T), sink (B, S) and cap, or None; ``first``: each sequence's first token that is not padding (B,)."""

    x: torch.Tensor
    z: torch.Tensor
    seen: torch.Tensor
    bias: torch.Tensor | None
    sink: torch.Tensor | None
    cap: float | None

    @property
    def first(self) -> torch.Tensor:
        return self.seen.any(1).int().argmax(1)


Replacement = Callable[[Call], torch.Tensor]  # its attention (B, S, T)


@dataclass(eq=False)
class Form:
    """Attention of ``W = K Q^T``."""

    K: np.ndarray
    Q: np.ndarray
    held: dict[Any, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def __call__(self, call: Call) -> torch.Tensor:
        key = call.x.dtype, call.x.device
        if key not in self.held:
            K, Q = (torch.from_numpy(x).to(*key[::-1]) for x in (self.K, self.Q))
            self.held[key] = K, Q
        product, bias = _parts(call, *self.held[key])
        logits = _capped(product, call.cap) if bias is None else _capped(product, call.cap) + bias
        logits = torch.where(call.seen, logits, -torch.inf)
        if call.sink is None:
            return torch.softmax(logits, -1)
        return torch.softmax(torch.cat([logits, call.sink[..., None]], -1), -1)[..., :-1]


def nothing(call: Call) -> torch.Tensor:
    """The head's output is zero."""
    return torch.zeros_like(uniform(call))


def offset(places: int | None, cross: bool) -> Replacement:
    """All attention on the token so many places after the query; None: on the first one.  Equal attention where the
    query does not see it."""

    def attention(call: Call) -> torch.Tensor:
        at = torch.arange(call.z.shape[1], device=call.x.device)[None]
        begin = call.first[:, None]
        return _one_hot(call, begin.expand(-1, at.shape[1]) if places is None else at + places + begin * cross)

    return attention


def nearest(queries: np.ndarray, copied: np.ndarray) -> Replacement:
    """All attention on the token nearest to the one that the most similar of recorded queries selected."""

    def attention(call: Call) -> torch.Tensor:
        known, tokens = (torch.from_numpy(x).to(call.x) for x in (queries, copied))
        wanted = tokens[torch.cdist(call.z, known[None]).argmin(-1)]
        distances = torch.where(call.seen, torch.cdist(wanted, call.x), torch.inf)
        return _one_hot(call, distances.argmin(-1))

    return attention


def as_replacement(head: Head, value: Any, scale: str | None) -> Replacement:
    """What stands in the head's place by this name, or this W."""
    name = f"values[{head.label}]"
    if not isinstance(value, str):
        return as_form(head, as_floats(name, value, "dk, dz", (len(head.K), len(head.Q))), scale)
    if value in ("uniform", "none"):
        return uniform if value == "uniform" else nothing
    if value == "nearest query":
        rows = hard_queries(head)[: head.most]
        if not len(rows):
            raise ValueError(f"{name} = 'nearest query' needs queries to copy, and {head.label} has none that are hard")
        text = head.text
        copied = text.keys[text.begin[rows[:, 0]] + rows[:, 2]]
        return nearest(np.array(head.queries[text.query_rows(rows)]), np.array(copied))
    rule = RULE.fullmatch(value)
    if rule is None:
        why = ": that rule needs the tokens as text, which a forward pass does not hold" * (value in OF_WORDS)
        raise ValueError(f"{name} must be {KNOWN}, got {value!r}{why}")
    return offset(None if value == "first token" else int(rule[1] or 0), head.kind == "cross")


def as_form(head: Head, W: np.ndarray, scale: str | None) -> Form:
    """W cut to the head's rank."""
    left, sizes, right = np.linalg.svd(W, full_matrices=False)
    roots = np.sqrt(sizes[: head.rank])
    K, Q = left[:, : head.rank] * roots, right[: head.rank].T * roots
    return Form(K, Q * matching_scale(head, K, Q) if scale == "top" else Q)


def matching_scale(head: Head, K: np.ndarray, Q: np.ndarray) -> float:
    """The factor on ``K Q^T`` at which its mean largest attention on the head's recorded text is the head's own.

    Of the first sequences that hold ``LOGITS`` logits, and of queries that see several tokens.
    """
    K_, Q_ = torch.from_numpy(K), torch.from_numpy(Q)
    products, biases, own = [], [], []
    sinks: list[float] = []
    for call, tops in _recorded(head):
        product, bias = _parts(call, K_, Q_)
        products += list(torch.where(call.seen, product, -torch.inf)[0])
        biases += [] if bias is None else list(bias[0])
        sinks += [] if call.sink is None else call.sink[0].tolist()
        own.append(tops)
    if not products:
        raise ValueError(f"scale='top' needs queries that see several tokens, and {head.label} recorded none")
    product = torch.nn.utils.rnn.pad_sequence(products, batch_first=True, padding_value=-torch.inf)
    bias = torch.nn.utils.rnn.pad_sequence(biases, batch_first=True) if biases else torch.zeros(())
    cap, wanted = None if head.given is None else head.given.cap, float(np.mean(np.concatenate(own)))
    size = float(torch.where(product.isfinite(), product + bias, 0).abs().max())
    if size == 0:
        return 1.0

    def top(scale: float) -> float:
        logits = _capped(scale * product, cap) + scale * bias
        logits = torch.cat([logits, torch.tensor(sinks, dtype=logits.dtype)[:, None]], 1) if sinks else logits
        return float(torch.softmax(logits, 1)[:, : product.shape[1]].amax(1).mean())

    low, high = -WIDEST, WIDEST
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if top(math.exp(middle) / size) < wanted else (low, middle)
    return math.exp((low + high) / 2) / size


def _recorded(head: Head) -> Iterator[tuple[Call, np.ndarray]]:
    """Recorded sequences as calls, with the largest attention of their queries that see several tokens."""
    text, given, held = head.text, head.given, 0
    for i, (S, T) in enumerate(zip(text.counts.tolist(), text.lengths.tolist(), strict=True)):
        if held and held + S * T > LOGITS:
            return
        held += S * T
        seen = text.seen(i)
        several = seen.sum(axis=1) > 1
        if not several.any():
            continue
        rows = text.query_begin[i] + np.flatnonzero(several)
        x = text.keys[text.begin[i] : text.begin[i] + T]
        bias = sink = None
        if given is not None and given.bias is not None:
            bias = np.broadcast_to(given.bias[i], (S, T))[several]
        if given is not None and given.sink is not None:
            sink = given.sink[i][several]
        arrays = (
            None if a is None else torch.from_numpy(np.array(a, np.float64))[None]
            for a in (x, head.queries[rows], bias, sink)
        )  # fmt: skip
        keys, queries, biases, sinks = arrays
        visible = torch.from_numpy(seen[several])[None]
        yield Call(keys, queries, visible, biases, sinks, None if given is None else given.cap), head.choices.top[rows]


def _parts(call: Call, K: torch.Tensor, Q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Products of tokens and queries, and what a bias adds: through the last row of K and Q where there is one for it,
    and else as it is."""
    dk, dz = call.x.shape[-1], call.z.shape[-1]
    queries = call.z @ Q[:dz] + (Q[dz] if len(Q) > dz else 0)
    product = queries @ (call.x @ K[:dk]).mT
    if call.bias is None:
        return product, None
    return product, call.bias if len(K) == dk else call.bias * (queries @ K[dk])[..., None]


def _capped(product: torch.Tensor, cap: float | None) -> torch.Tensor:
    """-inf of hidden tokens stays."""
    return product if cap is None else torch.where(product.isfinite(), cap * torch.tanh(product / cap), product)


def uniform(call: Call) -> torch.Tensor:
    seen = call.seen.to(call.x.dtype)
    return seen / seen.sum(-1, keepdim=True)


def _one_hot(call: Call, wanted: torch.Tensor) -> torch.Tensor:
    tokens = torch.arange(call.seen.shape[-1], device=wanted.device)
    there = (wanted[..., None] == tokens) & call.seen
    return torch.where(there.any(-1, keepdim=True), there.to(call.x.dtype), uniform(call))
