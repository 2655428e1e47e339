"""Training runs: gradient descent on W, or on the factors of W = K Q^T."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from ._check import as_choice, as_count, as_floats, as_number, as_numeric, check_shape
from .data import Data
from .problem import Problem

__all__ = ["Run", "train"]

RULES = ("constant", "normalized", "normalized jointly")  # the order of the C enum
BAR_PARTS = 200  # a progress bar moves this often


@dataclass(repr=False)
class Run:
    """A training run.  Arrays over records go with ``steps``.

    Attributes
    ----------
    W : (dk, dz) array
        The last weights; K Q^T when factors were trained.  With ``heads=H`` this and all weights have an axis H first.
    K, Q : (dk, m), (dz, m) arrays or None
        The last factors.
    steps : (R,) integer array
        Steps that were recorded; the start and the end always are.
    weights : (R, dk, dz) array
        W, or K Q^T, at those steps.
    loss : (R,) array
        Mean loss there, without the ridge.
    norm : (R,) array
        Frobenius norm of ``weights``.
    log_grad_norm : (R,) array
        Natural logarithm of the gradient's norm, ridge included; exact where the norm itself underflows.
    selected : integer array or list, in the data's query shape
        The token each query attends to most at the end; with ``heads=H``, one such per attention head.
    probabilities : array or list, in the data's entry shape
        Attention at the end, likewise.
    status : str
        "completed"; "stationary" when the gradient became exactly zero; "interrupted" in ``.partial``.
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

    @property
    def selected(self) -> Any:
        return _each(self.data.select, self.W)

    @property
    def probabilities(self) -> Any:
        return _each(self.data.probabilities, self.W)

    def __repr__(self) -> str:
        trained = "W" if self.K is None else f"K, Q (m={self.K.shape[-1]})"
        if len(self.steps) == 0:
            return f"Run on {trained}: {self.status} before the first record"
        lines = [
            f"Run of {self.steps[-1]} steps on {trained}: {self.status}",
            f"  loss           {self.loss[0]:.6g} -> {self.loss[-1]:.6g}",
            f"  norm of W      {self.norm[0]:.6g} -> {self.norm[-1]:.6g}",
            f"  log grad norm  {self.log_grad_norm[0]:.6g} -> {self.log_grad_norm[-1]:.6g}",
            f"  {len(self.steps)} records",
        ]
        return "\n".join(lines)


def _each(function: Any, W: np.ndarray) -> Any:
    """The function of W, or of the weights of each attention head."""
    if W.ndim == 2:
        return function(W)
    found = [function(one) for one in W]
    return found if isinstance(found[0], list) else np.stack(found)


