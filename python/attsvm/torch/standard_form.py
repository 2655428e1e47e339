"""One attention call in standard form, sequence by sequence, checked against what the model computed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .watch import Attention

AGREES = 5e-6  # largest difference of probabilities, or of attended values over the largest value, in float32
BEYOND = 1000.0  # logits that a mask or a bias puts so far below the best of their row have probability 0
NOISE = 16  # roundings of the largest logit: less is no bias


Around = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]  # who sees what, the bias, the sink


class Disagreement(ValueError):
    """What was read is not what the model computed."""


@dataclass(eq=False)
class Standard:
    """Queries (B, H, S, m), keys and values (B, G, T, m), with G dividing H; the call they come from."""

    call: Attention
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor | None

    @property
    def sequences(self) -> int:
        return len(self.q)


@dataclass(eq=False)
class OneSequence:
    """One sequence of a call: what ``attention`` is made of.

    ``seen`` (1 or H, S, T); ``bias`` (1 or H, S, T) or None; ``sink`` (H, S) or None; ``prob`` (H, S, T), nan for
    queries that see nothing; ``value_norms`` (G, T) or None.
    """

    q: torch.Tensor
    k: torch.Tensor
    seen: torch.Tensor
    bias: torch.Tensor | None
    sink: torch.Tensor | None
    prob: torch.Tensor
    value_norms: torch.Tensor | None


def standardize(call: Attention, batch: int | None) -> Standard:
    """``batch``: entries of the batch, which tells heads from sequences where they are one dimension."""
    q, k, v = call.q, call.k, call.v
    if q.ndim == 5 and k.ndim == 5 and k.shape[2] == 1 < q.shape[2]:  # heads in groups, each with its key head
        q, k = q.flatten(1, 2), k[:, :, 0]
        v = v[:, :, 0] if v is not None and v.ndim == 5 and v.shape[2] == 1 else None
    lead = max(q.shape[:-2], k.shape[:-2], key=len)
    if q.ndim <= 3:
        n = 1 if q.ndim == 2 else max(q.shape[0], k.shape[0])
        heads = call.folded or (n // batch if batch and n % batch == 0 else 1)
        lead = (n // heads, heads)
    elif q.ndim > 4:
        lead = (lead[:-1].numel(), lead[-1])
    q = _shaped(q, lead)
    k = _shaped(k, (lead[0], k.shape[-3] if k.ndim >= 4 else lead[1]))
    if v is not None:
        v = _shaped(v, (lead[0], v.shape[-3] if v.ndim >= 4 else lead[1]))
    return Standard(call, q, k, v)


def _shaped(x: torch.Tensor, lead: tuple[int, int]) -> torch.Tensor:
    x = x.detach()
    if x.ndim >= 4 and x[..., 0, 0].numel() != lead[0] * lead[1]:
        x = x.expand(*lead, *x.shape[-2:])
    elif x.ndim == 3 and len(x) != lead[0] * lead[1]:
        x = x.expand(lead[0] * lead[1], *x.shape[1:])
    return x.reshape(*lead, *x.shape[-2:])


def shared_heads(k: torch.Tensor) -> int:
    """How many neighbouring heads have the same keys (grouped queries that were repeated)."""
    heads = k.shape[1]
    for size in range(heads, 1, -1):
        if heads % size == 0:
            parts = k.unflatten(1, (heads // size, size))
            if bool((parts == parts[:, :, :1]).all()):
                return size
    return 1


def sequence(standard: Standard, b: int) -> OneSequence:
    """Sequence ``b`` of a call.

    Raises
    ------
    Disagreement
        Where its probabilities are not those the model computed, or do not give what it attended to.
    """
    call = standard.call
    q, k, logits, (seen, bias, sink) = compared(standard, b)
    largest = call.scale * float(q.norm(dim=-1).max() * k.norm(dim=-1).max())
    if call.logits is not None:
        given = _part(call.logits, standard, b)
        largest = max(largest, float(torch.where(seen, given[..., : logits.shape[-1]], 0).abs().max()))
    if bias is not None:
        logits = logits + bias
    logits = torch.where(seen, logits, -torch.inf)
    if sink is None:
        prob = torch.softmax(logits, -1)
    else:
        prob = torch.softmax(torch.cat([logits, sink[..., None]], -1), -1)[..., :-1]
    prob = torch.where(seen.any(-1, keepdim=True), prob, torch.nan)
    values = None if standard.v is None else standard.v[b].to(q.dtype)
    _check(standard, b, prob, values, largest)
    norms = None
    if values is not None and values.shape[1] == k.shape[1]:
        norms = values.norm(dim=-1)
    return OneSequence(q, k, _one_head(seen), None if bias is None else _one_head(bias), sink, prob, norms)


def compared(standard: Standard, b: int | slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Around]:
    """Of sequence ``b``, or of several at once: queries, keys, their capped products, and what is put around these."""
    call = standard.call
    double = standard.q.dtype == torch.float64
    q, k = (x[b].to(torch.float64 if double else torch.float32) for x in (standard.q, standard.k))
    logits = call.scale * (q @ k.repeat_interleave(q.shape[-3] // k.shape[-3], -3).mT)
    if call.cap is not None:
        logits = call.cap * torch.tanh(logits / call.cap)
    if call.logits is not None:
        return q, k, logits, _from_logits(call, logits, _part(call.logits, standard, b))
    return q, k, logits, (*_from_mask(call, logits, standard, b), None)


def _part(x: torch.Tensor, standard: Standard, b: int | slice) -> torch.Tensor:
    """Sequence b of logits or probabilities, (H, S, T)."""
    B, H = standard.q.shape[:2]
    return (
        x.detach().reshape(B, H, *x.shape[-2:])[b].to(standard.q.dtype if x.dtype == torch.float64 else torch.float32)
    )


def _from_logits(call: Attention, product: torch.Tensor, given: torch.Tensor) -> Around:
    """Who sees what, the bias and the sink, from what the softmax got."""
    T = product.shape[-1]
    lowest = torch.finfo(call.logits.dtype if call.logits is not None else given.dtype).min / 2
    rest = given[..., :T] - product
    seen = _near(rest, given[..., :T] > max(lowest, torch.finfo(call.q.dtype).min / 2))
    rest, level = _centred(rest, seen)
    sink = None
    if call.sinks:
        sink = given[..., T:].logsumexp(-1) - level[..., 0]
    size = max(float(torch.where(seen, given[..., :T], 0).abs().max()), float(product.abs().max()))
    no_bias = call.plain or float(rest.abs().max()) <= NOISE * torch.finfo(call.q.dtype).eps * size
    return seen, None if no_bias else rest, sink


def _from_mask(
    call: Attention, product: torch.Tensor, standard: Standard, b: int | slice
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Who sees what, and the bias, from the arguments of scaled_dot_product_attention."""
    S, T = product.shape[-2:]
    seen = torch.ones(1, S, T, dtype=torch.bool, device=product.device)
    if call.causal:
        seen = seen.tril()
    if call.mask is None:
        return seen, None
    mask = call.mask.detach()
    lead = (len(standard.q), standard.q.shape[1])
    if mask.ndim == 3 and call.q.ndim == 3:
        mask = mask.expand(lead[0] * lead[1], S, T).reshape(*lead, S, T)
    elif mask.ndim > 4:
        mask = mask.expand(*call.q.shape[:-2], S, T).reshape(*lead, S, T)
    mask = mask.expand(*mask.shape[:-2], S, T)
    mask = mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape) if mask.ndim < 4 else mask
    mask = mask[b if len(mask) > 1 else 0]
    if mask.dtype == torch.bool:
        return seen & mask, None
    low = torch.finfo(mask.dtype).min / 2
    mask = mask.to(product.dtype)
    seen = _near(mask, seen & (mask > low))
    bias, _ = _centred(mask, seen)
    flat = torch.where(seen, mask, -torch.inf).amax(-1) <= torch.where(seen, mask, torch.inf).amin(-1)
    return seen, None if bool(flat.all()) else bias


