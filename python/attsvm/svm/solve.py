"""The attention SVM: the weights of least norm that separate the selected tokens from the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.data import Data, check_data
from ..attention.selection import Selection, as_entries, number_undecided
from ..common.check import as_choice, as_count, as_norm, as_number
from ..common.norms import read_norm
from ..common.progress import closing_gap, watched
from ..common.types import Method, MetricLike, Norm, Selecting
from ..common.workers import Workers
from .in_metric import solve_in_norm
from .methods import methods_of, solve_request
from .request import Request
from .separation import Separation
from .sharded import solve_sharded

# Gap at which `feasible` stops: a separating W is then known, and its margin within a factor of 2.
ROUGH = 1.0
# With at most SMALL numbers in the tokens, no progress is shown by default.
# A solve over at most SMALL numbers takes less time than to find out whether stderr is a terminal.
SMALL = 10_000
listeners: list[Callable[[Separation], None]] = []  # functions that are called with every answer of solve_svm


class ConvergenceWarning(UserWarning):
    """Warns that a solver stopped before its tolerance, or that training ended before every query had chosen a token.

    The answer is still correct within the bounds that it carries.
    """


def solve_svm(
    data: Data,
    selected: ArrayLike | Selecting,
    norm: Norm = "frobenius",
    *,
    tol: float = 1e-9,
    method: Method = "auto",
    C: float | None = None,
    rank: int | None = None,
    margins: ArrayLike | None = None,
    metric: MetricLike | None = None,
    max_iter: int | None = None,
    warm_start: Separation | ArrayLike | None = None,
    progress: bool | None = None,
    reduce: Callable[[np.ndarray], Any] | None = None,
) -> Separation:
    """Solves the attention SVM: finds the weights W of least norm that rank the selected tokens first, by margins of 1.

    It is ``min ||W|| s.t. (x_a - x_t)^T W z >= 1`` for the selected token a of each query and every other token t.

    With several selected tokens per query (a bool selection) their logits must be equal, and the margins hold
    between them and the rest.

    Parameters
    ----------
    data : Data
    selected : integer array_like (n,) or (n, S), or bool array_like (n, T) or (n, S, T), or lists of those, or Run
        One token per query, counted within its window; or, per entry, whether the token is selected.  A run stands for
        the tokens that it selects.  There is a warning if a query is undecided, or if another token scores as much as
        the selected one: then there is no row between the two, since the loss does not change when attention moves from
        one to the other.
    norm : {"frobenius", "nuclear", "max", "spectral"} or float p > 1
        Training W leads to the Frobenius solution; training K and Q is observed to come near the nuclear one; mirror
        descent on W with the potential ``sum |W_ij|^p / p`` goes to that of the entrywise norm
        ``(sum |W_ij|^p)^(1/p)``; sign descent is compared with "max", ``max |W_ij|``, and spectral descent (Muon) with
        "spectral", the largest singular value.  2.0 is "frobenius" and infinity "max": numbers are exponents of the
        entries (``numpy.linalg.norm(W, 2)``, the largest singular value, is "spectral" here).
    tol : float
        Relative gap between the certified bounds of the margin.  If rounding does not allow it, a gap of
        100 * 2.2e-16 * (longest row) / margin is accepted, at most 2.2e-5.
    method : {"auto", "active", "block", "interior", "gradient", "factored"}
        Frobenius: "active" (dual active set, exact), "block" (block-coordinate ascent, then primal-dual active
        set), "interior" (interior point, for tight problems) or "gradient" (projected gradient on the dual, the
        plain reference).  Nuclear: "interior" (interior point) or "factored" (augmented Lagrangian in ``W = K Q^T``,
        for large problems), both finished by Newton's method at fixed rank.  Max and
        spectral: "interior" (interior point on a working set of rows; for spectral finished by Newton's method).
        Entrywise: "interior".
    C : float, optional
        Soft margin for data that cannot be separated: ``min 1/2 ||W||_F^2 + C sum_t slack_t^2``, one slack per margin
        row, as scikit-learn scales the squared hinge; equality rows stay hard.  None: every row is met.  Its methods
        are "block" and "interior" (of rows and entries of W, only one may be many thousands).
    rank : int, optional
        Cap on the rank of W, such as the number of columns of K and Q; nuclear norm only.  Where it binds the problem
        is not convex: the answer is "stationary", with the bound of the problem without the cap.
    margins : array_like in the data's entry shape, optional
        The margin that each entry's row must reach: ``(x_a - x_t)^T W z >= margins`` instead of 1, and ``=`` instead of
        ``= 0`` between several selected tokens.  Margins may have any sign; that of the first selected token is not
        read.  Minus infinity: the token has no row.  If some margins are not positive, "block" and "gradient" may end
        "undecided"; "auto" then tries another method.
    metric : (dk, dz) array_like, or tuple of (dk, dk) and (dz, dz) array_like, optional
        With ``norm="frobenius"``: the norm ``sqrt(sum metric W^2)`` of a positive array, or
        ``||P^(1/2) W R^(1/2)||_F`` of a tuple (P, R) of symmetric positive definite matrices.  W is returned in the
        original coordinates; margin and bound are in the metric.  A preconditioned step ``W <- W - lr H * dL`` is
        gradient descent in the metric ``1 / H``.  Not with ``reduce``.
    max_iter : int, optional
        Most iterations of the method, including its final Newton steps.  The Frobenius problem that is solved first for
        other norms has a count of its own.
    warm_start : Separation or array_like in the data's entry shape, optional
        An answer of a similar problem (another selection, norm, C or tol, or data slightly moved), or multipliers
        shaped as its ``dual``.  Each margin row starts with the multiplier of its entry.  The certificate is computed
        as always: a poor start costs time, but never changes what is proved.  "active", "block", "gradient" and
        "factored" use the start; "factored" also uses the weights of a nuclear-norm answer.  "interior" uses it with C;
        for other norms only the Frobenius problem that is solved first uses it.  Over a vocabulary
        (:func:`soft_labels`) it is not used.
    progress : bool, optional
        Whether to show the gap while it closes: a bar where tqdm is installed, else a line on stderr every second.  By
        default it is shown for large problems, after one second, at a terminal or in a notebook.
    reduce : callable, optional
        For queries sharded over processes, as in :func:`train`: a function that sums a float64 vector over all
        processes, in place.  W and its bounds are those of all rows; ``dual`` or ``certificate`` has the multipliers of
        this process's rows.  Support rows are exchanged until W violates no row of any process, so the support should
        fit into the memory of one process.  A worker may have no sequences (:class:`Data`) and still gets the answer.
        Not with C, rank, margins, warm_start or progress.

    Returns
    -------
    Separation
        Certified: its bounds are recomputed from the tokens.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C, with the best answer so far in ``.partial``.

    Warns
    -----
    ConvergenceWarning
        When the solver stopped before its tolerance.

    Notes
    -----
    Source: Att-SVM and its nuclear twin in "Transformers as Support Vector Machines" (Tarzanagh, Li, Thrampoulidis,
    Oymak, 2023).  W is in units of 1 / (token * query), and the margin of a unit-norm W in units of token * query.

    With an entrywise norm, ``W = sign(M) |M|^(q-1)`` where ``M = sum dual (x_a - x_t) z^T`` and
    ``q = p / (p-1)``: ``sign(W) |W|^(p-1)`` lies in the cone of the active rows.  The norm is certified to the
    tolerance from p = 1.01 to p = 100; far beyond, expect an honest "iteration limit".

    In the max and the spectral norm several W may be as small (:attr:`Separation.unique`): ``W = h sign(M)`` where M is
    not zero, ``W = h U V^T`` on the range of ``M = U diag(s) V^T``, and within the ball elsewhere.  That normalised
    steepest descent in a norm goes to the SVM of that norm is proved for linear classifiers ("Implicit Bias of Spectral
    Descent and Muon on Multiclass Separable Data", 2025); for attention it is what the figure "optimisers" measures.

    Examples
    --------
    >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]])
    >>> sol = attsvm.solve_svm(data, [0])
    >>> sol.W
    array([[1., 0.],
           [0., 0.]])
    """
    if metric is not None and (reduce is not None or progress):
        raise ValueError("metric goes without reduce and progress")

    def ask() -> Request:
        """Checks the arguments of ``solve_svm`` and returns them as a Request."""
        check_data("data", data, shard=reduce is not None)
        kind, gap = as_norm("norm", norm), as_number("tol", tol, above=0.0)
        soft = None if C is None else as_number("C", C, above=0.0)
        cap = None if rank is None else as_count("rank", rank, 1)
        if C is not None and kind != "frobenius":
            raise ValueError(f"C goes with norm='frobenius', got norm={kind!r}")
        if rank is not None and kind != "nuclear":
            raise ValueError(f"rank goes with norm='nuclear', got norm={kind!r}")
        way = as_choice("method", method, {"auto": None} | methods_of(kind, soft, cap))
        most = 0 if max_iter is None else as_count("max_iter", max_iter, 1)
        selection = Selection(data, selected, margins)
        if hasattr(selected, "undecided") and (count := number_undecided(selected)[0]):
            warnings.warn(
                f"solve_svm: attention has not chosen for {count} of {len(data)} queries of the run, which selects by "
                "its largest probability there: train for more steps, or with a larger lr, unless tokens tie by equal "
                "scores or a zero query",
                ConvergenceWarning,
                stacklevel=3,
            )
        if selection.tied:
            warnings.warn(
                f"solve_svm: in {selection.tied} of {len(data)} queries of the run another token scores as much as the "
                "selected one: training asks nothing between the two, and neither does this SVM (margins=-inf)",
                stacklevel=3,
            )
        if reduce is not None:
            given = dict(C=C, rank=rank, margins=margins, warm_start=warm_start, progress=progress or None)
            for name, value in given.items():
                if value is not None:
                    raise ValueError(f"reduce goes without {name}")
            selection = selection.within(data)
        start = () if warm_start is None else as_start(data, warm_start, kind)
        return Request(selection, kind, way, gap, most, soft, cap, *start)

    if reduce is not None:
        sol = solve_sharded(data, ask, Workers(reduce))
    else:
        request = ask()
        request.norm = read_norm(request.norm, metric, *data._W_shape)
        if metric is None and (progress or data.keys.size > SMALL) and watched(progress):
            with closing_gap(tol, progress) as report:
                sol = solve_request(data, replace(request, report=report))
                report(sol.iterations, sol.gap)
        else:
            sol = solve_in_norm(data, request)
    for listen in listeners:
        listen(sol)
    if sol.status in ("iteration limit", "undecided"):
        warnings.warn(f"solve_svm: {sol.message}", ConvergenceWarning, stacklevel=2)
    return sol


def feasible(data: Data, selected: ArrayLike | Selecting, norm: Norm = "frobenius") -> Separation:
    """Decides whether some W ranks the selected tokens first, and stops as soon as this is known.

    Parameters
    ----------
    data : Data
    selected, norm : as in :func:`solve_svm`

    Returns
    -------
    Separation
        With status "feasible" (and a W with every margin at least 1, not of least norm), "infeasible" (with its
        certificate), "no constraint" or "undecided".  The largest margin of a unit-norm W lies in
        ``[margin, margin_bound]``, whose ends are within a factor of about 2.  The norm changes this interval, but
        never the answer.

    Raises
    ------
    ValueError, TypeError, KeyboardInterrupt
        As :func:`solve_svm`.

    Notes
    -----
    With random tokens and dimension at least max(T - 1, n), every selection is feasible.

    Examples
    --------
    >>> attsvm.feasible(attsvm.cross_attention(X, Z), [0, 1, 2, 3, 4, 5]).status
    'feasible'
    """
    check_data("data", data)
    norm = as_norm("norm", norm)
    sol = solve_request(data, Request(Selection(data, selected), norm, "auto", ROUGH))
    if sol.margin > 0 and sol.status != "no constraint":
        sol.status = "feasible"
    return sol


def as_start(data: Data, warm_start: Any, norm: str | float) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns what a warm-started solve begins with: the multipliers, one for each pair of a query and a token; and the
    weights, or None. Weights are used only if this problem and the given answer are both in the nuclear norm."""
    entries = data._entries
    if isinstance(warm_start, Separation):
        dual, W = warm_start.flat_dual, warm_start.W
        if len(dual) != entries:
            raise ValueError(
                f"warm_start must be an answer on data with as many entries as these, {entries}, got {len(dual)}"
            )
        serves = norm == warm_start.norm == "nuclear" and W is not None and W.shape == data._W_shape
        dual = np.where(np.isfinite(dual), dual, 0.0)  # multipliers of extreme data may overflow; those start at zero
        return dual, W if serves and np.isfinite(W).all() else None
    if hasattr(warm_start, "multipliers"):  # a training run was given: its last gradient has the form of multipliers
        warm_start = warm_start.multipliers
    return as_entries(data, "warm_start", warm_start), None
