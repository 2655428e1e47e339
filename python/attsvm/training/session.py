"""A training run under way: the weights that C moves, the records it fills, and its callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from ..common.metric import Metric
from ..common.workers import Workers
from .output_head import shared_by_all
from .problem import Problem
from .query_span import weights_of
from .rules import RULES, metric_of
from .run import Run


class Settings(NamedTuple):
    """The numbers of a run, in the order in which C reads them."""

    ridge: float
    rule: int  # of the table UPDATE_RULE
    lr: np.ndarray  # (1 or runs, 1 or steps)
    target: float  # NaN: the infimum of a fixed linear head
    p: float
    radius: float  # negative: no ball
    ball: int  # of the table BALL
    momentum: float  # beta, or beta_1 of adam
    decay: float  # of the matrices, times lr
    second: float  # beta_2 of adam
    eps: float  # of adam, adagrad, shampoo


class Training:
    """Weights that C moves in place, and the rows it fills, in the shapes of a run but for records before runs."""

    def __init__(
        self,
        problem: Problem,
        objective: Any,
        rule: str,
        settings: Settings,
        weights: tuple[Any, ...],
        span: np.ndarray | None,
        wanted: np.ndarray,
        runs: int | None,
        callback: Callable[[Run], Any] | None,
        default: Callable[[float, float], np.ndarray] | None,
        metric: Metric | None,
    ):
        self.problem, self.weights, self.wanted, self.runs = problem, weights, wanted, runs
        self.span, self.callback, self.default, self.metric = span, callback, default, metric
        self.workers: Workers | None = None
        # Of until="limit": whether a record (weights, step, loss) proves the limit.
        self.proves: Callable[[np.ndarray, int, Any], bool] | None = None
        self.limit_proved = False
        self.objective, self.rule, self.settings = objective, rule, settings
        *matrices, v = weights
        matrices = [a for a in matrices if a is not None]
        before, records, H = matrices[0].shape[:-2], len(wanted), problem.heads or 1
        self.records = (
            np.empty((records, *before, problem.data.dk, problem.data.dz)),
            None if v is None else np.empty((records, *v.shape)),
            *np.empty((3, records) if runs is None else (3, records, runs)),
            None if weights[1] is None else np.empty((records, *before)),
        )
        # What the rule keeps from step to step, or a metric in the place of the squares; and the scales.
        self.squares = RULES[rule].squares
        self.mean = self.past = None
        self.root = None if metric is None else metric.numbers
        if self.squares or settings.momentum > 0:
            size, R = sum(a.size for a in weights if a is not None), runs or 1
            if self.rule == "adam" or settings.momentum > 0:
                self.mean = np.zeros(size)
            if self.squares == "entries":
                self.root = np.zeros(size)
            elif self.squares == "sides":
                self.root = np.zeros(R * H * sum(a.shape[-2] ** 2 + a.shape[-1] ** 2 for a in matrices))
            self.past = np.full((R * (H * len(matrices) + (0 if v is None else 2)), 2), -np.inf)
        self.reached = np.zeros(2, np.intp)  # written by C: step, records made

    def share(self, workers: Workers, target_is_own: bool) -> None:
        """The run becomes that of the queries of all workers; ``target_is_own``: its target is that of the own ones."""
        workers.weigh(len(self.problem.data))
        target, *scale = workers.mean([self.settings.target, *self.problem.token_squares])
        if target_is_own:
            self.settings = self.settings._replace(target=float(target))
        if self.default is not None:
            self.settings = self.settings._replace(lr=self.default(*scale))
        problem, (W, K, Q, v) = self.problem, self.weights
        start = {"the start W": W, "the start K": K, "the start Q": Q, "the start of the head": v}
        head = {"head": [problem.head.kind, *shared_by_all(problem.head)], "heads": problem.heads}
        words: dict[str, Any] = {"loss": problem.loss_name, "combine": problem.combine}
        words["metric"] = None if self.metric is None else self.metric.numbers
        own = {"steps or record": self.wanted, "callback (given or not)": self.callback is not None}
        workers.agree(**start, **self.settings._asdict(), **head, **words, **own)
        self.workers = workers

    @property
    def step(self) -> int:
        return int(self.reached[0])

    @property
    def done(self) -> int:
        return int(self.reached[1])

    def advance(self, first: int, last: int) -> tuple[str, BaseException | None]:
        """Steps first .. last; the next part begins with the record at ``last``, if there is one."""
        W, K, Q, v = self.weights
        try:
            code, exception = _core.train(
                *(self.objective, *self.problem.functions, *self.settings, first, last, self.wanted),
                *(W, K, Q, self.span, v, self.mean, self.root, self.past, *self.records, self.reached),
                None if self.callback is None and self.proves is None else self._show,
                None if self.workers is None else self._combine,
            )
        except Exception as error:
            self._tell(error)
            raise
        self._tell(exception)
        return _core.STATUS[code], exception

    def _tell(self, exception: BaseException | None) -> None:
        """The other workers wait for the gradient of this one, unless they know: not forever."""
        if self.workers is not None and isinstance(exception, Exception):
            each = 1 + (self.problem.heads or 1) + (self.weights[3] is not None)
            self.workers.fail(exception, (self.runs or 1) * each)

    def _show(self) -> bool:
        """Shows the run so far; whether that was enough (of the last step it always is)."""
        callback, workers = self.callback, self.workers

        def show() -> Any:
            last, (weights, _, loss, *_) = self.done - 1, self.records
            self.limit_proved = self.proves is not None and self.proves(weights[last], self.step, loss[last])
            answer = None if callback is None else callback(self.run("running"))
            return True if self.limit_proved else answer

        answer = show() if workers is None else workers.together(show)
        enough = isinstance(answer, (bool, np.bool_)) and bool(answer)
        if workers is not None:
            enough = workers.any(enough)
        return enough and self.step < self.wanted[-1]

    def _combine(self, gradient: np.ndarray, numbers: np.ndarray) -> None:
        """Puts the mean over all workers in the place of the losses, gradients and scales of this one."""
        R, first, blocks, v = self.runs or 1, 0, [], self.weights[3]
        matrices = len(numbers) - R if v is None else len(numbers) - 2 * R
        for array in (a for a in self.weights if a is not None):
            count, on = (R, slice(matrices, None)) if array is v else (matrices, slice(0, matrices))
            blocks.append((gradient[first : first + array.size].reshape(count, -1), on))
            first += array.size
        assert self.workers is not None
        self.workers.combine(gradient, numbers[:R], numbers[R:], blocks)

    def record_end(self, code: str) -> BaseException | None:
        """A run that stopped early still records where it stopped, and shows it if nothing was raised before."""
        step = self.step
        if self.done and self.wanted[self.done - 1] == step:
            return None
        if code == "interrupted":
            self.callback = self.proves = None
            if self.workers is not None:  # the others may have gone
                return None
        self.wanted = np.concatenate([self.wanted[: self.done], [step]]).astype(np.intp)
        self.records = tuple(None if r is None else r[: self.done + 1] for r in self.records)
        return self.advance(step, step)[1]

    def _rate(self) -> float | np.ndarray | None:
        """The learning rate, of each run; None where it changes from step to step."""
        rates = self.settings.lr
        if rates.shape[1] > 1:
            return None
        return float(rates[0, 0]) if self.runs is None else np.broadcast_to(rates[:, 0], self.runs).copy()

    def _besides(self) -> str:
        """What acts on the weights besides steps of the rule along the gradient of a fixed head."""
        given = self.settings
        present = {
            "train_head": self.weights[3] is not None,
            "ridge": given.ridge > 0,
            "radius": given.radius >= 0,
            "momentum": given.momentum > 0 and self.rule != "adam",
            "weight_decay": given.decay > 0,
            "reduce": self.workers is not None,
        }
        return ", ".join(name for name, there in present.items() if there)

    def _kept_mean(self) -> np.ndarray | None:
        """The mean of the gradients of W (not of factors), the largest number of each matrix 1."""
        W, R = self.weights[0], self.runs or 1
        if self.mean is None or W is None:
            return None
        mean = self.mean.reshape(R, -1)[:, : W.size // R].reshape(W.shape)
        largest = np.abs(mean).max(axis=(-2, -1), keepdims=True)
        return np.asarray(mean / np.where(largest > 0, largest, 1.0))

    def _metric_of_steps(self) -> Any:
        """Of W's: what its squares amount to, D, or P and R, for each matrix; else what was given."""
        W = self.weights[0]
        if W is None or self.root is None or not self.squares:
            return None if self.metric is None else self.metric.value
        *before, dk, dz = W.shape
        width = dk * dz if self.squares == "entries" else dk * dk + dz * dz
        root = self.root.reshape(self.runs or 1, -1)[:, : (self.problem.heads or 1) * width].reshape(*before, width)
        return metric_of(root, self.squares, dk, dz)

    def run(self, status: str) -> Run:
        W, K, Q, v = self.weights
        done, several = self.done, self.runs is not None
        steps = self.wanted[:done]
        rows: list[Any] = [None if r is None else r[:done] for r in self.records]
        if self.span is not None:
            recorded = done > 0 and steps[-1] == self.step
            W = rows[0][-1].copy() if recorded else weights_of(self.problem, W, self.span)
        elif W is None:
            with np.errstate(over="ignore", invalid="ignore"):  # the status says that weights left the range
                W = K @ Q.swapaxes(-1, -2)
        if status == "running":  # C goes on moving the weights; the records go on into the end result
            W, K, Q, v = (None if a is None else a.copy() for a in (W, K, Q, v))
            for array in (steps, *rows):
                if array is not None:
                    array.flags.writeable = False
        if several:
            rows = [None if r is None else r.swapaxes(0, 1) for r in rows]
        weights, head_records, loss, norm, log_grad_norm, half_squares = rows
        return Run(
            self.problem, self.rule, self.settings.p, W, K, Q, steps, weights, loss, norm, log_grad_norm, status, v,
            head_records, None if v is None else self.problem.head, several, half_squares, self._kept_mean(),
            self._metric_of_steps(), self._rate(), self._besides(),
        )  # fmt: skip
