"""The attention SVM: the least weights that separate the selected tokens from the rest."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np

from . import _core
from ._check import as_choice, as_count, as_norm, as_number
from .data import Data

__all__ = ["ConvergenceWarning", "Separation", "feasible", "solve_svm"]

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
MAX_ITER = {"gradient": 20_000, "active": 1_000_000, "block": 1_000_000, "barrier": 200}
# Interior point and factored method count their own iterations, not those of the Frobenius problem they start from.
MAX_ITER |= {"interior": 200, "factored": 20_000}
# The largest dense factor (128 MB) that the active set and the interior point may need.
DENSE_ROWS = 4000
# Rows up to which the active set beats the interior point.
ACTIVE_ROWS = 400
# Bits of the selection per entry of W above which a problem is tight, and block ascent slow (measured).
TIGHT = 0.9
# Rows up to which the nuclear interior point beats the factored method, and up to which (of rows or dimensions) its
# working set stays affordable.
INTERIOR_ROWS, INTERIOR_AFFORDABLE = 100, 2000
# Gap at which `feasible` stops: the answer is yes, and the margin known within a factor of 2.
ROUGH = 1.0
# Singular values below this part of the largest are not part of the rank: a gap of 1e-9 fixes W to about 5e-5.
RANK_TOLERANCE = 1e-4


class ConvergenceWarning(UserWarning):
    """A solver stopped before its tolerance; the answer holds within the bounds it carries."""


class Separation:
    """The answer of :func:`solve_svm`, with its certificate.

    Attributes
    ----------
    status : str
        "optimal", "infeasible", "no constraint", "iteration limit" or "undecided"; with a rank cap that binds,
        "stationary".
    W : (dk, dz) array or None
        The least-norm weights with every margin at least 1; the best known on "iteration limit"; zero on
        "no constraint"; None on "infeasible" and "undecided".
    margin, margin_bound : float
        The largest margin of a unit-norm W lies in [margin, margin_bound]: the first is reached by ``W``, the second
        proved by ``dual``.  Both are computed from the tokens, not taken from the solver.  A rank cap that binds lowers
        the first alone: the second is that of the problem without it.
    gap : float
        ``margin_bound / margin - 1``.
    dual : array or list, in the data's entry shape, or None
        One multiplier per entry: nonnegative on margin rows, free on equality rows, 0 on the reference (first
        selected) token; ``W`` is ``sum dual (x_ref - x_t) z^T`` for the Frobenius norm.
    certificate : array or list, in the data's entry shape, or None
        When infeasible, multipliers that combine the rows to zero (Farkas): no W exists.
    support : boolean array or list
        Where the dual of a margin row is positive: the tokens that hold the solution in place.
    objective, objective_bound : float
        ``1/2 ||W||^2`` reached by ``W`` (with a soft margin, plus ``C`` times the squared slacks), and the bound that
        ``dual`` proves.  A soft margin has no margin interval; ``gap`` is ``objective / objective_bound - 1``.
    slack : array or list, in the data's entry shape, or None
        With a soft margin, by how much each row falls short: ``dual / (2 C)``.
    rank : int
        Singular values of W above 1e-4 of the largest.
    norm, method, iterations, message
    """

    def __init__(
        self, data: Data, selection: Selection, norm: str | float, method: str, C: float | None, answer: tuple
    ):
        code, W, dual, lower, upper, self.iterations, entry, _ = answer
        self.data, self.norm, self.method, self.C = data, norm, method, C
        self.status = "optimal" if code == 0 else _core.STATUS[code]
        self._dual, self._selection, self._entry = dual, selection, entry
        self.W: np.ndarray | None = W
        if C is not None:
            self.objective, self.objective_bound = upper, lower
            self.margin = self.margin_bound = math.nan
            self.gap = _gap(lower, upper) if lower > 0 else 0.0 if upper == 0 else math.inf
            return
        if self.status == "infeasible" or not (lower > 0 or self.status in ("optimal", "no constraint")):
            self.W = None
        self.margin = lower if self.status != "infeasible" else 0.0
        self.margin_bound = upper
        self.gap = _gap(lower, upper) if self.W is not None else math.inf
        self.objective = 0.5 / self.margin / self.margin if self.W is not None else math.inf
        self.objective_bound = 0.5 / upper / upper if upper > 0 else math.inf

    @property
    def dual(self) -> Any:
        return None if self.status == "infeasible" else self.data.layout.shape_entries(self._dual, 0.0)

    @property
    def certificate(self) -> Any:
        return self.data.layout.shape_entries(self._dual, 0.0) if self.status == "infeasible" else None

    @property
    def slack(self) -> Any:
        if self.C is None:
            return None
        slack = self._dual / (2 * self.C)
        if self._selection.kept is not None:
            slack = np.where(self._selection.kept, 0.0, slack)  # equality rows are hard
        return self.data.layout.shape_entries(slack, 0.0)

    @functools.cached_property
    def support(self) -> Any:
        positive = self._dual > 0
        if self._selection.kept is not None:
            positive &= ~self._selection.kept
        return self.data.layout.shape_entries(positive, False)

    @functools.cached_property
    def rank(self) -> int | None:
        if self.W is None:
            return None
        sigma = np.linalg.svd(self.W, compute_uv=False)
        return int((sigma > RANK_TOLERANCE * sigma[0]).sum()) if sigma[0] > 0 else 0

    @property
    def message(self) -> str:
        """One sentence on what the status means here."""
        if self.status == "optimal" and self.C is not None:
            return f"no W has a smaller soft-margin objective (C={self.C:g}), to a relative {self.gap:.1e}"
        if self.status == "optimal":
            return (
                f"every margin is at least 1 and no smaller {self._norm} norm does it, "
                f"to a relative {self.gap:.1e}"
            )
        if self.status == "feasible":
            return "every margin is at least 1, though not with the least norm"
        if self.status == "no constraint":
            return "every query selects all the tokens it can tell apart, so zero weights do"
        if self.status == "infeasible":
            return self._impossible_pair() or (
                "no weights rank the selected tokens first: the certificate combines the rows to zero"
            )
        if self.status == "stationary":
            return f"a stationary point at this rank; its norm is at most {1 + self.gap:.6g} times the least"
        if self.status == "undecided":
            return "no separating weights were found, and no proof that there are none"
        return f"stopped before the tolerance; the bounds hold to a relative {self.gap:.1e}"

    @property
    def _norm(self) -> str:
        return self.norm if isinstance(self.norm, str) else f"entrywise l{self.norm:g}"

    def _impossible_pair(self) -> str | None:
        """The token that is a copy of the selected one, or the query that is zero."""
        if self._entry < 0:
            return None
        q = int(np.searchsorted(self.data.indptr, self._entry, side="right")) - 1
        token, chosen = int(self._entry - self.data.indptr[q]), int(self._selection.reference[q])
        if not self.data.queries[q].any():
            return f"query {q} is zero, so all its logits are 0 and it cannot prefer token {chosen}"
        return (
            f"in the window of query {q}, token {token} equals the selected token {chosen}, so no weights can prefer "
            "one: select both by a bool selection, which asks for equal logits among the selected tokens"
        )

    def __repr__(self) -> str:
        lines = [f"Separation in the {self._norm} norm: {self.status}", f"  {self.message}"]
        if self.W is not None:
            if self.C is None:
                lines.append(f"  margin      {self.margin:.12g} (at most {self.margin_bound:.12g})")
            else:
                lines.append(f"  objective   {self.objective:.12g} (at least {self.objective_bound:.12g})")
            lines += [
                f"  norm of W   {1 / self.margin if self.margin > 0 else np.linalg.norm(self.W):.12g}",
                f"  rank        {self.rank}",
                f"  support     {int(np.concatenate([np.ravel(s) for s in _listed(self.support)]).sum())} tokens",
                f"  method      {self.method}, {self.iterations} iterations",
            ]
        return "\n".join(lines)


def _gap(lower: float, upper: float) -> float:
    """upper / lower - 1; rounding may put two bounds of the same number in the wrong order."""
    return 0.0 if lower == math.inf else max(upper / lower - 1, 0.0)


def _listed(shaped: Any) -> list:
    return shaped if isinstance(shaped, list) else [shaped]


def solve_svm(
    data: Data,
    selected: Any,
    norm: str | float = "frobenius",
    *,
    tol: float = 1e-9,
    method: str = "auto",
    C: float | None = None,
    rank: int | None = None,
    max_iter: int | None = None,
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
        100 * 2.2e-16 * (longest row) / margin.
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
    max_iter : int, optional

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
    selection = Selection(data, selected)
    if method != "auto":
        names = (method,)
    else:
        names = tuple(methods) if len(methods) == 1 else _plan(data, norm)
    sol = _solve(data, selection, norm, names, tol, most, C, rank)
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
) -> Separation:
    """The named methods in turn, until one decides; else the best of what they found."""
    methods = SOFT_METHODS if C is not None else _methods(norm)
    if rank is not None:
        methods = {name: _with_rank(solver, rank) for name, solver in RANK_METHODS.items()}
    best = None
    for name in names:
        answer = _call(methods[name], data, selection, tol, most or MAX_ITER[name], C, norm)
        sol = Separation(data, selection, norm, name, C, answer)
        if sol.status not in ("iteration limit", "undecided"):
            break
        best = sol if best is None or sol.gap < best.gap else best
    else:
        return best
    if sol.status == "interrupted":
        exception = answer[-1] or KeyboardInterrupt()
        exception.partial = sol
        raise exception
    return sol


def _methods(norm: str | float) -> dict[str, Any]:
    return METHODS[norm if isinstance(norm, str) else "entrywise"]


def _with_rank(solver: Any, rank: int) -> Any:
    return lambda *arguments: solver(*arguments, rank)


def _plan(data: Data, norm: str | float) -> tuple[str, ...]:
    """Methods to try in turn.  Choosing one of T tokens per query takes log2 T bits, and W holds about two per
    entry: short of that block ascent is quickest, near it the active set (few rows) or the interior point.  These
    two also take what block ascent cannot decide."""
    if not isinstance(norm, str):
        return tuple(_methods(norm))
    rows, dimensions = int(data.indptr[-1]) - len(data), data.dk * data.dz
    if norm == "nuclear":  # the interior point is sturdier, the factored method quicker except on few rows
        if rows <= INTERIOR_ROWS:
            return ("interior", "factored")
        return ("factored", "interior") if min(rows, dimensions) <= INTERIOR_AFFORDABLE else ("factored",)
    if rows <= 100:
        return ("active",)
    if min(rows, dimensions) > DENSE_ROWS:
        return ("block", "gradient")
    exact = ("active", "interior") if rows <= ACTIVE_ROWS else ("interior", "active")
    bits = len(data) * math.log2(1 + rows / len(data))
    return exact if bits > TIGHT * dimensions else ("block", *exact)


def _call(
    solver: Any, data: Data, selection: Selection, tol: float, max_iter: int, C: float | None, norm: str | float
) -> tuple:
    """The solver on data whose products are in range, its answer in the units given."""
    handle, powers = data.in_range
    soft, p = 0.0 if C is None else C, 2.0 if isinstance(norm, str) else norm
    if powers is not None:
        soft = math.ldexp(soft, 2 * sum(powers))
    try:
        answer = solver(handle, selection.reference, selection.kept, None, tol, max_iter, soft, p)
    except IndexError:
        raise ValueError(selection.outside(data)) from None
    if powers is None:
        return answer
    code, W, dual, lower, upper, *rest = answer
    power = sum(powers)
    bounds = [math.ldexp(x, power if C is None else -2 * power) if math.isfinite(x) else x for x in (lower, upper)]
    if isinstance(norm, str):
        with np.errstate(
            over="ignore"
        ):  # multipliers go with the inverse square of the data and may leave the range
            dual = np.ldexp(dual, -2 * power)
    else:  # sum dual (x_a - x_t) z^T has the degree p - 1 in W; its scale is lost where it leaves double precision
        dual = dual * np.exp2(np.clip(-p * power, -900, 900))
    return code, np.ldexp(W, -power), dual, *bounds, *rest


class Selection:
    """A checked selection: the reference (first selected) token of each query, and all of them when several are."""

    __slots__ = ("kept", "reference")

    def __init__(self, data: Data, selected: Any):
        layout = data.layout
        if not layout.uniform and isinstance(selected, (list, tuple)) and any(map(_has_parts, selected)):
            array: Any = [_as_integers_or_bools(f"selected[{i}]", part) for i, part in enumerate(selected)]
            boolean = array[0].dtype == bool
        else:
            array = _as_integers_or_bools("selected", selected)
            boolean = array.dtype == bool
        self.kept = None
        if boolean:
            self.kept = np.ascontiguousarray(layout.flatten_entries("selected", array))
            some = np.logical_or.reduceat(self.kept, data.indptr[:-1])
            if not some.all():
                raise ValueError(f"selected must hold a token for every query, got none for query {some.argmin()}")
            self.reference = _core.top(data._handle, self.kept.astype(np.float64))
            return
        self.reference = np.ascontiguousarray(layout.flatten_queries("selected", array), dtype=np.intp)

    def outside(self, data: Data) -> str:
        """What to say when C has found a reference outside its window (checked there, since it is on every call)."""
        lengths = data.stop - data.start
        q = int(((self.reference < 0) | (self.reference >= lengths)).argmax())
        return (
            f"selected must be token indices of each window, 0 .. {lengths[q] - 1} for query {q}, "
            f"got {self.reference[q]}"
        )


def _has_parts(part: Any) -> bool:
    return isinstance(part, (list, tuple)) or getattr(part, "ndim", 0) > 0


def _as_integers_or_bools(name: str, value: Any) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a plain array, got a masked array")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name} must be a rectangular array: {error}") from None
    if array.dtype.kind not in "iub":
        raise TypeError(f"{name} must hold integers (one token per query) or bools (per entry), got {array.dtype}")
    return array
