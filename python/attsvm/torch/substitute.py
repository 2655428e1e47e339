"""Runs a model with substitutes in place of some of its attention heads, and measures the damage to its output."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..common.check import as_choice, check_type
from ..common.progress import counted
from ..heads.head import MADE_BY, Head
from ..heads.report import HeadReport, Reports, as_reports
from .batch import Batch, as_array, check_batches, entries
from .read import named, unchanged, unwrap
from .replacement import Call, Replacement, as_replacement, nothing, torch_threads
from .standard_form import compared, find_input, one_head, single, standardize
from .watch import Attention, Watch

SCALED = 1e-5  # two scalings of logits are equal if their relative difference is at most this
SMALL = 10**8  # a model runs on one PyTorch thread if its parameters times the positions of a batch are fewer
# Number of output values stored of each batch; a later call that gets other values has another model or other inputs.
SAMPLED = 64


@contextlib.contextmanager
def substitute(model: torch.nn.Module, values: Mapping[Head, Any], scale: str | None = None) -> Iterator[None]:
    """A context in which the model runs with substitutes in place of some of its heads.

    Parameters
    ----------
    model : torch.nn.Module
        The model that the heads were read from.
    values : dict of Head to array_like or str
        Heads of :func:`attsvm.torch.read`, each with its substitute.  A head is found by the number of its attention
        call within one forward pass and its number in the call.  The substitute is

        - an array of the shape of ``head.W``, which is cut to the head's rank by its singular values.  The logits are
          ``x^T W z`` of the head's tokens and queries, in the head's own space; the model's cap, mask, bias and sink
          apply to them as before;
        - "uniform": equal attention on all tokens that the query sees;
        - "none": no attention, so that the head's output is zero;
        - "offset +1" (any number), "the query itself" or "first token": all attention on that token, or equal attention
          if the query does not see it;
        - "nearest query": all attention on the token nearest to the one that the most similar hard query of the head's
          recorded text selected.
    scale : {None, "top"}
        "top": each array is multiplied by a number, such that its mean largest attention on the head's recorded text is
        the head's own (queries that see one token do not count).

    Yields
    ------
    None

    Raises
    ------
    TypeError, ValueError
        For an array of another shape, an unknown word, or a head that is given twice.  When the model runs: if the
        head's layer does not run, or not as it was read; if its keys come from a cache; if a part of the model is
        called alone.

    Notes
    -----
    No weights are written: the result of each attention call is replaced, also if layers share their weights.  The
    model runs uncompiled and without gradients.  The caller decides whether dropout is on (``model.eval()``).
    ``head.W`` in place of the head changes the model's output by rounding only.  Only calls of the model's ``forward``
    are changed.

    Examples
    --------
    >>> import attsvm.torch
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    >>> x = torch.randn(3, 5, 8)
    >>> found = attsvm.torch.read(model, [(x, x, x)])
    >>> own = model(x, x, x)[0]
    >>> with attsvm.torch.substitute(model, {found[1]: found[1].W}):
    ...     same = model(x, x, x)[0]
    >>> with attsvm.torch.substitute(model, {found[1]: "uniform"}):
    ...     other = model(x, x, x)[0]
    >>> bool((same - own).abs().max() < 1e-6), bool((other - own).abs().max() > 1e-3)
    (True, True)
    """
    if scale is not None:
        as_choice("scale", scale, ("top",))
    if not isinstance(values, Mapping):
        raise TypeError(f"values must be a dict from heads to what stands in their place, got {type(values).__name__}")
    labels = set()
    for head in values:
        check_type("a key of values", head, Head, MADE_BY)
        if head.label in labels:
            raise ValueError(f"values must name every head once, got {head.label} twice")
        labels.add(head.label)
    with substitution(model) as running:
        running.values = {head: as_replacement(head, value, scale) for head, value in values.items()}
        yield


@contextlib.contextmanager
def substitution(model: torch.nn.Module) -> Iterator[Substitution]:
    """A context in which a model runs with the substitutes in the ``values`` of the :class:`Substitution`."""
    model = unwrap(model)
    running = Substitution(model)
    own, held = model.forward, "forward" in vars(model)

    @functools.wraps(own)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return running.run(own, *args, **kwargs)

    with named(model, running), torch.compiler.set_stance("force_eager"):
        model.forward = forward  # replaces the method of this model only, until the context closes
        try:
            yield running
        finally:
            del model.forward
            if held:
                model.forward = own


class Substitution(Watch):
    """Replaces the results of attention calls, in one forward pass after another.

    ``values`` are the heads with their substitutes; at first there are none.
    """

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model
        self.values: Mapping[Head, Replacement] = {}
        self.inside = False

    def enter(self, name: str, *given: Any) -> None:
        super().enter(name, *given)
        if name and not self.inside and self.values:
            raise ValueError(
                f"the model itself must be called, got a call of its {name} alone: attention calls are counted from "
                "the beginning of the model's forward pass"
            )

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs one forward pass by calling ``function``."""
        if self.inside:  # a forward pass is running, and has called the model again
            return function(*args, **kwargs)
        self.count, self.size, self.inside = 0, entries(args, kwargs), True
        try:
            with self, torch.no_grad():
                result = function(*args, **kwargs)
        finally:
            self.inside = False
            self.finish()
        last = max((head.layer for head in self.values), default=-1)
        if last >= self.count:
            raise ValueError(
                f"the heads must be the model's, got one of layer {last}: {self.count} attention calls ran"
            )
        return result

    def change(self, call: Attention) -> Tensor:
        number, self.count = self.count, self.count + 1
        values = {head: value for head, value in self.values.items() if head.layer == number}
        if not values:
            return call.result
        whole = standardize(call, self.size)
        whole.result, H = whole.result.clone(), whole.q.shape[1]
        for head, value in values.items():
            if head.module not in ("", call.within.name):
                raise _other(head, f"it ran in {call.within.name}, and the head was read in {head.module}")
            if head.number >= H:
                raise _other(head, f"it has {H} heads")
            own = one_head(whole, head.number)
            part = Call(*_inputs(head, own), *compared(own, slice(None))[3], call.cap)
            prob = value(part)
            if call.fused:
                assert own.v is not None  # a fused call has values
                new = F.dropout(prob, call.dropout).to(own.v.dtype) @ own.v
            else:  # Sinks get the probability that tokens leave, or none if all tokens have probability 0.
                given = own.tensor[..., prob.shape[-1] :].to(prob.dtype)
                rest = torch.where(prob.any(-1, keepdim=True), 1 - prob.sum(-1, keepdim=True), 0)
                new = torch.cat([prob, rest * torch.softmax(given, -1)], -1)
            own.result.copy_(torch.where(part.seen.any(-1, keepdim=True), new.to(own.result), own.result))
        return whole.result.reshape(call.result.shape)


