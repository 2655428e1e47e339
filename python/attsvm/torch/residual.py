"""The residual space: queries and keys that are columns of the output of a linear map.

Suppose that the queries (tokens x heads m) of an attention call are columns of an output ``x A^T + b``, each times a
number.  Then they are ``[x 1] W`` with a known W.  If the same holds for the keys, the logits are a bilinear form of
the layer's inputs.  If there are rotations or norms between the map and attention, there are no such columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .standard_form import products, single
from .watch import Attention

SAMPLE = 256  # number of tokens on which columns of queries or keys are compared with columns of a map's output
PARALLEL = 1e-9  # columns are parallel if 1 - cosine is at most this
CLOSE = 1e-5  # columns are equal if they differ by at most this fraction of the largest entry


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
            for swapped in sorted({False, B > 1 and S > 1}):
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
    products = (wanted / lengths.clamp(min=1e-300)).mT @ (given / sizes.clamp(min=1e-300))
    cosine, columns = products.max(1)
    factors = lengths / sizes[columns].clamp(min=1e-300)
    off = (given[:, columns] * factors - wanted).abs().max()
    turned = ((cosine < 1 - max(PARALLEL, eps**2)) & (lengths > 0)).any()
    return None if turned or off > max(CLOSE, eps) * wanted.abs().max() else (columns, factors)
