"""The result of a training run: its weights and records, and what they prove."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..attention.data import Data, fits
from ..attention.selection import number_undecided, undecided
from ..common.check import as_norm, check_shapes
from ..common.norms import Metric, as_metric, norm_name, read_norm
from ..common.result import Lines, Result
from ..common.types import MetricLike, Norm
from ..rules import as_rule
from .gradient import next_step
from .problem import Problem

MESSAGES = {
    "completed": "made all its steps, to {}",
    "stationary": "ended at {}: the computed gradient is zero",
    "target reached": "ended at {}: the loss has come down to the target of the Polyak step",
    "limit proved": "ended at {}: its limit is proved, as run.limit() says",
    "stopped": "ended at {}: the callback returned True",
    "running": "has come to {}",
    "interrupted": "was interrupted after {}",
    "overflow": "ended after {}: weights or logits left the range of double precision",
    "gradient not finite": "ended after {}: the gradient left the range of double precision",
}

RUNS_SHOWN = 8  # largest number of runs that are printed side by side
DIGITS = 4  # number of digits printed for each end of an interval
AT_ONCE = 1 << 15  # the records are processed in parts of at most this count of numbers, so that a part stays in cache


@dataclass(repr=False, eq=False)
class Run(Result):
    """The result of a training run, or of several side by side.

    Arrays over records have one item for each of the ``steps``.

    With ``heads=H`` all weights have an axis H before dk or dz.  With ``runs=R`` every array but ``steps`` has the runs
    as first axis: ``W (R, dk, dz)``, ``weights (R, records, dk, dz)``, ``loss (R, records)``; ``run[r]`` is one.

    Attributes
    ----------
    problem : Problem
        The problem that was trained, with the head as it was before; ``data`` are its data.
    rule : str
        The update rule.
    p : float
        The exponent of "mirror".
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
        Natural logarithm of the norm of the gradient in W, or in K and Q, including the ridge; accurate also where the
        norm itself underflows, unless the gradients of several queries cancel.
    status : str
        "completed"; "stationary" when the computed gradient became zero, "target reached" when the loss came down to
        that of the Polyak step (in all runs); "limit proved" where ``until="limit"`` ended it; "stopped" by the
        callback, "running" while it looks; in the
        ``.partial`` of an exception "interrupted", "overflow" of weights or logits, or "gradient not finite" at
        weights that are.
    message : str
        What the status means, and the step at which the run ended.
    parameters, head_records : (P,), (records, P) arrays or None
        The parameters of a head that was trained too, at the end and at those steps: v; or V and then a; or v and then
        lam.
    head : LinearHead, MLPHead, QuadraticHead or None
        The trained head; a list of them with ``runs=R``.
    v : array or None
        Its v or V.
    start : LinearHead, MLPHead, QuadraticHead or None
        The head before training, if it was trained.
    half_squares : (records,) array or None
        ``(||K||_F^2 + ||Q||_F^2) / 2`` at those steps, when factors were trained; with ``heads=H`` (records, H).
    balance : array or None
        ``half_squares / ||K Q^T||_*``, likewise: at least 1, and 1 for balanced factors, ``K^T K = Q^T Q``, whose
        squares are the nuclear norm of their product.
    mean : (dk, dz) array or None
        The mean of W's gradients that momentum or "adam" keeps, divided by its largest number.
    direction : (dk, dz) array
        The direction of the next step, of Frobenius norm 1: the negative gradient of the mean loss in W, or ``mean``,
        transformed by the rule.  For factors, the change of ``K Q^T`` under steps along their gradients.
    metric : (dk, dz) array, (dk, dk) and (dz, dz) arrays, or None
        The metric in which the next step in W is gradient descent.  For "adam" and "adagrad", whose steps are divided
        by ``sqrt(v)``, it is this root; for "shampoo" the tuple ``L^(1/4), R^(1/4)``.  Each is scaled to mean 1 (mean
        eigenvalue 1), and is 1 where the gradient was always zero.  For other rules it is the ``metric`` that was
        given.  ``train(problem, run.W, rule=attsvm.rules.normalized(run.metric))`` goes on in the last metric.
    lr : float, (runs,) array or None
        The learning rate, given or made from the data; None if it changes from step to step.
    besides : str
        The names of everything that acts on the weights besides steps of the rule along the gradient of a fixed head,
        such as "ridge, momentum"; empty if nothing does.
    multipliers : array or list, in the data's entry shape
        :meth:`attsvm.Problem.multipliers` at the end.
    undecided : bool array or list, in the data's query shape
        Queries whose attention has not chosen: with a linear head, which selects one token, the largest probability
        is below 0.9; otherwise some probability is between those of :func:`attsvm.theory.selected_sets`.
    selected : integer array or list, in the data's query shape
        The token each query attends to most at the end; with ``heads=H``, one such per attention head.
    probabilities : array or list, in the data's entry shape
        Attention at the end, likewise.
    """

    problem: Problem
    rule: str
    p: float
    W: np.ndarray
    K: np.ndarray | None
    Q: np.ndarray | None
    steps: np.ndarray
    weights: np.ndarray
    loss: np.ndarray
    norm: np.ndarray
    log_grad_norm: np.ndarray
    status: str
    parameters: np.ndarray | None = None
    head_records: np.ndarray | None = None
    start: Any = None
    stacked: bool = False
    half_squares: np.ndarray | None = None
    mean: np.ndarray | None = None
    metric: Any = None
    lr: float | np.ndarray | None = None
    besides: str = ""

    # The memory of the update rule (mean, root and past of session.Descent), from which training can go on.
    # The memory is None for a run that was read from a file.
    memory: ClassVar[Any] = None
    # theory.limit sets these two functions of a run, since training does not import the SVM.
    # find_limit finds the limit of a run; watch_limit makes a function that says whether a record proves it.
    find_limit: ClassVar[Callable[[Run], Any]]
    watch_limit: ClassVar[Callable[[Run], Callable[[np.ndarray, int, Any], bool]]]

    def _check(self) -> None:
        R, H = "runs, " * self.stacked, "H, " * (self.problem.heads is not None)
        # a metric given by the user is the same for all runs and heads
        each = f"{R}{H}" if as_rule(self.rule).squares else ""
        letters = {
            **dict.fromkeys(("loss", "norm", "log_grad_norm"), f"{R}records"),
            **dict.fromkeys(("W", "mean"), f"{R}{H}dk, dz"),
            "steps": "records",
            "weights": f"{R}records, {H}dk, dz",
            "K": f"{R}{H}dk, m",
            "Q": f"{R}{H}dz, m",
            "parameters": f"{R}P",
            "head_records": f"{R}records, P",
            "half_squares": f"{R}records, {H}".removesuffix(", "),
            **({"lr": "runs"} if self.stacked else {}),
        }
        arrays, P = vars(self), None if self.start is None else len(self.start.row())
        if isinstance(self.metric, tuple):
            arrays = arrays | dict(zip(("metric[0]", "metric[1]"), self.metric, strict=True))
            letters |= {"metric[0]": f"{each}dk, dk", "metric[1]": f"{each}dz, dz"}
        else:
            letters["metric"] = f"{each}dk, dz"
        check_shapes(arrays, letters, dk=self.data.dk, dz=self.data.dz, H=self.problem.heads, P=P)

    @property
    def data(self) -> Data:
        return self.problem.data

    _hidden = ("data", "problem", "start", "stacked")
    _derived = ("message", "balance", "selected", "undecided", "probabilities")

    @property
    def message(self) -> str:
        """A sentence: what the status means, and the step at which the run ended."""
        said = MESSAGES[self.status].format(f"step {self.steps[-1]}" if len(self.steps) else "its first record")
        own = self.problem._own_loss
        if self.status != "stationary" or own is None or len(own.functions) == 3:
            return said
        return f"{said}, as it is where the derivative of the loss underflows: give the log of its size as loss[2]"

    def _title(self) -> str:
        trained = "W" if self.K is None else f"K, Q (m={self.K.shape[-1]})"
        trained += "" if self.start is None else f" and {', '.join(self.start.names)}"
        if len(self.steps) == 0:
            return f"Run on {trained}: {self.status} before the first record"
        runs = f"{len(self.W)} runs" if self.stacked else "Run"
        return f"{runs} of {self.steps[-1]} steps on {trained}: {self.status}"

    def _lines(self) -> Lines:
        if len(self.steps) == 0:
            return []
        if self.stacked:
            ends = zip(self.loss[:RUNS_SHOWN, -1], self.norm[:RUNS_SHOWN, -1], strict=True)
            lines = [("run", "loss      norm of W")]
            lines += [(str(r), f"{loss:<9.6g} {norm:.6g}") for r, (loss, norm) in enumerate(ends)]
            return lines + [("...", "")] * (len(self.W) > RUNS_SHOWN) + self._limit()
        curves = {"loss": self.loss, "norm of W": self.norm, "log grad norm": self.log_grad_norm}
        count, queries = number_undecided(self)
        left = f"{count} of {queries} queries: their attention has not chosen"
        return [
            *([("", self.message)] if self.status not in ("completed", "running") else []),
            *((name, f"{a[0]:.6g} -> {a[-1]:.6g}") for name, a in curves.items()),
            *self._proved(),
            *([("undecided", left)] if count else []),
            *self._limit(),
            ("records", f"{len(self.steps)}"),
        ]

    def _limit(self) -> Lines:
        """The printed line about the limit of training, if :meth:`limit` has been called."""
        found = vars(self).get("limit_found")
        return [] if found is None else [("limit", found.summary)]

    def _proved(self) -> Lines:
        """The printed line about the margin that the last weights prove; no line for several attention heads."""
        W = self.weights[-1]  # after an overflow self.W is that of a later step, which no record holds
        if self.problem.heads is not None or self.data._none or not np.isfinite(W).all():
            return []
        kind = self.own_norm
        try:
            low, high = map(float, self.trained._intervals(W[None, None], self.selected, kind)[:, 0])
        except FloatingPointError:  # the logits overflow
            return []
        norm = "" if kind == "frobenius" else f", {norm_name(kind)} norm"
        return [("margin", f"{_rounded(low, ROUND_FLOOR)} .. {_rounded(high, ROUND_CEILING)} (proved){norm}")]

    @property
    def head(self) -> Any:
        if self.parameters is None:
            return None
        each = [self.start.from_row(row) for row in np.atleast_2d(self.parameters)]
        return each if self.stacked else each[0]

    @property
    def v(self) -> np.ndarray | None:
        if self.parameters is None:
            return None
        v = self.start.v
        return self.parameters[..., : v.size].reshape(*self.parameters.shape[:-1], *v.shape)

    @property
    def balance(self) -> np.ndarray | None:
        if self.half_squares is None:
            return None
        nuclear = np.linalg.svd(self.weights, compute_uv=False).sum(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):  # zero factors give 0 / 0
            return self.half_squares / nuclear

    @property
    def selected(self) -> Any:
        return _each(self.data.select, self.W)

    @property
    def undecided(self) -> Any:
        single = self.problem.head.kind == "linear"
        return _each(lambda W: _over(self.data.probabilities(W), single), self.W)

    @property
    def probabilities(self) -> Any:
        return _each(self.data.probabilities, self.W)

    def __getitem__(self, r: int) -> Run:
        if not self.stacked:
            raise TypeError("a single run has no parts: train(..., runs=R) trains several")
        several = "W K Q weights loss norm log_grad_norm parameters head_records half_squares mean".split()
        own: dict[str, Any] = {name: None if (a := getattr(self, name)) is None else a[r] for name in several}
        metric = self.metric
        if metric is not None and as_rule(self.rule).squares:
            metric = tuple(side[r] for side in metric) if isinstance(metric, tuple) else metric[r]
        rate = None if self.lr is None else float(np.asarray(self.lr)[r])
        return replace(self, stacked=False, metric=metric, lr=rate, **own)

    @property
    def trained(self) -> Problem:
        """The problem with the output head as it is at the end of a single run."""
        return self.problem if self.parameters is None else self.problem._with(head=self.head)

    @property
    def multipliers(self) -> Any:
        if self.stacked:
            raise ValueError("several runs have no one gradient: take one, run[r]")
        return self.trained.multipliers(self.W)[0]

    @property
    def direction(self) -> np.ndarray:
        if self.stacked:
            return np.stack([self[r].direction for r in range(len(self.W))])
        return next_step(self)

    def margins(
        self, norm: Norm | None = None, metric: MetricLike | None = None, selected: ArrayLike | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """A lower and an upper bound of the largest margin at every record, from the recorded weights and gradients.

        This is :meth:`attsvm.Problem.margin_interval` of the recorded weights, all for the selection at the end of the
        run.  The largest margin is one number, which the bounds enclose more and more closely as training goes on.

        Parameters
        ----------
        norm : as in :func:`attsvm.solve_svm`, optional
            That of the update rule by default: "max" for "sign", "spectral" for "spectral", the exponent of "mirror",
            the run's ``metric`` where it has one; "nuclear" where K and Q were trained; "frobenius" otherwise, and for
            attention heads in a metric.
        metric : as in :meth:`attsvm.Problem.margin_interval`, optional
            With ``norm="frobenius"`` or none.
        selected : as in :func:`attsvm.solve_svm`, optional
            Another selection, as that of several tokens by :func:`attsvm.theory.selected_sets`.

        Returns
        -------
        low, high : (records,) arrays; (records, H) with ``heads=H``; an axis of runs first with ``runs=R``
            Of the largest margin of a unit-norm W, rounded outwards.

        Raises
        ------
        FloatingPointError
            When the logits of some recorded weights overflow.

        Notes
        -----
        Computed when asked for; training itself pays nothing.  At the first steps ``low`` is 0 and ``high`` loose.

        Examples
        --------
        >>> import attsvm
        >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
        >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
        >>> run = attsvm.train(problem, steps=3000, record=1000)
        >>> low, high = run.margins()
        >>> margin = attsvm.solve_svm(problem.data, run.selected).margin
        >>> bool((low <= margin).all() and (margin <= high).all() and high[-1] < 1.03 * low[-1])
        True
        """
        if self.stacked:  # the bounds of several runs are computed one by one, since each run may have its own metric
            ends = np.stack([self[r].margins(norm, metric, selected) for r in range(len(self.W))], axis=1)
            return ends[0], ends[1]
        problem, heads, H = self.problem, self.head_records, self.problem.heads or 1
        records, dk, dz = len(self.weights), *self.W.shape[-2:]
        kind = self.own_norm
        if norm is not None or metric is not None:
            kind = read_norm("frobenius" if norm is None else norm, metric, dk, dz)
        selected = self.selected if selected is None else selected
        weights = np.ascontiguousarray(self.weights).reshape(records, H, dk, dz)
        ends = np.empty((2, *self.weights.shape[:-2]))
        # with one problem for each record if the output head was trained
        chunk = 1 if heads is not None else max(1, AT_ONCE // (H * max(self.data._entries, dk * dz)))
        for first in range(0, records, chunk):
            at = problem if heads is None else problem._with(head=self.start.from_row(heads[first]))
            ends[:, first : first + chunk] = at._intervals(weights[first : first + chunk], selected, kind)
        return ends[0], ends[1]

    @property
    def own_norm(self) -> Norm | Metric:
        """The norm of the SVM to whose direction the update rule takes the weights."""
        if self.K is not None:
            return "nuclear"
        if self.metric is not None and self.problem.heads is None:
            return as_metric("metric", self.metric, *self.W.shape[-2:])
        return as_norm("p", self.p) if self.rule == "mirror" else as_rule(self.rule).norm

    def limit(self) -> Any:
        """What the records prove about the limit of training: the tokens selected for ever, and the SVM to whose
        direction W goes.

        With ``u_i`` the output of query i, ``g_i1 > g_i2`` its two best scores and F* the infimum of the loss F: where
        ``n (F(W) - F*) < l((g_i1 + g_i2) / 2) - l(g_i1)`` the query gives its best token more than half of its
        attention, at these weights and at all of no larger loss.  Where ``n (F(W) - F*) < min_i l(g_i2) - l(g_i1)`` and
        the SVM of the best tokens is feasible, the loss goes to F* and W in direction to the SVM's solution, as long as
        no later step raises the loss; for steps that are short enough this is proved.

        Returns
        -------
        Limit
            ``status``: "proved"; "conditional", as long as no later step raises the loss; or "open".  ``step``: the
            first recorded step from which it is, or None.  ``message``: a sentence.  ``final``: bool, in the data's
            query shape: more than half of the query's attention stays on its best token as long as no later step raises
            the loss.  ``solution``: the :class:`Separation` of the limit's tokens, None where it is open.  With
            ``runs=R`` lists of these, and ``final`` with the runs as first axis.

        Raises
        ------
        ValueError
            Of a run with a trained head, a ridge, momentum, weight decay, a ball or ``reduce``, or of another head than
            a linear one: it names what is not covered.

        Notes
        -----
        Proved in ``notebooks/limit.md`` for ``rule="normalized"`` and ``"constant"`` with one learning rate: descent on
        W, one attention head, a loss of the table.  Under other rules, for K and Q, several attention heads or a loss
        of the user's, it is at most conditional and covers the tokens only.  The proof is about training in exact
        arithmetic from a record on; the rounding errors of the record itself are allowed for.  Mirror descent on the
        dual: Ji and Telgarsky, "Characterizing the implicit bias via a primal-dual analysis", 2021.  Nothing is
        computed that is not asked for.

        Examples
        --------
        >>> import attsvm
        >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
        >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
        >>> limit = attsvm.train(problem, steps=1000).limit()
        >>> limit.status, limit.step
        ('proved', 300)
        >>> bool(limit.final.all()), limit.solution.status
        (True, 'optimal')
        """
        return self.limit_found

    @cached_property
    def limit_found(self) -> Any:
        """The result of :meth:`limit`, kept so that the printed run shows it."""
        return type(self).find_limit(self)

    def select(self, data: Data) -> Any:
        """The token that the last weights prefer for each query of other data; the lowest index on a tie.

        Parameters
        ----------
        data : Data
            With tokens and queries of the same lengths.

        Returns
        -------
        (n,) or (n, S) integer array, or a list
            With ``heads=H`` or ``runs=R``, an axis for each first.

        Examples
        --------
        >>> import attsvm
        >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
        >>> data = attsvm.cross_attention(X, Z)
        >>> run = attsvm.train(attsvm.Problem(data, y, attsvm.LinearHead(v)), steps=500)
        >>> new_X, new_Z, _, _ = attsvm.sample.unit_sphere(3, 5, 10, rng=1)
        >>> run.select(attsvm.cross_attention(new_X, new_Z)).shape
        (3,)
        """
        fits(data, self.W)
        return _each(data.select, self.W)

    def columns(self) -> dict[str, Any]:
        runs, records = np.atleast_2d(self.loss).shape
        columns: dict[str, Any] = {"run": np.repeat(np.arange(runs), records)} if self.stacked else {}
        columns["step"] = np.tile(self.steps, runs)
        return columns | {name: np.ravel(getattr(self, name)) for name in ("loss", "norm", "log_grad_norm")}


def _over(probabilities: Any, single: bool) -> Any:
    """Which queries are undecided, as bool arrays in the shape of the data's queries, from their attention
    probabilities."""
    if isinstance(probabilities, list):
        flags = [undecided(part, single) for part in probabilities]
        # for ragged sequences with one query each, flags of shape (n,)
        return flags if flags[0].ndim else np.stack(flags)
    return undecided(probabilities, single)


def _each(function: Any, W: np.ndarray) -> Any:
    """``function(W)``, or these results stacked for the weights of each run and attention head."""
    if W.ndim == 2:
        return function(W)
    found = [_each(function, one) for one in W]
    return found if isinstance(found[0], list) else np.stack(found)


def _rounded(number: float, rounding: str) -> str:
    """A number with few digits, rounded in the given direction so that a proved bound stays true."""
    return f"{float(Context(prec=DIGITS, rounding=rounding).create_decimal(number)):g}"
