"""Brings an attention call to a standard form, checks it against the model's result, and finds its residual space.

The residual space: suppose that the queries (tokens x heads m) of an attention call are columns of an output
``x A^T + b`` of a linear map, each times a number.  Then they are ``[x 1] W`` with a known W.  If the same holds for
the keys, the logits are a bilinear form of the layer's inputs.  If there are rotations or norms between the map and
attention, there are no such columns.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from .watch import Attention

# Largest difference, besides rounding, between probabilities as they were read and as the model computed them.
# Where attended values are compared instead, their difference is divided by the largest absolute entry of the values.
AGREES = 5e-6
BEYOND = 1000.0  # a token whose mask or bias is this far below the query's largest is hidden: its probability is 0
NOISE = 16  # a bias counts as none if it is at most this number times the rounding error of the largest logit

SAMPLE = 256  # number of tokens on which columns of queries or keys are compared with columns of a map's output
PARALLEL = 1e-9  # columns are parallel if 1 - cosine is at most this
CLOSE = 1e-5  # columns are equal if they differ by at most this fraction of the largest entry

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
    """The part of head h of a call in standard form, whose tensors all lose their axis of heads."""
    H = call.q.shape[1]
    arrays = {name: x[:, h * x.shape[1] // H] for name, x in vars(call).items() if isinstance(x, Tensor)}
    return replace(call, **arrays)


def single(x: Tensor) -> Tensor:
    """The tensor in at least single precision."""
    return x if x.dtype == torch.float64 else x.float()


def shared_heads(k: Tensor) -> int:
    """Number of neighbouring heads that have equal keys because the model repeated each key head; 1 if it did not."""
    for size in range(k.shape[1], 1, -1):
        if k.shape[1] % size == 0 and torch.equal(k, k[:, ::size].repeat_interleave(size, 1)):
            return size
    return 1


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


class Columns(NamedTuple):
    """Where queries or keys come from: columns of the output of a linear map.

    ``place``: index of the map among the last maps that ran.  ``columns`` (H, m) of its output, times ``factors``
    (H, m), are the queries or keys of the heads.  ``swapped``: in the map's input the axis of tokens comes before that
    of the batch.
    """

    place: int
    columns: Tensor
    factors: Tensor
    swapped: bool

    def inputs(self, call: Attention, b: int) -> Tensor:
        """The input (S, d + 1) of the linear map for sequence b, with a 1 appended to each row."""
        return with_one(_tokens(call.maps[self.place].input.detach(), len(call.q), self.swapped)[b])

    def weights(self, call: Attention) -> Tensor:
        """The linear map's weights for each head, (H, d + 1, m), with the bias in the last row."""
        linear = call.maps[self.place]
        bias = torch.zeros_like(linear.weight[:, 0]) if linear.bias is None else linear.bias
        whole = torch.cat([linear.weight, bias[:, None]], 1).detach().double()[self.columns]
        return (whole * self.factors[..., None]).mT


class Residual(NamedTuple):
    """The columns of linear maps' outputs from which the queries and the keys of an attention call come."""

    queries: Columns
    keys: Columns


def find_residual(call: Attention) -> Residual | str:
    """The linear maps from which a call's queries and keys come, or the reason (text) why there are none."""
    queries, keys = (_find(x, call) for x in (call.q, call.k))
    if queries is None or keys is None:
        name = "queries" if queries is None else "keys"
        return f"its {name} are no columns of a linear map's output (rotary positions or norms come between)"
    residual = Residual(queries, keys)
    off = disagreement(residual, call)
    if off > tolerance(call):
        return f"logits of its weights differ from those of its queries and keys by {off:.1e} of the largest"
    return residual


def tolerance(call: Attention) -> float:
    return max(CLOSE, 8 * torch.finfo(call.q.dtype).eps)


def disagreement(residual: Residual, call: Attention) -> float:
    """Largest difference of a call's q.k from q.k by the linear maps' weights, over the largest q.k (one sequence)."""
    expected = products(call.q[0].double(), call.k[0].double())
    found = products(*(side.inputs(call, 0).double() @ side.weights(call) for side in residual))
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-300))


def find_input(call: Attention, given: Tensor, weights: Tensor) -> Tensor | None:
    """The linear map's input, with a 1 appended, that ``weights`` (d + 1, m) turn into ``given`` (B, S, m), or None."""
    for _, _, x in _last_first(call, "input", *given.shape[:2]):
        if x.shape[-1] + 1 == len(weights):
            tokens = with_one(x).to(weights.dtype)
            rounding = tokens.norm(dim=-1).max() * weights.norm(dim=0).max()
            if (tokens @ weights - given).abs().max() <= tolerance(call) * rounding:
                return tokens
    return None


def with_one(x: Tensor) -> Tensor:
    """The array with a 1 appended to each row, in at least single precision."""
    return torch.nn.functional.pad(single(x), (0, 1), value=1.0)


def _last_first(call: Attention, side: str, B: int, S: int) -> Iterator[tuple[int, bool, Tensor]]:
    """Yields (index, whether tokens precede the batch, array (B, S, columns)) of maps with B S rows, last map first."""
    for place, linear in reversed(list(enumerate(call.maps))):
        x = getattr(linear, side).detach()
        if x.shape[:-1].numel() == B * S and x.is_floating_point():
            for swapped in (False, True) if B > 1 and S > 1 else (False,):
                yield place, swapped, _tokens(x, B, swapped)


def _tokens(x: Tensor, sequences: int, swapped: bool) -> Tensor:
    """The input or output of a linear map, reshaped to (B, S, columns)."""
    x = x.reshape(-1, x.shape[-1])
    return x.unflatten(0, (-1, sequences)).transpose(0, 1) if swapped else x.unflatten(0, (sequences, -1))


def _find(x: Tensor, call: Attention) -> Columns | None:
    B, H, S, m = x.shape
    rows = torch.linspace(0, B * S - 1, min(B * S, SAMPLE), device=x.device).round().long()
    wanted = x.transpose(1, 2).reshape(B * S, H * m)[rows].double()
    for place, swapped, output in _last_first(call, "output", B, S):
        given = output.reshape(B * S, -1)[rows].double()
        match = _match(wanted, given, torch.finfo(call.q.dtype).eps)
        if match is not None:
            columns, factors = (part.view(H, m) for part in match)
            return Columns(place, columns, factors, swapped)
    return None


def _match(wanted: Tensor, given: Tensor, eps: float) -> tuple[Tensor, Tensor] | None:
    """For each column of ``wanted``, a parallel column of ``given`` and its factor; None if a column has none."""
    if not (given.isfinite().all() & wanted.isfinite().all()):
        return None
    lengths, sizes = wanted.norm(dim=0), given.norm(dim=0)
    cosines = (wanted / lengths.clamp(min=1e-300)).mT @ (given / sizes.clamp(min=1e-300))
    cosine, columns = cosines.max(1)
    factors = lengths / sizes[columns].clamp(min=1e-300)
    off = (given[:, columns] * factors - wanted).abs().max()
    turned = ((cosine < 1 - max(PARALLEL, eps**2)) & (lengths > 0)).any()
    return None if turned or off > max(CLOSE, eps) * wanted.abs().max() else (columns, factors)
