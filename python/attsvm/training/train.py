"""Training runs: gradient descent on W, or on the factors of W = K Q^T."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..common.check import as_choice, as_count, as_floats, as_number, as_numeric, check_shape
from ..common.progress import steps_made
from ..common.types import Ball, Rule
from ..common.workers import Workers
from .output_head import LinearHead, MLPHead, shared_by_all
from .problem import Problem
from .query_span import span_of
from .run import Run
from .session import Settings, Training

__all__ = ["train"]

logger = logging.getLogger(__name__)

BAR_PARTS = 200  # a progress bar moves this often


def train(
    problem: Problem,
    W: ArrayLike | None = None,
    *,
    K: ArrayLike | None = None,
    Q: ArrayLike | None = None,
    rule: Rule = "normalized",
    lr: ArrayLike = 0.1,
    steps: int = 2000,
    record: ArrayLike = 100,
    ridge: float = 0.0,
    target_loss: float | None = None,
    radius: float | None = None,
    ball: Ball = "frobenius",
    p: float = 2.0,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    betas: tuple[float, float] | None = None,
    eps: float | None = None,
    runs: int | None = None,
    train_head: bool = False,
    callback: Callable[[Run], Any] | None = None,
    progress: bool = False,
    reduce: Callable[[np.ndarray], Any] | None = None,
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
    rule : {"normalized", "normalized jointly", "constant", "polyak", "mirror", "sign", "spectral", "adam"}
        Divide the gradient by its norm (that of K, of Q and of each attention head by its own); divide all of them by
        their common norm; or not at all.  "polyak": the step ``(L - target_loss) / (2 ||dL||^2) * dL`` of all matrices
        together, shortened to the length ``lr``.  "mirror": the step ``lr`` along the gradient divided by its lq norm,
        ``1/p + 1/q = 1``, in ``sign(W) |W|^(p-1)`` instead of W, which goes to the lp SVM (each matrix by its own).
        "sign": the step ``lr * sign(dL)``, 0 where the gradient is 0.  "spectral" (Muon): ``lr * U V^T`` of the
        singular value decomposition ``dL = U diag(s) V^T``, over the singular values that rounding leaves; the
        parameters of a head, which are no matrices, by their norm.  "adam": ``lr * m / (sqrt(v) + eps)`` with the means
        m and v of the gradient and its square, each over the sum of its weights; an experiment, nothing is claimed.
    lr : float or (steps,) array_like
        Learning rate, one or one per step; with ``runs`` also (runs, 1) or (runs, steps).
    steps : int
    record : int or array_like of int
        Record every ``record`` steps, or at these steps; 0: the start and the end alone.
    ridge : float
        Adds ``ridge * ||W||_F^2``, or ``ridge * (||K||_F^2 + ||Q||_F^2)``, to the mean loss.
    target_loss : float, optional
        What "polyak" goes down to; the infimum over all W by default, every query on its optimal token.  The loss above
        that is then known as a logarithm, however small, for a fixed linear head without ridge on one process.
    radius : float, optional
        After each step go to the nearest point of a ball: ``||W||_F <= radius`` or, with ``ball="nuclear"``,
        ``||W||_* <= radius``.  For factors the nuclear ball means ``||K||_F^2 + ||Q||_F^2 <= 2 radius``, whose products
        are the same.  Each attention head by itself.
    ball : {"frobenius", "nuclear"}
    p : float
        Exponent > 1 of the potential ``||W||_p^p / p`` of "mirror"; p = 2 is "normalized".
    momentum : float
        In [0, 1): the direction is ``m <- momentum * m + gradient`` instead of the gradient.  Not with "polyak",
        "mirror" and "adam", which has its own.
    weight_decay : float
        Decoupled: ``W <- (1 - lr * weight_decay) W`` (or K and Q) before each step.  Not with "polyak" and "mirror".
    betas : pair of float in [0, 1), optional
        Of "adam", (0.9, 0.999) by default.
    eps : float, optional
        Of "adam", in units of the gradient; 0 by default: entries whose gradient has always been 0 stay where they
        are, and no gradient is too small.
    runs : int, optional
        Number of runs trained side by side, which share each reading of the keys: W (runs, dk, dz), or K (runs, dk, m)
        and Q (runs, dz, m), are their starts (with ``heads=H``, (runs, H, ...)).
    train_head : bool
        Train the head too, from that of the problem and by the same rule: v; V and a of an MLP; v and lam of a
        quadratic one.  Each of these is normalised by the norm of its own gradient, whatever the rule normalises
        together otherwise (so lam, a single number, moves by ``lr``).  Neither ridge nor radius act on the head.
    callback : callable, optional
        Called with the run so far after each record (its ``status`` is "running", its records cannot be written to).
        Returning True stops the run with status "stopped"; an exception comes through, with the run so far in
        ``.partial``.
    progress : bool
        Show a bar, where tqdm is installed.
    reduce : callable, optional
        For tokens sharded over processes: adds a float64 vector up over all of them, in place.  Each process calls
        ``train`` with its own shard and the same other arguments, and goes through the same weights and records, those
        of the mean over the queries of all.  See the notes.

    Returns
    -------
    Run

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C, with the run so far in ``.partial``.
    FloatingPointError
        When weights, logits or the gradient overflow, with the run so far in ``.partial``.

    Notes
    -----
    Normalised steepest descent in a norm, ``W <- W - lr * argmax_(||D|| <= 1) <dL, D>``: "normalized" in the Frobenius
    norm, "mirror" in its own geometry, "sign" in the max norm, "spectral" in the spectral norm.  Linear classifiers go
    in direction to the SVM of least that norm ("Implicit Bias of Spectral Descent and Muon on Multiclass Separable
    Data", 2025), with a decaying learning rate; for attention :func:`attsvm.margin_share` measures how near they come.

    Normalised descent with learning rate 0.1 is the setting of the experiments in "Transformers as Support Vector
    Machines" (Tarzanagh, Li, Thrampoulidis, Oymak, 2023).  Mirror descent on attention: Julistiono, Tarzanagh, Azizan
    (2024); the Polyak step: Vasudeva, Deora, Thrampoulidis (2024); head and attention together: Tarzanagh, Li, Zhang,
    Oymak (2023).

    With mpi4py ``reduce`` is ``lambda a: comm.Allreduce(MPI.IN_PLACE, a)``, with torch.distributed (gloo)
    ``lambda a: dist.all_reduce(torch.from_numpy(a))``.  It is called twice a step: the workers compare their losses and
    the scales of their gradients, then add up the gradients on the largest scale, so a gradient of e^-1000 survives
    this too.  A sum over shards rounds differently than one process.  ``selected`` and ``probabilities`` of the run are
    those of the own shard.  A callback that returns True on one worker stops all; an exception stops the worker it is
    raised on (Ctrl-C should reach all of them), and its ``.partial`` then ends at the last record.

    Keys in float32 are widened as they are read: rounding the tokens costs 6e-8 relative once, the arithmetic is that
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

    Training until every query attends to one token:

    >>> run = attsvm.train(problem, callback=lambda run: run.probabilities.max(axis=1).min() > 0.99)
    >>> run.status, int(run.steps[-1])
    ('stopped', 300)
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {type(problem).__name__}")
    rule_code = _core.UPDATE_RULE[as_choice("rule", rule, _core.UPDATE_RULE)]
    steps = as_count("steps", steps)
    runs = None if runs is None else as_count("runs", runs, 1)
    weights = _start(problem, W, K, Q, runs)
    wanted = _record_steps(record, steps, sum(a.size for a in weights if a is not None))
    if not isinstance(train_head, (bool, np.bool_)):
        raise TypeError(f"train_head must be a bool, got {type(train_head).__name__}")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function, got {type(callback).__name__}")
    v = _head_parameters(problem, runs or 1) if train_head else None
    objective = problem._capsule(trains_head=True) if train_head else problem._objective
    ridge = as_number("ridge", ridge, least=0.0)
    target = _target(problem, rule, target_loss, train_head)
    if (
        rule == "polyak"
        and target_loss is None
        and problem._fixed_scores is not None
        and ridge == 0
        and reduce is None
    ):
        target = math.nan  # C takes the loss above its infimum from the logits, where the loss itself is constant
    rates = _learning_rates(lr, steps, runs)
    p = _exponent(rule, p)
    kept = _means(rule, momentum, weight_decay, betas, eps)
    radius, ball_code = _ball_of(rule, radius, ball, factors=weights[0] is None)
    workers = None
    if reduce is not None:
        workers = Workers(reduce, len(problem.data))
        if target_loss is None:  # so far that of the own shard
            target = float(workers.mean([target])[0])
        numbers = [ridge, rule_code, p, radius, ball_code, target, *kept, steps, callback is not None]
        words = f"{problem.loss_name} {problem.head.kind} {problem.heads} {problem.combine}"
        workers.agree(
            *weights, v, wanted, rates, np.array(numbers, dtype=np.float64), *shared_by_all(problem.head),
            np.array([*map(ord, words)], dtype=np.float64),
        )  # fmt: skip
    plain = not any(kept) and rule not in ("mirror", "sign", "spectral", "adam")
    along_gradient = plain and ridge == 0 and radius < 0 and v is None and reduce is None
    span = span_of(problem, weights[0]) if weights[0] is not None and along_gradient else None
    settings = Settings(ridge, rule_code, rates, target, p, radius, ball_code, *kept)
    state = Training(problem, objective, settings, (*weights, v), span, wanted, runs, callback, workers)
    code, exception = _to_the_end(state, steps, progress)
    logger.debug("%s rule, %d of %d steps: %s", rule, state.step, steps, code)
    if code == "done":
        return state.run("completed")
    raised = state.record_end(code)
    if raised is not None and code != "interrupted":  # by the callback, which saw the last record
        code, exception = "interrupted", raised
    if code == "interrupted":
        _raise(exception or KeyboardInterrupt(), state.run(code))
    if code in ("not finite", "gradient not finite"):
        what = "weights or logits" if code == "not finite" else "the gradient"
        message = f"{what} left the range of double precision at step {state.step}"
        partial = state.run("overflow" if code == "not finite" else code)
        _raise(FloatingPointError(message + ": use a smaller lr or smaller tokens"), partial)
    return state.run(code)


def _to_the_end(state: Training, steps: int, progress: bool) -> tuple[str, BaseException | None]:
    try:
        with steps_made(progress, steps) as bar:
            part = max(1, steps // BAR_PARTS) if bar is not None else max(1, steps)
            for first in range(0, steps, part) if steps else (0,):
                code, exception = state.advance(first, min(first + part, steps))
                if bar is not None:
                    bar.update(state.step - first)
                if code != "done":
                    break
    except KeyboardInterrupt as between_parts:
        return "interrupted", between_parts
    return code, exception


def _raise(exception: BaseException, partial: Run) -> None:
    exception.partial = partial  # type: ignore[attr-defined]
    raise exception


def _start(problem: Problem, W: Any, K: Any, Q: Any, runs: int | None) -> tuple[Any, ...]:
    """Copies of (W, None, None) or (None, K, Q), their matrices stacked over runs and attention heads."""
    dk, dz = problem.data.dk, problem.data.dz
    if W is None and K is None and Q is None:
        if problem.heads not in (None, 1) and problem.combine == "sum":
            raise ValueError("W must be given: attention heads that start from equal weights would stay equal")
        return np.zeros(((runs or 1) * (problem.heads or 1), dk, dz)), None, None
    return tuple(None if a is None else a.copy() for a in problem._weights(W, K, Q, runs))


def _head_parameters(problem: Problem, runs: int) -> np.ndarray:
    """Where the parameters of a head that is trained start, a row for each run."""
    head = problem.head
    if not isinstance(head, (LinearHead, MLPHead)):
        raise ValueError(f"train_head=True needs a head with parameters, got {head!r}")
    if not isinstance(head.v, np.ndarray) or head.v.ndim != (2 if head.kind == "mlp" else 1):
        raise ValueError("train_head=True needs a head with one v for all queries, got one per query")
    if problem.loss_name == "log":
        raise ValueError("train_head=True needs a loss other than 'log', whose scores must not become negative")
    return np.tile(head.row(), (runs, 1))


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


def _means(rule: str, momentum: Any, decay: Any, betas: Any, eps: Any) -> tuple[float, float, float, float]:
    """momentum, decay, beta_2 and eps; the first is beta_1 of adam."""
    momentum, decay = _portion("momentum", momentum), as_number("weight_decay", decay, least=0.0)
    given = {"momentum": momentum, "weight_decay": decay}
    for name in (name for name, value in given.items() if value and rule in ("polyak", "mirror")):
        raise ValueError(f"{name} does not go with rule={rule!r}")
    if rule != "adam":
        for name in (name for name, value in {"betas": betas, "eps": eps}.items() if value is not None):
            raise ValueError(f"{name} belongs to rule='adam', got rule={rule!r}")
        return momentum, decay, 0.0, 0.0
    if momentum:
        raise ValueError("momentum of rule='adam' is the first of betas, got momentum as well")
    pair = (0.9, 0.999) if betas is None else betas
    if not isinstance(pair, (tuple, list, np.ndarray)) or len(pair) != 2:
        raise ValueError(f"betas must be a pair of numbers in [0, 1), got {betas!r}")
    first, second = (_portion(f"betas[{i}]", beta) for i, beta in enumerate(pair))
    return first, decay, second, 0.0 if eps is None else as_number("eps", eps, least=0.0)


def _portion(name: str, value: Any) -> float:
    number = as_number(name, value, least=0.0)
    if number >= 1:
        raise ValueError(f"{name} must be below 1, got {number:g}")
    return number


def _ball_of(rule: str, radius: Any, ball: Any, factors: bool) -> tuple[float, int]:
    code = _core.BALL[as_choice("ball", ball, _core.BALL)]
    if radius is None:
        return -1.0, code
    if rule == "mirror":
        raise ValueError("radius does not go with rule='mirror', whose nearest points are not Euclidean")
    if factors and ball == "frobenius":
        raise ValueError("ball must be 'nuclear' for K and Q: ||K||^2 + ||Q||^2 <= 2 radius, got 'frobenius'")
    return as_number("radius", radius, least=0.0), code


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
    wanted = np.sort(np.concatenate([[0, steps], inner]))  # np.unique takes a second for a million of them
    return wanted[np.diff(wanted, prepend=-1) > 0].astype(np.intp)
