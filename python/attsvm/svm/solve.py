"""The attention SVM: the least weights that separate the selected tokens from the rest."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _core
from ._check import as_choice, as_count, as_norm, as_number
from ._circle import circle
from ._progress import closing_gap
from ._selection import Selection
from ._sharded import solve_sharded
from ._warm import as_start
from ._workers import Workers
from .data import Data
from .separation import Separation

__all__ = ["ConvergenceWarning", "feasible", "solve_svm"]

METHODS = {
    "frobenius": {
        "gradient": _core.svm_gradient,
        "active": _core.svm_active,
        "block": _core.svm_block,
        "interior": _core.svm_interior_frobenius,
    },
    "nuclear": {"interior": _core.svm_interior, "factored": _core.svm_factored},
    "entrywise": {"barrier": _core.svm_barrier},
}
SOFT_METHODS = {"block": _core.svm_soft}
RANK_METHODS = {"factored": _core.svm_capped}
MAX_ITER = {"gradient": 20_000, "active": 1_000_000, "block": 1_000_000, "barrier": 1000}
# Interior point and factored method count their own iterations, not those of the Frobenius problem they start from.
MAX_ITER |= {"interior": 200, "factored": 20_000}
# The largest dense factor (128 MB) that the active set and the interior point may need.
DENSE_ROWS = 4000
# Rows up to which the active set beats every other method; more when there are enough per query, fewer when several
# tokens are selected: it then starts cold.
ACTIVE_ROWS, ACTIVE_ROWS_MANY, MANY, ACTIVE_ROWS_SEVERAL = 400, 800, 5, 100
INFEASIBLE = {word: code for code, word in _core.STATUS.items()}["infeasible"]
# Iterations of "block", per row, after which tokens are so correlated that the active set is quicker, which finishes on
# any support; but it takes about a minute where support times rows is so much.
BLOCK_PATIENCE, BLOCK_LEAST = 1 / 16, 100
ACTIVE_MOST = 100_000_000
# Bits of the selection per entry of W above which a problem is tight, and block ascent slow (measured).
TIGHT = 0.9
# Rows up to which the nuclear interior point beats the factored method, and up to which (of rows or dimensions) its
# working set stays affordable.
INTERIOR_ROWS, INTERIOR_AFFORDABLE = 100, 2000
# Gap at which `feasible` stops: the answer is yes, and the margin known within a factor of 2.
ROUGH = 1.0


class ConvergenceWarning(UserWarning):
    """A solver stopped before its tolerance; the answer holds within the bounds it carries."""


def solve_svm(
    data: Data,
    selected: Any,
    norm: str | float = "frobenius",
    *,
    tol: float = 1e-9,
    method: str = "auto",
    C: float | None = None,
    rank: int | None = None,
    margins: Any = None,
    max_iter: int | None = None,
    warm_start: Any = None,
    progress: bool = False,
    reduce: Callable[[np.ndarray], Any] | None = None,
) -> Separation:
    """``min ||W||  s.t.  (x_a - x_t)^T W z >= 1`` for the selected token a of each query and every other token t.

    With several selected tokens per query (a bool selection) their logits must be equal, and the margins hold
    between them and the rest.

    Parameters
    ----------
    data : Data
    selected : integer array_like (n,) or (n, S), or bool array_like (n, T) or (n, S, T), or lists of those
        One token per query, counted within its window; or, per entry, whether the token is selected.
    norm : {"frobenius", "nuclear"} or float p > 1
        Training W leads to the Frobenius solution, training K and Q to the nuclear one, mirror descent on W with
        the potential ``sum |W_ij|^p / p`` to that of the entrywise norm ``(sum |W_ij|^p)^(1/p)``.  2.0 is
        "frobenius".
    tol : float
        Relative gap between the certified bounds of the margin; a little more is accepted where rounding forbids it:
        100 * 2.2e-16 * (longest row) / margin, at most 2.2e-5.
    method : {"auto", "active", "block", "interior", "gradient", "factored", "barrier"}
        Frobenius: "active" (dual active set, exact), "block" (block-coordinate ascent, then primal-dual active
        set), "interior" (interior point, for tight problems) or "gradient" (projected gradient on the dual, the
        plain reference).  Nuclear: "interior" (interior point) or "factored" (augmented Lagrangian in ``W = K Q^T``,
        for large problems), both finished by Newton's method at fixed rank.  Entrywise: "barrier" (interior point).
    C : float, optional
        Soft margin for data that cannot be separated: ``min 1/2 ||W||_F^2 + C sum_t slack_t^2``, one slack per margin
        row, as scikit-learn scales the squared hinge; equality rows stay hard.  None: every row is met.
    rank : int, optional
        Cap on the rank of W, what K and Q with so many columns can reach; nuclear norm only.  Where it binds the
        problem is not convex: the answer is "stationary", with the bound of the problem without the cap.
    margins : array_like in the data's entry shape, optional
        What each entry's row must reach: ``(x_a - x_t)^T W z >= margins`` instead of 1, and ``=`` instead of
        ``= 0`` between several selected tokens.  Of any sign; that of the first selected token is not read.  Where
        some are not positive "block" and "gradient" may end "undecided"; "auto" then goes on.
    max_iter : int, optional
    warm_start : Separation or array_like in the data's entry shape, optional
        An answer of a problem like this one (another selection, norm, C or tol, data slightly moved), or multipliers
        shaped as its ``dual``; each entry that is a margin row here starts with its own.  The certificate decides as
        ever: a poor start costs time, never the answer.  "active", "block" and "gradient" begin there, and so does
        "factored", where an answer in the nuclear norm lets it begin at the end.  "interior" and "barrier" cannot,
        but for the Frobenius problem that they solve first where the norm is another.
    progress : bool
        Show the gap closing: a bar where tqdm is installed, else a line on stderr every second.
    reduce : callable, optional
        For queries sharded over processes, as in :func:`train`: adds a float64 vector up over all of them, in place.
        W and its bounds are those of all rows, ``dual`` or ``certificate`` the multipliers of the own ones.  Rows that
        hold W in place go round until no process has one that it breaks, so these should fit into the memory of one.
        Goes with neither C, rank, margins, warm_start nor progress.

    Returns
    -------
    Separation
        Certified: its bounds are recomputed from the tokens.

    Raises
    ------
    ValueError, TypeError
        Naming the argument that does not fit.
    KeyboardInterrupt
        On Ctrl-C, with the best answer so far in ``.partial``.

    Warns
    -----
    ConvergenceWarning
        When the solver stopped before the tolerance.

    Notes
    -----
    Source: Att-SVM and its nuclear twin in "Transformers as Support Vector Machines" (Tarzanagh, Li, Thrampoulidis,
    Oymak, 2023).  W is in units of 1 / (token * query), and the margin of a unit-norm W in units of token * query.

    With an entrywise norm, ``W = sign(M) |M|^(q-1)`` where ``M = sum dual (x_a - x_t) z^T`` and
    ``q = p / (p-1)``: ``sign(W) |W|^(p-1)`` lies in the cone of the active rows.  The norm is certified to the
    tolerance from p = 1.01 to p = 100; far beyond, expect an honest "iteration limit".

    Examples
    --------
    >>> import attsvm
    >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]])
    >>> sol = attsvm.solve_svm(data, [0])
    >>> sol.W
    array([[1., 0.],
           [0., 0.]])
    """
    if not isinstance(data, Data):
        raise TypeError(f"data must come from cross_attention or its siblings, got {type(data).__name__}")
    norm = as_norm("norm", norm)
    tol = as_number("tol", tol, above=0.0)
    if C is not None:
        C = as_number("C", C, above=0.0)
        if norm != "frobenius":
            raise ValueError(f"C goes with norm='frobenius', got norm={norm!r}")
    if rank is not None:
        rank = as_count("rank", rank, 1)
        if norm != "nuclear":
            raise ValueError(f"rank goes with norm='nuclear', got norm={norm!r}")
    methods = SOFT_METHODS if C is not None else RANK_METHODS if rank is not None else _methods(norm)
    as_choice("method", method, ("auto", *methods))
    most = None if max_iter is None else as_count("max_iter", max_iter, 1)
    selection = Selection(data, selected, margins)
    start = (None, None) if warm_start is None else as_start(data, warm_start, norm)

    def planned(data: Data, selection: Selection) -> tuple[str, ...]:
        if method != "auto":
            return (method,)
        return tuple(methods) if len(methods) == 1 else _plan(data, norm, start, selection.kept is not None)

    names = planned(data, selection)
    if reduce is not None:
        given = dict(C=C, rank=rank, margins=margins, warm_start=warm_start, progress=progress or None)
        for name in (name for name, value in given.items() if value is not None):
            raise ValueError(f"reduce goes without {name}")
        workers = Workers(reduce, len(data))
        settings = [tol, data.dk, data.dz, -1 if most is None else most]
        workers.agree(np.array([*settings, *map(ord, f"{norm} {method}")], dtype=np.float64))
        sol = solve_sharded(
            data, selection, norm, tol, workers,
            lambda d, s, tol: _solve(d, s, norm, planned(d, s), tol, most, None),
        )  # fmt: skip
    elif progress:
        with closing_gap(tol) as report:
            sol = _solve(data, selection, norm, names, tol, most, C, rank, (*start, report))
            report(sol.iterations, sol.gap)
    else:
        sol = _solve(data, selection, norm, names, tol, most, C, rank, (*start, None))
    if sol.status in ("iteration limit", "undecided"):
        warnings.warn(f"solve_svm: {sol.message}", ConvergenceWarning, stacklevel=2)
    return sol


def feasible(data: Data, selected: Any) -> Separation:
    """Whether some W ranks the selected tokens first, without solving to the end.

    Parameters
    ----------
    data : Data
    selected : as in :func:`solve_svm`

    Returns
    -------
    Separation
        With status "feasible" (and a W with every margin at least 1, not the smallest), "infeasible" (with its
        certificate), "no constraint" or "undecided".  The largest margin of a unit-norm W lies in
        ``[margin, margin_bound]``, an interval within a factor of 2 or so.

    Raises
    ------
    ValueError, TypeError, KeyboardInterrupt
        As :func:`solve_svm`.

    Notes
    -----
    With random tokens and dimension at least max(T - 1, n), every selection is feasible.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> attsvm.feasible(attsvm.cross_attention(X, Z), [0, 1, 2, 3, 4, 5]).status
    'feasible'
    """
    if not isinstance(data, Data):
        raise TypeError(f"data must come from cross_attention or its siblings, got {type(data).__name__}")
    sol = _solve(data, Selection(data, selected), "frobenius", _plan(data, "frobenius"), ROUGH, None, None)
    if sol.margin > 0 and sol.status != "no constraint":
        sol.status = "feasible"
    return sol


def _solve(
    data: Data,
    selection: Selection,
    norm: str | float,
    names: tuple[str, ...],
    tol: float,
    most: int | None,
    C: float | None,
    rank: int | None = None,
    begin: tuple = (None, None, None),
) -> Separation:
    """The named methods in turn, until one decides; else the best of what they found."""
    methods = SOFT_METHODS if C is not None else _methods(norm)
    if rank is not None:
        methods = {name: _with_rank(solver, rank) for name, solver in RANK_METHODS.items()}
    best = None
    if data._rows > ACTIVE_ROWS and C is None and (found := circle(data, selection)) is not None:
        dual = np.zeros(data.indptr[-1])
        dual[found] = 1.0
        answer = (INFEASIBLE, np.zeros((data.dk, data.dz)), dual, 0.0, 0.0, 0, -1, None)
        return Separation(data, selection, norm, names[0], C, answer)
    for name in names:
        limit = MAX_ITER[name]
        if name == "block" and "active" in names:
            limit = max(BLOCK_LEAST, int(BLOCK_PATIENCE * data._rows))
        elif name == "active" and best is not None and np.count_nonzero(best._dual) * data._rows > ACTIVE_MOST:
            continue
        answer = _call(methods[name], data, selection, tol, most or limit, C, norm, begin)
        sol = Separation(data, selection, norm, name, C, answer)
        best = sol if best is None or sol.gap <= best.gap else best
        if sol.status == "interrupted" or answer[-1] is not None:
            exception = answer[-1] or KeyboardInterrupt()
            exception.partial = best
            raise exception
        if sol.status not in ("iteration limit", "undecided"):
            return sol
    return best


def _methods(norm: str | float) -> dict[str, Any]:
    return METHODS[norm if isinstance(norm, str) else "entrywise"]


def _with_rank(solver: Any, rank: int) -> Any:
    return lambda *arguments: solver(*arguments, rank)


def _plan(data: Data, norm: str | float, start: tuple = (None, None), several: bool = False) -> tuple[str, ...]:
    """Methods to try in turn.  Choosing one of T tokens per query takes log2 T bits, and W holds about two per
    entry: short of that block ascent is quickest, near it the interior point; few rows are for the active set.  These
    two also take what block ascent cannot decide.  With a start (multipliers, weights) the methods that can use it
    come first."""
    if not isinstance(norm, str):
        return tuple(_methods(norm))
    rows = data._rows
    if norm == "frobenius":
        many = rows >= MANY * len(data)
        if rows <= (ACTIVE_ROWS_SEVERAL if several else ACTIVE_ROWS_MANY if many else ACTIVE_ROWS):
            return ("active", "interior")
    dimensions = data.dk * data.dz
    if norm == "nuclear":  # the interior point is sturdier, the factored method quicker except on few rows
        if rows <= INTERIOR_ROWS and start[1] is None:
            return ("interior", "factored")
        return ("factored", "interior") if min(rows, dimensions) <= INTERIOR_AFFORDABLE else ("factored",)
    if min(rows, dimensions) > DENSE_ROWS:
        return ("block", "active", "gradient")
    bits = len(data) * math.log2(1 + rows / len(data))
    if bits > TIGHT * dimensions and start[0] is None:
        return ("active", "interior") if rows <= ACTIVE_ROWS else ("interior", "active")
    return ("block", "active", "interior")


def _call(
    solver: Any,
    data: Data,
    selection: Selection,
    tol: float,
    max_iter: int,
    C: float | None,
    norm: str | float,
    begin: tuple,
) -> tuple:
    """The solver on data whose products are in range, its answer in the units given.  What it begins with (multipliers,
    weights, a report) has no units: it is scaled to fit."""
    handle, powers = data.in_range
    up = selection.power
    soft, p = 0.0 if C is None else C, 2.0 if isinstance(norm, str) else norm
    if powers is not None:
        soft = _scaled(soft, 2 * sum(powers))
    try:
        answer = solver(handle, selection.reference, selection.kept, selection.rhs, tol, max_iter, soft, p, *begin)
    except IndexError:
        raise ValueError(selection.outside(data)) from None
    if powers is None and up == 0:
        return answer
    code, W, dual, lower, upper, *rest = answer
    power = sum(powers or ())
    bounds = [_scaled(x, power - up if C is None else 2 * (up - power)) for x in (lower, upper)]
    if isinstance(norm, str):
        with np.errstate(
            over="ignore"
        ):  # multipliers go with the inverse square of the data and may leave the range
            dual = np.ldexp(dual, up - 2 * power)
    else:  # sum dual (x_a - x_t) z^T has the degree p - 1 in W; its scale is lost where it leaves double precision
        dual = dual * np.exp2(np.clip((p - 1) * up - p * power, -900, 900))
    return code, np.ldexp(W, up - power), dual, *bounds, *rest


def _scaled(number: float, power: int) -> float:
    try:
        return math.ldexp(number, power)
    except OverflowError:
        raise ValueError(
            "tokens times queries must stay within double precision, got margins beyond 1e308: divide X or Z"
        ) from None
