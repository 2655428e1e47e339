"""Several selected tokens per query: the sets that attention selects, and the direction in which the weights grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.data import Data, check_data
from ..attention.layout import Layout
from ..attention.selection import HIGH, LOW, Selection, undecided
from ..common.check import as_floats, as_norm, as_number, as_parts, is_ragged
from ..common.result import Lines, Solved
from ..common.types import Norm
from ..svm.methods import solve_request
from ..svm.request import Request
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from .conditions import correlation

LATE_SHOWN = 8  # largest number of queries that are listed by number


def selected_sets(probabilities: ArrayLike, low: float = LOW, high: float = HIGH) -> tuple[Any, Any]:
    """Returns which tokens each query selects (with probability ``high`` or more); and which queries are undecided.

    Tokens of probability at most ``low`` are not selected.  If a probability lies between ``low`` and ``high``, its
    query is undecided: the probability is still moving to one of the two sides.

    Parameters
    ----------
    probabilities : (..., T) array_like, or a list of those
        As :meth:`attsvm.Data.probabilities` gives them.
    low, high : float
        ``0 <= low < high <= 1``.

    Returns
    -------
    selected : (..., T) bool array, or a list
        What :func:`attsvm.solve_svm` takes, once every query is decided.
    undecided : (...) bool array, or a list
        Queries with a probability strictly between ``low`` and ``high``.

    Raises
    ------
    ValueError, TypeError
        When the probabilities are not between 0 and 1, or the thresholds not in order.

    Examples
    --------
    >>> selected, undecided = attsvm.theory.selected_sets([[0.6, 0.4, 1e-9], [0.99, 0.0099, 1e-4]])
    >>> selected
    array([[ True,  True, False],
           [ True,  True, False]])
    >>> undecided
    array([False,  True])
    """
    low, high = as_number("low", low, least=0.0), as_number("high", high, above=0.0)
    if not low < high <= 1:
        raise ValueError(f"low and high must be 0 <= low < high <= 1, got {low:g} and {high:g}")
    parts = as_parts("probabilities", probabilities, is_ragged(probabilities), _probabilities)
    if isinstance(parts, list):
        return [part >= high for part in parts], [undecided(part, False, low, high) for part in parts]
    return parts >= high, undecided(parts, False, low, high)


def _of_tokens(name: str, value: Any) -> np.ndarray:
    array = as_floats(name, value)
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name} must have shape (..., T), got {array.shape}")
    return array


def _probabilities(name: str, value: Any) -> np.ndarray:
    array = _of_tokens(name, value)
    if array.min() < 0 or array.max() > 1 + 1e-9:
        raise ValueError(f"{name} must lie between 0 and 1, got {array.min():g} to {array.max():g}")
    return array


@dataclass(repr=False, eq=False)
class Decomposition(Solved):
    """Trained weights as a finite part and a diverging direction: ``W ~ W_fin + R W_svm``.

    Attributes
    ----------
    data, status, message
        Of the ``solution``.
    selected : bool array or list, in the data's entry shape
        The tokens each query keeps.
    W_fin : (dk, dz) array
        The weights of least norm with ``(x_t - x_t')^T W z = log(p_t / p_t')`` for selected t, t': they set the
        proportions inside the selected sets.
    solution : Separation
        The general SVM, equal logits inside the sets and margins across them.
    W_svm : (dk, dz) array
        Its solution, the direction in which the weights grow; it suppresses all other tokens.
    R : float
        The component of W along W_svm, ``<W_svm, W - W_fin> / ||W_svm||^2``; 0 if every token is selected.
    W : (dk, dz) array
        ``W_fin + R W_svm``.
    correlation : float
        The correlation of ``W_fin + R W_svm`` with the given weights.
    probabilities : array or list, in the data's entry shape
        Attention of ``W_fin + R W_svm``.
    unconverged : bool array or list, in the data's query shape
        Queries that W separates less than half as far as ``W_fin + R W_svm`` does.  The separation is the largest logit
        inside the selected set minus the largest outside.  Such queries do not follow the others, for example because
        of a dead ReLU in the head.  If R is not positive, the queries whose sets W does not separate.
    """

    selected: Any
    W_fin: np.ndarray
    solution: Separation
    W_svm: np.ndarray
    R: float
    W: np.ndarray
    correlation: float
    probabilities: Any
    unconverged: Any

    def _title(self) -> str:
        kept = sum(part.sum() for part in self.selected)
        return f"W ~ W_fin + R W_svm, {kept} tokens selected, {self.solution.norm_name} norm"

    def _lines(self) -> Lines:
        lines = [
            ("norm of W_fin", f"{np.linalg.norm(self.W_fin):.6g}"),
            ("norm of W_svm", f"{np.linalg.norm(self.W_svm):.6g} ({self.status})"),
            ("R", f"{self.R:.6g}"),
            ("correlation", f"{self.correlation:.9g}"),
        ]
        late = np.flatnonzero(self.data._layout.flatten_queries("unconverged", self.unconverged))
        if len(late):  # queries that have not converged are named, since the correlation alone does not show them
            shown = ", ".join(map(str, late[:LATE_SHOWN])) + ", ..." * (len(late) > LATE_SHOWN)
            queries = "query" if len(late) == 1 else "queries"
            why = "less than half as far as R says" if self.R > 0 else "W does not separate these sets"
            lines.append(("not converged", f"{queries} {shown}: {why}"))
        return lines

    def columns(self) -> dict[str, Any]:
        columns = self.solution.columns()
        probabilities = self.data._layout.flatten_entries("probabilities", self.probabilities, hidden=True)
        return {name: columns[name] for name in ("query", "token", "selected")} | {"probability": probabilities}


def decompose(
    data: Data, probabilities: ArrayLike, W: ArrayLike, norm: Norm = "frobenius", *, selected: ArrayLike | None = None
) -> Decomposition:
    """Splits trained weights into ``W_fin + R W_svm``, a finite part and a part that grows as training goes on.

    W_fin sets the proportions inside the selected sets; W_svm separates these sets from the other tokens.

    Parameters
    ----------
    data : Data
    probabilities : array_like in the data's entry shape
        Attention at the end of training.
    W : (dk, dz) array_like
        The trained weights.
    norm : {"frobenius", "nuclear", "max", "spectral"} or float p > 1
        The norm of both parts; "nuclear" if K and Q were trained.
    selected : bool array_like in the data's entry shape, optional
        The sets; those of :func:`selected_sets` by default, which must have decided every query.

    Returns
    -------
    Decomposition

    Raises
    ------
    ValueError, TypeError
        If queries are not decided yet, a selected token has probability zero, no W separates the sets, or no W gives
        the proportions.  The message names the argument.

    Notes
    -----
    Source: the decomposition for general heads in "Transformers as Support Vector Machines" (Tarzanagh, Li,
    Thrampoulidis, Oymak, 2023).  For the Frobenius norm W_fin is orthogonal to W_svm.

    Examples
    --------
    >>> X, Z, y, v = attsvm.sample.unit_sphere(2, 4, 6)
    >>> data = attsvm.cross_attention(X, Z)
    >>> svm = attsvm.solve_svm(data, [[True, True, False, False], [False, True, False, True]])
    >>> parts = attsvm.theory.decompose(data, data.probabilities(30 * svm.W), 30 * svm.W)
    >>> print(f"{parts.R:.6f} {parts.correlation:.6f} {abs(parts.W_fin).max() < 1e-12}")
    30.000000 1.000000 True
    """
    check_data("data", data)
    norm = as_norm("norm", norm)
    W = as_floats("W", W, "dk, dz", data._W_shape)
    parts = as_parts("probabilities", probabilities, not data._layout.uniform, _probabilities)
    p = data._layout.flatten_entries("probabilities", parts)
    if selected is None:
        selected, late = selected_sets(parts)
        late = np.flatnonzero(np.hstack(late))
        if late.size:
            raise ValueError(
                f"probabilities must be decided, at most 1e-6 or at least 1e-3, got {late.size} "
                f"quer{'y' if late.size == 1 else 'ies'} with one in between (the first is query "
                f"{late[0]}): train longer, or say which tokens count by selected="
            )
    kept = Selection(data, selected).kept
    if kept is None:
        raise TypeError("selected must be bools, one per entry, got one token per query")
    if (p[kept] <= 0).any():
        raise ValueError("probabilities must be positive at the selected tokens")
    svm = solve_svm(data, selected, norm)
    if svm.W is None:
        raise ValueError(f"no W separates the selected sets: {svm.message}")
    W_fin = _finite_part(data, kept, p, norm)
    largest = np.abs(svm.W).max() or 1.0
    direction = svm.W / largest
    R = float(np.vdot(direction, W - W_fin) / (np.vdot(direction, direction) or 1.0) / largest)
    total = W_fin + R * svm.W
    logits = np.stack([data._logits(W), data._logits(total)])
    inside, outside = (
        np.maximum.reduceat(np.where(part, logits, -np.inf), data._begin, axis=1) for part in (kept, ~kept)
    )
    # for each query, the largest logit of its selected tokens minus the largest logit of its other tokens
    here, said = inside - outside
    behind = (here < said / 2) & (said > 0) if R > 0 else here <= 0
    return Decomposition(
        data._layout.shape_entries(kept),
        W_fin,
        svm,
        svm.W,
        R,
        total,
        correlation(total, W),
        data.probabilities(total),
        data._layout.shape_queries(behind),
    )


def _finite_part(data: Data, kept: np.ndarray, p: np.ndarray, norm: str | float) -> np.ndarray:
    """The weights of least norm under which attention has the given log ratios within each set of selected tokens.

    They solve the SVM of the selected tokens alone, in which every row is an equality ``(x_ref - x_t)^T W z = log(p_ref
    / p_t)``.
    """
    lengths = np.add.reduceat(kept, data._begin, dtype=np.intp)
    layout = Layout(lengths, np.ones_like(lengths), single=True)
    alone = Data("selected tokens", np.ascontiguousarray(data.keys[data._token_of()[kept]]), data.queries, None, layout)
    selection, logs = Selection(alone, layout.shape_entries(kept[kept])), np.log(p[kept])  # all tokens are selected
    selection.rhs = np.repeat(logs[alone._begin], lengths) - logs
    # the nuclear norm's interior-point method needs margin rows, and there are none; the factored method does not
    sol = solve_request(alone, Request(selection, norm, "factored" if norm == "nuclear" else "auto", 1e-9))
    if sol.status not in ("optimal", "no constraint"):
        raise ValueError(f"no W has these probabilities at the selected tokens: {sol.status}")
    return sol.W  # W is not None, since the status is optimal or no constraint


def tokens_kept(scores: ArrayLike, lam: float) -> Any:
    """The exact number of tokens that attention keeps under the head ``v.x - lam |x|^2`` on orthonormal tokens.

    Over the simplex, ``scores . s - lam |s|^2`` is largest at the projection of ``scores / (2 lam)``.  With the scores
    ``v.x`` sorted downwards and ``gap_t = score_t - score_(t+1)``, it has k nonzero entries if and only if
    ``sum_(t<k) t gap_t < 2 lam <= sum_(t<=k) t gap_t``.

    Parameters
    ----------
    scores : (..., T) array_like
        Scores ``v . x_t`` of the tokens of each query, labels +1.
    lam : float
        Not negative; at 0 one token is kept, the best.

    Returns
    -------
    (...) integer array, or an integer

    Examples
    --------
    >>> [int(attsvm.theory.tokens_kept([1.0, 0.8, 0.3, 0.0], lam)) for lam in (0.0, 0.05, 0.2, 0.7, 2.0)]
    [1, 1, 2, 3, 4]
    """
    lam = as_number("lam", lam, least=0.0)
    gaps = np.diff(np.sort(_of_tokens("scores", scores), axis=-1), axis=-1)[..., ::-1]
    reached = np.cumsum(np.arange(1, gaps.shape[-1] + 1) * gaps, axis=-1) < 2 * lam
    return 1 + reached.sum(axis=-1)
