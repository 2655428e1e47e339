"""The arguments of a training run, checked, and the run as they ask for it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import _core
from ..common.check import as_choice, as_count, as_number, as_numeric, check_type
from ..common.norms import Metric, as_metric
from .learning_rate import default_rate, rates
from .output_head import LinearHead, MLPHead
from .problem import Problem
from .query_span import span_of
from .rules import ALONG, RULES
from .run import Run
from .session import Settings, Training

__all__ = ["prepared"]


def prepared(
    problem: Any,
    start: tuple[Any, Any, Any],
    rule: Any,
    lr: Any,
    steps: Any,
    record: Any,
    ridge: Any,
    target_loss: Any,
    confined: tuple[Any, Any, Any],
    means: tuple[Any, Any, Any, Any],
    metric: Any,
    runs: Any,
    train_head: Any,
    callback: Callable[[Run], Any] | None,
    sharded: bool,
) -> Training:
    """The run that :func:`train` is asked for; ``start`` is W, K, Q, ``confined`` radius, ball, p, ``means`` momentum,
    weight_decay, betas, eps."""
    check_type("problem", problem, Problem)
    if not (sharded and problem.data._none):
        problem._check_scale()
    rule = as_choice("rule", rule, _core.UPDATE_RULE)
    (radius, ball, p), (momentum, decay, betas, eps) = confined, means
    p = as_number("p", p, above=1.0)
    _check_rule(rule, target_loss=target_loss, p=None if p == 2 else p, betas=betas, eps=eps, metric=metric)
    steps = as_count("steps", steps)
    runs = None if runs is None else as_count("runs", runs, 1)
    W, K, Q = _start(problem, *start, runs)
    wanted = _record_steps(record, steps, W.size if K is None else K.size + Q.size)
    if not isinstance(train_head, (bool, np.bool_)):
        raise TypeError(f"train_head must be a bool, got {type(train_head).__name__}")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function, got {type(callback).__name__}")
    v = _head_parameters(problem, rule, runs) if train_head else None
    objective = problem._capsule(trains_head=True) if train_head else problem._objective
    ridge = as_number("ridge", ridge, least=0.0)
    alone = ridge == 0 and not sharded
    target = _target(problem, target_loss, train_head, alone) if rule == "polyak" else 0.0
    kept = _means(rule, momentum, decay, betas, eps)
    default = partial(default_rate, rule, p, W is None, (problem.data.dk, problem.data.dz)) if lr is None else None
    given = rates(lr, steps, runs) if default is None else default(*problem._token_squares)
    radius, ball_code = _ball_of(rule, radius, ball, factors=W is None)
    given_metric = None if metric is None else _metric(metric, problem, radius, factors=W is None)
    plain = not any(kept) and rule in ALONG and metric is None
    along_gradient = plain and alone and radius < 0 and v is None
    span = span_of(problem, W) if W is not None and along_gradient else None
    settings = Settings(ridge, _core.UPDATE_RULE[rule], given, target, p, radius, ball_code, *kept)
    return Training(
        problem, objective, rule, settings, (W, K, Q, v), span, wanted, runs, callback, default, given_metric
    )


def _check_rule(rule: str, **given: Any) -> None:
    """Raises where something is given, not None, that belongs to another rule."""
    for name, value in given.items():
        if value is not None and name not in RULES[rule].options:
            owners = " or ".join(repr(word) for word, facts in RULES.items() if name in facts.options)
            raise ValueError(f"{name} belongs to rule={owners}, got rule={rule!r}")


def _start(problem: Problem, W: Any, K: Any, Q: Any, runs: int | None) -> Sequence[Any]:
    """Copies of (W, None, None) or (None, K, Q)."""
    if W is None and K is None and Q is None:
        if problem.heads not in (None, 1) and problem.combine == "sum":
            raise ValueError("W must be given: attention heads that start from equal weights would stay equal")
        return np.zeros((*problem._stack(runs), problem.data.dk, problem.data.dz)), None, None
    return [None if a is None else a.copy() for a in problem._read_weights(W, K, Q, runs)]


def _head_parameters(problem: Problem, rule: str, runs: int | None) -> np.ndarray:
    """Where the parameters of a head that is trained start, of several runs a row for each."""
    head = problem.head
    if rule == "shampoo":
        raise ValueError("train_head does not go with rule='shampoo', whose roots are those of matrices")
    if not isinstance(head, (LinearHead, MLPHead)):
        raise ValueError(f"train_head=True needs a head with parameters, got {head!r}")
    if not isinstance(head.v, np.ndarray) or head.v.ndim != (2 if head.kind == "mlp" else 1):
        raise ValueError("train_head=True needs a head with one v for all queries, got one per query")
    if problem._loss_name == "log":
        raise ValueError("train_head=True needs a loss other than 'log', whose scores must not become negative")
    return head.row() if runs is None else np.tile(head.row(), (runs, 1))


def _target(problem: Problem, target_loss: Any, train_head: Any, alone: bool) -> float:
    """What "polyak" goes down to; NaN: C takes the loss above its infimum from the logits, where the loss itself is
    constant."""
    if target_loss is not None:
        return as_number("target_loss", target_loss)
    if train_head:
        raise ValueError("target_loss must be given with train_head=True: the infimum depends on the head")
    if problem._from_scores and alone:
        return math.nan
    return 0.0 if problem.data._none else problem.infimum()


def _means(rule: str, momentum: Any, decay: Any, betas: Any, eps: Any) -> tuple[float, float, float, float]:
    """momentum, decay, beta_2 and eps; the first is beta_1 of adam."""
    momentum, decay = _portion("momentum", momentum), as_number("weight_decay", decay, least=0.0)
    for name, value in (("momentum", momentum), ("weight_decay", decay)):
        if value and rule in ("polyak", "mirror"):
            raise ValueError(f"{name} does not go with rule={rule!r}")
    eps = 0.0 if eps is None else as_number("eps", eps, least=0.0)
    if rule != "adam":
        return momentum, decay, 0.0, eps
    if momentum:
        raise ValueError("momentum of rule='adam' is the first of betas, got momentum as well")
    pair = (0.9, 0.999) if betas is None else betas
    if not isinstance(pair, (tuple, list, np.ndarray)) or len(pair) != 2:
        raise ValueError(f"betas must be a pair of numbers in [0, 1), got {betas!r}")
    first, second = (_portion(f"betas[{i}]", beta) for i, beta in enumerate(pair))
    return first, decay, second, eps


def _metric(metric: Any, problem: Problem, radius: float, factors: bool) -> Metric:
    if factors:
        raise ValueError("metric must be None for K and Q: it is one of W")
    if radius >= 0:
        raise ValueError("radius does not go with metric, in which the nearest points are others")
    return as_metric("metric", metric, problem.data.dk, problem.data.dz)


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


def _record_steps(record: Any, steps: int, size: int) -> np.ndarray:
    """Ascending step numbers, the start and the end among them; ``size`` weights are kept for each."""
    if not isinstance(record, int):
        array = as_numeric("record", record)
        if array.dtype.kind == "f" and array.size:  # an empty list has no integers to tell it from floats
            raise TypeError("record must be an integer or integers, got floats")
        if array.ndim > 1:
            raise ValueError(f"record must be a number or a list of steps, got shape {array.shape}")
        if array.ndim == 1:
            if array.size and (array.min() < 0 or array.max() > steps):
                raise ValueError(f"record must lie within 0 .. steps = {steps}, got {array.min()} .. {array.max()}")
            wanted = np.sort(np.concatenate([[0, steps], array]))  # np.unique takes a second for a million of them
            return wanted[np.diff(wanted, prepend=-1) > 0].astype(np.intp)
        record = array[()]
    every = as_count("record", record)
    if every and steps // every * size > sys.maxsize // 8:
        raise ValueError(f"record must leave no more records than memory holds, got {every} for {steps} steps")
    every = every or max(steps, 1)
    return np.append(np.arange(0, steps, every, dtype=np.intp), np.intp(steps))
