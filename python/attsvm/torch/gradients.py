"""Gradients of a loss in the attention probabilities of every head of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from ..heads.model import Head
from .batch import Batch
from .call import standardize
from .read import device_of, named, unchanged, unwrap
from .watch import Attention, Watch


def in_probabilities(
    model: torch.nn.Module, batches: Iterable[Any], loss: Callable[[torch.nn.Module, Any], torch.Tensor]
) -> list[list[np.ndarray]]:
    """Of each attention call and each sequence, in the order in which :func:`read` counts them: (H, S, T).

    The loss is asked batch by batch, in evaluation mode; no ``.grad`` of the model is touched.
    """
    model = unwrap(model)
    found: list[list[np.ndarray]] = []
    for values in batches:
        calls: list[Attention] = []
        watch = Watch(calls.append)
        batch = Batch(values, model, device_of(model))
        with unchanged(model), named(model, watch), torch.enable_grad(), watch:
            value = loss(model, batch.given)
            watch.finish()
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            raise ValueError(f"loss must return one number with a gradient, got {value!r:.80}")
        results = [call.result for call in calls if call.result.requires_grad]
        gradients = iter(torch.autograd.grad(value, results, allow_unused=True))
        for number, call in enumerate(calls):
            if number == len(found):
                found.append([])
            gradient = next(gradients) if call.result.requires_grad else None
            found[number] += _each(call, gradient, batch.size)
    return found


def _each(call: Attention, gradient: torch.Tensor | None, size: int | None) -> list[np.ndarray]:
    """Of one call, sequence by sequence."""
    standard = standardize(call, size)
    B, H, S, _ = standard.q.shape
    T = standard.k.shape[2]
    if gradient is None:
        return [np.zeros((H, S, T)) for _ in range(B)]
    if call.logits is not None:  # the result is the probabilities, those of sinks behind
        part = gradient.reshape(B, H, S, -1)[..., :T]
    else:
        assert standard.v is not None
        part = gradient.reshape(B, H, S, -1) @ standard.v.repeat_interleave(H // standard.v.shape[1], 1).mT
    return list(part.detach().double().cpu().numpy())


def of(head: Head, gradients: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Those of a head that :func:`read` returned: of each sequence kept (S, T), its padding cut off."""
    text = head.text
    found = []
    for number, place, S, T in zip(text.numbers, text.places, text.counts, text.lengths, strict=True):
        query, token = place[2:]
        found.append(gradients[head.layer][number][head.number, query : query + S, token : token + T])
    return found
