"""What a training run gives back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .data import Data

__all__ = ["Run"]


@dataclass(repr=False)
class Run:
    """A training run, or several side by side.  Arrays over records go with ``steps``.

    With ``heads=H`` all weights have an axis H before dk or dz.  With ``runs=R`` every array but ``steps`` has the runs
    as first axis: ``W (R, dk, dz)``, ``weights (R, records, dk, dz)``, ``loss (R, records)``; ``run[r]`` is one.

    Attributes
    ----------
    W : (dk, dz) array
        The last weights; K Q^T when factors were trained.
    K, Q : (dk, m), (dz, m) arrays or None
        The last factors.
    steps : (records,) integer array
        Steps that were recorded; the start and the end always are.
    weights : (records, dk, dz) array
        W, or K Q^T, at those steps.
    loss : (records,) array
        Mean loss there, without the ridge.
    norm : (records,) array
        Frobenius norm of ``weights``.
    log_grad_norm : (records,) array
        Natural logarithm of the norm of the gradient in W, or in K and Q, ridge included; exact where the norm itself
        underflows.
    status : str
        "completed"; "stationary" when the gradient became exactly zero, or the loss reached the target of the Polyak
        step (in all runs); "stopped" by the callback, "running" while it looks; "interrupted" or "overflow" in the
        ``.partial`` of an exception.
    parameters, heads : (P,), (records, P) arrays or None
        The parameters of the head, last and at those steps, when it was trained too: v; or V and then a; or v and then
        lam.
    head : LinearHead, MLPHead, QuadraticHead or None
        The trained head; a list of them with ``runs=R``.
    v : array or None
        Its v or V.
    start : LinearHead, MLPHead, QuadraticHead or None
        What the head was before.
    selected : integer array or list, in the data's query shape
        The token each query attends to most at the end; with ``heads=H``, one such per attention head.
    probabilities : array or list, in the data's entry shape
        Attention at the end, likewise.
    """

    data: Data
    W: np.ndarray
    K: np.ndarray | None
    Q: np.ndarray | None
    steps: np.ndarray
    weights: np.ndarray
    loss: np.ndarray
    norm: np.ndarray
    log_grad_norm: np.ndarray
    status: str
    parameters: np.ndarray | None = None
    heads: np.ndarray | None = None
    start: Any = None
    stacked: bool = False

    @property
    def head(self) -> Any:
        if self.parameters is None:
            return None
        return (
            [self.start.from_row(row) for row in self.parameters]
            if self.stacked
            else self.start.from_row(self.parameters)
        )

    @property
    def v(self) -> np.ndarray | None:
        if self.parameters is None:
            return None
        shape = self.start.v.shape
        return self.parameters[..., : self.start.v.size].reshape(*self.parameters.shape[:-1], *shape)

    @property
    def selected(self) -> Any:
        return _each(self.data.select, self.W)

    @property
    def probabilities(self) -> Any:
        return _each(self.data.probabilities, self.W)

    def __getitem__(self, r: int) -> Run:
        if not self.stacked:
            raise TypeError("a single run has no parts: train(..., runs=R) trains several")
        several = ("W", "K", "Q", "weights", "loss", "norm", "log_grad_norm", "parameters", "heads")
        parts = {name: getattr(self, name) for name in several}
        return replace(self, **{name: None if a is None else a[r] for name, a in parts.items()}, stacked=False)

    def __repr__(self) -> str:
        trained = "W" if self.K is None else f"K, Q (m={self.K.shape[-1]})"
        trained += "" if self.start is None else f" and {', '.join(self.start.names)}"
        if len(self.steps) == 0:
            return f"Run on {trained}: {self.status} before the first record"
        if self.stacked:
            ends = zip(self.loss[:8, -1], self.norm[:8, -1], strict=True)
            lines = [
                f"{len(self.W)} runs of {self.steps[-1]} steps on {trained}: {self.status}",
                "  loss      norm of W",
                *(f"  {loss:<9.6g} {norm:.6g}" for loss, norm in ends),
            ]
            return "\n".join(lines + ["  ..."] * (len(self.W) > 8))
        lines = [
            f"Run of {self.steps[-1]} steps on {trained}: {self.status}",
            f"  loss           {self.loss[0]:.6g} -> {self.loss[-1]:.6g}",
            f"  norm of W      {self.norm[0]:.6g} -> {self.norm[-1]:.6g}",
            f"  log grad norm  {self.log_grad_norm[0]:.6g} -> {self.log_grad_norm[-1]:.6g}",
            f"  {len(self.steps)} records",
        ]
        return "\n".join(lines)


def _each(function: Any, W: np.ndarray) -> Any:
    """The function of W, or of the weights of each run and attention head."""
    if W.ndim == 2:
        return function(W)
    found = [_each(function, one) for one in W]
    return found if isinstance(found[0], list) else np.stack(found)
