"""Training runs: gradient descent on W, or on the factors of W = K Q^T."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import _core
from ._check import as_choice, as_count, as_doubles, as_floats, as_number, as_numeric, check_shape
from .data import Data
from .problem import Problem

__all__ = ["Run", "train"]

RULES = ("constant", "normalized", "normalized jointly", "polyak", "mirror")  # the order of the C enum
BALLS = ("frobenius", "nuclear")  # the order of the C enum
BAR_PARTS = 200  # a progress bar moves this often


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
        step (in all runs); "interrupted" in ``.partial``.
    v, heads : (dv,), (records, dv) arrays or None
        The head, last and at those steps, when it was trained too.
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
    v: np.ndarray | None = None
    heads: np.ndarray | None = None
    stacked: bool = False

    @property
    def selected(self) -> Any:
        return _each(self.data.select, self.W)

    @property
    def probabilities(self) -> Any:
        return _each(self.data.probabilities, self.W)

    def __getitem__(self, r: int) -> Run:
        if not self.stacked:
            raise TypeError("a single run has no parts: train(..., runs=R) trains several")
        several = ("W", "K", "Q", "weights", "loss", "norm", "log_grad_norm", "v", "heads")
        parts = {name: getattr(self, name) for name in several}
        return replace(self, **{name: None if a is None else a[r] for name, a in parts.items()}, stacked=False)

    def __repr__(self) -> str:
        trained = "W" if self.K is None else f"K, Q (m={self.K.shape[-1]})"
        trained += "" if self.v is None else " and v"
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
    target_loss: float | None = None,
    radius: float | None = None,
    ball: str = "frobenius",
    p: float = 2.0,
    runs: int | None = None,
    train_head: bool = False,
    progress: bool = False,
) -> Run:
    """Gradient descent on the mean loss: ``W <- W - lr * dL/dW / ||dL/dW||``, or by another rule.

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
    rule : {"normalized", "normalized jointly", "constant", "polyak", "mirror"}
        Divide the gradient by its norm (that of K, of Q and of each attention head by its own); divide all of them by
        their common norm; or not at all.  "polyak": the step ``(L - target_loss) / (2 ||dL||^2) * dL`` of all matrices
        together, shortened to the length ``lr``.  "mirror": the step ``lr`` along the gradient divided by its lq norm,
        ``1/p + 1/q = 1``, in ``sign(W) |W|^(p-1)`` instead of W, which goes to the lp SVM (each matrix by its own).
    lr : float or (steps,) array_like
        Learning rate, one or one per step; with ``runs`` also (runs, 1) or (runs, steps).
    steps : int
    record : int or array_like of int
        Record every ``record`` steps, or at these steps; 0: the start and the end alone.
    ridge : float
        Adds ``ridge * ||W||_F^2``, or ``ridge * (||K||_F^2 + ||Q||_F^2)``, to the mean loss.
    target_loss : float, optional
        What "polyak" goes down to; the infimum over all W by default, every query on its optimal token.
    radius : float, optional
        After each step go to the nearest point of a ball: ``||W||_F <= radius`` or, with ``ball="nuclear"``,
        ``||W||_* <= radius``.  For factors the nuclear ball means ``||K||_F^2 + ||Q||_F^2 <= 2 radius``, whose products
        are the same.  Each attention head by itself.
    ball : {"frobenius", "nuclear"}
    p : float
        Exponent > 1 of the potential ``||W||_p^p / p`` of "mirror"; p = 2 is "normalized".
    runs : int, optional
        Train so many runs side by side, each reading of the keys shared by all: W (runs, dk, dz), or K (runs, dk, m)
        and Q (runs, dz, m), are their starts (with ``heads=H``, (runs, H, ...)).
    train_head : bool
        Train the head's v with W, from the v of the problem and by the same rule, normalised by the norm of its own
        gradient.  Neither ridge nor radius act on v.
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
    Machines" (Tarzanagh, Li, Thrampoulidis, Oymak, 2023).  Mirror descent on attention: Julistiono, Tarzanagh, Azizan
    (2024); the Polyak step: Vasudeva, Deora, Thrampoulidis (2024); head and attention together: Tarzanagh, Li, Zhang,
    Oymak (2023).

    Keys in float32 are widened window by window: rounding the tokens costs 6e-8 relative once, the arithmetic is that
    of float64.  Keys in a memory map are read once a step, in order.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> data = attsvm.cross_attention(X, Z)
    >>> problem = attsvm.Problem(data, y, attsvm.LinearHead(v))
    >>> run = attsvm.train(problem, steps=1000)
    >>> sol = attsvm.solve_svm(data, run.selected)
    >>> attsvm.correlation(run.W, sol.W) > 0.95
    True

    Four initialisations at once:

    >>> import numpy as np
    >>> starts = np.random.default_rng(0).standard_normal((4, 10, 10))
    >>> attsvm.train(problem, starts, runs=4, steps=1000).loss.shape
    (4, 11)
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {type(problem).__name__}")
    rule_code = RULES.index(as_choice("rule", rule, RULES))
    steps = as_count("steps", steps)
    runs = None if runs is None else as_count("runs", runs, 1)
    weights = _start(problem, W, K, Q, runs)
    wanted = _record_steps(record, steps, sum(a.size for a in weights if a is not None))
    if not isinstance(train_head, (bool, np.bool_)):
        raise TypeError(f"train_head must be a bool, got {type(train_head).__name__}")
    head, v = _head(problem, runs or 1) if train_head else ((None, None), None)
    settings = (
        as_number("ridge", ridge, least=0.0),
        rule_code,
        _learning_rates(lr, steps, runs),
        _target(problem, rule, target_loss, train_head),
        _exponent(rule, p),
        *_ball_of(rule, radius, ball, factors=weights[0] is None),
    )
    state = _State(problem, head, settings, (*weights, v), wanted, runs)
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


