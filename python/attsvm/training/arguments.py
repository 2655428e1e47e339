"""The arguments of a training run, checked."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from ..common.check import as_choice, as_count, as_flag, as_number, as_numeric
from ..common.norms import Metric, as_metric
from ..rules import UpdateRule, as_portion
from .output_head import LinearHead, MLPHead
from .problem import Problem
from .run import Run


def start_of(problem: Problem, W: Any, K: Any, Q: Any, runs: int | None) -> Sequence[Any]:
    """Copies of (W, None, None) or (None, K, Q)."""
    if W is None and K is None and Q is None:
        if problem.heads not in (None, 1) and problem.combine == "sum":
            raise ValueError("W must be given: attention heads that start from equal weights would stay equal")
        return np.zeros((*problem._stack(runs), problem.data.dk, problem.data.dz)), None, None
    return [None if a is None else a.copy() for a in problem._read_weights(W, K, Q, runs)]


def memory_to_go_on(run: Run, rule: UpdateRule, memory: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """A copy of what the rule of `run` kept, which must have the form of this empty memory."""
    if run.memory is None:
        raise ValueError(
            "W must be a run of this process to go on with, got one from a file: give its weights, W=run.W"
        )
    if run.rule != rule.word or any(np.shape(a) != np.shape(b) for a, b in zip(run.memory, memory, strict=True)):
        raise ValueError(
            f"W is a run by {run.rule!r}, and a run goes on by its own rule, runs, momentum and train_head: give its "
            "weights, W=run.W, to begin with an empty memory"
        )
    mean, root, past = (None if a is None else a.copy() for a in run.memory)
    return mean, root, past


def check_flags(train_head: Any, callback: Any) -> None:
    as_flag("train_head", train_head)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function, got {type(callback).__name__}")


def head_parameters(problem: Problem, rule: UpdateRule, runs: int | None) -> np.ndarray:
    """Where the parameters of a head that is trained start, of several runs a row for each."""
    head = problem.head
    if rule.word == "shampoo":
        raise ValueError("train_head does not go with rule='shampoo', whose roots are those of matrices")
    if not isinstance(head, (LinearHead, MLPHead)):
        raise ValueError(f"train_head=True needs a head with parameters, got {head!r}")
    if not isinstance(head.v, np.ndarray) or head.v.ndim != (2 if head.kind == "mlp" else 1):
        raise ValueError("train_head=True needs a head with one v for all queries, got one per query")
    if problem._loss_name == "log":
        raise ValueError("train_head=True needs a loss other than 'log', whose scores must not become negative")
    return head.row() if runs is None else np.tile(head.row(), (runs, 1))


def target_of(problem: Problem, rule: UpdateRule, train_head: bool, alone: bool) -> float:
    """What "polyak" goes down to; NaN: C takes the loss above its infimum from the logits, where the loss itself is
    constant."""
    if rule.word != "polyak":
        return 0.0
    if rule.target_loss is not None:
        return rule.target_loss
    if train_head:
        raise ValueError("target_loss must be given with train_head=True: the infimum depends on the head")
    if problem._from_scores and alone:
        return math.nan
    return 0.0 if problem.data._none else problem.infimum()


def means_of(rule: UpdateRule, momentum: Any, weight_decay: Any) -> tuple[float, float, float]:
    """momentum, decay and second of a Descent."""
    first, decay = as_portion("momentum", momentum), as_number("weight_decay", weight_decay, least=0.0)
    for name, value in (("momentum", first), ("weight_decay", decay)):
        if value and rule.word in ("polyak", "mirror"):
            raise ValueError(f"{name} does not go with rule={rule.word!r}")
    if rule.betas is None:
        return first, decay, 0.0
    if first:
        raise ValueError("momentum of rule='adam' is the first of betas, got momentum as well")
    return rule.betas[0], decay, rule.betas[1]


def metric_for(rule: UpdateRule, problem: Problem, radius: float, factors: bool) -> Metric | None:
    if rule.metric is None:
        return None
    if factors:
        raise ValueError("metric must be None for K and Q: it is one of W")
    if radius >= 0:
        raise ValueError("ball does not go with metric, in which the nearest points are others")
    return as_metric("metric", rule.metric, problem.data.dk, problem.data.dz)


def ball_of(rule: UpdateRule, ball: Any, factors: bool) -> tuple[float, int]:
    """The radius, negative without a ball, and the code of its norm."""
    if ball is None:
        return -1.0, 0
    norm, radius = ball if isinstance(ball, tuple) and len(ball) == 2 else ("frobenius", ball)
    code = _core.BALL[as_choice("the norm of ball", norm, _core.BALL)]
    if rule.word == "mirror":
        raise ValueError("ball does not go with rule='mirror', whose nearest points are not Euclidean")
    if factors and norm == "frobenius":
        raise ValueError(f"ball must be ('nuclear', radius) for K and Q, ||K||^2 + ||Q||^2 <= 2 radius, got {ball!r}")
    return as_number("ball", radius, least=0.0), code


def record_steps(record: Any, steps: int, size: int) -> np.ndarray:
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
