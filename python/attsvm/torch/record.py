"""Recording of attention calls: a random sample of sequences, their arrays in each layer, and the heads of these."""

import functools
import heapq
import random
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..common.storage import replacing
from ..heads.head import Choices, Head, Logits
from ..heads.sequences import Text
from .batch import Batch, as_array
from .standard_form import Residual, disagreement, find_residual, sequence, shared_heads, standardize, tolerance
from .watch import Attention


class Sample:
    """A random sample of whole sequences with about ``tokens`` tokens, drawn while the sequences arrive.

    Each sequence draws a number.  The sequences with the smallest numbers are kept, the fewest with ``tokens`` tokens.
    """

    def __init__(self, tokens: int, seed: int):
        self.tokens, self.random = tokens, random.Random(seed)
        self.heap: list[tuple[float, int, int]] = []  # the sample: (-random number, sequence, number of its tokens)
        self.held = 0

    def take(self, sequence: int, tokens: int) -> None:
        """Adds a sequence; others, or the new one, may leave the sample."""
        heapq.heappush(self.heap, (-self.random.random(), sequence, tokens))
        self.held += tokens
        while self.held - self.heap[0][2] >= self.tokens:
            self.held -= heapq.heappop(self.heap)[2]

    def sequences(self) -> set[int]:
        """The sequences of the sample."""
        return {sequence for _, sequence, _ in self.heap}


class Column:
    """Arrays (rows, groups, width) of sequences, kept in memory or appended to a file."""

    def __init__(self, name: str, store: Path | None):
        self.name, self.store = name, store
        self.file: Any = None

    def add(self, array: np.ndarray) -> Any:
        """Keeps an array; returns its handle for :meth:`collect`."""
        array = np.ascontiguousarray(array)
        if self.store is None:
            return array
        if self.file is None:
            self.file = tempfile.TemporaryFile(dir=self.store)  # it is deleted when collect closes it
        handle = (array.shape, array.dtype, self.file.tell())
        self.file.write(array.data)
        return handle

    def collect(self, handles: list[Any]) -> list[np.ndarray]:
        """One array (rows of all sequences, width) for each group, joined from the arrays that were added."""
        parts = handles
        if self.store is not None:
            # np.memmap moves to the end of the file, which writes what is buffered.
            raw = np.memmap(self.file, np.uint8, "r") if self.file.tell() else np.empty(0, np.uint8)
            parts = [np.ndarray(shape, dtype, raw, at) for shape, dtype, at in handles]
        _, groups, width = parts[0].shape
        if self.store is None:
            return [np.concatenate([part[:, group] for part in parts]) for group in range(groups)]
        path, shape = self.store / f"{self.name}.npy", (groups, sum(map(len, parts)), width)
        layout = {"descr": np.lib.format.dtype_to_descr(parts[0].dtype), "fortran_order": False, "shape": shape}
        with replacing(path) as file:  # the file is not memory-mapped, since only a write reports a full disk
            np.lib.format.write_array_header_2_0(file, layout)
            for group in range(groups):
                for part in parts:  # one by one, since all parts together may not fit into memory
                    file.write(part[:, group].tobytes())
        self.close()
        return list(np.load(path, mmap_mode="r"))

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


class KeptSequence(NamedTuple):
    """One kept sequence of a layer, without padding.  ``entry``: its number among all entries of all batches."""

    entry: int
    number: int
    place: tuple[int, int, int, int]
    tokens: int
    start: np.ndarray
    stop: np.ndarray
    gaps: np.ndarray | None
    bias: np.ndarray | None
    sink: np.ndarray | None
    choices: Choices
    value_norms: np.ndarray | None
    words: list[str] | None
    query_words: list[str] | None
    arrays: dict[str, Any]


