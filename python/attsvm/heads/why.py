"""Why a query selects its token: its margin as a sum over singular directions and over support tokens."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..common.check import as_count, as_flag, check_shapes, check_type
from ..common.result import Result, Table
from .cases import Cases, as_cases, pulled, support_pairs
from .directions import directions, name_directions
from .faithful import Faithfulness
from .fit import NO_ROWS, fit_svm
from .head import Head
from .report import HeadReport, check_report
from .table import cased, number, sequence_text

# largest number of directions, and largest number of support tokens or sequences, that a table has
DIRECTIONS, NEIGHBOURS = 8, 5


@dataclass(frozen=True, repr=False, eq=False)
class Why(Result):
    """Result of :func:`why`: the margin of a query's selected token over a rival token, written as sums.

    Attributes
    ----------
    head : Head
    sequence, query, selected, rival : int
        Index among the kept sequences, and indices of the query and of tokens in the sequence.
    margin : float
        ``(x_selected - x_rival)^T W z``.
    shares : (r,) array
        The terms ``s_i (u_i . (x_selected - x_rival)) (v_i . z)`` of the margin, one for each singular direction of
        ``W = sum s_i u_i v_i^T``, in the order of decreasing singular values.  They add up to the margin.
    values : (r,) array
        The singular values s.
    neighbours : (k, 4) integer array
        Rows (sequence, query, selected, rival) of the support tokens of the SVM that are most similar to this case.
    likeness : (k,) array
        Cosine of their rows ``(x_selected - x_rival) z^T`` with the row of this case.
    of : str
        The matrix W: "own", "SVM" or "given".
    names : list of str
        Names of the leading directions: words of the queries and of the tokens that load them most, with the damage
        without the direction if it is known.
    svm_names : list of str
        Names of the directions of the SVM, if W is the head's own.
    holders : (h,) integer array
        Training sequences whose support tokens contribute most to this margin of the SVM, the largest contribution
        first.
    pulls : (h,) array
        The contribution of each: the sum over all support tokens of the sequence of the multiplier times the inner
        product of ``(x_selected - x_rival) z^T`` with that of this case.  The contributions of all sequences add up to
        the SVM's margin of this query.
    without : (h,) array
        The margin of the SVM that is solved without the sequence; nan unless ``leave_out=True``.
    instead : (h,) integer array
        The token that this SVM selects; -1 unless ``leave_out=True``.
    """

    head: Head
    sequence: int
    query: int
    selected: int
    rival: int
    margin: float
    shares: np.ndarray
    values: np.ndarray
    neighbours: np.ndarray
    likeness: np.ndarray
    of: str
    names: list[str]
    svm_names: list[str]
    holders: np.ndarray
    pulls: np.ndarray
    without: np.ndarray
    instead: np.ndarray

    def _check(self) -> None:
        check_shapes(vars(self), dict.fromkeys("holders pulls without instead".split(), "h"))

    def _title(self) -> str:
        head = self.head
        word, selected, rival = cased(head.text, self.sequence, self.query, self.selected, self.rival)
        top = head.choices.top[head.text.query_begin[self.sequence] + self.query]
        counts = "" if top > head.threshold else ", too little to count"
        return (
            f"{head.label}, sequence {self.sequence}: {word} selects {selected} with {100 * top:.0f} % of its "
            f"attention{counts}, ahead of {rival} by {self.margin:.4g} ({self.of} W)"
        )

    def _tables(self) -> list[Table]:
        text, known = self.head.text, dict(enumerate(self.names))
        order = np.argsort(-np.abs(self.shares))[:DIRECTIONS]
        rows = [(f"{k}", f"{self.values[k]:.3g}", f"{self.shares[k]:+.4g}", known.get(k, "")) for k in order]
        rows.append(("others", "", f"{self.margin - self.shares[order].sum():+.4g}", ""))
        both = [(f"{k}", known.get(k, ""), name) for k, name in enumerate(self.svm_names)]
        cases = [
            (f"{like:+.3f}", f"{i}", *cased(text, i, *tokens))
            for (i, *tokens), like in zip(self.neighbours, self.likeness, strict=True)
        ]
        held = [
            (
                f"{i}", f"{pull:+.4g}", number(margin),
                "-" if token < 0 else cased(text, self.sequence, self.query, token)[1],
                sequence_text(text, i) if text.words else "",
            )
            for i, pull, margin, token in zip(self.holders, self.pulls, self.without, self.instead, strict=True)
        ]  # fmt: skip
        tables: list[Table] = [
            (("direction", "singular value", "share of the margin", "queries → tokens" * any(self.names)), rows),
            (("direction", "own W", "the SVM's W"), both),
            (("support tokens, cosine", "sequence", "query", "selected", "rival"), cases),
            (("held by sequence", "pull", "margin without it", "selected without it", "text"), held),
        ]
        return [table for table in tables if table[1]]

    def columns(self) -> dict[str, Any]:
        """The terms of the margin as columns by name, with one row for each singular direction of W."""
        named = [*self.names, *[""] * len(self.values)][: len(self.values)]
        return {"direction": np.arange(len(self.values)), "value": self.values, "share": self.shares, "name": named}


def why(
    report: HeadReport,
    sequence: int,
    query: int,
    rival: int | None = None,
    W: Any = None,
    faithfulness: Faithfulness | None = None,
    leave_out: bool = False,
) -> Why:
    """Explains why a query selects its token: splits its margin over singular directions of W and over support tokens.

    Parameters
    ----------
    report : HeadReport
        From :func:`analyze_head`.
    sequence, query : int
        Index among the head's sequences, and of a query in the sequence, such as the first two columns of
        ``report.train``.
    rival : int, optional
        The token over which the margin is taken; by default the one with the smallest margin.
    W : (dk, dz) array_like, optional
        By default the head's own W.  In the head space the default is the SVM's W, since the own W is a multiple of the
        identity, whose singular directions are arbitrary.
    faithfulness : attsvm.torch.Faithfulness, optional
        Result for the same head with ``directions=True``, for the damage without each direction of its own W.
    leave_out : bool
        Whether to solve the SVM again without each of the (five) sequences that contribute most to the margin.

    Returns
    -------
    Why

    Raises
    ------
    ValueError
        If the head has no SVM and needs one; for a query or rival that does not fit.

    Notes
    -----
    The SVM does not change if a training sequence without a support token is left out.  Whether training the model
    without a sequence would change the head as the SVM changes is not known.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk = rng.standard_normal((2, 4, 8))
    >>> (head,) = attsvm.heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None)
    >>> report = attsvm.heads.analyze_head(head, queries=40, null=False, nuclear_queries=0)
    >>> reason = attsvm.heads.why(report, *report.train[0, :2])
    >>> bool(abs(reason.shares.sum() - reason.margin) < 1e-9 * abs(reason.margin))
    True
    """
    check_report(report)
    if faithfulness is not None:
        check_type("faithfulness", faithfulness, Faithfulness, "attsvm.torch.faithfulness")
    head = report.head
    text = head.text
    sequence, query = as_count("sequence", sequence), as_count("query", query)
    rival = None if rival is None else as_count("rival", rival)
    if sequence >= len(text.lengths) or query >= text.counts[sequence]:
        raise ValueError(
            f"sequence and query must be a query of the head's {len(text.lengths)} sequences, got {sequence}, {query}"
        )
    seen = text.window(sequence, query)
    if len(seen) < 2:
        raise ValueError(f"query must see at least two tokens to have a choice, got {len(seen)}")
    selected = int(head.choices.selected[text.query_begin[sequence] + query])
    of = "given" if W is not None else "SVM" if head.space == "head" else "own"
    if of == "SVM" and (W := svm_weights(report)) is None:
        raise ValueError("W must be given: the head has no SVM")
    case = as_cases(head, np.array([[sequence, query, selected]]))
    if W is not None:
        W = case.data._weights(W)
    margins = case.data._flat_margins(head.W if W is None else W, case.selected)
    at = margins.argmin() if rival is None else np.append(np.flatnonzero(case.tokens == rival), case.selected)[0]
    if at == case.selected[0]:
        raise ValueError(f"rival must be a token that the query sees and does not select, got {rival}")
    parts = directions(head, W)
    names, svm = _names(report, W), svm_weights(report) if of == "own" else None
    beside = [] if svm is None else _names(report, svm)
    for lost in faithfulness.directions if faithfulness and of == "own" else ():
        if lost.label == head.label and lost.number < len(names):
            names[lost.number] = str(replace(lost, name=names[lost.number]))
    near, likeness, *held = _support(report, case, int(at), as_flag("leave_out", leave_out))
    return Why(
        head, sequence, query, selected, int(case.tokens[at]), float(margins[at]),
        case.shares(np.array([at]), *parts)[0], parts[1], near, likeness, of, names, beside, *held,
    )  # fmt: skip


def _names(report: HeadReport, W: np.ndarray | None) -> list[str]:
    return [str(direction) for direction in name_directions(report.head, report.train, W)]


def _support(report: HeadReport, case: Cases, at: int, leave_out: bool) -> tuple[np.ndarray, ...]:
    """The fields ``neighbours``, ``likeness``, ``holders``, ``pulls``, ``without``, ``instead`` of a :class:`Why`."""
    fit, none = report.fit, np.empty(0)
    if not fit or len(fit.rows) == 0:
        return NO_ROWS, none, NO_ROWS[:, 0], none, none, NO_ROWS[:, 0]
    rows = fit.rows
    (ahead, z), (pairs, queries) = case.pairs(np.array([at])), support_pairs(report.head, rows)
    products = (pairs @ ahead[0]) * (queries @ z[0])
    like = products / np.maximum(math.prod(np.linalg.norm(part, axis=1) for part in (pairs, queries, ahead, z)), 1e-300)
    near = np.argsort(-like)[:NEIGHBOURS]
    sequences, owner = np.unique(rows[:, 0], return_inverse=True)
    pulls = np.bincount(owner, fit.multipliers * products)
    order = np.argsort(-np.abs(pulls), kind="stable")[: 0 if fit.status == "infeasible" else NEIGHBOURS]
    without, instead = np.full(len(order), np.nan), np.full(len(order), -1)
    for k, i in enumerate(sequences[order] if leave_out else ()):
        if np.isnan(fit.margin):
            raise ValueError("leave_out needs an SVM that meets all margins, got a soft margin")
        rest, kept = report.train[report.train[:, 0] != i], rows[:, 0] != i
        if len(rest):  # the multipliers of the other sequences are the warm start
            start = replace(fit, rows=rows[kept], multipliers=fit.multipliers[kept])
            W: Any = fit_svm(report.head, rest, near=start).W
            without[k] = case.data._flat_margins(W, case.selected)[at]
            instead[k] = case.tokens[case.data.select(W)[0]]
    return rows[near], like[near], sequences[order], pulls[order], without, instead


def svm_weights(report: HeadReport) -> np.ndarray | None:
    """The SVM's W, scaled so that the smallest margin of its training queries is 1; None without an SVM.

    If the report does not keep W, it is computed from the support tokens: W is the sum of their rows ``(x_selected -
    x_rival) z^T`` times their multipliers.
    """
    fit = report.fit
    if not fit or fit.status == "infeasible":
        return None
    if fit.W is not None or len(fit.rows) == 0:
        return fit.W
    W = pulled(report.head, fit.rows, fit.multipliers)
    return W / (np.linalg.norm(W) * fit.margin) if fit.margin > 0 else W
