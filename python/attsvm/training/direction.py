"""The direction in which a run would go on."""

from __future__ import annotations

from typing import Any

import numpy as np

RANK = 4 * 2.0**-52  # times the longer side, as csrc/training/update.c: smaller singular values are rounding


def next_step(run: Any) -> np.ndarray:
    """Of one run, of unit Frobenius norm ([H,] dk, dz); zero where the gradient is.

    The negative gradient in W, of the mean loss, or the mean of gradients where the rule keeps one, as the rule turns
    it: its sign, its singular vectors, over the root of the mean square.  Of factors, what such steps along their own
    gradients do to ``K Q^T``.
    """
    problem = run.trained
    if run.K is not None:
        gradient = problem.loss_and_grad(K=run.K, Q=run.Q, scaled=True)[1]
        K, Q = _turned(run, gradient.K), _turned(run, gradient.Q)
        return _of_unit(-(K @ run.Q.swapaxes(-1, -2) + run.K @ Q.swapaxes(-1, -2)))
    D = problem.loss_and_grad(run.W, scaled=True)[1].W if run.mean is None else run.mean
    return _of_unit(-_turned(run, D))


def _turned(run: Any, D: np.ndarray) -> np.ndarray:
    """The step of the rule along the gradient, or mean of gradients, D."""
    if run.K is not None and run.rule == "adam":
        return np.sign(D)  # the roots of the factors' squares are not kept: as of one step
    if run.rule == "sign":
        return np.sign(D)
    if run.rule == "spectral":
        U, s, V = np.linalg.svd(D, full_matrices=False)
        kept = s > RANK * max(D.shape[-2:]) * s[..., :1]
        return (U * kept[..., None, :]) @ V
    if run.rule == "mirror":  # steepest in the lp norm
        D = D / (np.abs(D).max() or 1.0)
        return np.sign(D) * np.abs(D) ** (1 / (run.p - 1))
    if run.rule == "adam":
        return np.divide(D, run.root, out=np.zeros_like(D), where=run.root > 0)
    return _of_unit(D)


def _of_unit(W: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(W, axis=(-2, -1), keepdims=True)
    return W / np.where(norm > 0, norm, 1.0)
