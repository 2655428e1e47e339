"""Measures the damage to a model without some of its heads: the change of its output on held-out inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..common.check import as_choice
from ..common.progress import counted
from ..heads.head import Head
from ..heads.report import HeadReport, Reports, as_reports
from .batch import Batch, as_array, check_batches
from .candidates import torch_threads
from .read import unchanged
from .replacement import Replacement, nothing
from .substitute import Substitution, substitution

SMALL = 10**8  # a model runs on one PyTorch thread if its parameters times the positions of a batch are fewer
# Number of output values stored of each batch; a later call that gets other values has another model or other inputs.
SAMPLED = 64


def damage(
    model: torch.nn.Module,
    reports: Sequence[HeadReport],
    batches: Iterable[Any],
    *,
    forward: Callable[..., Any] | None = None,
    metric: str = "auto",
    progress: bool | None = None,
) -> Reports:
    """Reports with the damage of each head: how far the model's output without the head is from the original output.

    Parameters
    ----------
    model : torch.nn.Module
        The model that the heads were read from; its weights are not written.
    reports : list of HeadReport
        From :func:`attsvm.heads.analyze_model`.
    batches : iterable
        Inputs, as :func:`attsvm.torch.read` takes them.  For each head there is one forward pass of all inputs.
    forward : callable, optional
        Called with each batch in place of the model.
    metric : {"auto", "KL", "1 - cosine"}
        As for :func:`attsvm.torch.faithfulness`.
    progress : bool, optional
        Whether to show a bar; by default at a terminal or in a notebook.

    Returns
    -------
    Reports
        The same reports with ``damage``, the mean over the inputs, and ``metric``; a column of the table shows it.

    Raises
    ------
    ValueError, TypeError
        If the model is not the one that was read, and for arguments that do not fit.

    Notes
    -----
    A head that mostly selects sinks, or that has too few hard queries to analyse, may matter most to the model.  The
    damage shows this, but not what the head does.  :func:`attsvm.torch.faithfulness` measures how much of the damage is
    undone by a substitute that makes the head's choices.

    Examples
    --------
    >>> import attsvm.torch
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> xs = torch.randn(20, 2, 6, 8)
    >>> found = attsvm.torch.read(model, [(x, x, x) for x in xs])
    >>> reports = attsvm.heads.analyze_model(found, null=False, n_jobs=1)
    >>> reports = attsvm.torch.damage(model, reports, [(x, x, x) for x in xs[:5]], progress=False)
    >>> reports["L0H1"].damage > 0.01, reports["L0H1"].metric
    (True, '1 - cosine')
    """
    reports = as_reports(reports)
    with substitution(model) as running, unchanged(running.model):
        held_out = HeldOut(running, batches, forward, metric)
        return Reports(
            replace(report, damage=float(held_out.damage({report.head: nothing}).mean()), metric=held_out.metric)
            for report in counted(reports, len(reports), "damage", "head", progress)
        )


class HeldOut:
    """Held-out batches with the model's original outputs, as ``pairs``."""

    def __init__(self, running: Substitution, batches: Iterable[Any], forward: Any, metric: str):
        as_choice("metric", metric, ("auto", "KL", "1 - cosine"))
        check_batches(batches)
        model = running.model
        self.running, self.metric = running, metric
        prepared = [Batch(batch, model, forward) for batch in batches]
        if not prepared:
            raise ValueError("batches must hold at least one batch, got none")
        self.pairs = [(batch, self._run(batch)) for batch in prepared]
        size = sum(part.numel() for part in model.parameters())
        places = max(own.numel() // own.shape[-1] for _, own in self.pairs)
        self.threads = 1 if size * places < SMALL else torch.get_num_threads()

    def sample(self) -> np.ndarray:
        """A sample of the model's original outputs on the held-out batches, taken at regular places."""
        parts = [own.flatten()[:: max(1, own.numel() // SAMPLED)][:SAMPLED] for _, own in self.pairs]
        return as_array(torch.cat(parts).double())

    def _run(self, batch: Batch) -> Tensor:
        found = self.running.run(batch.call, *batch.args, **batch.kwargs)
        logits = getattr(found, "logits", None)
        if self.metric == "auto":
            self.metric = "1 - cosine" if logits is None else "KL"
        if logits is None or self.metric != "KL":
            logits = _first_tensor(found)
        return torch.log_softmax(logits.double(), -1).float() if self.metric == "KL" else logits

    def damage(self, values: dict[Head, Replacement]) -> np.ndarray:
        """The damage to the output on each held-out input, with these substitutes in place of heads.

        A small model runs on one thread.  With several threads each operation waits for all of them, which takes far
        longer than the computation, above all while workers solve SVMs.
        """
        self.running.values = values
        with torch_threads(self.threads):
            return np.concatenate([self._difference(batch, own, self._run(batch)) for batch, own in self.pairs])

    def _difference(self, batch: Batch, own: Tensor, other: Tensor) -> np.ndarray:
        a, b = own.double(), other.double()
        if self.metric == "KL":
            off = (a.exp() * (a - b)).sum(-1)
        else:
            a, b = (torch.nn.functional.normalize(x, dim=-1, eps=1e-300) for x in (a, b))
            off = ((a - b) ** 2).sum(-1) / 2  # this is 1 - cosine of a and b, without cancellation
        mask = batch.named.get("attention_mask")
        weights = mask.to(off) if isinstance(mask, Tensor) and mask.shape == off.shape else torch.ones_like(off)
        off, weights = (x.reshape(len(x), -1) for x in (off * weights, weights))
        return as_array(off.sum(1) / weights.sum(1).clamp(min=1))


def _first_tensor(found: Any) -> Tensor:
    parts = found.values() if isinstance(found, Mapping) else found if isinstance(found, (tuple, list)) else (found,)
    for part in parts:
        if isinstance(part, Tensor):
            return part
    raise TypeError(f"what is run must return a tensor, or a tuple or dict of them, got {type(found).__name__}")