def _centred(x: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What is added to the logits of tokens that are seen, around its mean over these, and that mean."""
    mean = torch.where(seen, x, 0).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(seen, x - mean, 0), mean


def _near(added: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    top = torch.where(seen, added, -torch.inf).amax(-1, keepdim=True)
    return seen & (added > top - BEYOND)


def _one_head(x: torch.Tensor) -> torch.Tensor:
    return x[:1] if len(x) > 1 and bool((x == x[:1]).all()) else x


def _check(standard: Standard, b: int, prob: torch.Tensor, values: torch.Tensor | None, largest: float) -> None:
    call, own = standard.call, torch.where(prob.isnan(), 0, prob)
    eps = max(torch.finfo(call.q.dtype).eps, torch.finfo(call.result.dtype).eps)
    unit = 1.0
    if call.logits is not None:
        ran = _part(call.result, standard, b)[..., : prob.shape[-1]]
    elif values is not None:
        unit = max(float(values.abs().max()), torch.finfo(values.dtype).tiny)
        own = own @ values.repeat_interleave(len(own) // len(values), 0)
        ran = _part(call.result, standard, b)
    else:
        raise Disagreement(f"attention read from {call.module or 'the model'} has no values to check it against")
    live = ~prob.isnan().any(-1, keepdim=True)
    off = float(torch.where(live, (own - ran).abs(), 0).nan_to_num(nan=torch.inf).max()) / unit
    most = AGREES + 2 * eps * (1 + largest)
    if not math.isfinite(off + most):
        raise Disagreement(
            f"attention read from {call.module or 'the model'} cannot be checked: its logits, its values or what the "
            "model computed are not finite"
        )
    if not off <= most:
        raise Disagreement(
            f"attention read from {call.module or 'the model'} differs from what the model computed by {off:.1e} "
            f"(at most {most:.1e} expected)"
        )