def _start(problem: Problem, W: Any, K: Any, Q: Any, runs: int | None) -> tuple:
    """Copies of (W, None, None) or (None, K, Q), their matrices stacked over runs and attention heads."""
    dk, dz = problem.data.dk, problem.data.dz
    if W is None and K is None and Q is None:
        if problem.heads not in (None, 1) and problem.combine == "sum":
            raise ValueError("W must be given: attention heads that start from equal weights would stay equal")
        return np.zeros(((runs or 1) * (problem.heads or 1), dk, dz)), None, None
    return tuple(None if a is None else a.copy() for a in problem._weights(W, K, Q, runs))


def _head(problem: Problem, runs: int) -> tuple:
    """(values, labels) and the starts of v, for a head that is trained."""
    problem.require_linear()
    v = problem.head.v
    if not isinstance(v, np.ndarray) or v.ndim != 1:
        raise ValueError("train_head=True needs a head with one v for all queries, got one per query")
    if problem.loss_name == "log":
        raise ValueError("train_head=True needs a loss other than 'log', whose scores must not become negative")
    return (as_doubles(problem.data.values), problem._y), np.tile(v, (runs, 1))


def _target(problem: Problem, rule: str, target_loss: Any, train_head: bool) -> float:
    if rule != "polyak":
        if target_loss is not None:
            raise ValueError(f"target_loss belongs to rule='polyak', got rule={rule!r}")
        return 0.0
    if target_loss is not None:
        return as_number("target_loss", target_loss)
    if train_head:
        raise ValueError("target_loss must be given with train_head=True: the infimum depends on the head")
    return problem._infimum()


def _exponent(rule: str, p: Any) -> float:
    p = as_number("p", p, above=1.0)
    if rule != "mirror" and p != 2:
        raise ValueError(f"p belongs to rule='mirror', got rule={rule!r}")
    return p


def _ball_of(rule: str, radius: Any, ball: Any, factors: bool) -> tuple[float, int]:
    code = BALLS.index(as_choice("ball", ball, BALLS))
    if radius is None:
        return -1.0, code
    if rule == "mirror":
        raise ValueError("radius does not go with rule='mirror', whose nearest points are not Euclidean")
    if factors and ball == "frobenius":
        raise ValueError("ball must be 'nuclear' for K and Q: ||K||^2 + ||Q||^2 <= 2 radius, got 'frobenius'")
    return as_number("radius", radius, least=0.0), code


class _State:
    """Weights that C moves in place, and the rows it fills.  Everything is stacked over runs here."""

    def __init__(
        self, problem: Problem, head: tuple, rule: tuple, weights: tuple, wanted: np.ndarray, runs: int | None
    ):
        self.problem, self.weights, self.wanted, self.runs = problem, weights, wanted, runs
        self.head = (problem.data._handle, problem._rule, *head, problem._loss, *rule)
        data, records, R = problem.data, len(wanted), runs or 1
        v = weights[3]
        self.records = (
            np.empty((records, R * (problem.heads or 1), data.dk * data.dz)),
            None if v is None else np.empty((records, *v.shape)),
            *(np.empty((records, R)) for _ in range(3)),
        )
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
            *(None if r is None else r[rows] for r in self.records),
            self.reached,
        )
        return _core.STATUS[code], exception

    def record_end(self) -> None:
        """A run that stopped early still records where it stopped."""
        step = self.step
        if self.done and self.wanted[self.done - 1] == step:
            return
        self.wanted = np.concatenate([self.wanted[: self.done], [step]]).astype(np.intp)
        self.records = tuple(None if r is None else r[: self.done + 1] for r in self.records)
        self.advance(step, step)

    def run(self, status: str) -> Run:
        W, K, Q, v = self.weights
        final = W if W is not None else K @ Q.swapaxes(1, 2)
        # C fills a row of all runs at each step; what is given back has a row of all steps for each run.
        before = (self.runs or 1,) + (() if self.problem.heads is None else (self.problem.heads,))
        final, K, Q = (None if a is None else a.reshape(*before, *a.shape[1:]) for a in (final, K, Q))
        weights, heads, *numbers = (None if r is None else r[: self.done] for r in self.records)
        weights = weights.reshape(self.done, *final.shape)
        rows = (None if r is None else r.swapaxes(0, 1) for r in (weights, *numbers, heads))
        arrays = (final, K, Q, v, *rows)
        if self.runs is None:
            arrays = tuple(None if a is None else a[0] for a in arrays)
        final, K, Q, v, weights, loss, norm, log_grad_norm, heads = arrays
        steps = self.wanted[: self.done]
        return Run(
            self.problem.data, final, K, Q, steps, weights, loss, norm, log_grad_norm, status, v, heads,
            self.runs is not None,
        )  # fmt: skip


def _learning_rates(lr: Any, steps: int, runs: int | None) -> np.ndarray:
    """(1 or runs, 1 or steps); C stretches an axis of length one."""
    array = as_numeric("lr", lr)
    if runs is not None and array.ndim == 2:
        check_shape("lr", array, "runs, steps", (runs, 1 if array.shape[1] == 1 else steps))
        rates = as_floats("lr", array, "runs, steps")
    else:
        rates = as_floats("lr", array.reshape(1) if array.ndim == 0 else array, "steps")
        if array.ndim == 1:
            check_shape("lr", rates, "steps", (steps,))
        rates = rates[None]
    if rates.min() < 0:
        raise ValueError(f"lr must not be negative, got {rates.min():g}")
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
