"""Observation of a forward pass: every attention call with its queries, keys and logits.

A ``TorchFunctionMode`` sees each PyTorch function that the model calls.  The arguments of
``scaled_dot_product_attention`` are the queries, keys and values.  Otherwise a product of activations is followed
through the functions that are applied to it (scaling, tanh, masks, sums, reshaping).  If it enters a softmax over its
last dimension, its factors are the queries and keys.  This needs no knowledge of architectures and does not change the
model.
"""

from __future__ import annotations

import math
import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .products import PRODUCT_NAMES, SAME_NAMES, Product, changed, product_of, tensors
from .unseen import ATTENTION, Unseen

PRODUCTS, MAPS = 8, 12  # number of the last products of activations, and of the last linear maps, that are kept
SOFTMAX_NAMES = {"softmax", "special_softmax", "_safe_softmax"}


@dataclass(eq=False)
class LinearMap:
    """One call of a linear map of the model: ``output = input weight^T + bias``."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None
    output: Tensor


@dataclass(eq=False)
class Attention:
    """One attention call of a forward pass: its queries and keys, its logits or mask, and its result.

    ``logits`` is the input of the softmax.  If it is None, ``mask`` says which tokens a query sees.
    ``result`` is the probabilities if the logits are known, and otherwise the attended values.
    """

    q: Tensor
    k: Tensor
    scale: float
    result: Tensor
    module: str
    inputs: list[Tensor]
    maps: list[LinearMap]
    cap: float | None = None
    plain: bool = False
    sinks: int = 0
    logits: Tensor | None = None
    mask: Tensor | None = None
    v: Tensor | None = None
    dropout: float = 0.0  # dropout rate of the probabilities, if the result is the attended values
    folded: int | None = None  # number of heads, if batch and heads are one dimension


class Watch(TorchFunctionMode):
    """Observes the attention calls of a forward pass.

    It calls ``found`` for each attention call as soon as its values are known.  It calls :meth:`change` immediately;
    the result of :meth:`change` becomes the result of the attention call.  ``unseen`` has the modules that run, and
    those whose attention is not read.
    """

    def __init__(self, found: Callable[[Attention], None] = lambda call: None):
        super().__init__()
        self.found = found
        self.maps: deque[LinearMap] = deque(maxlen=MAPS)
        self.products: deque[Product] = deque(maxlen=PRODUCTS)
        self.waiting: list[tuple[Attention, Tensor]] = []
        self.heads: int | None = None
        self.of: Any = None  # the module in which the last softmax ran
        self.split: Any = None  # the last module whose softmaxes are factors of its attention
        self.unseen = Unseen()

    def change(self, call: Attention) -> Tensor:
        return call.result

    def enter(self, name: str, module: torch.nn.Module, given: list[Tensor]) -> None:
        self.unseen.enter(name, module, given)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            before, self.heads = self.heads, args[4] if len(args) > 4 else kwargs["num_heads"]
            try:
                with self:
                    return _inside(*args, **kwargs)
            finally:
                self.heads = before
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            return self._sdpa(func(*args, **kwargs), *args, **kwargs)
        if ATTENTION.search(name):
            self.unseen.kernel()
        own = self._tracked(args, kwargs)  # the product among the arguments, found before func may change them
        out = func(*args, **kwargs)
        return self._follow(name, own, args, kwargs, out) if isinstance(out, Tensor) else out

    # ------------------------------------- following a product of queries and keys until its softmax

    def _tracked(self, args: Any, kwargs: Any) -> Product | None:
        given = [*args, *kwargs.values()]
        if given and isinstance(given[0], (list, tuple)):
            given = [*given[0], *given[1:]]
        return next((own for x in given for own in reversed(self.products) if own.tensor is x), None)

    def _follow(self, name: str, own: Product | None, args: Any, kwargs: Any, out: Tensor) -> Tensor:
        """Follows the result of a PyTorch function; returns the result, or its replacement if it is an attention."""
        if name in ("linear", "addmm"):
            self._map(name, args, kwargs, out)
        elif name in SOFTMAX_NAMES:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if dim is None or dim not in (-1, out.ndim - 1):
                return out
            if own is not None:
                return self._softmax(own, _first(args, kwargs), out)
            self.unseen.softmax(out)
        elif name in PRODUCT_NAMES:
            self._values(args, kwargs)
            product = product_of(name, args, kwargs, out)
            if product is not None:
                self.products.append(product)
        else:
            if own is not None and (new := changed(own, name, args, kwargs, out)) is not None:
                self.products.remove(own) if out is own.tensor else None
                self.products.append(new)
            if name in SAME_NAMES or name == "__getitem__":
                self._same_probabilities(_first(args, kwargs), out)
        return out

    def _softmax(self, own: Product, logits: Tensor, prob: Tensor) -> Tensor:
        self._landmarks(own)
        self._flush()
        self.of = self.unseen.innermost()
        call = self._call(
            own.q, own.k, own.before * own.after, prob, cap=own.after if own.capped else None, plain=own.plain,
            sinks=own.sinks, logits=logits,
        )  # fmt: skip
        self.products.clear()
        changed = self.change(call)
        self.waiting = [(call, changed)]
        return changed

    def _call(self, q: Tensor, k: Tensor, scale: float, result: Tensor, **more: Any) -> Attention:
        """Makes the record of an attention call of the innermost running module, and marks that module as read."""
        self.unseen.read()
        module = self.unseen.innermost()
        return Attention(q, k, scale, result, module.name, module.given, list(self.maps), folded=self.heads, **more)

    def _landmarks(self, own: Product) -> None:
        """Notices attention from factors (Nystroem): softmaxes of two sizes in one module, with no values between."""
        if self.waiting and self.of is self.unseen.innermost():
            call = self.waiting[0][0]
            if (call.q.shape[-2], call.k.shape[-2]) != (own.q.shape[-2], own.k.shape[-2]):
                self.split = self.of

    # ------------------------------------- after the softmax: the values, and the report of the call

    def _same_probabilities(self, given: Any, out: Tensor) -> None:
        if any(prob is given for _, prob in self.waiting):
            self.waiting.append((self.waiting[0][0], out))
        self.unseen.same(given, out)

    def _values(self, args: Any, kwargs: Any) -> None:
        """Finds the values of an attention call: the second factor of a product whose first is its probabilities."""
        given = tensors(args, kwargs)
        self.unseen.product(given)
        for call, prob in self.waiting:
            if len(given) == 2 and given[0] is prob:
                call.v = given[1] if given[1].ndim == prob.ndim and not isinstance(args[0], str) else None
                self._flush()
                return

    def _flush(self) -> None:
        if self.waiting:
            call, self.waiting = self.waiting[0][0], []
            if self.split is not None and self.of is self.split:
                self.unseen.kernel()
            else:
                self.found(call)

    def finish(self) -> None:
        """Ends the forward pass: reports the last attention call, and drops the arrays that were watched during it."""
        self._flush()
        self.products.clear()
        self.maps.clear()
        self.unseen.open.clear()

    # ------------------------------------- calls recorded from their own arguments: fused attention, linear maps

    def _sdpa(
        self,
        out: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        self._flush()
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
        if attn_mask is None:
            attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        mask = attn_mask.tril() if is_causal else attn_mask
        call = self._call(query, key, scale, out, mask=mask, v=value, dropout=dropout_p)
        self.found(call)
        return self.change(call)

    def _map(self, name: str, args: Any, kwargs: Any, out: Tensor) -> None:
        if name == "linear":
            given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
            self.maps.append(LinearMap(given["input"], given["weight"], given.get("bias"), out))
        elif kwargs.get("alpha", 1) == kwargs.get("beta", 1) == 1:
            bias, x, weight = tensors(args, kwargs)[:3]
            self.maps.append(LinearMap(x, weight.mT, bias, out))


# A copy of F.multi_head_attention_forward that a TorchFunctionMode sees function by function, and not as one call.
_inside = types.FunctionType(
    F.multi_head_attention_forward.__code__,
    {**F.multi_head_attention_forward.__globals__, "has_torch_function": lambda tensors: False},
    "multi_head_attention_forward",
    F.multi_head_attention_forward.__defaults__,
    F.multi_head_attention_forward.__closure__,
)
_inside.__kwdefaults__ = F.multi_head_attention_forward.__kwdefaults__


def _first(args: Any, kwargs: Any) -> Any:
    return args[0] if args else kwargs.get("input", kwargs.get("self"))
