"""The answer of an attention SVM, with its certificate."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..attention.data import Data, fits
from ..common.check import as_choice, as_count, as_norm, as_number, as_numeric, check_shape
from ..common.norms import Metric, as_metric, norm_name
from ..common.result import Lines, Result, interval_bar
from .request import Answer, Request
from .support import holding, is_unique

# Singular values of W below this fraction of the largest do not count for its rank.
# An answer with a gap of 1e-9 fixes W only to about 5e-5, so smaller singular values may be errors.
RANK_TOLERANCE = 1e-4
# attributes of a Separation that a file keeps, besides the attribute ``answer`` (what the solver returned)
STATE = ("data", "selection", "norm", "method", "C", "status")
ROWS_SHOWN = 4  # largest number of rows of a certificate that the message lists one by one


class Separation(Result):
    """The answer of :func:`solve_svm`: weights W, bounds of the largest margin, and the multipliers that prove them.

    Attributes
    ----------
    status : str
        "optimal", "infeasible", "no constraint", "iteration limit" or "undecided"; with a rank cap that binds,
        "stationary".
    W : (dk, dz) array or None
        The least-norm weights with every margin at least 1 (or what ``margins=`` asks); the best known on
        "iteration limit"; zero on "no constraint"; None on "infeasible" and "undecided".
    margin, margin_bound : float
        The largest margin of a unit-norm W lies in [margin, margin_bound]: the first is reached by ``W``, the second
        proved by ``dual``.  Both are computed from the tokens, not taken from the solver.  A rank cap that binds lowers
        the first only; the second is the bound of the problem without the cap.  With ``margins=`` the interval is of
        1 / the least norm instead.
    gap : float
        ``margin_bound / margin - 1``.
    dual : array or list, in the data's entry shape, or None
        One multiplier per entry: nonnegative on margin rows, of either sign on equality rows, 0 on the reference (first
        selected) token.  For the Frobenius norm ``W`` is ``sum dual (x_ref - x_t) z^T``; only up to a factor if the
        multipliers would leave double precision while W does not (extreme scales of tokens and queries).
    certificate : array or list, in the data's entry shape, or None
        When infeasible, multipliers of order one with which the rows add up to zero (Farkas): no W exists.  Rounding
        might hide a W of very large norm; ``message`` says above which norm.
    support : boolean array or list
        The support tokens, which hold the solution in place.  A margin row counts if its multiplier, times the size of
        the row (the largest number in x_ref - x_t times that in z) and divided by the largest such product, is above
        1e-12 and above the relative excess of the margin over what is asked.  Exactly, multiplier or excess is zero;
        rounding and interior points leave small positive values of both.
    objective, objective_bound : float
        ``1/2 ||W||^2`` reached by ``W`` (with a soft margin, plus ``C`` times the squared slacks), and the bound that
        ``dual`` proves.  A soft margin has no margin interval; ``gap`` is ``objective / objective_bound - 1``.
    slack : array or list, in the data's entry shape, or None
        With a soft margin, by how much each row falls short: ``dual / (2 C)``.
    rank : int
        Singular values of W above 1e-4 of the largest.
    selected : integer array or list, in the data's query shape; or bool, in its entry shape
        What was to be separated.
    unique : bool or None
        Whether W is the only one of least norm.  It always is in the Frobenius and entrywise norms.  In the other norms
        None if rounding does not allow a decision, or if the rows of other processes would be needed.
    method : str
        The method that found the answer.  "presolve": no method had to run, because a token equals the selected one, a
        query is zero, preferences form a cycle, or nothing is asked.  "newton": Newton's method for a large
        vocabulary, whose unknowns are the levels of the contexts (:func:`attsvm.theory.soft_labels`).
    norm : str or float
        Of the weights, as :func:`solve_svm` names it.
    metric : (dk, dz) array, tuple (P, R) or None
        The metric of the weights, as given to :func:`solve_svm`; ``norm`` is then that metric.
    iterations : int
        The number of iterations of the method that answered; their meaning depends on the method.
    message : str
        What the status means here, in a sentence.
    """

    _hidden = ("data", "selection", "answer")
    _derived = (
        *("message", "margin", "margin_bound", "gap", "objective", "objective_bound", "W", "rank", "iterations"),
        *("selected", "dual", "certificate", "support", "slack"),
    )
    _least_width = 12

    def __init__(self, data: Data, request: Request, answer: Answer):
        self.data, self.selection, self.norm, self.C = data, request.selection, request.norm, request.C
        self.method = answer.method or request.method
        self.status = "optimal" if answer.status == 0 else _core.STATUS[answer.status]
        self.answer = answer  # the solver's answer, in the units of the data

    @property
    def metric(self) -> Any:
        return self.norm.value if isinstance(self.norm, Metric) else None

    @property
    # W is declared Any although it may be None, so that type checkers do not demand a test before every use
    def W(self) -> np.ndarray | Any:
        none = self.status == "infeasible" or self.C is None and not self.answer.lower > 0
        return None if none else self.answer.W

    @property
    def margin(self) -> float:
        return math.nan if self.C is not None else self.answer.lower if self.status != "infeasible" else 0.0

    @property
    def margin_bound(self) -> float:
        return math.nan if self.C is not None else self.answer.upper

    @property
    def gap(self) -> float:
        lower, upper = self.answer.lower, self.answer.upper
        if self.W is None:
            return math.inf
        if upper == 0 or lower == math.inf:
            return 0.0
        # rounding may swap the two bounds if they are equal
        return max(upper / lower - 1, 0.0) if lower > 0 else math.inf

    @property
    def objective(self) -> float:
        if self.C is not None:
            return self.answer.upper
        return 0.5 / self.margin / self.margin if self.margin > 0 else math.inf

    @property
    def objective_bound(self) -> float:
        upper = self.answer.upper
        return self.answer.lower if self.C is not None else 0.5 / upper / upper if upper > 0 else math.inf

    @property
    def selected(self) -> Any:
        layout, kept = self.data._layout, self.selection.kept
        return layout.shape_queries(self.selection.reference) if kept is None else layout.shape_entries(kept)

    @property
    def iterations(self) -> int:
        return self.answer.iterations

    @property
    def flat_dual(self) -> np.ndarray:
        return self.answer.dual

    @property
    def flat_margins(self) -> np.ndarray:
        """The margin of each entry (pair of a query and a token) under W, infinite at the reference tokens."""
        return self.data._flat_margins(self.W, self.selection.reference)

    @property
    def dual(self) -> Any:
        return None if self.status == "infeasible" else self.data._layout.shape_entries(self.flat_dual)

    @property
    def certificate(self) -> Any:
        return self.data._layout.shape_entries(self.flat_dual) if self.status == "infeasible" else None

    @property
    def slack(self) -> Any:
        if self.C is None:
            return None
        # rows between selected tokens are equalities, which have no slack
        data = self.data
        return data._layout.shape_entries(np.where(self.selection.flags(data), 0.0, self.flat_dual / (2 * self.C)))

    @cached_property
    def support(self) -> Any:
        return self.data._layout.shape_entries(self.flat_support)

    flat_support = cached_property(holding)  # the support tokens as a flat array
    unique = cached_property(is_unique)

    @cached_property
    def rank(self) -> int | None:
        return None if self.W is None else int(np.linalg.matrix_rank(self.W, rtol=RANK_TOLERANCE))

    @property
    def message(self) -> str:
        """A sentence that says what the status means for this problem."""
        status, soft, asked = self.status, self.C is not None, self.selection.rhs is not None
        if status == "optimal":
            if soft:
                return f"no W has a smaller soft-margin objective (C={self.C:g}), to a relative {self.gap:.1e}"
            return (
                f"every margin is at least {'what was asked' if asked else 1} and no smaller {self.norm_name} norm "
                f"does it, to a relative {self.gap:.1e}"
            )
        if status == "feasible":
            return "every margin is at least 1; the least norm was not asked for"
        if status == "no constraint":
            if self.objective > 0:  # of a soft margin
                return "zero weights are best: the whole objective is the slack of rows that no W changes"
            everything = "every query selects all the tokens it can tell apart, so zero weights do"
            return "zero weights reach every margin asked" if asked else everything
        if status == "infeasible":
            what = "reach these margins" if asked else "rank the selected tokens first"
            impossible = _impossible(self, what)
            # C goes with norms that have a square, and rows between selected tokens stay hard
            equal = self.flat_dual[self.selection.flags(self.data)].any()
            if soft or equal or not (self.norm == "frobenius" or isinstance(self.norm, Metric)):
                return impossible
            return f"{impossible}; solve_svm(..., C=1.0) allows for exceptions"
        if status == "stationary":
            return f"a stationary point at this rank; its norm is at most {1 + self.gap:.6g} times the least"
        if status == "undecided":
            cap = " (of this rank, where rank= caps it)" if self.method == "factored" else ""
            return f"no separating weights were found{cap}, and no proof that there are none"
        return f"stopped before the tolerance; its two bounds are a relative {self.gap:.1e} apart"

    @property
    def norm_name(self) -> str:
        return norm_name(self.norm)

    def select(self, data: Data) -> Any:
        """The token that ``W`` prefers for each query of other data; the lowest index on a tie.

        Parameters
        ----------
        data : Data
            With tokens and queries of the same lengths.

        Returns
        -------
        (n,) or (n, S) integer array, or a list of (S_i,) arrays

        Raises
        ------
        ValueError
            Without weights, or for tokens or queries of another length.

        Examples
        --------
        >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 1.0]]], [[1.0]])
        >>> sol = attsvm.solve_svm(data, [1])
        >>> sol.select(attsvm.cross_attention([[[0.0, 2.0], [3.0, 3.5], [1.0, 0.0]]], [[1.0]]))
        array([0])
        """
        if self.W is None:
            raise ValueError(f"there are no weights to select by, the answer is {self.status}: {self.message}")
        fits(data, self.W)
        return data.select(self.W)

    def prove(self, path: Any, without: int | None = None) -> str:
        """Writes a proof in exact arithmetic that anybody can check with ``attsvm/check.py`` alone.

        The file is JSON with tokens, queries, selection and witnesses as hexadecimal doubles.  The checker needs only
        the standard library: ``python -S -I check.py FILE``.  The proof is about these doubles as exact numbers.  It
        states that the least norm lies between two fractions; or that no W exists; or, if the rows add up to zero only
        up to rounding, that every W has more than some norm.  Tokens that no query sees are left out.

        Parameters
        ----------
        path : path
            Compressed where the name ends in ``.gz``.
        without : int, optional
            The number of a sequence.  If it has no part in the answer, the proof also states that the same bounds hold
            without its rows.  Otherwise the answer without that sequence is solved and proved.

        Returns
        -------
        str
            The theorem, in words and numbers.

        Raises
        ------
        ValueError
            With the reason, and no file is written, where it is not proved: a status that proves nothing, a problem
            beyond the checker's limits, a contradiction only within rounding.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]])
        >>> sol = attsvm.solve_svm(data, [0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sol.prove(pathlib.Path(folder) / "answer.json")
        'every W with these margins has Frobenius norm above 0.999999999; one has 1 (gap 0)'
        """
        from .proof import write_proof

        return write_proof(self, path, without)

    def proved_gap(self) -> Fraction:
        """The relative gap of the margin's two bounds as an exact fraction, proved as by :meth:`prove`.

        No file is written.

        Returns
        -------
        Fraction

        Raises
        ------
        ValueError
            With the reason, if it is not proved; also for an infeasible answer, whose proof has no gap.

        Examples
        --------
        >>> float(attsvm.solve_svm(attsvm.cross_attention(X, Z), [0, 1, 2, 3, 4, 5]).proved_gap()) < 1e-9
        True
        """
        from .proof import proved

        *_, gap = proved(self)
        if gap is None:
            raise ValueError("it is proved which W are excluded, and there is no gap")
        return gap

    def influence(self) -> Any:
        """The influence of each sequence on this answer: its multiplier, and the answer without the sequence.

        Without a sequence that holds no support token (nor slack, with C) the answer stays optimal, so nothing is
        solved.  For every other sequence the answer without it is solved, warm-started from the multipliers of the
        rest.  All queries of a sequence are left out together.

        Returns
        -------
        Influence
            ``multiplier``, ``turn`` (1 - correlation of the two W), ``margin`` and ``objective`` without each sequence;
            with ``to_dataframe`` and ``plot``.

        Raises
        ------
        ValueError
            For an answer that is not optimal, of a vocabulary, or of rows in several processes.
        KeyboardInterrupt
            On Ctrl-C.

        Notes
        -----
        In the limit of training the influence of a sequence is that of its rows here, provided that the other sequences
        still select the same tokens.  If W is not unique (:attr:`unique`), the turn compares the two W that were found.

        Examples
        --------
        >>> import attsvm
        >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 3, 4)
        >>> found = attsvm.solve_svm(attsvm.cross_attention(X, Z), [0, 1, 2, 0, 1, 2]).influence()
        >>> bool((found.margin >= found.solution.margin * (1 - 1e-9)).all())
        True
        """
        from .influence import influence_of

        return influence_of(self)

    def derivative(self, dX: ArrayLike | None = None, dZ: ArrayLike | None = None) -> tuple[np.ndarray, float]:
        """The directional derivative of W and of the margin with respect to the tokens and the queries.

        Parameters
        ----------
        dX : array_like of the shape of X, or list, optional
            Direction in which the tokens move; None: they stay.  The selection does not change.
        dZ : array_like of the shape of Z, or list, optional
            Direction in which the queries move.  The queries of self-attention are tokens: give the change of both.

        Returns
        -------
        dW : (dk, dz) array
        dmargin : float
            NaN for a soft margin, which has no margin interval.

        Raises
        ------
        ValueError
            If there is no derivative, with the reason: the answer is not optimal, a row is on the margin without a
            multiplier, support rows depend on each other, or the rank may grow.  Also for the spectral norm and for
            metrics, where it is not implemented.

        Notes
        -----
        The support rows r_k and their multipliers y satisfy ``<r_k, W> = b_k`` and, in the Frobenius norm,
        ``W = sum y_k r_k``.  If every row either has slack or a positive multiplier, these equations still hold after a
        small move of the tokens, and their derivative is one solve with the Gram matrix of the support rows.
        ``dmargin = margin^3 sum_k y_k <dr_k, W>``.  The entrywise, nuclear and max norms have the same equations, in
        the coordinates that the norm leaves free.  The factors are kept with the answer.

        Examples
        --------
        >>> import attsvm
        >>> sol = attsvm.solve_svm(attsvm.cross_attention([[[1.0, 0.0], [0.0, 0.0]]], [[1.0]]), [0])
        >>> dW, dmargin = sol.derivative(dX=[[[1.0, 0.0], [0.0, 0.0]]])
        >>> dW.ravel().tolist(), dmargin
        ([-1.0, 0.0], 1.0)
        """
        from .derivative import as_moves, tangent_of

        moves = as_moves("dX", dX, self.data.keys.shape), as_moves("dZ", dZ, self.data.queries.shape)
        return tangent_of(self).forward(*moves)

    def _title(self) -> str:
        return f"Separation in the {self.norm_name} norm: {self.status}"

    def _lines(self) -> Lines:
        lines = [("", self.message)]
        if self.W is not None:
            if self.C is None:
                lines.append(("margin", f"{self.margin:.12g} (at most {self.margin_bound:.12g})"))
            else:
                lines.append(("objective", f"{self.objective:.12g} (at least {self.objective_bound:.12g})"))
            norm = 1 / self.margin if self.margin > 0 else np.linalg.norm(self.W)
            lines += [
                ("norm of W", f"{norm:.12g}"),
                ("rank", f"{self.rank}"),
                ("support", f"{self.flat_support.sum()} tokens"),
                ("method", f"{self.method}, {self.iterations} iterations"),
            ]
        return lines

    def _html_bar(self) -> str:
        return interval_bar(self.margin, self.margin_bound)

    def columns(self) -> dict[str, Any]:
        data, chosen = self.data, self.selection
        q = data._query_of()
        columns = {"query": q, "token": np.arange(len(q)) - data.indptr[q], "selected": chosen.flags(data)}
        if self.W is not None:
            columns["margin"] = self.flat_margins
            columns["margin"][data._begin + chosen.reference] = 0.0
        columns["certificate" if self.status == "infeasible" else "dual"] = self.flat_dual
        return columns | {"support": self.flat_support}

    def _values(self) -> dict[str, Any]:
        values = super()._values()
        return values if self.metric is None else values | {"norm": self.norm_name, "metric": self.metric}

    def __getstate__(self) -> dict[str, Any]:
        # the cached derivative cannot be pickled; it is computed again on demand
        return {name: value for name, value in vars(self).items() if name != "_tangent"}

    def _state(self) -> dict[str, Any]:
        # keep all fields of the solver's answer but the last, which is an exception
        return {name: getattr(self, name) for name in STATE} | {"answer": self.answer[:-1]}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Separation:
        """Makes an answer from the state read from a file, and checks it."""
        found, answer = cls.__new__(cls), Answer(*state["answer"])
        vars(found).update({name: state[name] for name in STATE}, answer=answer)
        data = found.data
        found.selection.check(data)
        as_choice("status", found.status, (*_core.STATUS.values(), "optimal", "feasible"))
        if isinstance(found.norm, Metric):
            as_metric("norm", found.norm, *data._W_shape)
        else:
            as_norm("norm", found.norm)
        check_shape("W", as_numeric("W", answer.W), "dk, dz", data._W_shape)
        check_shape("dual", as_numeric("dual", answer.dual), "entries", (data._entries,))
        for name in ("status", "iterations", "entry"):
            as_count(name, getattr(answer, name), least=-1)
        if not all(isinstance(bound, float) and bound >= 0 for bound in (answer.lower, answer.upper)):
            raise ValueError(f"bounds must be numbers of at least 0, got {answer.lower!r} and {answer.upper!r}")
        if found.C is not None:
            as_number("C", found.C, above=0)
        return found


def _at_least(sol: Separation) -> str:
    """The end of the message of an infeasible answer: the norm up to which the multipliers y exclude every W, rounding
    included.

    It follows from <W, sum y_e A_e> = sum y_e <A_e, W> >= b.y.
    """
    data, entries = sol.data, np.flatnonzero(sol.flat_dual)
    if not len(entries):  # only rows of other processes have multipliers
        return ""
    (q, chosen, token), y = data._rows_of(sol.selection.reference, entries), sol.flat_dual[entries]
    # divide tokens and queries by powers of two, since their products may leave double precision
    of_keys, of_queries = data._powers or (0, 0)
    Z = np.ldexp(data.queries[q], -of_queries)
    part = y[:, None] * Z
    if data._identity:  # D has rows e_a - e_t, each as long as the vocabulary
        M, lengths = np.zeros(data._W_shape), math.sqrt(2)
        np.add.at(M, chosen, part)
        np.subtract.at(M, token, part)
    else:
        a, t = (np.ldexp(data.keys[at].astype(np.float64), -of_keys) for at in (chosen, token))
        D = a - t
        M, lengths = D.T @ part, np.linalg.norm(D, axis=1)
    most = np.linalg.norm(M) + (len(y) + 16) * 2.0**-52 * np.abs(y) @ (lengths * np.linalg.norm(Z, axis=1))
    with np.errstate(over="ignore"):
        bound = np.ldexp(sol.selection.asked(entries) @ y / most * (1 - 1e-9), -of_keys - of_queries)
    return f", at least none of Frobenius norm below {bound:.1e}"


def _impossible(sol: Separation, what: str) -> str:
    """The message of an infeasible answer.  It names the row that no W meets even alone, because its token equals the
    selected one or its query is zero; else the rows that combine to zero."""
    data, entry = sol.data, sol.answer.entry
    entries = np.flatnonzero(sol.flat_dual) if entry < 0 else np.array([entry])
    q = data._query_at(entries)
    rows = list(zip(q, sol.selection.reference[q], entries - data.indptr[q], strict=True))
    if entry < 0:
        said = "the certificate combines the rows to zero"
        if len(rows) <= ROWS_SHOWN:
            said = f"these rows combine to zero: {'; '.join(f'query {i}, token {a} over {t}' for i, a, t in rows)}"
        return f"no weights {what}{_at_least(sol)}: {said}"
    ((i, chosen, token),) = rows
    if not data.queries[i].any():
        return f"query {i} is zero, so all its logits are 0 and it cannot prefer token {chosen}"
    equals = f"in the window of query {i}, token {token} equals the selected token {chosen}"
    if sol.selection.kept is not None and sol.selection.kept[entry]:
        return f"{equals}, so no weights make their logits differ, as margins asks"
    return (
        f"{equals}, so no weights can prefer "
        "one: select both by a bool selection, which asks for equal logits among the selected tokens"
    )
