"""Brings an attention call of any shape to one shape, and compares it with the attention that the model computed."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from .watch import Attention

# Largest difference, besides rounding, between probabilities as they were read and as the model computed them.
# Where attended values are compared instead, their difference is divided by the largest absolute entry of the values.
AGREES = 5e-6
BEYOND = 1000.0  # a token whose mask or bias is this far below the query's largest is hidden: its probability is 0
NOISE = 16  # a bias counts as none if it is at most this number times the rounding error of the largest logit


# Inputs of the softmax besides the products q.k: mask of the tokens that each query sees, bias or None, sink or None.
Around = tuple[Tensor, Tensor | None, Tensor | None]


def standardize(call: Attention, batch: int | None) -> Attention:
    """The attention call in standard form, whatever shapes the model's arrays have.

    The standard form has queries q (B, H, S, m), keys k and values v (B, G, T, m), ``tensor`` (B, H, S, T or more) and
    ``result`` (B, H, S, ..), for B sequences, H heads that share G key heads (G divides H), S queries, T tokens, and
    vectors of length m.  ``batch``: number of entries of the batch.  If heads and sequences are one dimension, it gives
    the number of heads.
    """
    q, k, v = call.q, call.k, call.v
    if q.ndim == k.ndim == 5 and k.shape[2] == 1 < q.shape[2]:  # groups of heads that share a key head
        q, k = q.flatten(1, 2), k.flatten(1, 2)
        v = v.flatten(1, 2) if v is not None and v.ndim == 5 else None
    if q.ndim <= 3:
        n = max(q.shape[:-2].numel(), k.shape[:-2].numel())
        H = call.folded or (n // batch if batch and n % batch == 0 else 1)
        B = n // H
    else:
        lead = max(q.shape[:-2], k.shape[:-2], key=len)
        B, H = lead[:-1].numel(), lead[-1]

    def shaped(x: Tensor, heads: int = H) -> Tensor:
        x = x.detach()
        if x.shape[:-2].numel() != B * heads:
            x = x.expand(B, heads, *x.shape[-2:])
        return x.reshape(B, heads, *x.shape[-2:])

    k, v = (None if x is None else shaped(x, x.shape[-3] if x.ndim >= 4 else H) for x in (k, v))
    return replace(call, q=shaped(q), k=k, v=v, tensor=shaped(call.tensor), result=shaped(call.result))


def one_head(call: Attention, h: int) -> Attention:
    """The part of head h of a call in standard form, without the axis of heads."""
    arrays = {name: getattr(call, name) for name in ("q", "k", "v", "tensor", "result")}
    H = call.q.shape[1]
    return replace(call, **{name: x[:, h * x.shape[1] // H] for name, x in arrays.items() if x is not None})


def single(x: Tensor) -> Tensor:
    """The tensor in at least single precision."""
    return x if x.dtype == torch.float64 else x.float()


def shared_heads(k: Tensor) -> int:
    """Number of neighbouring heads that have equal keys because the model repeated each key head; 1 if it did not."""
    heads = k.shape[1]
    sizes = (size for size in range(heads, 1, -1) if heads % size == 0)
    return next((size for size in sizes if torch.equal(k, k[:, ::size].repeat_interleave(size, 1))), 1)


def products(q: Tensor, k: Tensor) -> Tensor:
    """Products (.., H, S, T) of vectors q (.., H, S, m) and k (.., G, T, m); neighbouring heads share a k."""
    return q @ k.repeat_interleave(q.shape[-3] // k.shape[-3], -3).mT


def sequence(call: Attention, b: int) -> tuple[Tensor, Tensor, Around, Tensor, Tensor | None]:
    """The arrays of sequence ``b`` of a call in standard form, checked against the result of the call.

    Returns five things: queries; keys; a tuple; probabilities (H, S, T), nan for queries that see no token or are nan;
    norms of the values (G, T) or None.  The tuple has a mask (1 or H, S, T), true where a query sees a token; the bias
    (1 or H, S, T) or None; and the sink (H, S) or None.

    Raises
    ------
    ValueError
        If the probabilities, or the attended values that follow from them, are not those that the model computed.
    """
    q, k, logits, (seen, bias, sink), largest = compared(call, b)
    prob = torch.where(seen.any(-1, keepdim=True), attend(logits, seen, bias, sink), torch.nan)
    live = ~prob.isnan().any(-1, keepdim=True)
    values = None if call.v is None else call.v[b].to(q.dtype)
    # The result that these probabilities give, and the result of the call.
    own, ran, unit = prob.nan_to_num(), single(call.result[b]), 1.0
    if call.fused:
        assert values is not None  # a fused call has values
        unit = max(float(values.abs().max()), torch.finfo(values.dtype).tiny)
        own = products(own, values.mT)
    else:
        ran = ran[..., : prob.shape[-1]]
    off = float(torch.where(live, (own - ran).abs(), 0).nan_to_num(nan=torch.inf).max()) / unit
    largest = max(largest, call.scale * float(q.norm(dim=-1).max() * k.norm(dim=-1).max()))
    most = AGREES + 2 * max(torch.finfo(x.dtype).eps for x in (call.q, call.result)) * (1 + largest)
    read = f"attention read from {call.within.name or 'the model'}"
    if not math.isfinite(off + most):
        raise ValueError(f"{read} cannot be checked: its logits, its values or what the model computed are not finite")
    if off > most:
        raise ValueError(f"{read} differs from what the model computed by {off:.1e} (at most {most:.1e} expected)")
    norms = values.norm(dim=-1) if values is not None and values.shape[1] == k.shape[1] else None
    return q, k, (_one_head(seen), None if bias is None else _one_head(bias), sink), prob, norms


def attend(logits: Tensor, seen: Tensor, bias: Tensor | None, sink: Tensor | None) -> Tensor:
    """Attention probabilities of the tokens from their logits; the sink, if any, takes the rest of the probability."""
    logits = torch.where(seen, logits if bias is None else logits + bias, -torch.inf)
    if sink is None:
        return torch.softmax(logits, -1)
    return torch.softmax(torch.cat([logits, sink[..., None]], -1), -1)[..., :-1]


def capped(product: Tensor, cap: float | None) -> Tensor:
    return product if cap is None else cap * torch.tanh(product / cap)


def compared(call: Attention, b: int | slice) -> tuple[Tensor, Tensor, Tensor, Around, float]:
    """The arrays of sequence ``b``, or of a slice of sequences, of a call in standard form.

    Returns queries; keys; their capped products; mask, bias and sink; and the largest logit of the softmax (0 if its
    logits are not known). Mask and bias are the difference between the logits of the softmax and the products, or come
    from the mask of the call."""
    q, k, given = (single(x[b]) for x in (call.q, call.k, call.tensor))
    logits = capped(call.scale * products(q, k), call.cap)
    given, sinks = given.tensor_split([k.shape[-2]], -1)
    lowest = max(torch.finfo(x.dtype).min for x in (call.tensor, call.q)) / 2
    added = given if call.fused else given - logits
    seen = given > lowest
    seen &= added > torch.where(seen, added, -torch.inf).amax(-1, keepdim=True) - BEYOND
    mean = torch.where(seen, added, torch.nan).nanmean(-1, keepdim=True)
    bias = torch.where(seen, added - mean, 0)
    largest = float(torch.where(seen, given, 0).abs().max())
    if call.fused:
        rounding, largest = torch.finfo(logits.dtype).eps * largest, 0.0
    else:
        rounding = torch.finfo(call.q.dtype).eps * max(largest, float(logits.abs().max()))
    no_bias = call.plain or float(bias.abs().max()) <= NOISE * rounding
    sink = sinks.logsumexp(-1) - mean[..., 0] if sinks.shape[-1] else None
    return q, k, logits, (seen, None if no_bias else bias, sink), largest


def _one_head(x: Tensor) -> Tensor:
    return x[:1] if (x == x[:1]).all() else x
