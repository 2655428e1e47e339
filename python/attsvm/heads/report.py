"""What was found about a head, and about all heads of a model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..common.check import as_list, check_shapes, check_type
from ..common.result import Result, Table
from .choices import FEW
from .controls import Null, interval
from .fit import Fit
from .model import Head
from .table import CASES_HEADER, CURVE_HEADER, HEADER, cases_rows, curve_rows, meaning, rows_of, stars

NULL = 1 / 3  # of the mean length of values: tokens that attention is parked on have less than a fifth, or about all


def _empty() -> np.ndarray:
    return np.empty(0)


@dataclass(frozen=True, repr=False, eq=False)
class HeadReport(Result):
    """What :func:`analyze_head` found.

    Attributes
    ----------
    head : Head
    threshold : float
    hard : int
        Queries that give one token more than the threshold (or labels given).
    sinks : float
        Share of those that select the first token of their sentence or its end.
    train, test : (k, 3) integer arrays
        Rows (sentence, query, selected), from different sentences.
    baselines : dict of str to float
        Accuracy on the test queries of rules that need no SVM; empty without test queries.
    rule : str
        The best of them on the training queries.
    curve : list of Fit
        Frobenius SVMs of the first 100, 400, 1500, .. training queries, and of all of them; the last is the report's.
    nuclear : Fit or None
        The nuclear SVM of the first training queries.
    random : Fit or None
        Control: the SVM of random choices of the same queries; where it is "undecided", its margin lies below
        ``margin_bound``.
    null, shuffled : Null or None
        Controls: random heads on the same tokens with as many hard queries, three draws; and heads of the own singular
        values, whose singular vectors were permuted among themselves, None where these are one or two.
    accuracies, rule_accuracies : (splits,) arrays
        Held-out accuracy of the SVM, and of the best rule, on every split of the sentences; the first is the report's.
    sink_value : float
        Length of the values that attention is parked on, over the mean; nan where values are not known.  In words:
        :attr:`sink_kind`.
    """

    head: Head
    threshold: float
    hard: int
    sinks: float
    train: np.ndarray
    test: np.ndarray
    baselines: dict[str, float]
    rule: str
    curve: list[Fit]
    nuclear: Fit | None
    random: Fit | None = None
    null: Null | None = None
    shuffled: Null | None = None
    accuracies: np.ndarray = field(default_factory=_empty)
    rule_accuracies: np.ndarray = field(default_factory=_empty)
    sink_value: float = float("nan")

    def _check(self) -> None:
        splits = dict.fromkeys(("accuracies", "rule_accuracies"), "splits")
        check_shapes(vars(self), {"train": "rows, 3", "test": "others, 3"} | splits)

    _hidden = ("head",)
    _derived = ("effective_rank", "balance")

    @property
    def fit(self) -> Fit | None:
        """The Frobenius SVM of all training queries; None without queries."""
        return self.curve[-1] if self.curve else None

    @property
    def fits(self) -> list[Fit]:
        """All its SVMs of its own choices: those of the curve, and the nuclear one."""
        return [*self.curve, *([self.nuclear] if self.nuclear else [])]

    @property
    def sink_kind(self) -> str:
        """What a head does that parks most of its attention: "null sink" where the values parked on are shorter than a
        third of the mean, so that next to nothing is added; "value sink" where one vector is added again and again;
        "" where less than half is parked, or values are not known."""
        if self.sinks < 0.5 or np.isnan(self.sink_value):
            return ""
        return "null sink" if self.sink_value < NULL else "value sink"

    @property
    def few(self) -> bool:
        """Whether fewer than 30 queries count: then nothing can be said of the head."""
        return self.hard < FEW

    @property
    def best_baseline(self) -> tuple[str, float]:
        """The rule that is best on the training queries, and its accuracy on the test queries."""
        return self.rule, self.baselines.get(self.rule, float("nan"))

    @property
    def accuracy(self) -> float:
        """Held-out accuracy, mean over the splits."""
        return float(self.accuracies.mean()) if len(self.accuracies) else float("nan")

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """Its 95 % interval over the splits, within [0, 1]; infinite for one."""
        return interval(self.accuracies, 0.0)

    @property
    def gain(self) -> float:
        """By how much the SVM beats the best rule on unseen sentences, mean over the splits."""
        return float((self.accuracies - self.rule_accuracies).mean()) if len(self.accuracies) else float("nan")

    @property
    def gain_interval(self) -> tuple[float, float]:
        """The 95 % interval of the gain over the splits, paired, within [-1, 1]; infinite for one."""
        return interval(self.accuracies - self.rule_accuracies, -1.0)

    @property
    def beats_rules(self) -> bool:
        """Whether the SVM beats the best rule by more than chance: the whole interval of the gain lies above 0."""
        return self.gain_interval[0] > 0

    @property
    def effective_rank(self) -> float:
        """Of the head's own W: the exponential of the entropy of its singular values over their sum."""
        values = self.head.singular_values
        share = values[values > 0] / max(float(values.sum()), 1e-300)
        return float(np.exp(-(share * np.log(share)).sum()))

    @property
    def balance(self) -> float:
        """How balanced K and Q are: 1 minus the norm of ``K^T K - Q^T Q`` over the sum of both norms, at the best
        common scale.  Training from a small start leaves it near 1; nan in the head space."""
        if self.head.space != "residual":
            return float("nan")
        K, Q = (factor.T @ factor for factor in (self.head.K, self.head.Q))
        sizes = np.linalg.norm(K), np.linalg.norm(Q)
        if min(sizes) == 0:
            return float("nan")
        return float(1 - np.linalg.norm(K / sizes[0] - Q / sizes[1]) / 2)

    def _title(self) -> str:
        return f"{self.head.name}: {self.hard} queries count (attention above {self.threshold:g})"

    def _lines(self) -> list[tuple[str, str]]:
        if (fit := self.fit) is None or not fit.margin > 0:
            return []
        return [
            ("margin", f"{fit.margin:.12g} (at most {fit.margin_bound:.12g}) of the best W of norm 1"),
            ("own W", f"{fit.learned_margin:.6g}"),
        ]

    def _tables(self) -> list[Table]:
        found: list[Table] = [(HEADER, rows_of([self]))]
        found += [(CURVE_HEADER, curve_rows([self]))] * (len(self.curve) > 1)
        return found + [(CASES_HEADER, cases_rows(self))] * (self.fit is not None)

    def _meaning(self) -> str:
        return meaning([self])

    def columns(self) -> dict[str, Any]:
        return _columns([self])

    def _values(self) -> dict[str, Any]:
        head = self.head
        named = {"name": head.label, "layer": head.layer, "head": head.number, "space": head.space}
        return named | super()._values()


