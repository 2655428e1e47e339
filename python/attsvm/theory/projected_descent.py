"""A stationary point of the loss within a ball, for any head, near where the search starts."""

from __future__ import annotations

import math

import numpy as np

from ..common.types import Ball
from ..training.problem import Problem
from ..training.train import train

__all__ = ["stationary_point"]

STEP = 0.3  # of the radius: the first step of a round; its k-th is shorter by the root of k
ROUND = 250  # steps, after which the first step is halved: what the next round can resolve
INSIDE = 1 - 1e-6  # of the radius: weights of a smaller norm are not held by the ball


def stationary_point(
    problem: Problem, start: np.ndarray, radius: float, norm: Ball, tol: float, max_iter: int
) -> tuple[np.ndarray, float, float]:
    """``(W, log ||G||, gap)`` of a stationary point of the loss in ``||W|| <= radius``.

    Projected descent on the normalised gradient, whose scale is kept apart, so that its direction counts where the
    loss no longer changes; with steps that shrink it stays in the cone of its start unless the loss falls out of it.
    The gap is ``<G, W> + radius ||G||_dual`` over its second term: 0 where the ball holds W against the gradient.
    Inside the ball it is relative to the loss instead: 0 where the gradient vanishes.
    """
    W, step, left = start, STEP * radius, max_iter
    while True:
        steps = min(ROUND, left)
        rates = step / np.sqrt(np.arange(1, steps + 1))
        W = train(problem, W, ball=(norm, radius), lr=rates, steps=steps, record=0).W
        log_gradient, gap = _gap(problem, W, radius, norm)
        step, left = step / 2, left - steps
        if gap <= tol or left == 0:
            return W, log_gradient, gap


def _gap(problem: Problem, W: np.ndarray, radius: float, norm: Ball) -> tuple[float, float]:
    loss, gradient = problem.loss_and_grad(W, scaled=True)
    G = gradient.W
    dual = float(np.linalg.norm(G, 2 if norm == "nuclear" else None))
    if dual == 0:
        return -math.inf, 0.0
    gap = float(np.vdot(G, W)) + radius * dual
    if np.linalg.norm(W, "nuc" if norm == "nuclear" else None) < INSIDE * radius:
        return math.log(dual) + gradient.log_scale, gap * math.exp(min(gradient.log_scale, 700)) / abs(loss)
    return math.log(dual) + gradient.log_scale, gap / (radius * dual)
