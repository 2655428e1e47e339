"""A product of queries and keys, followed through the functions that are applied to it until the softmax."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

# Names of PyTorch functions, without the underscores of methods that work in place or implement operators.
PRODUCT_NAMES = {"matmul", "bmm", "baddbmm", "einsum"}
SCALE_NAMES = {"mul", "rmul", "imul", "multiply"}
DIVIDE_NAMES = {"div", "truediv", "itruediv", "true_divide", "divide"}
ADD_NAMES = {"add", "radd", "iadd", "sub", "isub", "subtract"}
MASK_NAMES = {"masked_fill", "where"}
# Functions that leave logits, or attention probabilities, of the tokens that a query sees as they are.
SAME_NAMES = {
    "float", "to", "type", "type_as", "half", "bfloat16", "double", "contiguous", "clone", "detach", "dropout",
    "view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "clamp", "clip", "max", "maximum",
    "nan_to_num",
}  # fmt: skip


@dataclass(eq=False)
class Product:
    """Logits before the softmax: ``scale`` times q.k, or ``cap tanh(scale q.k / cap)`` if there is a cap.

    ``q`` is (.., S, m) and ``k`` (.., T, m).  ``tensor`` is the present value of the logits.  It may have
    more columns than the T tokens: extra logits (sinks) after those of the tokens.  ``plain``: nothing was added that
    differs between tokens that are seen.
    """

    q: Tensor
    k: Tensor
    tensor: Tensor
    scale: float = 1.0
    cap: float | None = None
    plain: bool = True


def tensors(args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors among the arguments of a function, by position and by name."""
    return [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]


def over_last(args: Any, kwargs: Any, out: Tensor) -> bool:
    """Whether a function with the result ``out``, such as softmax or cat, ran over the last dimension."""
    return kwargs.get("dim", args[1] if len(args) > 1 else 0) in (-1, out.ndim - 1)


def as_added(mask: Tensor) -> Tensor:
    """The mask as numbers that are added to logits: -inf where a bool mask is False."""
    return torch.where(mask, 0.0, -torch.inf) if mask.dtype == torch.bool else mask


def product_of(name: str, args: Any, kwargs: Any, out: Tensor) -> Product | None:
    """The factors of ``out`` as a :class:`Product`, or None if ``out`` is no product of two arrays of activations."""
    if name == "einsum":
        return _einsum(args, out)
    *added, first, second = (None, None, *tensors(args, kwargs)[:3])
    if first is None or min(first.ndim, second.ndim) < 2:
        return None
    if second.ndim == 2 and (first.ndim > 2 or isinstance(second, torch.nn.Parameter)):
        return None  # the second factor is a matrix of weights
    plain = name != "baddbmm" or kwargs.get("beta", 1) == 0 or _is_mask(added[-1])
    return Product(first, second.mT, out, float(kwargs.get("alpha", 1)), plain=plain)


def changed(own: Product, name: str, args: Any, kwargs: Any, out: Tensor) -> Product | None:
    """The logits ``own`` after the function ``name``, whose result is ``out``, or None if it cannot be followed."""
    new, fits = replace(own, tensor=out), True
    other = next((a for a in (*args, *kwargs.values()) if a is not own.tensor), None)
    if name in SCALE_NAMES and _is_zero_or_one(other):
        new.plain = False  # factors 0 and 1 may be part of a mask: 0 hides a token if a later term is added
    elif name in SCALE_NAMES | DIVIDE_NAMES:
        fits = _scaled(new, other, name in DIVIDE_NAMES)
    elif name == "tanh":
        new.cap, fits = 1.0, own.cap is None
    elif name in ADD_NAMES:
        new.plain = own.plain and _is_mask(other)
    elif name in ("cat", "concat", "concatenate"):
        parts = args[0] if args else kwargs["tensors"]
        fits = parts[0] is own.tensor and over_last(args, kwargs, out)
    elif name in ("transpose", "swapaxes", "get"):
        new.q, new.k, turned = own.k, own.q, own.tensor.mT
        fits = out.shape == turned.shape and out.stride() == turned.stride()
    else:
        fits = name in SAME_NAMES | MASK_NAMES
    return new if fits else None


def _einsum(args: Any, out: Tensor) -> Product | None:
    operands = args[1] if len(args) == 2 and isinstance(args[1], (list, tuple)) else args[1:]
    if not isinstance(args[0], str) or len(operands) != 2 or "." in args[0] or "->" not in args[0]:
        return None
    left, result = args[0].replace(" ", "").split("->")
    first, second = left.split(",")
    summed = [label for label in first if label in second and label not in result]
    if len(result) < 2 or not summed:
        return None
    *lead, query, token = list(result)
    pairs = list(zip((first, second), operands, strict=True))
    if query in second:
        pairs.reverse()
    found = []
    for (labels, operand), row in zip(pairs, (query, token), strict=True):
        order = [label for label in lead if label in labels] + [row, *summed]
        if sorted(order) != sorted(labels):
            return None
        moved = operand.permute([labels.index(label) for label in order])
        for at, label in enumerate(lead):
            moved = moved if label in labels else moved.unsqueeze(at)
        found.append(moved.flatten(len(lead) + 1))
    return Product(found[0], found[1], out)


def _scaled(product: Product, factor: Any, divide: bool) -> bool:
    """Applies a factor to the logits: a number, or a tensor that differs between heads, queries or tokens.

    A tensor is multiplied to the queries or to the keys.  Returns False if this is impossible.
    """
    if not isinstance(factor, (int, float, Tensor)):
        return False
    factor = 1 / factor if divide else factor
    if not isinstance(factor, Tensor) or factor.numel() == 1:
        product.scale *= float(factor)
        if product.cap is not None:
            product.cap *= float(factor)
        return True
    if product.cap is not None or factor.ndim > product.q.ndim:
        return False
    factor = torch.atleast_2d(factor)
    if factor.shape[-1] == 1:
        product.q = product.q * factor
    elif factor.shape[-2] == 1:
        product.k = product.k * factor.mT
    else:
        return False
    return True


def _is_zero_or_one(factor: Any) -> bool:
    """Whether the factor is 0 for some tokens and 1 for the others, and so hides tokens."""
    whole = isinstance(factor, Tensor) and factor.ndim >= 2 and min(factor.shape[-2:]) > 1
    return whole and bool(((factor == 0) | (factor == 1)).all())


def _is_mask(added: Any) -> bool:
    """Whether ``added``, if added to logits, only hides tokens, or adds one number to all tokens that a query sees."""
    if not isinstance(added, Tensor) or added.numel() == 0:
        return True
    seen = added > (torch.finfo(added.dtype).min / 2 if added.is_floating_point() else -torch.inf)
    low = torch.where(seen, added, torch.inf).amin(-1)
    high = torch.where(seen, added, -torch.inf).amax(-1)
    return bool((low >= high).all())
