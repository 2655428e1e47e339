"""Losses that need validation: the user's own functions of ``u = y head(o)``, which must decrease, and the log loss."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..common.check import as_floats, as_numeric

# Values of u at which a user's loss is checked first, if the head is not linear and the range of u is not known.
GRID = np.linspace(-10.0, 10.0, 401)
# Relative tolerance for a user's derivative of the loss: it is compared with difference quotients of the user's value.
# The user's logarithm of the derivative is compared with log |derivative|, with the tolerance AGREE too.
AGREE = 1e-6
PART = 1 / 8  # a derivative is compared with a difference of values over this fraction of a grid step
# A negative score v.x of at least -ROUNDED times the largest score counts as zero: it may be a rounding error.
ROUNDED = 1e-11


class CallableLoss:
    """A user's loss ``(value, derivative)`` or ``(value, derivative, log_size)``, whose functions are checked on a grid
    and at every call."""

    def __init__(self, functions: Any, grid: np.ndarray = GRID):
        if not isinstance(functions, tuple) or len(functions) not in (2, 3) or not all(map(callable, functions)):
            raise TypeError(
                "loss must be a name, or a tuple of functions (value, derivative) or (value, derivative, log of the "
                f"derivative's size), got {functions!r}"
            )
        self.functions: tuple[Callable[[np.ndarray], Any], ...] = functions
        if grid.size == 0:  # a shard (one worker's part of the data) without queries has no value u to check
            return
        derivative = self._derivative(grid)
        if (derivative == 0).any():
            raise ValueError(f"loss[1], the derivative, must be negative, got 0 at u = {grid[derivative == 0][0]:g}")
        size = np.log(-derivative)
        off = np.abs(self.evaluate(grid)[1] - size)
        if off.max() > AGREE * (1 + np.abs(size).max()):
            raise ValueError(
                f"loss[2] must be the logarithm of the derivative's size, got one that is off by {off.max():g} at "
                f"u = {grid[off.argmax()]:g}"
            )
        self._compare(grid)

    def _compare(self, grid: np.ndarray) -> None:
        """Raises ValueError unless the derivative agrees with differences of the value over short distances.

        A difference quotient lies between the least and the largest derivative in its interval.  Only four derivatives
        are evaluated in each interval, so the difference may exceed their range by as much as the range is wide; kinks
        and inflections then pass.
        """
        u = grid[:-1, None] + np.diff(grid)[:, None] * PART * np.arange(4) / 3
        values, slopes = np.asarray(self._call(0, u.ravel())), self._derivative(u.ravel()).reshape(u.shape)
        rounding = 64 * np.finfo(values.dtype).eps * np.abs(values).max() if values.dtype.kind == "f" else 0.0
        f = values.reshape(u.shape).astype(np.float64)
        apart = u[:, -1] - u[:, 0]
        change, low, high = f[:, -1] - f[:, 0], slopes.min(axis=1), slopes.max(axis=1)
        allowed = apart * (high - low - AGREE * low) + rounding - 64 * np.finfo(float).eps * np.abs(u[:, 0]) * low
        off = np.maximum(apart * low - change, change - apart * high) > allowed
        if off.any():
            q = int(off.argmax())
            raise ValueError(
                f"loss[1] must be the derivative of loss[0]: at u = {u[q, 0]:g} it is {slopes[q, 0]:g}, differences "
                f"of loss[0] give {change[q] / apart[q]:g}"
            )

    @property
    def name(self) -> str:
        return getattr(self.functions[0], "__name__", type(self.functions[0]).__name__)

    def _call(self, k: int, u: np.ndarray) -> Any:
        try:
            return self.functions[k](u)
        except TypeError as error:  # a function that takes single numbers only, such as math.exp
            raise TypeError(f"loss[{k}] must take an array u, as np.exp does and math.exp does not: {error}") from error

    def value(self, u: np.ndarray, k: int = 0) -> np.ndarray:
        """The loss at u; with ``k=2`` the user's logarithm of the derivative's size."""
        return as_floats(f"the value of loss[{k}]", self._call(k, u), "M", u.shape)

    def evaluate(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the loss at u; and the logarithm of the derivative's absolute value, ``-inf`` where the derivative
        underflows."""
        derivative = self._derivative(u)
        if len(self.functions) == 3:
            return self.value(u), self.value(u, 2)
        with np.errstate(divide="ignore"):
            return self.value(u), np.log(-derivative)

    def _derivative(self, u: np.ndarray) -> np.ndarray:
        derivative = as_numeric("the value of loss[1]", self._call(1, u)).astype(np.float64)
        if derivative.shape != u.shape:
            raise ValueError(f"loss[1] must return an array of shape {u.shape}, got {derivative.shape}")
        wrong = ~((derivative <= 0) & np.isfinite(derivative))
        if wrong.any():
            raise ValueError(
                f"loss[1], the derivative, must be negative and finite, got {derivative[wrong][0]:g} "
                f"at u = {u[wrong][0]:g}"
            )
        return derivative


def check_log_loss(scores: Any, begin: np.ndarray) -> None:
    """Raises ValueError unless the scores y v.x fit the log loss: nowhere negative, with a positive one for every
    query.  Scores that are negative by rounding are set to zero."""
    if scores is None:
        raise ValueError("loss='log' goes with a LinearHead and heads=None")
    best = np.maximum.reduceat(scores, begin)
    if scores.min() < -ROUNDED * best.max() or best.min() <= 0:
        raise ValueError(
            "loss='log' needs scores y v.x that are nowhere negative, with a positive one for every query; "
            f"got a least score of {scores.min():g} and a query whose best is {best.min():g}"
        )
    np.maximum(scores, 0, out=scores)