def _inputs(head: Head, call: Attention) -> tuple[Tensor, Tensor]:
    """Returns tokens and queries of one head's call in the head's space; raises unless the model has the weights that
    were read."""
    k, q = single(call.k), single(call.q)
    biased = head.given is not None and head.given.bias is not None
    K, Q = (torch.from_numpy(x[: len(x) - biased, : head.rank - biased]).to(q) for x in (head.K, head.Q))
    m = k.shape[-1]
    if K.shape[1] != m:
        raise _other(head, f"its keys have {m} dimensions, the head's {K.shape[1]}")
    if head.space == "head":
        if not math.isclose(Q[0, 0], call.scale, rel_tol=SCALED):
            raise _other(head, f"its logits are scaled by {call.scale:g}, the head's by {float(Q[0, 0]):g}")
        return k, q
    x, z = find_input(call, k, K), find_input(call, call.scale * q, Q)
    if x is None or z is None:
        raise _other(
            head, f"its {'keys' if x is None else 'queries'} are not what the head's weights make of a layer's input "
            "(other weights? keys from a cache? then use_cache=False)"
        )  # fmt: skip
    return x, z


def _other(head: Head, why: str) -> ValueError:
    return ValueError(f"{head.label} cannot be substituted, since layer {head.layer} is not as it was read: {why}")


