"""Runs a model with substitutes in place of some of its attention heads: another W, or a rule."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..common.check import as_choice, check_type
from ..heads.head import MADE_BY, Head
from .batch import entries
from .read import named, unwrap
from .replacement import Call, Replacement, as_replacement
from .standard_form import compared, find_input, one_head, single, standardize
from .watch import Attention, Watch

SCALED = 1e-5  # two scalings of logits are equal if their relative difference is at most this


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
            seen = part.seen.any(-1, keepdim=True)
            own.result.copy_(torch.where(seen, new.to(own.result), own.result))
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
