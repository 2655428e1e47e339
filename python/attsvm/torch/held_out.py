"""Held-out inputs of a model, and how far its output on them is from the original one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from ..heads.model import Head
from .batch import Batch
from .read import device_of, unwrap
from .replacement import Replacement
from .substitute import Substitution

SAMPLED = 64  # outputs of each batch, by which those of another model or other inputs are told


class HeldOut:
    """Batches with the original outputs."""

    def __init__(self, running: Substitution, model: Any, batches: Iterable[Any], forward: Any, metric: str):
        call, device = model if forward is None else forward, device_of(unwrap(model))
        self.running, self.metric = running, metric
        self.batches = [Batch(batch, call, device) for batch in batches]
        if not self.batches:
            raise ValueError("batches must hold at least one batch, got none")
        running.put({})
        self.own = [self._run(batch) for batch in self.batches]

    def sample(self) -> np.ndarray:
        """A few of the original outputs."""
        parts = [own.flatten() for own in self.own]
        parts = [part[:: max(1, len(part) // SAMPLED)][:SAMPLED].double().cpu() for part in parts]
        return torch.cat(parts).numpy()

    def _run(self, batch: Batch) -> torch.Tensor:
        found = self.running.run(batch.call, *batch.args, **batch.kwargs)
        logits = getattr(found, "logits", None)
        if self.metric == "auto":
            self.metric = "1 - cosine" if logits is None else "KL"
        if logits is None or self.metric != "KL":
            logits = _first_tensor(found)
        return torch.log_softmax(logits.double(), -1).float() if self.metric == "KL" else logits

    def damage(self, values: dict[Head, Replacement]) -> np.ndarray:
        """Of each held-out input."""
        self.running.put(values)
        try:
            pairs = zip(self.batches, self.own, strict=True)
            return np.concatenate([self._difference(batch, own, self._run(batch)) for batch, own in pairs])
        finally:
            self.running.put({})

    def _difference(self, batch: Batch, own: torch.Tensor, other: torch.Tensor) -> np.ndarray:
        a, b = own.double(), other.double()
        if self.metric == "KL":
            off = (a.exp() * (a - b)).sum(-1)
        else:
            a, b = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-300) for x in (a, b))
            off = ((a - b) ** 2).sum(-1) / 2  # 1 - cosine, without its cancellation
        mask = batch.named.get("attention_mask")
        if off.ndim == 1:
            return off.cpu().numpy()
        weights = mask.to(off) if isinstance(mask, torch.Tensor) and mask.shape == off.shape else torch.ones_like(off)
        return ((off * weights).flatten(1).sum(1) / weights.flatten(1).sum(1).clamp(min=1)).cpu().numpy()


def _first_tensor(found: Any) -> torch.Tensor:
    if isinstance(found, torch.Tensor):
        return found
    values = found.values() if hasattr(found, "values") else found if isinstance(found, (tuple, list)) else ()
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
    raise TypeError(f"what is run must return a tensor, or a tuple or dict of them, got {type(found).__name__}")
