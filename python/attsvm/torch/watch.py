"""Observation of a forward pass: every attention call with its queries, keys and logits.

A ``TorchFunctionMode`` sees each PyTorch function that the model calls.  The arguments of
``scaled_dot_product_attention`` are the queries, keys and values.  Otherwise a product of activations is followed
through the functions that are applied to it (scaling, tanh, masks, sums, reshaping).  If it enters a softmax over its
last dimension, its factors are the queries and keys.  This needs no knowledge of architectures and does not change the
model.

A module whose attention was not read is named in four cases: its class is called an attention, and no head was read
while it ran; it calls a kernel with attention in its name; a softmax whose logits are not followed runs in it, and its
class has attention in its name; the probabilities of such a softmax multiply values in it.  A softmax counts if it is
over the last of at least three dimensions.  Routers of experts and probabilities of a vocabulary are not named, since
they multiply no values.
"""

import math
import re
import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .products import PRODUCT_NAMES, SAME_NAMES, Product, as_added, changed, over_last, product_of, tensors

PRODUCTS, MAPS = 8, 12  # number of the last products of activations, and of the last linear maps, that are kept
FOLLOWED = 8  # number of the last arrays of probabilities of unknown softmaxes that are followed
ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
# Names of classes of whole attention modules, not of their components (projection, norm, bias).
AN_ATTENTION = re.compile(r"(attention|attn)(\d+d?)?$", re.IGNORECASE)
SHOWN = 6  # largest number of modules that the warning names
SOFTMAX_NAMES = {"softmax", "special_softmax", "safe_softmax"}


@dataclass(eq=False)
class Running:
    """A module that runs, and the tensors that it was given.

    ``done``: a head was read while it ran, or it contains another attention, which is checked itself.
    """

    name: str
    kind: str
    given: list[Tensor]
    done: bool = False


class LinearMap(NamedTuple):
    """One call of a linear map of the model: ``output = input weight^T + bias``."""

    output: Tensor
    input: Tensor
    weight: Tensor
    bias: Tensor | None = None


@dataclass(eq=False, kw_only=True)
class Attention(Product):
    """One attention call of a forward pass: its queries and keys, its logits or mask, and its result.

    ``tensor`` is the input of the softmax, and ``result`` the probabilities.  If the call is ``fused``, the input of
    its softmax is not known: then ``tensor`` is the mask, as numbers that are added to the logits, and ``result`` the
    attended values.
    """

    result: Tensor
    within: Running  # the innermost module that ran
    maps: list[LinearMap]
    v: Tensor | None = None
    fused: bool = False
    dropout: float = 0.0  # dropout rate of the probabilities of a fused call
    folded: int | None = None  # number of heads, if batch and heads are one dimension


