"""Training runs: gradient descent on W, or on the factors of W = K Q^T."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..common.check import as_choice, as_count, as_flag, as_floats, as_number, as_numeric, check_type
from ..common.norms import as_metric
from ..common.progress import bar
from ..common.workers import Workers
from ..rules import UpdateRule, Word, as_portion, as_rule
from .gradient import span_of
from .problem import Problem
from .run import Run
from .session import Descent, Training, memory_of

BAR_PARTS = 200  # number of updates of a progress bar
# the status of a run for a word of C, where they differ; what has left double precision if C has ended with this word
STATUS = {"done": "completed", "not finite": "overflow"}
LOST = {"not finite": "weights or logits", "gradient not finite": "the gradient"}
ALONG = ("normalized", "normalized jointly", "constant", "polyak")  # rules whose steps lie along the gradient


def train(
    problem: Problem,
    W: ArrayLike | Run | None = None,
    *,
    K: ArrayLike | None = None,
    Q: ArrayLike | None = None,
    rule: Word | UpdateRule = "normalized",
    lr: ArrayLike | Callable[[int], float] | None = None,
    steps: int = 2000,
    record: ArrayLike = 100,
    ridge: float = 0.0,
    ball: float | tuple[Literal["frobenius", "nuclear"], float] | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    runs: int | None = None,
    train_head: bool = False,
    until: Literal["limit"] | None = None,
    callback: Callable[[Run], Any] | None = None,
    progress: bool = False,
    reduce: Callable[[np.ndarray], Any] | None = None,
) -> Run:
    """Trains the weights of attention by gradient descent on the mean loss.

    A step is ``W <- W - lr * dL/dW / ||dL/dW||``, or that of another rule.

    The scale of the gradient is kept as a logarithm, so the direction of W still converges to the SVM solution when the
    loss has long vanished in double precision.  Without a progress bar, a run to its last step is one call into C,
    without the GIL.

    Parameters
    ----------
    problem : Problem
    W : (dk, dz) array_like, optional
        Initial weights; zero by default.  With ``heads=H`` all weights have an axis of length H first, and several
        heads whose attended vectors are summed need a start: from equal weights they would stay equal.  A :class:`Run`
        is continued, on any data of the same widths: with its factors, its head, the memory of its rule (momentum,
        squares of gradients) and its count of steps.
    K, Q : (dk, m) and (dz, m) array_like, optional
        Train the factors of W = K Q^T from here instead.
    rule : {"normalized", "normalized jointly", "constant", "polyak", "mirror", "sign", "spectral", "adam", "adagrad", \
"shampoo"}, or a record of :mod:`attsvm.rules`
        How a step follows from the gradient G.  A word stands for the defaults of its rule; the functions of
        ``attsvm.rules`` say what each rule is, and take what belongs to it:

        - "normalized": along ``G / ||G||_F``, for K, for Q and for each attention head by itself; ``metric``;
          "normalized jointly": all of them divided by their common norm;
        - "constant": along G, gradient descent; ``metric``;
        - "polyak": along G, as far as the loss is above ``target_loss``, at most to the length ``lr``;
        - "mirror": mirror descent with ``||W||_p^p / p``, which goes to the lp SVM; ``p``;
        - "sign": the signs of G; "spectral" (Muon): its polar factor; the parameters of a head, which are no matrices,
          by their norm;
        - "adam": ``betas``, ``eps``; "adagrad": ``eps``; "shampoo", not with ``train_head``: ``eps``.
    lr : float, (steps,) array_like or callable, optional
        Learning rate, one or one per step, or ``lr(k)`` of step k = 0, 1, ...; with ``runs`` also (runs, 1) or (runs,
        steps).  By default one that fits the data: steps of Frobenius length ``0.1 / s``, where ``s^2`` is half the
        mean of ``||x - x'||^2 ||z||^2`` over pairs of tokens of a window, s rounded to a power of two: 1 for random
        tokens and queries of length one.  That is 0.1 / s for "normalized" and "polyak", 0.1 / s^2 for "constant",
        0.1 / s^(p-1) for "mirror", ``0.1 / s / sqrt(dk dz)`` for "sign" and "adam" and ``0.1 / s / sqrt(min(dk, dz))``
        for "spectral"; ten times these for "adagrad" and "shampoo", whose steps fall like ``1 / sqrt(k)``; for K and Q
        with the root of that power of s.
    steps : int
    record : int or array_like of int
        Record every ``record`` steps, or at these steps; 0: the start and the end alone.
    ridge : float
        Adds ``ridge * ||W||_F^2``, or ``ridge * (||K||_F^2 + ||Q||_F^2)``, to the mean loss.
    ball : float or tuple of {"frobenius", "nuclear"} and float, optional
        After each step go to the nearest point of a ball: ``||W||_F <= ball``, or of ``("nuclear", radius)``
        ``||W||_* <= radius``.  For factors the nuclear ball means ``||K||_F^2 + ||Q||_F^2 <= 2 radius``, whose products
        are the same.  Each attention head by itself.
    momentum : float
        In [0, 1): the direction is ``m <- momentum * m + gradient`` instead of the gradient.  Not with "polyak",
        "mirror" and "adam", which has its own in ``betas``.
    weight_decay : float
        Decoupled: ``W <- (1 - lr * weight_decay) W`` (or K and Q) before each step.  Not with "polyak" and "mirror".
    runs : int, optional
        Number of runs trained side by side, which share each reading of the keys: W (runs, dk, dz), or K (runs, dk, m)
        and Q (runs, dz, m), are their starts (with ``heads=H``, (runs, H, ...)).
    train_head : bool
        Train the head too, starting from the head of the problem and by the same rule: v; V and a of an MLP; v and lam
        of a quadratic head.  Each of these is normalised by the norm of its own gradient, also with "normalized
        jointly" (so lam, a single number, moves by ``lr``).  Ridge and ball do not act on the head.
    until : {"limit"}, optional
        End at the first record at which :meth:`Run.limit` is "proved" (for all ``runs``), with status "limit proved".
        Later steps would go to the direction of ``run.limit().solution``.  A conditional limit does not end the run.
    callback : callable, optional
        Called with the run so far after each record (its ``status`` is "running", its records cannot be written to).
        Returning True stops the run with status "stopped"; an exception comes through, with the run so far in
        ``.partial``.
    progress : bool
        Show a bar, where tqdm is installed.
    reduce : callable, optional
        For tokens sharded over processes: a function that sums a float64 vector over all processes, in place.  Each
        process calls ``train`` with its own shard and otherwise the same arguments.  All get the same weights and
        records, for the mean loss over the queries of all processes.  See the notes.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        Scores, tokens and queries whose product underflows; or arguments that do not go together, as ``momentum`` with
        "polyak".
    KeyboardInterrupt
        On Ctrl-C, with the run so far in ``.partial``.
    FloatingPointError
        When weights, logits or the gradient overflow, with the run so far in ``.partial``.

    Notes
    -----
    Normalised steepest descent in a norm, ``W <- W - lr * argmax_(||D|| <= 1) <dL, D>``: "normalized" in the Frobenius
    norm, "mirror" in its own geometry, "sign" in the max norm, "spectral" in the spectral norm.  Linear classifiers go
    in direction to the SVM of least that norm ("Implicit Bias of Spectral Descent and Muon on Multiclass Separable
    Data", 2025), with a decaying learning rate; for attention :func:`attsvm.theory.margin_share` says how near.

    Normalised descent with learning rate 0.1 is the setting of the experiments in "Transformers as Support Vector
    Machines" (Tarzanagh, Li, Thrampoulidis, Oymak, 2023).  Mirror descent on attention: Julistiono, Tarzanagh, Azizan
    (2024); the Polyak step: Vasudeva, Deora, Thrampoulidis (2024); head and attention together: Tarzanagh, Li, Zhang,
    Oymak (2023).

    A worker of ``reduce`` may have no queries, as long as another has some.  Its data are made from X (0, T, d)
    (:class:`Data`), with empty labels and, for a head with a v per query, an empty v.  It adds nothing to the gradient,
    does not call the functions of its head or loss, and gets the same weights and records.

    With mpi4py ``reduce`` is ``lambda a: comm.Allreduce(MPI.IN_PLACE, a)``, with torch.distributed (gloo)
    ``lambda a: dist.all_reduce(torch.from_numpy(a))``.  It is called twice a step: the workers compare their losses and
    the scales of their gradients, then add up the gradients on the largest scale, so a gradient of e^-1000 survives
    this too.  A sum over shards rounds differently than one process.  ``selected`` and ``probabilities`` of the run are
    those of the own shard.  A callback that returns True on one worker stops all.  Where one worker refuses its
    arguments, or its head or its callback raises, it raises that error and all others a RuntimeError that quotes it,
    with ``.partial`` up to the last record; only Ctrl-C, and what ``reduce`` itself raises, should reach all of them.

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

    Training until it is proved where it goes; the solver gives the limit:

    >>> run = attsvm.train(problem, until="limit")
    >>> run.status, int(run.steps[-1])
    ('limit proved', 300)
    >>> attsvm.solve_svm(data, run).status
    'optimal'

    Another rule, with what belongs to it, within a ball:

    >>> adam = attsvm.rules.adam(betas=(0.9, 0.99))
    >>> bool(attsvm.train(problem, rule=adam, ball=2.5).norm.max() <= 2.5 + 1e-12)
    True
    """

    def begin() -> Training:
        """Checks the arguments of ``train``, and returns the training run at its start."""
        check_type("problem", problem, Problem)
        if reduce is None or not problem.data._none:
            problem._check_scale()
        update, last = as_rule(rule), as_count("steps", steps)
        several = None if runs is None else as_count("runs", runs, 1)
        before: Any = W if isinstance(W, Run) else None
        begun = 0 if before is None else int(before.steps[-1])
        if before is not None and (K is not None or Q is not None):
            raise ValueError("W is a run, which goes on from its own weights: give it without K and Q")
        given = (W, K, Q) if before is None else (before.W if before.K is None else None, before.K, before.Q)
        W0, K0, Q0 = start_of(problem, several, *given)
        stack, shape = problem._stack(several), problem.data._W_shape
        wanted = begun + record_steps(record, last, math.prod(stack + shape))
        count = len(wanted)
        as_flag("train_head", train_head)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be a function, got {type(callback).__name__}")
        if until is not None:
            as_choice("until", until, ("limit",))
            if reduce is not None:
                raise ValueError(
                    "until='limit' does not go with reduce: the loss of the best tokens is that of own queries only"
                )
        v = head_parameters(problem, update, several) if train_head else None
        if before is not None and v is not None and np.shape(before.parameters) == v.shape:
            v = np.array(before.parameters)
        objective = problem._capsule(trains_head=True) if train_head else problem._objective
        penalty = as_number("ridge", ridge, least=0.0)
        alone = penalty == 0 and reduce is None
        first, decay = as_portion("momentum", momentum), as_number("weight_decay", weight_decay, least=0.0)
        for name, value in (("momentum", first), ("weight_decay", decay)):
            if value and update.word in ("polyak", "mirror"):
                raise ValueError(f"{name} does not go with rule={update.word!r}")
        if first and update.betas is not None:
            raise ValueError("momentum of rule='adam' is the first of betas, got momentum as well")
        first, second = update.betas or (first, 0.0)
        target = target_of(problem, update, train_head, alone)
        if lr is None:
            rate = update.default_rate(*shape, W0 is None, *problem._token_squares)
        else:
            rate = rates(lr, begun, last, several)
        radius, norm = ball_of(update, ball, W0 is None)
        metric = None
        if update.metric is not None:
            if W0 is None:
                raise ValueError("metric must be None for K and Q: it is one of W")
            if radius >= 0:
                raise ValueError("ball does not go with metric, in which the nearest points are others")
            metric = as_metric("metric", update.metric, *shape)
        plain = alone and radius < 0 and metric is None and not (first or decay)
        span = span_of(problem, W0, train_head) if plain and W0 is not None and update.word in ALONG else None
        trained = [a for a in (W0, K0, Q0, v) if a is not None]
        loss, norms, log_grad_norm = np.empty((3, count) if several is None else (3, count, several))
        descent = Descent(
            objective, *problem._functions, penalty, _core.UPDATE_RULE[update.word], rate, target, update.p,
            radius, norm, first, decay, second, update.eps, wanted, W0, K0, Q0, span, v,
            *memory_of(update, first, trained, math.prod(stack), metric, before),
            np.empty((count, *stack, *shape)), None if v is None else np.empty((count, *v.shape)),
            loss, norms, log_grad_norm, None if K0 is None else np.empty((count, *stack)),
            np.array([begun, 0], np.intp),
        )  # fmt: skip
        return Training(problem, update, several, callback, lr is None, metric, descent)

    if reduce is None:
        state = begin()
    else:
        workers = Workers(reduce)
        state = workers.together(begin)
        state.share(workers)
    if until is not None:
        state.proves = Run.watch_limit(state.run("running"))
    code, exception = _to_the_end(state, progress)
    raised = state.record_end(code == "interrupted") if code != "done" else None
    if raised is not None and code != "interrupted":  # the callback raised an error when it saw the last record
        code, exception = "interrupted", raised
    proved = state.limit_proved and code in ("done", "stopped")
    run = state.run("limit proved" if proved else STATUS.get(code, code))
    if code in LOST:
        exception = FloatingPointError(
            f"{LOST[code]} left the range of double precision at step {state.step}: use a smaller lr or smaller tokens"
        )
    elif code != "interrupted":
        return run
    exception = exception or KeyboardInterrupt()
    exception.partial = run  # type: ignore[attr-defined]
    raise exception


def _to_the_end(state: Training, progress: bool) -> tuple[str, BaseException | None]:
    begun, last = int(state.descent.record[0]), int(state.descent.record[-1])
    try:
        if not progress or (shown := bar(total=last - begun, unit="step", desc="train")) is None:
            return state.advance(begun, last)
        part = max(1, (last - begun) // BAR_PARTS)
        with shown:
            for first in range(begun, max(begun + 1, last), part):
                code, exception = state.advance(first, min(first + part, last))
                shown.update(state.step - first)
                if code != "done":
                    break
    except KeyboardInterrupt as between_parts:
        return "interrupted", between_parts
    return code, exception


# ------------------------------------------------------------------------------------- checks of the arguments


def start_of(problem: Problem, runs: int | None, W: Any, K: Any, Q: Any) -> Sequence[Any]:
    """Copies of the starting weights, as (W, None, None) or (None, K, Q)."""
    if W is None and K is None and Q is None:
        if problem.heads not in (None, 1) and problem.combine == "sum":
            raise ValueError("W must be given: attention heads that start from equal weights would stay equal")
        return np.zeros((*problem._stack(runs), *problem.data._W_shape)), None, None
    return [None if a is None else a.copy() for a in problem._read_weights(W, K, Q, runs)]


def head_parameters(problem: Problem, rule: UpdateRule, runs: int | None) -> np.ndarray:
    """The starting parameters of an output head that is trained; one row per run if there are several."""
    head: Any = problem.head
    if rule.word == "shampoo":
        raise ValueError("train_head does not go with rule='shampoo', whose roots are those of matrices")
    if head.kind == "call":
        raise ValueError(f"train_head=True needs a head with parameters, got {head!r}")
    if not head.shared:
        raise ValueError("train_head=True needs a head with one v for all queries, got one per query")
    if problem._own_loss is None and problem._loss_name == "log":
        raise ValueError("train_head=True needs a loss other than 'log', whose scores must not become negative")
    return head.row() if runs is None else np.tile(head.row(), (runs, 1))


def target_of(problem: Problem, rule: UpdateRule, train_head: bool, alone: bool) -> float:
    """The target loss of the rule "polyak".  NaN: the target is the loss of the best tokens, and C computes from the
    logits how far the loss is above it, since near the target the loss itself no longer changes in double precision."""
    if rule.word != "polyak":
        return 0.0
    if rule.target_loss is not None:
        return rule.target_loss
    if train_head:
        raise ValueError("target_loss must be given with train_head=True: its default depends on the head")
    if problem._from_scores and alone:
        return math.nan
    return 0.0 if problem.data._none else problem.infimum()


def ball_of(rule: UpdateRule, ball: Any, factors: bool) -> tuple[float, int]:
    """Returns the radius of the ball in which the weights stay (negative without a ball); and the code of the ball's
    norm."""
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
    """The steps to record, ascending, including the first and the last.  ``size`` is the number of weights kept for
    each record."""
    if not isinstance(record, int):
        array = as_numeric("record", record)
        if array.dtype.kind == "f" and array.size:  # an empty list is allowed, although it becomes an array of floats
            raise TypeError("record must be an integer or integers, got floats")
        if array.ndim > 1:
            raise ValueError(f"record must be a number or a list of steps, got shape {array.shape}")
        if array.ndim == 1:
            wanted = np.sort(np.concatenate([[0, steps], array]))  # np.unique would be slow for a million steps
            if wanted[0] < 0 or wanted[-1] > steps:
                raise ValueError(f"record must lie within 0 .. steps = {steps}, got {array.min()} .. {array.max()}")
            return wanted[np.diff(wanted, prepend=-1) > 0].astype(np.intp)
        record = array[()]
    every = as_count("record", record) or max(steps, 1)
    if steps // every * size > sys.maxsize // 8:
        raise ValueError(f"record must leave no more records than memory holds, got {every} for {steps} steps")
    return np.append(np.arange(0, steps, every, dtype=np.intp), np.intp(steps))


def rates(lr: Any, begun: int, steps: int, runs: int | None) -> np.ndarray:
    """The learning rates as an array (1 or runs, 1 or begun + steps), where begun counts the steps made before.  C
    repeats an axis of length one."""
    if callable(lr):
        # without steps, the function lr is not called, and the rate is 0
        lr = [lr(k) for k in range(begun, begun + steps)] or 0.0
    if isinstance(lr, float):
        return np.array([[as_number("lr", lr, least=0.0)]])
    if (array := as_numeric("lr", lr)).ndim == 2 and runs is not None:
        found = as_floats("lr", array, "runs, steps", (runs, 1 if array.shape[1] == 1 else steps))
    else:
        found = as_floats("lr", array if array.ndim else array[None], "steps", (steps if array.ndim else 1,))[None]
    if found.min() < 0:
        raise ValueError(f"lr must not be negative, got {found.min():g}")
    return np.pad(found, ((0, 0), (begun, 0))) if begun and found.shape[1] > 1 else found
