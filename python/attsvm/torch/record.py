"""What attention calls leave behind: a layer's kept sequences, and the heads made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..heads.head import Choices, Head, Logits
from ..heads.sequences import Text
from .batch import Batch
from .residual import Residual, disagreement, find_residual, tolerance, with_one
from .sampling import Column, Sample
from .standard_form import OneSequence, Standard, sequence, shared_heads, standardize
from .watch import Attention


@dataclass(eq=False)
class KeptSequence:
    """One sequence of a layer, its padding cut off.  ``entry``: its number among all entries of all batches."""

    entry: int
    number: int
    place: tuple[int, int, int, int]
    tokens: int
    arrays: dict[str, Any]
    start: np.ndarray
    stop: np.ndarray
    gaps: np.ndarray | None
    bias: np.ndarray | None
    sink: np.ndarray | None
    choices: Choices
    value_norms: np.ndarray | None
    words: list[str] | None
    query_words: list[str] | None


class Layer:
    """The sequences of one attention call of the forward pass."""

    def __init__(self, number: int, space: str, store: Path | None):
        self.number, self.space = number, space
        self.kept: list[KeptSequence] = []
        self.passed = 0  # sequences so far
        self.module, self.kind = "", "self"
        self.shared, self.scale = 1, 0.0
        self.cap: float | None = None
        self.residual: Residual | None = None
        self.first: Standard | None = None
        self.columns = {name: Column(f"layer-{number}-{name}", store) for name in ("q", "k", "x", "z")}

    def begin(self, standard: Standard) -> None:
        """Of the first batch: names, shared keys, and the space."""
        call = standard.call
        self.module, self.scale, self.cap = call.module, call.scale, call.cap
        self.heads, self.m = standard.q.shape[1], standard.q.shape[3]
        self.shared = shared_heads(standard.k) if standard.k.shape[1] == self.heads else 1
        found = "" if self.space == "head" else find_residual(standard)
        self.residual = found if isinstance(found, Residual) else None
        if self.residual is None and self.space == "residual":
            raise ValueError(f"space='residual': layer {self.number} ({self.module}) has none, since {found}")
        self.kind = "self" if self._same(standard) else "cross"
        if self.residual is not None:
            self.Q, self.K = self._weights(self.residual, standard)

    def _weights(self, residual: Residual, standard: Standard) -> tuple[np.ndarray, np.ndarray]:
        """Of queries, with the scale of the logits, and of keys."""
        Q = residual.queries.weights(standard, self.heads) * self.scale
        K = residual.keys.weights(standard, standard.k.shape[1])[:: self.shared]
        return Q.cpu().numpy(), K.cpu().numpy()

    def _same(self, standard: Standard) -> bool:
        """Whether queries and keys are of the same tokens."""
        if self.residual is not None:
            return self.residual.same(standard)
        if standard.q.shape[2] != standard.k.shape[2]:
            return False
        tokens = standard.k.shape[2]  # relative positions have other numbers of rows
        given = [x for x in standard.call.inputs if x.ndim == 3 and tokens in x.shape[:2] and x.is_floating_point()]
        width = max((x.shape[-1] for x in given), default=0)
        given = [x for x in given if x.shape[-1] == width]
        return len({(x.data_ptr(), x.shape) for x in given}) < 2

    def add(self, standard: Standard, b: int, entry: int, batch: Batch) -> None:
        found = sequence(standard, b)
        S, T = found.prob.shape[1:]
        rows, columns = self._extent(found, b, batch, S, T)
        words = batch.words(b, T, self.module, self.kind, True, standard.sequences)
        query_words = words
        if self.kind != "self":
            query_words = batch.words(b, S, self.module, self.kind, False, standard.sequences)
        seen = found.seen[:, rows, columns].cpu().numpy()
        if len(seen) > 1:
            raise ValueError(
                f"layer {self.number} ({self.module}) hides other tokens from each head, which this package cannot hold"
            )
        dead = found.prob[0, rows].isnan().any(-1).cpu().numpy() | ~batch.live(b, S, self.module, self.kind)[rows]
        start, stop, gaps = _windows(seen[0] & ~dead[:, None])
        keys = found.k[:: self.shared] if len(found.k) == self.heads else found.k
        arrays = {"q": found.q[:, rows].transpose(0, 1), "k": keys[:, columns].transpose(0, 1)}
        if self.residual is not None:
            arrays["x"] = with_one(self.residual.keys.inputs(standard)[b, columns])[:, None]
            if self.kind == "cross":
                arrays["z"] = with_one(self.residual.queries.inputs(standard)[b, rows])[:, None]
        prob = found.prob[:, rows, columns]
        handles = {name: self.columns[name].add(x.cpu().numpy()) for name, x in arrays.items()}
        norms = None if found.value_norms is None else found.value_norms[:, columns].cpu().numpy()
        self.kept.append(
            KeptSequence(
                entry, self.passed + b, (S, T, rows.start, columns.start),
                columns.stop - columns.start, handles, start, stop, gaps,
                _cut(found.bias, rows, columns), None if found.sink is None else found.sink[:, rows].cpu().numpy(),
                _choose(prob, dead), norms, None if words is None else words[columns],
                None if query_words is None else query_words[rows],
            )
        )  # fmt: skip

    def _extent(self, found: OneSequence, b: int, batch: Batch, S: int, T: int) -> tuple[slice, slice]:
        """The queries and tokens that are not padding."""
        live = batch.live(b, S, self.module, self.kind)
        seeing = found.seen[0].any(-1).cpu().numpy() & live
        seen = found.seen.any(0).cpu().numpy()[seeing].any(0) if seeing.any() else np.zeros(T, dtype=bool)
        if self.kind == "self" and S == T:
            seeing = seen = seeing | seen
        return _range(seeing), _range(seen)

    def check(self, standard: Standard) -> None:
        """In later batches: the weights are still those."""
        if standard.q.shape[1] != self.heads or standard.call.scale != self.scale:
            raise ValueError(
                f"layer {self.number} ({self.module}) has {standard.q.shape[1]} heads and scaling "
                f"{standard.call.scale:g} in one batch, {self.heads} and {self.scale:g} in another"
            )
        if self.residual is not None and not self._has_weights(self.residual, standard):
            raise ValueError(f"layer {self.number} ({self.module}) used other weights in another batch")

    def _has_weights(self, residual: Residual, standard: Standard) -> bool:
        """Whether queries and keys come from the weights of the first batch."""
        most = tolerance(standard)
        pairs = zip((self.Q, self.K), self._weights(residual, standard), strict=True)
        same = all(np.abs(was - now).max() <= most * np.abs(was).max() for was, now in pairs)
        return same and disagreement(residual, standard) <= most

    def make(self, wanted: Callable[[int, int], bool], **options: Any) -> list[Head]:
        """The heads of the layer."""
        kept = self.kept
        if not kept:
            return []
        arrays = {
            name: column.collect([one.arrays[name] for one in kept])
            for name, column in self.columns.items()
            if name in kept[0].arrays
        }
        texts: dict[int, Text] = {}
        found = []
        choices = [np.concatenate(parts, axis=1) for parts in zip(*(one.choices for one in kept), strict=True)]
        for h in range(self.heads):
            if not wanted(self.number, h):
                continue
            group = h * len(arrays["k"]) // self.heads
            bias, sink = (_of_head([getattr(one, name) for one in kept], h) for name in ("bias", "sink"))
            given = Logits(arrays["q"][h], arrays["k"][group], self.scale, self.cap, bias, sink)
            if self.residual is not None:
                keys, queries = arrays["x"][0], arrays["z"][0] if "z" in arrays else None
                K, Q, at = self.K[h * len(self.K) // self.heads], self.Q[h], 0
            else:
                keys, queries, at = given.keys, given.queries, group
                K, Q = np.eye(self.m), self.scale * np.eye(self.m)
            if bias is not None:
                K, Q = _with_one(K), _with_one(Q)
            if at not in texts:
                texts[at] = self._text(keys)
            lengths, norms = [one.value_norms for one in kept if one.value_norms is not None], None
            if len(lengths) == len(kept):
                norms = np.concatenate([x[h * len(x) // self.heads] for x in lengths])
            found.append(
                Head(
                    self.number, h, texts[at], K, Q, queries, self.kind, self.module,
                    "residual" if self.residual is not None else "head", given, norms,
                    known=Choices(*(part[h] for part in choices)), **options,
                )
            )  # fmt: skip
        return found

    def _text(self, keys: np.ndarray) -> Text:
        kept = self.kept
        lengths = np.array([one.tokens for one in kept])
        counts = lengths if self.kind == "self" else np.array([len(one.start) for one in kept])
        words, query_words = (
            None if getattr(kept[0], name) is None else [getattr(one, name) for one in kept]
            for name in ("words", "query_words")
        )
        return Text(
            keys, lengths, words, counts,
            words if self.kind == "self" else query_words,
            np.concatenate([one.start for one in kept]), np.concatenate([one.stop for one in kept]),
            {i: one.gaps for i, one in enumerate(kept) if one.gaps is not None},
            np.array([one.number for one in kept]), np.array([one.place for one in kept]), self.passed,
        )  # fmt: skip


class Recorder:
    """Gathers the attention calls of forward passes, batch after batch."""

    def __init__(self, sample: Sample, space: str, layers: Any = None, store: Path | None = None):
        self.sample, self.space, self.wanted, self.store = sample, space, layers, store
        self.layers: dict[int, Layer] = {}
        self.entries = 0  # of all batches before
        self.calls: int | None = None
        self.count = 0

    def begin(self, batch: Batch) -> None:
        self.batch, self.count = batch, 0
        self.keep: list[int] | None = None

    def __call__(self, call: Attention) -> None:
        number, self.count = self.count, self.count + 1
        if self.wanted is not None and number not in self.wanted:
            return
        layer = self.layers.get(number)
        standard = standardize(call, self.batch.size)
        n = standard.sequences
        if self.keep is None:
            self._decide(standard)
        if layer is None:
            layer = self.layers[number] = Layer(number, self.space, self.store)
            layer.begin(standard)
        else:
            layer.check(standard)
        each = n // self.size if n % self.size == 0 else 1
        for b in range(n):
            entry = min(b // each, self.size - 1)
            if entry in (self.keep or ()):
                layer.add(standard, b, self.entries + entry, self.batch)
        layer.passed += n

    def _decide(self, standard: Standard) -> None:
        """Which entries of the batch to keep."""
        n, T = standard.sequences, standard.k.shape[2]
        size = self.batch.size
        self.size = size if size and n % size == 0 else n
        self.keep = []
        for entry in range(self.size):
            tokens = self.batch.tokens(entry, T) * (n // self.size)
            kept, dropped = self.sample.take(self.entries + entry, tokens)
            if kept:
                self.keep.append(entry)
            for old in dropped:
                if old >= self.entries:
                    self.keep.remove(old - self.entries)
                for layer in self.layers.values():
                    layer.kept = [one for one in layer.kept if one.entry != old]

    def end(self) -> None:
        if self.calls is not None and self.count != self.calls:
            raise ValueError(
                f"every batch must run the model once, the same way: one made {self.calls} attention calls, another "
                f"{self.count}"
            )
        self.calls = self.count
        if self.count:
            self.entries += self.size if self.keep is not None else 0

    def close(self) -> None:
        for layer in self.layers.values():
            for column in layer.columns.values():
                column.close()


def _range(flags: np.ndarray) -> slice:
    at = np.flatnonzero(flags)
    return slice(int(at[0]), int(at[-1]) + 1) if len(at) else slice(0, 0)


def _windows(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """First and last token that each query sees, and who sees what where there are gaps."""
    S, T = seen.shape
    alive = seen.any(axis=1) if T else np.zeros(S, dtype=bool)
    start = np.where(alive, seen.argmax(axis=1) if T else 0, 0)
    stop = np.where(alive, T - (seen[:, ::-1].argmax(axis=1) if T else 0), 0)
    gaps = (stop - start != seen.sum(axis=1)).any()
    return start, stop, seen if gaps else None


def _choose(prob: torch.Tensor, dead: np.ndarray) -> Choices:
    if prob.shape[-1] == 0:
        empty = np.empty((prob.shape[0], prob.shape[1]))
        return Choices(empty.astype(np.intp) - 1, empty * np.nan, empty * np.nan)
    top, selected = prob.nan_to_num(nan=-1.0).max(-1)
    effective = 1 / (prob**2).sum(-1)
    nothing = torch.from_numpy(dead).to(top.device)
    selected = torch.where(nothing, -1, selected)
    top, effective = (torch.where(nothing, torch.nan, x) for x in (top, effective))
    return Choices(*(x.cpu().numpy() for x in (selected, top.double(), effective.double())))


def _cut(x: torch.Tensor | None, rows: slice, columns: slice) -> np.ndarray | None:
    if x is None:
        return None
    part = x[:, rows, columns]
    return (part if part.dtype == torch.float64 else part.float()).cpu().numpy()


def _with_one(factor: np.ndarray) -> np.ndarray:
    """With the coordinate of a bias, which goes into the logits as it is."""
    whole = np.zeros((factor.shape[0] + 1, factor.shape[1] + 1))
    whole[:-1, :-1], whole[-1, -1] = factor, 1.0
    return whole


def _of_head(parts: list[Any], h: int) -> list[np.ndarray] | None:
    if all(part is None for part in parts):
        return None
    return [np.zeros(()) if part is None else part[h if len(part) > 1 else 0] for part in parts]
