"""Training runs: gradient descent on W, or on the factors of W = K Q^T."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..common.check import as_choice
from ..common.progress import bar
from ..common.types import Ball, MetricLike
from ..common.workers import Workers
from .arguments import prepared
from .problem import Problem
from .run import Run
from .session import Training

__all__ = ["Rule", "train"]

logger = logging.getLogger(__name__)

Rule: TypeAlias = Literal[
    "normalized", "normalized jointly", "constant", "polyak", "mirror", "sign", "spectral", "adam", "adagrad", "shampoo"
]

BAR_PARTS = 200  # a progress bar moves this often


def train(
    problem: Problem,
    W: ArrayLike | None = None,
    *,
    K: ArrayLike | None = None,
    Q: ArrayLike | None = None,
    rule: Rule = "normalized",
    lr: ArrayLike | Callable[[int], float] | None = None,
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
    metric: MetricLike | None = None,
    runs: int | None = None,
    train_head: bool = False,
    until: Literal["limit"] | None = None,
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
    rule : {"normalized", "normalized jointly", "constant", "polyak", "mirror", "sign", "spectral", "adam", "adagrad", \
"shampoo"}
        Divide the gradient by its norm (that of K, of Q and of each attention head by its own); divide all of them by
        their common norm; or not at all.  "polyak": the step ``(L - target_loss) / (2 ||dL||^2) * dL`` of all matrices
        together, shortened to the length ``lr``.  "mirror": the step ``lr`` along the gradient divided by its lq norm,
        ``1/p + 1/q = 1``, in ``sign(W) |W|^(p-1)`` instead of W, which goes to the lp SVM (each matrix by its own).
        "sign": the step ``lr * sign(dL)``, 0 where the gradient is 0.  "spectral" (Muon): ``lr * U V^T`` of the
        singular value decomposition ``dL = U diag(s) V^T``, over the singular values that rounding leaves; the
        parameters of a head, which are no matrices, by their norm.  "adam": ``lr * m / (sqrt(v) + eps)`` with the means
        m and v of the gradient and its square, each over the sum of its weights.  "adagrad": ``lr * D / (sqrt(v) +
        eps)`` with v the sum of the squares of all gradients so far and D the gradient, or the mean of ``momentum``.
        "shampoo": ``lr * L^(-1/4) D R^(-1/4)`` with the sums L of ``G G^T`` and R of ``G^T G`` over all gradients G so
        far, each plus ``eps^2 I``, of each matrix by its own; not with ``train_head``.
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
        Of "adam", "adagrad" and "shampoo", in units of the gradient; 0 by default: entries (or directions) whose
        gradient has always been 0 stay where they are, and no gradient is too small.
    metric : D (dk, dz) array_like, or tuple of P (dk, dk) and R (dz, dz), optional
        With "normalized" and "constant": gradient descent in this metric, as :func:`attsvm.solve_svm` has it, the
        direction ``G / D`` or ``P^-1 G R^-1`` in the place of G and its dual norm in the place of that of G.  With the
        ``metric`` of a run of "adam", "adagrad" or "shampoo" from its W: the same optimiser, its memory frozen.
    runs : int, optional
        Number of runs trained side by side, which share each reading of the keys: W (runs, dk, dz), or K (runs, dk, m)
        and Q (runs, dz, m), are their starts (with ``heads=H``, (runs, H, ...)).
    train_head : bool
        Train the head too, from that of the problem and by the same rule: v; V and a of an MLP; v and lam of a
        quadratic one.  Each of these is normalised by the norm of its own gradient, whatever the rule normalises
        together otherwise (so lam, a single number, moves by ``lr``).  Neither ridge nor radius act on the head.
    until : {"limit"}, optional
        End at the first record at which :meth:`Run.limit` is "proved" (of all ``runs``), with status "limit proved":
        ``run.limit().solution`` is what later steps would come near to.  A conditional limit does not end the run.
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
    ValueError, TypeError
        Naming the argument that does not fit; or scores, tokens and queries whose product underflows.
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

    A worker of ``reduce`` may have no queries, as long as one has: its data are of X (0, T, d) (:class:`Data`), with
    labels, and a v of each query, of none.  It adds nothing, calls no function of its head or loss, and goes through
    the same weights and records.

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
    """
    asked = (
        problem, (W, K, Q), rule, lr, steps, record, ridge, target_loss, (radius, ball, p),
        (momentum, weight_decay, betas, eps), metric, runs, train_head, callback, reduce is not None,
    )  # fmt: skip
    if until is not None:
        as_choice("until", until, ("limit",))
        if reduce is not None:
            raise ValueError(
                "until='limit' does not go with reduce: the infimum of the loss is known of own queries only"
            )
    if reduce is None:
        state = prepared(*asked)
    else:
        workers = Workers(reduce)
        state = workers.together(partial(prepared, *asked))
        state.share(workers, target_is_own=target_loss is None)
    if until is not None:
        state.proves = Run.watch_limit(state.run("running"))
    code, exception = _to_the_end(state, progress)
    logger.debug("%s rule, %d of %d steps: %s", rule, state.step, state.wanted[-1], code)
    if code in ("done", "stopped") and state.limit_proved:
        return state.run("limit proved")
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
        so_far = state.run("overflow" if code == "not finite" else code)
        _raise(FloatingPointError(message + ": use a smaller lr or smaller tokens"), so_far)
    return state.run(code)


def _to_the_end(state: Training, progress: bool) -> tuple[str, BaseException | None]:
    steps = int(state.wanted[-1])
    try:
        if not progress or (shown := bar(total=steps, unit="step", desc="train")) is None:
            return state.advance(0, steps)
        part = max(1, steps // BAR_PARTS)
        with shown:
            for first in range(0, max(1, steps), part):
                code, exception = state.advance(first, min(first + part, steps))
                shown.update(state.step - first)
                if code != "done":
                    break
    except KeyboardInterrupt as between_parts:
        return "interrupted", between_parts
    return code, exception


def _raise(exception: BaseException, so_far: Run) -> None:
    exception.partial = so_far  # type: ignore[attr-defined]
    raise exception