class Layer:
    """Collects the sequences of one attention call of a model's forward pass, and makes the layer's heads of them.

    The first batch decides the name of the module, which heads share keys, and the space.
    """

    def __init__(self, number: int, space: str, store: Path | None, call: Attention):
        self.heads = call.q.shape[1]
        self.number, self.module, self.scale, self.cap = number, call.within.name, call.scale, call.cap
        self.kept: list[KeptSequence] = []
        self.passed = 0  # number of sequences so far, kept or not
        self.shared = shared_heads(call.k)
        found = "" if space == "head" else find_residual(call)
        self.residual = found if isinstance(found, Residual) else None
        if self.residual is None and space == "residual":
            raise ValueError(f"space='residual': layer {number} ({self.module}) has none, since {found}")
        self.kind = "self" if self._same(call) else "cross"
        self.weights = self._weights(call)
        self.columns = {name: Column(f"layer-{number}-{name}", store) for name in ("q", "k", "x", "z")}

    def _weights(self, call: Attention) -> tuple[np.ndarray, np.ndarray]:
        """Returns the weights K of a layer's keys; and the weights Q of its queries, times the scale of logits."""
        K = Q = torch.eye(call.q.shape[3], dtype=torch.float64)[None]
        if self.residual is not None:
            K, Q = self.residual.keys.weights(call)[:: self.shared], self.residual.queries.weights(call)
        return as_array(K), as_array(Q * self.scale)

    def _same(self, call: Attention) -> bool:
        """Whether queries and keys belong to the same tokens."""
        if self.residual is not None:
            return call.maps[self.residual.queries.place].input is call.maps[self.residual.keys.place].input
        tokens = call.k.shape[2]  # an input without an axis of `tokens` rows holds relative positions, not tokens
        given = [x for x in call.within.given if x.ndim == 3 and tokens in x.shape[:2] and x.is_floating_point()]
        width = max((x.shape[-1] for x in given), default=0)
        different = {(x.data_ptr(), x.shape) for x in given if x.shape[-1] == width}
        return call.q.shape[2] == tokens and len(different) < 2

    def add(self, call: Attention, b: int, entry: int, batch: Batch) -> None:
        q, k, (visible, bias, sink), prob, norms = sequence(call, b)
        S, T = prob.shape[1:]
        if len(visible) > 1:
            raise ValueError(
                f"layer {self.number} ({self.module}) hides other tokens from each head, which this package cannot hold"
            )
        seen: Any = as_array(visible[0])
        # Queries that are no padding and see a token, and the tokens that these queries see.
        live = seen.any(axis=1) & batch.live(b, S, self.module, self.kind)
        tokens = seen[live].any(axis=0)
        same = self.kind == "self" and S == T
        rows, columns = (_range(live | tokens if same else flags) for flags in (live, tokens))
        seen, live = seen[rows, columns], live[rows]
        dead = ~live | as_array(prob[:, rows].isnan().any(-1).any(0))  # with nan, in any head, a query does not count
        arrays = {"q": q[:, rows].transpose(0, 1), "k": k[:: self.shared, columns].transpose(0, 1)}
        if self.residual is not None:
            arrays["x"] = self.residual.keys.inputs(call, b)[columns, None]
            if self.kind == "cross":
                arrays["z"] = self.residual.queries.inputs(call, b)[rows, None]
        words = functools.partial(batch.words, b, self.module, self.kind, len(call.q))
        self.kept.append(
            KeptSequence(
                entry, self.passed + b, (S, T, rows.start, columns.start), seen.shape[1],
                *_windows(seen & ~dead[:, None]), _cut(bias, rows, columns), _cut(sink, rows),
                _choose(prob[:, rows, columns], dead), _cut(norms, columns),
                words(T, columns, True), words(S, rows, False) if self.kind == "cross" else None,
                {name: self.columns[name].add(as_array(x)) for name, x in arrays.items()},
            )
        )  # fmt: skip

    def check(self, call: Attention) -> None:
        """Raises if a later batch has other heads, another scale or other weights than the first batch."""
        heads = call.q.shape[1]
        if heads != self.heads or call.scale != self.scale:
            raise ValueError(
                f"layer {self.number} ({self.module}) has {heads} heads and scaling {call.scale:g} in one batch, "
                f"{self.heads} and {self.scale:g} in another"
            )
        if self.residual is None:
            return
        most = tolerance(call)
        pairs = zip(self.weights, self._weights(call), strict=True)
        same = all(np.abs(was - now).max() <= most * np.abs(was).max() for was, now in pairs)
        if not (same and disagreement(self.residual, call) <= most):
            raise ValueError(f"layer {self.number} ({self.module}) used other weights in another batch")

    def make(self, **options: Any) -> list[Head]:
        """The heads of the layer, made from its kept sequences."""
        if not self.kept:
            return []
        (
            _, numbers, places, tokens, start, stop, gaps, biases, sinks, choices, norms, words, query_words, parts,
        ) = map(list, zip(*self.kept, strict=True))  # fmt: skip
        arrays = {name: self.columns[name].collect([part[name] for part in parts]) for name in parts[0]}
        sizes, visible = np.array(tokens), {i: part for i, part in enumerate(gaps) if part is not None}
        counts = np.array(list(map(len, start))) if self.kind == "cross" else None
        texts = [
            Text(
                keys, sizes, None if None in words else words, counts,
                None if None in query_words else query_words, np.concatenate(start), np.concatenate(stop), visible,
                np.array(numbers), np.array(places), self.passed,
            )
            for keys in arrays.get("x", arrays["k"])
        ]  # fmt: skip
        chosen = [np.concatenate(some, axis=1) for some in zip(*choices, strict=True)]
        found = []
        for h in range(self.heads):
            text, keys, K, Q = (self._own(part, h) for part in (texts, arrays["k"], *self.weights))
            bias, sink = (self._own_parts(some, h) for some in (biases, sinks))
            given = Logits(arrays["q"][h], keys, self.scale, self.cap, bias, sink)
            queries = arrays["q"][h] if self.residual is None else arrays.get("z", [None])[0]
            if bias is not None:  # K and Q get one more row and column, through which the bias enters unchanged
                K, Q = (torch.block_diag(torch.from_numpy(x), torch.ones(1, 1, device="cpu")).numpy() for x in (K, Q))
            found.append(
                Head(
                    self.number, h, text, K, Q, queries, self.kind, self.module,
                    "head" if self.residual is None else "residual", given,
                    None if any(x is None for x in norms) else np.concatenate([self._own(x, h) for x in norms]),
                    known=Choices(*(part[h] for part in chosen)), **options,
                )
            )  # fmt: skip
        return found

    def _own(self, parts: Any, h: int) -> Any:
        """The part that belongs to head h; if there are fewer parts than heads, neighbouring heads share a part."""
        return parts[h * len(parts) // self.heads]

    def _own_parts(self, parts: list[Any], h: int) -> list[np.ndarray] | None:
        if all(part is None for part in parts):
            return None
        return [np.zeros(()) if part is None else self._own(part, h) for part in parts]


class Recorder:
    """Collects the attention calls of forward passes, batch by batch."""

    def __init__(self, tokens: int, seed: int, space: str, layers: Any = None, store: Path | None = None):
        self.space, self.wanted, self.store = space, layers, store
        self.sample = Sample(tokens, seed)
        self.layers: dict[int, Layer] = {}
        self.entries = 0  # number of entries of all earlier batches
        self.calls: int | None = None

    def begin(self, batch: Batch) -> None:
        self.batch, self.count, self.size = batch, 0, 0

    def __call__(self, call: Attention) -> None:
        number, self.count = self.count, self.count + 1
        if self.wanted is not None and number not in self.wanted:
            return
        call = standardize(call, self.batch.size)
        n = len(call.q)
        if not self.size:  # the first call of the batch: its entries enter the sample, and earlier ones leave it
            size = self.batch.size
            self.size = size if size and n % size == 0 else n
            for entry in range(self.size):
                self.sample.take(self.entries + entry, self.batch.tokens(entry, call.k.shape[2]) * (n // self.size))
            self.keep = self.sample.sequences()
            for layer in self.layers.values():
                layer.kept = [one for one in layer.kept if one.entry in self.keep]
        if number not in self.layers:
            self.layers[number] = Layer(number, self.space, self.store, call)
        layer = self.layers[number]
        layer.check(call)
        each = n // self.size if n % self.size == 0 else 1
        for b in range(n):
            entry = self.entries + min(b // each, self.size - 1)
            if entry in self.keep:
                layer.add(call, b, entry, self.batch)
        layer.passed += n

    def end(self) -> None:
        if self.calls is not None and self.count != self.calls:
            raise ValueError(
                f"every batch must run the model once, the same way: one made {self.calls} attention calls, another "
                f"{self.count}"
            )
        self.calls = self.count
        self.entries += self.size

    def make(self, **options: Any) -> list[Head]:
        """All heads, in the order of attention calls and then of head numbers."""
        return [head for layer in self.layers.values() for head in layer.make(**options)]

    def close(self) -> None:
        for layer in self.layers.values():
            for column in layer.columns.values():
                column.close()


def _range(flags: np.ndarray) -> slice:
    at = np.flatnonzero(flags)
    return slice(at[0], at[-1] + 1) if len(at) else slice(0, 0)


def _windows(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns start and stop of the tokens that each query sees; and ``seen`` itself if these tokens have gaps."""
    before, after = ((~np.logical_or.accumulate(x, axis=1)).sum(axis=1) for x in (seen, seen[:, ::-1]))
    stop = seen.shape[1] - after
    start = np.minimum(before, stop)  # start and stop are 0 if the query sees no token
    return start, stop, seen if (stop - start != seen.sum(axis=1)).any() else None


def _choose(prob: torch.Tensor, dead: np.ndarray) -> Choices:
    nothing = torch.from_numpy(dead).to(prob.device)
    top, selected = torch.nn.functional.pad(prob.nan_to_num(nan=-1.0), (0, 1), value=-1.0).max(-1)
    top, effective = (torch.where(nothing, torch.nan, x).double() for x in (top, 1 / (prob**2).sum(-1)))
    return Choices(*map(as_array, (torch.where(nothing, -1, selected), top, effective)))


def _cut(x: torch.Tensor | None, *places: slice) -> np.ndarray | None:
    """The slice ``places`` of each head's array x, or None if x is None."""
    return None if x is None else as_array(x[:, *places])