def damage(
    model: torch.nn.Module,
    reports: Sequence[HeadReport],
    batches: Iterable[Any],
    *,
    forward: Callable[..., Any] | None = None,
    metric: str = "auto",
    progress: bool | None = None,
) -> Reports:
    """Reports with the damage of each head: how far the model's output without the head is from the original output.

    Parameters
    ----------
    model : torch.nn.Module
        The model that the heads were read from; its weights are not written.
    reports : list of HeadReport
        From :func:`attsvm.heads.analyze_model`.
    batches : iterable
        Inputs, as :func:`attsvm.torch.read` takes them.  For each head there is one forward pass of all inputs.
    forward : callable, optional
        Called with each batch in place of the model.
    metric : {"auto", "KL", "1 - cosine"}
        As for :func:`attsvm.torch.faithfulness`.
    progress : bool, optional
        Whether to show a bar; by default at a terminal or in a notebook.

    Returns
    -------
    Reports
        The same reports with ``damage``, the mean over the inputs, and ``metric``; a column of the table shows it.

    Raises
    ------
    ValueError, TypeError
        If the model is not the one that was read, and for arguments that do not fit.

    Notes
    -----
    A head that mostly selects sinks, or that has too few hard queries to analyse, may matter most to the model.  The
    damage shows this, but not what the head does.  :func:`attsvm.torch.faithfulness` measures how much of the damage is
    undone by a substitute that makes the head's choices.

    Examples
    --------
    >>> import attsvm.torch
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> xs = torch.randn(20, 2, 6, 8)
    >>> found = attsvm.torch.read(model, [(x, x, x) for x in xs])
    >>> reports = attsvm.heads.analyze_model(found, null=False, n_jobs=1)
    >>> reports = attsvm.torch.damage(model, reports, [(x, x, x) for x in xs[:5]], progress=False)
    >>> reports["L0H1"].damage > 0.01, reports["L0H1"].metric
    (True, '1 - cosine')
    """
    reports = as_reports(reports)
    with substitution(model) as running, unchanged(running.model):
        held_out = HeldOut(running, batches, forward, metric)
        return Reports(
            replace(report, damage=float(held_out.damage({report.head: nothing}).mean()), metric=held_out.metric)
            for report in counted(reports, len(reports), "damage", "head", progress)
        )


class HeldOut:
    """Held-out batches with the model's original outputs, as ``pairs``."""

    def __init__(self, running: Substitution, batches: Iterable[Any], forward: Any, metric: str):
        as_choice("metric", metric, ("auto", "KL", "1 - cosine"))
        check_batches(batches)
        model = running.model
        self.running, self.metric = running, metric
        prepared = [Batch(batch, model, forward) for batch in batches]
        if not prepared:
            raise ValueError("batches must hold at least one batch, got none")
        self.pairs = [(batch, self._run(batch)) for batch in prepared]
        size = sum(part.numel() for part in model.parameters())
        places = max(own.numel() // own.shape[-1] for _, own in self.pairs)
        self.threads = 1 if size * places < SMALL else torch.get_num_threads()

    def sample(self) -> np.ndarray:
        """A sample of the model's original outputs on the held-out batches, taken at regular places."""
        parts = [own.flatten()[:: max(1, own.numel() // SAMPLED)][:SAMPLED] for _, own in self.pairs]
        return as_array(torch.cat(parts).double())

    def _run(self, batch: Batch) -> Tensor:
        found = self.running.run(batch.call, *batch.args, **batch.kwargs)
        logits = getattr(found, "logits", None)
        if self.metric == "auto":
            self.metric = "1 - cosine" if logits is None else "KL"
        if logits is None or self.metric != "KL":
            logits = _first_tensor(found)
        return torch.log_softmax(logits.double(), -1).float() if self.metric == "KL" else logits

    def damage(self, values: dict[Head, Replacement]) -> np.ndarray:
        """The damage to the output on each held-out input, with these substitutes in place of heads.

        A small model runs on one thread.  With several threads each operation waits for all of them, which takes far
        longer than the computation, above all while workers solve SVMs.
        """
        self.running.values = values
        with torch_threads(self.threads):
            return np.concatenate([self._difference(batch, own, self._run(batch)) for batch, own in self.pairs])

    def _difference(self, batch: Batch, own: Tensor, other: Tensor) -> np.ndarray:
        a, b = own.double(), other.double()
        if self.metric == "KL":
            off = (a.exp() * (a - b)).sum(-1)
        else:
            a, b = (F.normalize(x, dim=-1, eps=1e-300) for x in (a, b))
            off = ((a - b) ** 2).sum(-1) / 2  # this is 1 - cosine of a and b, without cancellation
        mask = batch.named.get("attention_mask")
        weights = mask.to(off) if isinstance(mask, Tensor) and mask.shape == off.shape else torch.ones_like(off)
        off, weights = (x.reshape(len(x), -1) for x in (off * weights, weights))
        return as_array(off.sum(1) / weights.sum(1).clamp(min=1))


def _first_tensor(found: Any) -> Tensor:
    parts = found.values() if isinstance(found, Mapping) else found if isinstance(found, (tuple, list)) else (found,)
    for part in parts:
        if isinstance(part, Tensor):
            return part
    raise TypeError(f"what is run must return a tensor, or a tuple or dict of them, got {type(found).__name__}")
