"""What Python must know of an update rule beyond its name: how long a step is, what is kept, which norm is its own."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..common.types import Norm

__all__ = ["ALONG", "RULES", "UpdateRule", "metric_of", "of_unit", "part_of", "turned"]

RANK = 4 * 2.0**-52  # times the longer side, as csrc/training/update.c: smaller singular values are rounding


def _signs(dk: int, dz: int) -> float:
    return math.sqrt(dk * dz)


def _polar(dk: int, dz: int) -> float:
    return math.sqrt(min(dk, dz))


class UpdateRule(NamedTuple):
    """A rule whose step has the length lr and the gradient's direction, where nothing else is said."""

    length: Callable[[int, int], float] = lambda dk, dz: 1.0  # of a step, Frobenius, over lr; of adagrad a tenth
    options: tuple[str, ...] = ()  # arguments of ``train`` that not every rule has
    norm: Norm = "frobenius"  # whose SVM it goes to; of a rule with squares, or in a metric, the metric
    squares: str = ""  # what is kept of the gradients' squares: of "entries", or of both "sides" of a matrix


# AdaGrad's and Shampoo's steps fall like 1 / sqrt(k): with first ones ten times as long, 2,000 of them go as far.
RULES: defaultdict[str, UpdateRule] = defaultdict(UpdateRule)
RULES |= {
    "normalized": UpdateRule(options=("metric",)),
    "constant": UpdateRule(options=("metric",)),
    "polyak": UpdateRule(options=("target_loss",)),
    "mirror": UpdateRule(options=("p",)),
    "sign": UpdateRule(_signs, norm="max"),
    "spectral": UpdateRule(_polar, norm="spectral"),
    "adam": UpdateRule(_signs, ("betas", "eps"), squares="entries"),
    "adagrad": UpdateRule(lambda dk, dz: _signs(dk, dz) / 10, ("eps",), squares="entries"),
    "shampoo": UpdateRule(lambda dk, dz: _polar(dk, dz) / 10, ("eps",), squares="sides"),
}
ALONG = ("normalized", "normalized jointly", "constant", "polyak")  # steps along the gradient


def metric_of(root: np.ndarray, squares: str, dk: int, dz: int) -> Any:
    """The metric of the steps of a rule that keeps this of the squares: roots (..., dk dz), or L and R side by side
    (..., dk dk + dz dz).  Of mean 1, or of mean eigenvalue 1; 1 where no gradient ever was."""
    if squares == "entries":
        return _of_mean_one(root.reshape(*root.shape[:-1], dk, dz), (-2, -1))
    sides = root[..., : dk * dk], root[..., dk * dk :]
    return tuple(_fourth_root(side.reshape(*side.shape[:-1], d, d)) for side, d in zip(sides, (dk, dz), strict=True))


def part_of(metric: Any, r: int) -> Any:
    """Of several runs, that of run r."""
    return tuple(side[r] for side in metric) if isinstance(metric, tuple) else None if metric is None else metric[r]


def _of_mean_one(numbers: np.ndarray, axes: Any) -> np.ndarray:
    seen, total = numbers > 0, numbers.sum(axis=axes, keepdims=True)
    mean = np.where(total > 0, total / np.maximum(seen.sum(axis=axes, keepdims=True), 1), 1.0)
    return np.where(seen, numbers / mean, 1.0)


def _fourth_root(square: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(square)
    values = np.where(values > RANK * square.shape[-1] * values[..., -1:], values, 0.0) ** 0.25
    found = (vectors * _of_mean_one(values, -1)[..., None, :]) @ vectors.swapaxes(-1, -2)
    return (found + found.swapaxes(-1, -2)) / 2  # symmetric to the last bit


def turned(rule: str, p: float, D: np.ndarray, metric: Any) -> np.ndarray:
    """The step of the rule along the gradient, or mean of gradients, D; on a scale of its own.

    ``metric`` is that of the run.  Of factors, whose squares are not kept by the run, None: the steps of a rule with
    squares are then those of a first one, signs or a polar factor.
    """
    if metric is not None:
        if not isinstance(metric, tuple):
            return D / metric
        return np.linalg.solve(metric[0], np.linalg.solve(metric[1], D.swapaxes(-1, -2)).swapaxes(-1, -2))
    squares = RULES[rule].squares
    if rule == "sign" or squares == "entries":
        return np.sign(D)
    if rule == "spectral" or squares == "sides":
        U, s, V = np.linalg.svd(D, full_matrices=False)
        kept = s > RANK * max(D.shape[-2:]) * s[..., :1]
        return (U * kept[..., None, :]) @ V
    if rule == "mirror":  # steepest in the lp norm
        D = D / (np.abs(D).max() or 1.0)
        return np.sign(D) * np.abs(D) ** (1 / (p - 1))
    return of_unit(D) if rule == "normalized" else D


def of_unit(W: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(W, axis=(-2, -1), keepdims=True)
    return W / np.where(norm > 0, norm, 1.0)
