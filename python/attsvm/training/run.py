"""What a training run gives back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..attention.data import Data, fits
from ..common.result import Result

__all__ = ["Run"]

MESSAGES = {
    "completed": "made all its steps, to {}",
    "stationary": "ended at {}: the gradient is exactly zero",
    "target reached": "ended at {}: the loss has come down to the target of the Polyak step",
    "stopped": "ended at {}: the callback returned True",
    "running": "has come to {}",
    "interrupted": "was interrupted after {}",
    "overflow": "ended after {}: weights or logits left the range of double precision",
    "gradient not finite": "ended after {}: the gradient left the range of double precision",
}

RUNS_SHOWN = 8  # of several side by side, when printed


@dataclass(repr=False, eq=False)
class Run(Result):
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
        "completed"; "stationary" when the gradient became exactly zero, "target reached" when the loss came down to
        that of the Polyak step (in all runs); "stopped" by the callback, "running" while it looks; in the
        ``.partial`` of an exception "interrupted", "overflow" of weights or logits, or "gradient not finite" at
        weights that are.
    message : str
        What the status means, and the step at which the run ended.
    parameters, head_records : (P,), (records, P) arrays or None
        The parameters of the head, last and at those steps, when it was trained too: v; or V and then a; or v and then
        lam.
    head : LinearHead, MLPHead, QuadraticHead or None
        The trained head; a list of them with ``runs=R``.
    v : array or None
        Its v or V.
    start : LinearHead, MLPHead, QuadraticHead or None
        What the head was before.
    half_squares : (records,) array or None
        ``(||K||_F^2 + ||Q||_F^2) / 2`` at those steps, when factors were trained; with ``heads=H`` (records, H).
    balance : array or None
        ``half_squares / ||K Q^T||_*``, likewise: at least 1, and 1 for balanced factors, ``K^T K = Q^T Q``, whose
        squares are the nuclear norm of their product.
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
    head_records: np.ndarray | None = None
    start: Any = None
    stacked: bool = False
    half_squares: np.ndarray | None = None

    @property
    def message(self) -> str:
        return MESSAGES[self.status].format(f"step {self.steps[-1]}" if len(self.steps) else "its first record")

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
    def balance(self) -> np.ndarray | None:
        if self.half_squares is None:
            return None
        nuclear = np.linalg.svd(self.weights, compute_uv=False).sum(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):  # of zero factors
            return self.half_squares / nuclear

    @property
    def selected(self) -> Any:
        return _each(self.data.select, self.W)

    @property
    def probabilities(self) -> Any:
        return _each(self.data.probabilities, self.W)

    def __getitem__(self, r: int) -> Run:
        if not self.stacked:
            raise TypeError("a single run has no parts: train(..., runs=R) trains several")
        several = (
            "W",
            "K",
            "Q",
            "weights",
            "loss",
            "norm",
            "log_grad_norm",
            "parameters",
            "head_records",
            "half_squares",
        )
        parts: dict[str, Any] = {name: getattr(self, name) for name in several}
        own: dict[str, Any] = {name: None if a is None else a[r] for name, a in parts.items()}
        return replace(self, stacked=False, **own)

    def select(self, data: Data) -> Any:
        """The token that the last weights prefer for each query of other data; the lowest index on a tie.

        Parameters
        ----------
        data : Data
            With tokens and queries of the same lengths.

        Returns
        -------
        (n,) or (n, S) integer array, or a list
            With ``heads=H`` or ``runs=R``, an axis for each first.

        Examples
        --------
        >>> import attsvm
        >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
        >>> data = attsvm.cross_attention(X, Z)
        >>> run = attsvm.train(attsvm.Problem(data, y, attsvm.LinearHead(v)), steps=500)
        >>> new_X, new_Z, _, _ = attsvm.sample.unit_sphere(3, 5, 10, rng=1)
        >>> run.select(attsvm.cross_attention(new_X, new_Z)).shape
        (3,)
        """
        fits("data", data, self.W)
        return _each(data.select, self.W)

    def _title(self) -> str:
        trained = "W" if self.K is None else f"K, Q (m={self.K.shape[-1]})"
        trained += "" if self.start is None else f" and {', '.join(self.start.names)}"
        if len(self.steps) == 0:
            return f"Run on {trained}: {self.status} before the first record"
        if self.stacked:
            return f"{len(self.W)} runs of {self.steps[-1]} steps on {trained}: {self.status}"
        return f"Run of {self.steps[-1]} steps on {trained}: {self.status}"

    def _lines(self) -> list[tuple[str, str]]:
        if len(self.steps) == 0:
            return []
        if self.stacked:
            ends = zip(self.loss[:RUNS_SHOWN, -1], self.norm[:RUNS_SHOWN, -1], strict=True)
            lines = [("run", "loss      norm of W")]
            lines += [(str(r), f"{loss:<9.6g} {norm:.6g}") for r, (loss, norm) in enumerate(ends)]
            return lines + [("...", "")] * (len(self.W) > RUNS_SHOWN)
        ended = [("", self.message)] if self.status not in ("completed", "running") else []
        return [
            *ended,
            ("loss", f"{self.loss[0]:.6g} -> {self.loss[-1]:.6g}"),
            ("norm of W", f"{self.norm[0]:.6g} -> {self.norm[-1]:.6g}"),
            ("log grad norm", f"{self.log_grad_norm[0]:.6g} -> {self.log_grad_norm[-1]:.6g}"),
            ("records", f"{len(self.steps)}"),
        ]

    def columns(self) -> dict[str, Any]:
        runs, records = (len(self.W) if self.stacked else 1), len(self.steps)
        columns: dict[str, Any] = {"run": np.repeat(np.arange(runs), records)} if self.stacked else {}
        columns["step"] = np.tile(self.steps, runs)
        return columns | {name: np.ravel(getattr(self, name)) for name in ("loss", "norm", "log_grad_norm")}

    def _values(self) -> dict[str, Any]:
        names = (
            "status",
            "message",
            "W",
            "K",
            "Q",
            "balance",
            "steps",
            "weights",
            "loss",
            "norm",
            "log_grad_norm",
            "parameters",
        )
        return {name: getattr(self, name) for name in (*names, "selected", "probabilities")}


def _each(function: Any, W: np.ndarray) -> Any:
    """The function of W, or of the weights of each run and attention head."""
    if W.ndim == 2:
        return function(W)
    found = [_each(function, one) for one in W]
    return found if isinstance(found[0], list) else np.stack(found)