def check_report(report: Any) -> None:
    check_type("report", report, HeadReport, "attsvm.heads.analyze_head")


def as_reports(reports: Any) -> list[HeadReport]:
    return as_list("reports", reports, HeadReport, "attsvm.heads.analyze_head or analyze_model")


class Reports(Result, list[HeadReport]):
    """Reports of heads: a list that shows itself as their table, and goes into one file.  Its slices and sums are too.

    :meth:`to_dataframe` and :meth:`columns` have one row per SVM, each size of the curve and the nuclear one;
    :meth:`to_dict` the list ``"reports"`` of each report's.
    """

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return Reports(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> Reports:  # type: ignore[override]
        return Reports([*self, *other])

    def columns(self) -> dict[str, Any]:
        return _columns(self)

    def _values(self) -> dict[str, Any]:
        return {"reports": list(self)}

    def _title(self) -> str:
        return stars(self) or f"{len(self)} head{'s' * (len(self) != 1)}"

    def _lines(self) -> list[tuple[str, str]]:
        few = [report for report in self if report.few]
        named = ", ".join(f"{report.head.label} ({report.hard})" for report in few)
        left = f"Fewer than {FEW} queries count, and nothing can be said, of {len(few)} heads: {named}."
        return [("", left)] * bool(few)

    def _tables(self) -> list[Table]:
        return [(HEADER, rows_of([report for report in self if not report.few]))]

    def _meaning(self) -> str:
        return meaning(self)

    def _state(self) -> dict[str, Any]:
        return {"reports": list(self)}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Reports:
        return cls(state["reports"])


def results_table(reports: Sequence[HeadReport], caption: bool = True) -> str:
    """Reports as a printable table, one row per head.

    Parameters
    ----------
    reports : list of HeadReport
    caption : bool
        Whether to say below what the columns mean.

    Returns
    -------
    str

    Examples
    --------
    >>> import attsvm
    >>> print(attsvm.heads.results_table([], caption=False).splitlines()[2])  # doctest: +ELLIPSIS
    head  queries  parked  margin ...
    """
    found = Reports(as_reports(reports))
    return f"{found!r}\n\n{meaning(found)}\n" if caption else f"{found!r}\n"


def _columns(reports: Sequence[HeadReport]) -> dict[str, list[Any]]:
    """Everything measured, one entry per SVM: each size of the curve, and the nuclear one; NaN where there is none."""
    pairs = [(report, fit) for report in reports for fit in report.fits]
    heads: list[Head] = [report.head for report, _ in pairs]
    effective = {report.head: report.effective_rank for report in reports}
    balance = {report.head: report.balance for report in reports}
    columns: dict[str, list[Any]] = {
        "name": [head.label for head in heads],
        "layer": [head.layer for head in heads],
        "head": [head.number for head in heads],
        "module": [head.module for head in heads],
        "kind": [head.kind for head in heads],
        "space": [head.space for head in heads],
        "tokens": [len(head.keys) for head in heads],
        "hard_queries": [report.hard for report, _ in pairs],
        "parked": [report.sinks for report, _ in pairs],
        "test_queries": [len(report.test) for report, _ in pairs],
        "own_rank": [head.rank for head in heads],
        "effective_rank": [effective[report.head] for report, _ in pairs],
        "balance": [balance[report.head] for report, _ in pairs],
        "sink_value": [report.sink_value for report, _ in pairs],
        "sink_kind": [report.sink_kind for report, _ in pairs],
        "baseline": [report.best_baseline[0] for report, _ in pairs],
        "baseline_accuracy": [report.best_baseline[1] for report, _ in pairs],
    }
    for name in ("norm", "queries", "status", "margin", "margin_bound", "gap", "learned_margin", "rank"):
        columns[name] = [getattr(fit, name) for _, fit in pairs]
    columns["rank"] = [np.nan if rank is None else rank for rank in columns["rank"]]
    columns["support"] = [len(fit.rows) for _, fit in pairs]
    for name in ("missed", "accuracy", "score_correlation", "cosine"):
        columns[name] = [getattr(fit, name) for _, fit in pairs]
    for name in ("status", "margin", "margin_bound", "accuracy"):
        columns[f"random_{name}"] = [getattr(report.random, name, np.nan) for report, _ in pairs]
    for kind, name in itertools.product(("null", "shuffled"), ("hard", "cosine", "own", "accuracy", "gain")):
        draws = [getattr(getattr(report, kind), name, np.full(1, np.nan)) for report, _ in pairs]
        for suffix, of in (("", np.mean), ("_low", np.min), ("_high", np.max)):
            columns[f"{kind}_{name}{suffix}"] = [float(of(some)) for some in draws]
    columns["splits"] = [len(report.accuracies) for report, _ in pairs]
    for name in ("accuracy", "gain"):
        columns[f"split_{name}"] = [getattr(report, name) for report, _ in pairs]
        bounds = [_finite(getattr(report, f"{name}_interval")) for report, _ in pairs]
        columns[f"split_{name}_low"], columns[f"split_{name}_high"] = ([b[k] for b in bounds] for k in (0, 1))
    return columns


def _finite(bounds: tuple[float, float]) -> tuple[float, ...]:
    return tuple(bound if math.isfinite(bound) else float("nan") for bound in bounds)
