"""What heads do in their model: the damage without them, and how much of it other things in their place undo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..common.check import as_choice, as_count
from ..common.progress import counted
from ..heads.model import Head, as_heads
from .batch import Batch
from .candidates import DRAWN, FIXED, OF_CHOICES, Source, as_source, drawn, fixed, of_choices
from .directions import without_directions
from .faithful import ALL, Faithfulness
from .read import device_of, unchanged, unwrap
from .replacement import Replacement, as_replacement
from .substitute import Substitution, substitution

METRICS = ("auto", "KL", "1 - cosine")
Job = tuple[str, str, int, int, dict[Head, Replacement]]  # row, column, queries, draw, what stands in whose place


def faithfulness(
    model: torch.nn.Module,
    found: Sequence[Head],
    batches: Iterable[Any],
    queries: Sequence[int] = (30, 100, 300, 1000),
    seeds: int = 3,
    directions: bool = False,
    *,
    forward: Callable[..., Any] | None = None,
    metric: str = "auto",
    seed: int = 0,
    progress: bool = True,
) -> Faithfulness:
    """Does a head matter, and what could stand in its place?

    The model runs on held-out batches with something else in the place of each head, and of all of them at once; its
    output is compared with the original one.  *Damage* is the mean difference; *importance* the damage of equal
    attention in the head's place; what a substitute *recovers* is ``1 - damage / importance``.

    Parameters
    ----------
    model : torch.nn.Module
    found : list of Head
        Of :func:`attsvm.torch.read` on other text of the same model: their hard queries there are the choices.
    batches : iterable
        Held-out inputs, as :func:`attsvm.torch.read` takes them.
    queries : list of int
        How many choices SVMs and regressions are made of; a head with fewer hard queries gives all it has.  Each head
        is replaced by what the largest number gives, all heads at once by what each number gives.
    seeds : int
        Draws of the choices, and of random and shuffled heads.
    directions : bool
        Also the damage without each of the leading singular directions of W, beside that without a random direction of
        the same size (in :attr:`Faithfulness.directions`).
    forward : callable, optional
        Called with each batch in place of the model.
    metric : {"auto", "KL", "1 - cosine"}
        "KL": Kullback-Leibler divergence from the original distribution, of outputs that are logits over their last
        dimension; "1 - cosine" of the output vectors.  "auto": KL where what is returned has ``logits``.  Either is the
        mean over an input's places that are not padding.
    seed : int
    progress : bool
        Show a bar.

    Returns
    -------
    Faithfulness
        A table in a notebook; ``to_dataframe()`` and ``plot()``.  Its columns, each W of the head's rank, and scaled so
        that its mean largest attention on the recorded text is the head's own (but for the own W and its cuts):

        - "SVM": the SVM of the choices (equal attention where they cannot be separated, here and below);
        - "logistic": a weakly decayed logistic regression on the same;
        - "distilled": the regression on the head's whole probabilities at the same queries;
        - "rule": attention on the token of the best positional rule (the most frequent offset, or the first token),
          and "SVM of the rule": the SVM of its labels at the same queries;
        - "random head": Gaussian K and Q;  "shuffled": the own singular values and permuted singular vectors;
        - "cut" and "whitened cut": the own W cut to a quarter of its rank, so that W, or the logits on the recorded
          text, change least;  "own": the own W, which recovers 1 but for rounding.

    Raises
    ------
    TypeError, ValueError
        Naming the argument that does not fit; as :func:`attsvm.torch.substitute` for a model that is not the one read.

    Notes
    -----
    Of a head whose importance is not above what rounding does (ten times the damage of its own W), nothing is recovered
    or lost: nan.  Heads can be unimportant one by one and important together: see the last row.
    That a W made of choices recovers much says that the choices carry the function, not that its margin is the largest:
    hold it against "logistic" and "SVM of the rule".

    Examples
    --------
    >>> import attsvm.torch
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> with torch.no_grad():
    ...     _ = model.in_proj_weight.mul_(4)
    >>> xs = torch.randn(40, 2, 6, 8)
    >>> found = attsvm.torch.read(model, [(x, x, x) for x in xs[:20]])
    >>> held_out = [(x, x, x) for x in xs[20:]]
    >>> table = attsvm.torch.faithfulness(model, found, held_out, queries=[20], seeds=1, progress=False)
    >>> [round(table.recovered(row, "own"), 3) for row in table.rows]
    [1.0, 1.0, 1.0]
    """
    found = as_heads(found)
    if not found:
        raise ValueError("found must hold at least one head, got none")
    sizes = sorted({as_count("queries", n, 1) for n in queries})
    if not sizes:
        raise ValueError("queries must hold at least one number, got none")
    seeds, seed = as_count("seeds", seeds, 1), as_count("seed", seed)
    as_choice("metric", metric, METRICS)
    if isinstance(batches, (str, bytes, dict, torch.Tensor)) or not isinstance(batches, Iterable):
        raise TypeError(f"batches must be an iterable of what the model takes, got {type(batches).__name__}: [batch]?")
    sources = [as_source(head) for head in found]
    with unchanged(unwrap(model)), substitution(model) as running:
        held_out = _HeldOut(running, model, batches, forward, metric)
        total = len(sources) * len(_plan(sizes[-1:], seeds)) + len(_plan(sizes, seeds))
        damages: dict[tuple[str, str, int], list[np.ndarray]] = {}
        made = _jobs(sources, sizes, seeds, seed)
        for row, column, n, _draw, values in counted(made, total, "faithfulness", "run") if progress else made:
            damages.setdefault((row, column, n), []).append(held_out.damage(values))
        shown = [d for s in sources for d in without_directions(s, held_out.damage, seed)] if directions else []
    arrays = {key: np.array(some) for key, some in damages.items()}
    return Faithfulness(
        [s.head.label for s in sources], held_out.metric, {s.head.label: (s.rule, s.follows) for s in sources},
        {s.head.label: len(s.rows) for s in sources}, arrays, shown,
    )  # fmt: skip


def _plan(sizes: list[int], seeds: int) -> list[tuple[str, int, int]]:
    """Column, queries, draw."""
    parts = [
        [(column, 0, 0) for column in ("uniform", *FIXED)],
        [(column, n, draw) for n in sizes for column in OF_CHOICES for draw in range(seeds)],
        [(column, 0, draw) for column in DRAWN for draw in range(seeds)],
    ]
    return [one for part in parts for one in part]


def _jobs(sources: list[Source], sizes: list[int], seeds: int, seed: int) -> Iterator[Job]:
    """Every head by itself, then all at once; equal attention stands where there is no such W."""
    together: dict[tuple[str, int, int], dict[Head, Replacement]] = {}
    for source in sources:
        for column, n, draw in _plan(sizes, seeds):
            value = _make(source, column, n, [seed, source.head.layer, source.head.number, draw])
            value = as_replacement(source.head, "uniform", None) if value is None else value
            together.setdefault((column, n, draw), {})[source.head] = value
            if n in (0, sizes[-1]):
                yield source.head.label, column, n, draw, {source.head: value}
    for (column, n, draw), values in together.items():
        yield ALL, column, n, draw, values


def _make(source: Source, column: str, n: int, draw: list[int]) -> Replacement | None:
    if column == "uniform":
        return as_replacement(source.head, "uniform", None)
    if column in OF_CHOICES:
        return of_choices(source, column, n, draw)
    return drawn(source, column, draw) if column in DRAWN else fixed(source, column)


class _HeldOut:
    """Batches with the original outputs."""

    def __init__(self, running: Substitution, model: Any, batches: Iterable[Any], forward: Any, metric: str):
        call, device = model if forward is None else forward, device_of(unwrap(model))
        self.running, self.metric = running, metric
        self.batches = [Batch(batch, call, device) for batch in batches]
        if not self.batches:
            raise ValueError("batches must hold at least one batch, got none")
        running.put({})
        self.own = [self._run(batch) for batch in self.batches]

    def _run(self, batch: Batch) -> torch.Tensor:
        found = self.running.run(batch.call, *batch.args, **batch.kwargs)
        logits = getattr(found, "logits", None)
        if self.metric == "auto":
            self.metric = "1 - cosine" if logits is None else "KL"
        if logits is None or self.metric != "KL":
            logits = _first_tensor(found)
        return torch.log_softmax(logits.double(), -1).float() if self.metric == "KL" else logits

    def damage(self, values: dict[Head, Replacement]) -> np.ndarray:
        """Of each held-out input."""
        self.running.put(values)
        try:
            pairs = zip(self.batches, self.own, strict=True)
            return np.concatenate([self._difference(batch, own, self._run(batch)) for batch, own in pairs])
        finally:
            self.running.put({})

    def _difference(self, batch: Batch, own: torch.Tensor, other: torch.Tensor) -> np.ndarray:
        a, b = own.double(), other.double()
        if self.metric == "KL":
            off = (a.exp() * (a - b)).sum(-1)
        else:
            a, b = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-300) for x in (a, b))
            off = ((a - b) ** 2).sum(-1) / 2  # 1 - cosine, without its cancellation
        mask = batch.named.get("attention_mask")
        if off.ndim == 1:
            return off.cpu().numpy()
        weights = mask.to(off) if isinstance(mask, torch.Tensor) and mask.shape == off.shape else torch.ones_like(off)
        return ((off * weights).flatten(1).sum(1) / weights.flatten(1).sum(1).clamp(min=1)).cpu().numpy()


def _first_tensor(found: Any) -> torch.Tensor:
    if isinstance(found, torch.Tensor):
        return found
    values = found.values() if hasattr(found, "values") else found if isinstance(found, (tuple, list)) else ()
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
    raise TypeError(f"what is run must return a tensor, or a tuple or dict of them, got {type(found).__name__}")
