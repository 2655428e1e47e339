"""The direction in which a run would go on."""

from __future__ import annotations

from typing import Any

import numpy as np

from .rules import of_unit, turned


def next_step(run: Any) -> np.ndarray:
    """Of one run, of unit Frobenius norm ([H,] dk, dz); zero where the gradient is.

    The negative gradient in W, of the mean loss, or the mean of gradients where the rule keeps one, as the rule turns
    it: its sign, its singular vectors, in its metric.  Of factors, what such steps along their own gradients do to
    ``K Q^T``.
    """
    problem = run.trained
    if run.K is not None:
        gradient = problem.loss_and_grad(K=run.K, Q=run.Q, scaled=True)[1]
        K, Q = (turned(run.rule, run.p, D, None) for D in (gradient.K, gradient.Q))
        return of_unit(-(K @ run.Q.swapaxes(-1, -2) + run.K @ Q.swapaxes(-1, -2)))
    D = problem.loss_and_grad(run.W, scaled=True)[1].W if run.mean is None else run.mean
    return of_unit(-turned(run.rule, run.p, D, run.metric))