class Watch(TorchFunctionMode):
    """Observes the attention calls of a forward pass.

    It calls ``found`` for each attention call as soon as its values are known.  It calls :meth:`change` immediately;
    the result of :meth:`change` becomes the result of the attention call.  ``enter`` and ``leave`` are hooks of the
    modules.  ``missed`` has the class of each module that is not read by its name, in the order of the forward pass.
    """

    def __init__(self, found: Callable[[Attention], None] = lambda call: None):
        super().__init__()
        self.found = found
        self.running: list[Running] = []
        self.missed: dict[str, str] = {}
        self.maps: deque[LinearMap] = deque(maxlen=MAPS)
        self.products: deque[Product] = deque(maxlen=PRODUCTS)
        self.waiting: Attention | None = None  # the last call of a softmax, until its values are known
        self.own: list[Tensor] = []  # the probabilities of this call, and tensors made of them on the way to the values
        # The same of softmaxes whose logits are not followed, each with its module.
        self.unknown: deque[tuple[Tensor, Running]] = deque(maxlen=FOLLOWED)
        self.heads: int | None = None
        self.split: Running | None = None  # the last module whose softmaxes are factors of its attention

    def change(self, call: Attention) -> Tensor:
        return call.result

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            self.heads = args[4] if len(args) > 4 else kwargs["num_heads"]
            try:
                with self:
                    return _inside(*args, **kwargs)
            finally:
                self.heads = None
        name = getattr(func, "__name__", "").strip("_")  # matmul for __matmul__, mul for mul_
        if name == "scaled_dot_product_attention":
            return self._sdpa(func(*args, **kwargs), *args, **kwargs)
        if ATTENTION.search(name):
            self.kernel()
        own = self._tracked(args, kwargs)  # the product among the arguments, found before func may change them
        out = func(*args, **kwargs)
        return self._follow(name, own, args, kwargs, out) if isinstance(out, Tensor) else out

    # ------------------------------------- the modules that run, and those whose attention is not read

    def enter(self, name: str, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        now = Running(name, type(module).__name__, tensors(args, kwargs))
        if AN_ATTENTION.search(now.kind):
            self.read()
        self.running.append(now)

    def leave(self, *unused: Any) -> None:
        module = self.running.pop()
        if AN_ATTENTION.search(module.kind) and not module.done:
            self.miss(module)

    def read(self) -> None:
        """Marks all modules that run now as read, since a head is read in them or an attention begins inside them."""
        for module in self.running:
            module.done = True

    def kernel(self) -> None:
        """Notes that attention ran that is not read: a fused kernel, unknown logits, or attention from factors."""
        self.miss(self.within() or self.innermost())

    def within(self) -> Running | None:
        """The innermost module with attention in the name of its class."""
        return next((module for module in reversed(self.running) if ATTENTION.search(module.kind)), None)

    def innermost(self) -> Running:
        return self.running[-1] if self.running else Running("", "outside its modules", [])

    def miss(self, module: Running) -> None:
        self.missed.setdefault(module.name, module.kind)

    def message(self) -> str:
        """The text of a warning that names the modules whose attention is not read, or "" if there are none."""
        if not self.missed:
            return ""
        count = f"{len(self.missed)} module{'s' * (len(self.missed) > 1)}"
        shown = [f"{name or 'the model'} ({kind})" for name, kind in list(self.missed.items())[:SHOWN]]
        more = [f"{len(self.missed) - SHOWN} more"] if len(self.missed) > SHOWN else []
        return f"read does not follow the attention of {count}: {', '.join(shown + more)}; their heads are missing"

    # ------------------------------------- following a product of queries and keys until its softmax

    def _tracked(self, args: Any, kwargs: Any) -> Product | None:
        given: Any = [*args, *kwargs.values()]
        if given and isinstance(given[0], (list, tuple)):
            given = given[0]
        return next((own for x in given for own in reversed(self.products) if own.tensor is x), None)

    def _follow(self, name: str, own: Product | None, args: Any, kwargs: Any, out: Tensor) -> Tensor:
        """Follows the result of a PyTorch function; returns the result, or its replacement if it is an attention."""
        new = None
        if name == "linear":
            self.maps.append(LinearMap(out, *args[:3], **kwargs))  # a quantized map has more arguments
        elif name == "addmm":
            bias, x, weight = tensors(args, kwargs)[:3]
            if kwargs.get("alpha", 1) == kwargs.get("beta", 1) == 1 and bias is not out:
                self.maps.append(LinearMap(out, x, weight.mT, bias))
        elif name in SOFTMAX_NAMES:
            if not over_last(args, kwargs, out):
                return out
            if own is not None:
                return self._softmax(own, out)
            if out.ndim >= 3:
                if self.within() is None:
                    self.unknown.append((out, self.innermost()))
                else:
                    self.kernel()
        elif name in PRODUCT_NAMES:
            self._values(args, kwargs)
            new = product_of(name, args, kwargs, out)
        else:
            new = None if own is None else changed(own, name, args, kwargs, out)
            if name in SAME_NAMES or name == "getitem":
                given = next(iter(tensors(args, kwargs)), None)
                if any(given is prob for prob in self.own):
                    self.own.append(out)
                modules = [module for prob, module in self.unknown if given is prob]
                self.unknown.extend((out, module) for module in modules[:1])
        if new is not None:
            self.products.append(new)
        return out

    def _softmax(self, own: Product, prob: Tensor) -> Tensor:
        last = self.waiting
        if last is not None and last.within is self.innermost() and last.result.shape[-2:] != prob.shape[-2:]:
            # Softmaxes of two sizes in one module, with no values between: the factors of an attention (Nystroem).
            self.split = last.within
        self._flush()
        call = self._call(own, prob)
        self.products.clear()
        result = self.change(call)
        self.waiting, self.own = call, [result]
        return result

    def _call(self, own: Product, result: Tensor, **more: Any) -> Attention:
        """Makes the record of an attention call of the innermost running module, and marks that module as read."""
        self.read()
        return Attention(
            **vars(own), result=result, within=self.innermost(), maps=list(self.maps), folded=self.heads, **more
        )

    # ------------------------------------- after the softmax: the values, and the report of the call

    def _values(self, args: Any, kwargs: Any) -> None:
        """Finds the values of an attention call: the second factor of a product whose first is its probabilities."""
        given = tensors(args, kwargs)
        for prob, module in self.unknown:
            if any(x is prob for x in given):
                self.miss(module)
        if self.waiting is not None and len(given) == 2 and any(given[0] is prob for prob in self.own):
            if given[1].ndim == given[0].ndim and not isinstance(args[0], str):
                self.waiting.v = given[1]
            self._flush()

    def _flush(self) -> None:
        call, self.waiting, self.own = self.waiting, None, []
        if call is None:
            return
        if call.within is self.split:
            self.kernel()
        else:
            self.found(call)

    def finish(self) -> None:
        """Ends the forward pass: reports the last attention call, and drops the arrays that it kept for the pass."""
        self._flush()
        for kept in (self.products, self.maps, self.unknown):
            kept.clear()

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
        """Reports a call of fused attention, recorded from its arguments."""
        self._flush()
        if attn_mask is None:
            attn_mask = query.new_ones(query.shape[-2], key.shape[-2], dtype=torch.bool)
        mask = as_added(attn_mask.tril() if is_causal else attn_mask).expand(*out.shape[:-1], key.shape[-2])
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
        call = self._call(Product(query, key, mask, scale, plain=False), out, v=value, fused=True, dropout=dropout_p)
        self.found(call)
        return self.change(call)


# A copy of F.multi_head_attention_forward that a TorchFunctionMode sees function by function, and not as one call.
_inside = types.FunctionType(
    F.multi_head_attention_forward.__code__,
    {**F.multi_head_attention_forward.__globals__, "has_torch_function": lambda tensors: False},
    argdefs=F.multi_head_attention_forward.__defaults__,
)
