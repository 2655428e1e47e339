"""A training run in progress: the weights that C updates, the records that it fills, and the callbacks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .. import _core
from ..common.norms import Metric
from ..common.workers import Workers
from ..rules import UpdateRule
from .gradient import metric_of, product, weights_of
from .problem import Problem
from .run import Run

Array: TypeAlias = Any  # np.ndarray | None


class Descent(NamedTuple):
    """The arguments, weights and records of a training run as C reads them, by the names of these fields
    (csrc/binding/bind_train.c).

    C updates the weights and the rule's memory in place, and fills the records.  Records have the shapes of a
    :class:`Run`, but the axis of records comes before that of runs.
    """

    objective: Any
    called_head: Any  # functions of a head and of a loss (called_loss) that are evaluated in Python, or None
    called_loss: Any
    ridge: float
    rule: int  # code of the update rule in the table UPDATE_RULE
    lr: np.ndarray  # (1 or runs, 1 or steps)
    target: float  # target loss of the rule "polyak"; NaN: the infimum of the loss, for a fixed linear head
    p: float
    radius: float  # negative: no ball
    ball: int  # code of the ball's norm in the table BALL
    momentum: float  # beta, or beta_1 of adam
    decay: float  # weight decay of the matrices, multiplied by lr
    second: float  # the second of the pair `betas` of a rule that has one (adam: of the squares)
    eps: float  # eps of adam, adagrad and shampoo
    record: np.ndarray  # the steps to record
    W: Array
    K: Array
    Q: Array
    span: Array  # weights in the span of the queries, as gradient.span_of stores them; the array W then keeps its start
    v: Array  # parameters of the output head, if it is trained
    mean: Array  # weighted mean of the gradients, if the rule keeps one
    root: Array  # what the rule keeps of the gradients' squares, or the numbers of a given metric
    past: Array  # logarithms of the scales of mean and root
    weights: np.ndarray
    head_records: Array
    loss: np.ndarray
    norm: np.ndarray
    log_grad_norm: np.ndarray
    half_squares: Array
    reached: np.ndarray  # the current step, and the number of records made


def memory_of(
    rule: UpdateRule, momentum: float, trained: list[np.ndarray], blocks: int, metric: Metric | None, before: Run | None
) -> tuple[Array, Array, Array]:
    """The memory of an update rule for the ``trained`` arrays, ``blocks`` matrices of each kind (one per run and
    attention head): mean, root and past.  It is a copy of the memory of ``before``, the run that goes on, or empty."""
    mean = past = None
    root = None if metric is None else metric.numbers
    keeps_mean = rule.betas is not None or momentum > 0
    if rule.squares or keeps_mean:
        size = sum(a.size for a in trained)
        if keeps_mean:
            mean = np.zeros(size)
        if rule.squares == "entries":
            root = np.zeros(size)
        elif rule.squares == "sides":
            root = np.zeros(blocks * sum(a.shape[-2] ** 2 + a.shape[-1] ** 2 for a in trained))
        past = np.full((4 * blocks, 2), -np.inf)  # a block has at most two matrices, and a head two parameters
    memory: Any = mean, root, past
    if before is None:
        return memory
    if before.memory is None:
        raise ValueError(
            "W must be a run of this process to go on with, got one from a file: give its weights, W=run.W"
        )
    if before.rule != rule.word or [*map(np.shape, before.memory)] != [*map(np.shape, memory)]:
        raise ValueError(
            f"W is a run by {before.rule!r}, and a run goes on by its own rule, runs, momentum and train_head: "
            "give its weights, W=run.W, to begin with an empty memory"
        )
    return copy.deepcopy(before.memory)


# the fields of a Descent that are records, and the fields that all workers have in common: arguments, weights, memory
FIRST = Descent._fields.index("weights")
MEMORY = ("mean", "root", "past")  # what a rule keeps of the gradients
ROWS, SETTINGS = Descent._fields[FIRST:-1], Descent._fields[Descent._fields.index("ridge") : FIRST]


@dataclass
class Training:
    """A training run in progress: its problem, update rule, callback, and the state that C updates."""

    problem: Problem
    rule: UpdateRule
    runs: int | None
    callback: Callable[[Run], Any] | None
    default_lr: bool  # whether the learning rate is made from the data's scale, since none was given
    metric: Metric | None
    descent: Descent
    workers: Workers | None = None
    # For until="limit": a function that says whether a record (weights, step, loss) proves the limit.
    # limit_proved says whether a record has proved the limit.
    proves: Callable[[np.ndarray, int, Any], bool] | None = None
    limit_proved: bool = False

    def share(self, workers: Workers) -> None:
        """Changes this run so that it minimises the mean loss over the queries of all workers.  Raises an error if the
        workers' arguments differ."""
        workers.weigh(len(self.problem.data))
        descent, problem = self.descent, self.problem
        target, *scale = workers.mean([descent.target, *problem._token_squares])
        if self.rule.target_loss is None:
            descent = descent._replace(target=float(target))
        if self.default_lr:
            descent = descent._replace(lr=self.rule.default_rate(*problem.data._W_shape, descent.W is None, *scale))
        said = {"v": "the start of the head", "record": "steps or record"}
        same = {said.get(name, name): getattr(descent, name) for name in SETTINGS if name not in MEMORY}
        kind, v, *others = problem._head
        same |= {
            "head": [kind, v if problem.head.shared else None, *others],
            "heads": problem.heads,
            "loss": problem._loss_name,
            "combine": problem.combine,
            "metric": self.metric and self.metric.numbers,
            "callback (given or not)": self.callback is not None,
        }
        workers.agree(**same)
        self.descent, self.workers = descent, workers

    @property
    def step(self) -> int:
        return int(self.descent.reached[0])

    @property
    def done(self) -> int:
        return int(self.descent.reached[1])

    def advance(self, first: int, last: int) -> tuple[str, BaseException | None]:
        """Makes the training steps first .. last.  The next call begins with the record at the step ``last``, if that
        is recorded."""
        callback = None if self.callback is None and self.proves is None else self._show
        combine = None if self.workers is None else self._combine
        try:
            code, exception = _core.train(self.descent, first, last, callback, combine)
        except Exception as error:
            self._tell(error)
            raise
        self._tell(exception)
        return _core.STATUS[code], exception

    def _tell(self, exception: BaseException | None) -> None:
        """Tells the other workers about an error of this worker; otherwise they would wait for its gradient."""
        if self.workers is not None and isinstance(exception, Exception):
            each = 1 + (self.problem.heads or 1) + (self.descent.v is not None)
            self.workers.fail(exception, (self.runs or 1) * each)

    def _show(self) -> bool:
        """Calls the callback with the run so far.  Returns whether training should stop early; False at the last
        step."""
        callback, workers, descent, last = self.callback, self.workers, self.descent, self.done - 1

        def show() -> bool:
            if self.proves is not None:
                self.limit_proved = self.proves(descent.weights[last], self.step, descent.loss[last])
            answer = None if callback is None else callback(self.run("running"))
            return self.limit_proved or (isinstance(answer, (bool, np.bool_)) and bool(answer))

        enough = show() if workers is None else workers.any(workers.together(show))
        return enough and self.step < descent.record[-1]

    def _combine(self, numbers: np.ndarray) -> None:
        """Replaces the losses, scales and gradients of this worker by the means over all workers, in place."""
        descent, R, v = self.descent, self.runs or 1, self.descent.v
        trained = [array for array in (descent.W, descent.K, descent.Q, v) if array is not None]
        N = R * (self.problem.heads or 1)  # number of matrices W, or K, or Q: one per run and attention head
        losses, scales, gradient = np.split(numbers, (R, R + N + (0 if v is None else R)))
        parts = zip(trained, np.split(gradient, np.cumsum([array.size for array in trained])[:-1]), strict=True)
        blocks = [
            (part.reshape(R, -1), slice(N, None)) if array is v else (part.reshape(N, -1), slice(N))
            for array, part in parts
        ]
        assert self.workers is not None
        self.workers.combine(gradient, losses, scales, blocks)

    def _rows(self, count: int) -> dict[str, Any]:
        """The first ``count`` records of each kind (weights, loss, norm and so on)."""
        arrays: Any = zip(ROWS, self.descent[FIRST:-1], strict=True)
        return {name: None if array is None else array[:count] for name, array in arrays}

    def record_end(self, interrupted: bool) -> BaseException | None:
        """Records the last step of a run that stopped early, and shows it unless an error was raised.  Returns an error
        that the callback raises."""
        step, record = self.step, self.descent.record[: self.done]
        if len(record) and record[-1] == step:
            return None
        if interrupted:
            self.callback = self.proves = None
            if self.workers is not None:  # the other workers may have stopped, so no more steps are made together
                return None
        self.descent = self.descent._replace(record=np.append(record, step), **self._rows(len(record) + 1))
        return self.advance(step, step)[1]

    def _besides(self) -> str:
        """The names of everything that acts on the weights, except the rule's steps along the gradient of a fixed
        head."""
        given = self.descent
        present = {
            "train_head": given.v is not None,
            "ridge": given.ridge > 0,
            "ball": given.radius >= 0,
            "momentum": given.momentum > 0 and self.rule.betas is None,
            "weight_decay": given.decay > 0,
            "reduce": self.workers is not None,
        }
        return ", ".join(name for name, there in present.items() if there)

    def run(self, status: str) -> Run:
        """The result so far.  While the run is "running", its weights are copies and its records are read-only."""
        done, descent, R = self.done, self.descent, self.runs or 1
        W, K, Q, v, mean, rates = descent.W, descent.K, descent.Q, descent.v, descent.mean, descent.lr
        steps, rows = descent.record[:done], self._rows(done)
        if descent.span is not None:
            recorded = done > 0 and steps[-1] == self.step
            W = rows["weights"][-1].copy() if recorded else weights_of(self.problem, W, descent.span)
        metric = None if self.metric is None else self.metric.value
        if W is None:
            mean, W = None, product(K, Q)
        else:
            if self.rule.squares:
                metric = metric_of(descent.root, self.rule.squares, W.shape, R)
            if mean is not None:  # each matrix is divided by its largest number
                mean = mean.reshape(R, -1)[:, : W.size // R].reshape(W.shape)
                largest = np.abs(mean).max(axis=(-2, -1), keepdims=True)
                mean = mean / np.where(largest > 0, largest, 1.0)
        # C will change the weights, so the callback gets copies; records do not change
        if status == "running":
            W, K, Q, v = (None if a is None else a.copy() for a in (W, K, Q, v))
            for array in (steps, *rows.values()):
                if array is not None:
                    array.flags.writeable = False
        if self.runs is not None:
            rows = {name: None if a is None else a.swapaxes(0, 1) for name, a in rows.items()}
        rate: Any = None  # for rates that change from step to step
        if rates.shape[1] == 1:
            rate = float(rates[0, 0]) if self.runs is None else np.broadcast_to(rates[:, 0], R).copy()
        found = Run(
            self.problem, self.rule.word, descent.p, W, K, Q, steps, **rows, status=status, parameters=v,
            start=None if v is None else self.problem.head, stacked=self.runs is not None, mean=mean, metric=metric,
            lr=rate, besides=self._besides(),
        )  # fmt: skip
        if status != "running":
            vars(found)["memory"] = descent.mean, descent.root, descent.past
        return found