def train(
    problem: Problem,
    W: Any = None,
    *,
    K: Any = None,
    Q: Any = None,
    rule: str = "normalized",
    lr: Any = 0.1,
    steps: int = 2000,
    record: Any = 100,
    ridge: float = 0.0,
    progress: bool = False,
) -> Run:
    """Gradient descent on the mean loss: ``W <- W - lr * dL/dW / ||dL/dW||`` (or the plain gradient).

    The gradient keeps its scale as a logarithm, so the direction of W goes on converging to the SVM solution when
    the loss has long vanished in double precision.  A whole run is one call into C, without the GIL.

    Parameters
    ----------
    problem : Problem
    W : (dk, dz) array_like, optional
        Initial weights; zero by default.  With ``heads=H`` all weights have an axis of length H first, and several
        heads whose attended vectors are summed need a start: from equal weights they would stay equal.
    K, Q : (dk, m) and (dz, m) array_like, optional
        Train the factors of W = K Q^T from here instead.
    rule : {"normalized", "normalized jointly", "constant"}
        Divide the gradient by its norm (that of K, of Q and of each attention head by its own); divide all of them by
        their common norm; or not at all.
    lr : float or (steps,) array_like
        Learning rate, one or one per step.
    steps : int
    record : int or array_like of int
        Record every ``record`` steps, or at these steps; 0: the start and the end alone.
    ridge : float
        Adds ``ridge * ||W||_F^2``, or ``ridge * (||K||_F^2 + ||Q||_F^2)``, to the mean loss.
    progress : bool
        Show a bar, where tqdm is installed.

    Returns
    -------
    Run

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C, with the run so far in ``.partial``.
    FloatingPointError
        When weights or logits overflow, with the run so far in ``.partial``.

    Notes
    -----
    Normalised descent with learning rate 0.1 is the setting of the experiments in "Transformers as Support Vector
    Machines" (Tarzanagh, Li, Thrampoulidis, Oymak, 2023).

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> data = attsvm.cross_attention(X, Z)
    >>> run = attsvm.train(attsvm.Problem(data, y, attsvm.LinearHead(v)), steps=1000)
    >>> sol = attsvm.solve_svm(data, run.selected)
    >>> attsvm.correlation(run.W, sol.W) > 0.95
    True
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {type(problem).__name__}")
    rule_code = RULES.index(as_choice("rule", rule, RULES))
    steps = as_count("steps", steps)
    rates = _learning_rates(lr, steps)
    wanted = _record_steps(record, steps, (problem.heads or 1) * problem.data.dk * problem.data.dz)
    ridge = as_number("ridge", ridge, least=0.0)
    if W is None and K is None and Q is None:
        if problem.heads not in (None, 1) and problem.combine == "sum":
            raise ValueError("W must be given: attention heads that start from equal weights would stay equal")
        W = np.zeros((*([] if problem.heads is None else [problem.heads]), problem.data.dk, problem.data.dz))
    weights = tuple(None if a is None else a.copy() for a in problem._weights(W, K, Q))
    state = _State(problem, rule_code, rates, ridge, weights, wanted)
    try:
        with _bar(progress, steps) as bar:
            part = max(1, steps // BAR_PARTS) if bar is not None else max(1, steps)
            for first in range(0, steps, part) if steps else (0,):
                code, exception = state.advance(first, min(first + part, steps))
                if bar is not None:
                    bar.update(state.step - first)
                if code != "done":
                    break
    except KeyboardInterrupt as between_parts:
        code, exception = "interrupted", between_parts
    if code == "done":
        return state.run("completed")
    state.record_end()
    if code == "interrupted":
        _raise(exception or KeyboardInterrupt(), state.run(code))
    if code == "not finite":
        message = f"weights or logits left the range of double precision at step {state.step}"
        _raise(FloatingPointError(message + ": use a smaller lr or smaller tokens"), state.run("overflow"))
    return state.run(code)


def _raise(exception: BaseException, partial: Run) -> None:
    exception.partial = partial  # type: ignore[attr-defined]
    raise exception


class _State:
    """Weights that C moves in place, and the rows it fills."""

    def __init__(
        self,
        problem: Problem,
        rule: int,
        rates: np.ndarray,
        ridge: float,
        weights: tuple[np.ndarray | None, ...],
        wanted: np.ndarray,
    ):
        self.problem, self.weights, self.wanted = problem, weights, wanted
        self.head = (problem.data._handle, problem._rule, problem._loss, ridge, rule, rates)
        R = len(wanted)
        rows = (problem.heads or 1) * problem.data.dk
        self.records = (np.empty((R, rows, problem.data.dz)), np.empty(R), np.empty(R), np.empty(R))
        self.reached = np.zeros(2, dtype=np.intp)  # written by C: step, records made

    @property
    def step(self) -> int:
        return int(self.reached[0])

    @property
    def done(self) -> int:
        return int(self.reached[1])

    def advance(self, first: int, last: int) -> tuple[str, BaseException | None]:
        """Steps first .. last; records at ``last`` only when the run ends there (the next part starts with it)."""
        ends = last == self.wanted[-1]
        stop = len(self.wanted) if ends else np.searchsorted(self.wanted, last)
        rows = slice(self.done, int(stop))
        code, exception = _core.train(
            *self.head,
            first,
            last,
            self.wanted[rows],
            *self.weights,
            *(r[rows] for r in self.records),
            self.reached,
        )
        return _core.STATUS[code], exception

    def record_end(self) -> None:
        """A run that stopped early still records where it stopped."""
        step = self.step
        if self.done and self.wanted[self.done - 1] == step:
            return
        self.wanted = np.concatenate([self.wanted[: self.done], [step]]).astype(np.intp)
        self.records = tuple(r[: self.done + 1] for r in self.records)
        self.advance(step, step)

    def run(self, status: str) -> Run:
        W, K, Q = map(self.problem._shaped, self.weights)
        weights, loss, norm, log_grad_norm = (r[: self.done] for r in self.records)
        final = W if W is not None else K @ Q.swapaxes(-1, -2)  # type: ignore[union-attr, operator]
        weights = weights.reshape(len(weights), *final.shape)
        return Run(
            self.problem.data, final, K, Q, self.wanted[: self.done], weights, loss, norm, log_grad_norm, status
        )


def _learning_rates(lr: Any, steps: int) -> np.ndarray:
    array = as_numeric("lr", lr)
    rates = as_floats("lr", array.reshape(1) if array.ndim == 0 else array, "steps")
    if array.ndim == 1:
        check_shape("lr", rates, "steps", (steps,))
    if rates.min() < 0:
        raise ValueError(f"lr must not be negative, got {rates.min():g}")
    # One-element schedules are stretched: C reads a single number as a constant rate.
    return rates


def _record_steps(record: Any, steps: int, size: int) -> np.ndarray:
    """Ascending step numbers, the start and the end among them; ``size`` weights are kept for each."""
    array = as_numeric("record", record)
    if array.dtype.kind == "f" and array.size:  # an empty list has no integers to tell it from floats
        raise TypeError("record must be an integer or integers, got floats")
    if array.ndim > 1:
        raise ValueError(f"record must be a number or a list of steps, got shape {array.shape}")
    if array.ndim == 0:
        every = as_count("record", array[()])
        if every and steps // every * size > np.iinfo(np.intp).max // 8:
            raise ValueError(f"record must leave no more records than memory holds, got {every} for {steps} steps")
        inner = np.arange(0, steps, every, dtype=np.intp) if every else np.empty(0, dtype=np.intp)
    else:
        inner = array.astype(np.intp) if array.size == 0 else array
        if inner.size and (inner.min() < 0 or inner.max() > steps):
            raise ValueError(f"record must lie within 0 .. steps = {steps}, got {inner.min()} .. {inner.max()}")
    return np.unique(np.concatenate([[0, steps], inner])).astype(np.intp)


@contextlib.contextmanager
def _bar(progress: bool, total: int) -> Any:
    """A tqdm bar, or None when it is not wanted or tqdm is not installed."""
    if not progress:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield None
        return
    with tqdm(total=total, unit="step", desc="train") as bar:
        yield bar
