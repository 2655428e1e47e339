"""The report of a head, and the list of reports of all heads of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..common.check import as_choice, as_flag, as_list, check_shapes, check_type
from ..common.result import Result, Table
from ..theory.random_tokens import capacity
from .choices import FEW
from .controls import Null, interval
from .fit import SPARE, Fit, support_share
from .head import ByName, Head, count_heads, share_of
from .table import NAMES, SHOWN, cases_table, curve_table, frame, grid, meaning, stars

MOST = 10  # The table says how many of the MOST heads with the largest damage have too few queries.
NULL = 1 / 3  # a null sink has values shorter than this fraction of the mean (observed: below a fifth, or about 1)
LONGEST = 64  # longest window for which :func:`attsvm.theory.capacity` is computed, in a second or two


@dataclass(frozen=True, repr=False, eq=False)
class HeadReport(Result):
    """Result of :func:`analyze_head`: SVMs of a head's choices, the accuracy of simple rules, and random controls.

    Attributes
    ----------
    head : Head
    threshold : float
    hard : int
        Number of queries that give one token more attention than the threshold, or of labels if they were given.
    sinks : float
        Share of these queries that select a sink: the first token of their sequence or its end.
    train, test : (k, 3) integer arrays
        Rows (sequence, query, selected) of the first split; no sequence has rows in both.
    baselines : dict of str to float
        Accuracy of rules that need no SVM, on the test queries; empty without test queries.
    rule : str
        The rule that is best on the training queries.
    curve : list of Fit
        Frobenius SVMs of the first 100, 400, 1500, .. training queries, and of all; the last is :attr:`fit`.
    nuclear : Fit or None
        The nuclear-norm SVM of the first training queries.
    random : Fit or None
        Control: the SVM of random choices of the same queries.  If it is "undecided", its margin is below
        ``margin_bound``.
    null, shuffled : Null or None
        Controls: three random heads on the same tokens with as many hard queries, and three heads with the own singular
        values and permuted singular vectors.  ``shuffled`` is None if the head's rank is 1 or 2.
    accuracies, rule_accuracies : (splits,) arrays
        Held-out accuracy of the SVM, and of the best rule, on each split of the sequences; the first split is that of
        ``train`` and ``test``.
    sink_value : float
        Mean length of the sinks' values over the mean length of all values; nan if values are not known.
        :attr:`sink_kind` says it in words.
    damage, metric : float, str
        Mean change of the model's output without the head, and its measure; nan and empty until
        :func:`attsvm.torch.damage` has measured it.
    labelled : bool
        Whether the rows are labels that were given, and not the head's own choices.
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
    random: Fit | None
    null: Null | None
    shuffled: Null | None
    accuracies: np.ndarray
    rule_accuracies: np.ndarray
    sink_value: float
    damage: float = math.nan
    metric: str = ""
    labelled: bool = False

    def _check(self) -> None:
        shapes = {"train": "rows, 3", "test": "others, 3", "accuracies": "splits", "rule_accuracies": "splits"}
        check_shapes(vars(self), shapes)

    _hidden = ("head",)
    _derived = ("effective_rank", "balance")

    @property
    def fit(self) -> Fit | None:
        """The Frobenius SVM of all training queries; None without queries."""
        return self.curve[-1] if self.curve else None

    @property
    def fits(self) -> list[Fit]:
        """All SVMs of the head's choices: the SVMs of the curve and the nuclear-norm SVM."""
        return list(filter(None, (*self.curve, self.nuclear)))

    @property
    def sink_kind(self) -> str:
        """The kind of the head's sinks (first and end tokens), by what their values add to the residual stream.

        "null sink": their values are shorter than a third of the mean, so that they add next to nothing.  "value sink":
        they add the same vector again and again.  "": less than half of the hard queries select a sink, or the values
        are not known.
        """
        if self.sinks < 0.5 or np.isnan(self.sink_value):
            return ""
        return "null sink" if self.sink_value < NULL else "value sink"

    @property
    def few(self) -> bool:
        """Whether fewer than 30 queries of the head are hard, which are too few to analyse the head."""
        return self.hard < FEW

    @property
    def rule_accuracy(self) -> float:
        """Accuracy of the best rule on the test queries."""
        return self.baselines.get(self.rule, math.nan)

    @property
    def best_baseline(self) -> tuple[str, float]:
        """The rule that is best on the training queries, with its accuracy on the test queries."""
        return self.rule, self.rule_accuracy

    @property
    def accuracy(self) -> float:
        """Held-out accuracy of the SVM, averaged over the splits."""
        return float(self.accuracies.mean()) if len(self.accuracies) else math.nan

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """95 % interval of the SVM's held-out accuracy over the splits, cut to [0, 1]; infinite ends for one split."""
        return interval(self.accuracies, 0.0)

    @property
    def gain(self) -> float:
        """Accuracy of the SVM minus accuracy of the best rule on unseen sequences, averaged over the splits."""
        return float((self.accuracies - self.rule_accuracies).mean()) if len(self.accuracies) else math.nan

    @property
    def gain_interval(self) -> tuple[float, float]:
        """95 % interval of :attr:`gain` over the splits, cut to [-1, 1]; infinite ends if there is one split."""
        return interval(self.accuracies - self.rule_accuracies, -1.0)

    @property
    def beats_rules(self) -> bool:
        """Whether the SVM beats the best simple rule by more than chance: the 95 % interval of the gain is above 0."""
        return self.gain_interval[0] > 0

    @property
    def ahead(self) -> float:
        """Held-out accuracy of the SVM minus the accuracy for the better kind of untrained heads (0 without them)."""
        return self.accuracy - max(self._untrained, default=0.0)

    @property
    def _untrained(self) -> list[float]:
        """For each kind of untrained heads in the report, the mean held-out accuracy of their SVMs."""
        return [float(null.accuracy.mean()) for null in (self.null, self.shuffled) if null]

    @property
    def summary(self) -> str:
        """Sentences: how often the head selects, how well the SVM predicts it, and the damage without the head."""
        what, asking, most = "its choices", self.head.asking, f"{100 * self.threshold:g} % of their attention"
        text = f"{share_of(self.hard, asking)} of its queries give one token more than {most}"
        if self.labelled:  # labels may name a query several times
            what, text = "the labels", f"{self.hard:,} labels for {asking:,} queries"
        if self.few:
            text += f", too few to say anything of {what}"
        else:
            text += f"; {100 * self.sinks:.0f} % of these select the first token or the end"
            adds = {"null sink": "add next to nothing", "value sink": "add one and the same vector"}
            text += f" and {adds[self.sink_kind]}" if self.sink_kind else ""
        if len(self.accuracies):
            nulls = ", ".join(f"{100 * accuracy:.0f} %" for accuracy in self._untrained)
            text += f".  An SVM of {what} finds {100 * self.accuracy:.0f} % of those of unseen sequences"
            text += f" (of untrained heads {nulls})" if nulls else ""
            text += f', the rule "{self.rule}" {100 * self.rule_accuracy:.0f} %'
        if math.isfinite(self.damage):
            text += f".  Without the head the output changes by {self.damage:.2g} ({self.metric})"
        return f"{self.head.label}: {text}."

    @property
    def support_share(self) -> float:
        """Share of the training sequences that have a support token.

        If sequences are exchangeable, this share bounds, in expectation, the share of new sequences in which the SVM
        selects some token wrongly.  A sequence without a support token can be left out without a change of the SVM,
        which therefore selects rightly in it without having seen it.  nan without an SVM, or if no W separates the
        choices.
        """
        return support_share(self.fit, self.train) if self.fit else math.nan

    @cached_property
    def capacity(self) -> float:
        """Probability that choices like the head's could be separated if all tokens were Gaussian.

        The number, lengths and dimensions of the windows are those of the training choices; see
        :func:`attsvm.theory.capacity`.  How far the formula holds for a model's tokens is not known.  nan if it says
        nothing, for windows of more tokens than dimensions + 1, or if a window has more than 64 tokens.
        """
        windows, head = self.head.window(self.train), self.head
        bias = getattr(head.given, "bias", None) is not None
        # A coordinate that is equal in all tokens, such as that of the biases, is 0 in all differences of tokens.
        dk = int(np.count_nonzero(np.ptp(head.keys[: SPARE * head.keys.shape[1]], axis=0))) + bias
        if not len(windows) or windows.max() > min(LONGEST, dk + 1):
            return math.nan
        return capacity(len(windows), windows, dk, head.queries.shape[1] + bias)

    @cached_property
    def effective_rank(self) -> float:
        """Effective rank of the head's own W: exp of the entropy of its singular values, scaled to sum 1."""
        values = self.head.singular_values
        share = values[values > 0] / values.sum()
        return float(np.exp(-(share * np.log(share)).sum()))

    @property
    def balance(self) -> float:
        """The balance of K and Q: 1 minus half the distance of ``K^T K`` and ``Q^T Q``, each scaled to norm 1.

        Training from a small start leaves the balance near 1.  nan in the head space.
        """
        K, Q = (factor.T @ factor for factor in (self.head.K, self.head.Q))
        sizes = np.linalg.norm(K), np.linalg.norm(Q)
        if self.head.space != "residual" or min(sizes) == 0:
            return math.nan
        return float(1 - np.linalg.norm(K / sizes[0] - Q / sizes[1]) / 2)

    def _title(self) -> str:
        return self.head.name

    def _lines(self) -> list[tuple[str, str]]:
        lines, fit = [("", self.summary)], self.fit
        if fit and fit.margin > 0:
            lines += [
                ("margin", f"{fit.margin:.12g} (at most {fit.margin_bound:.12g}) of the best W of norm 1"),
                ("own W", f"{fit.learned_margin:.6g}"),
            ]
        return lines

    def _tables(self) -> list[Table]:
        return [grid([self]), *[curve_table(self)] * (len(self.curve) > 1), *[cases_table(self)] * bool(self.curve)]

    def _meaning(self) -> str:
        return meaning([self])

    def columns(self) -> dict[str, Any]:
        return frame([self])

    def _values(self) -> dict[str, Any]:
        head = self.head
        return {
            "name": head.label, "layer": head.layer, "head": head.number, "space": head.space, **super()._values()
        }  # fmt: skip


def check_report(report: Any) -> None:
    check_type("report", report, HeadReport, "attsvm.heads.analyze_head")


def as_reports(reports: Any) -> list[HeadReport]:
    return as_list("reports", reports, HeadReport, "attsvm.heads.analyze_head or analyze_model")


class Reports(Result, ByName):
    """A list of reports of heads that shows itself as a table and can be saved in one file.

    Reports are also found by name, ``reports["L3H5"]`` or ``reports[3, 5]``.  Slices and sums are lists of the same
    kind.  :meth:`to_dataframe` and :meth:`columns` have one row per SVM (each size of the curve, and the nuclear-norm
    SVM), and one row for a head without an SVM.  :meth:`to_dict` has the list ``"reports"`` of the reports' dicts.
    """

    shown: Sequence[str] = SHOWN

    def columns(self) -> dict[str, Any]:
        return frame(self)

    def _title(self) -> str:
        return count_heads(len(self))

    def _lines(self) -> list[tuple[str, str]]:
        lines = [stars(self)] if "gain" in self.shown else []
        few = [f"{report.head.label} ({report.hard})" for report in self if report.few]
        known = [report for report in self if math.isfinite(report.damage)]
        most = sorted(known, key=lambda report: -report.damage)[:MOST]
        if few:
            lines.append(
                f"Nothing can be said of {count_heads(len(few))}, of which fewer than {FEW} queries count: "
                f"{', '.join(few)}."
            )
            if known:
                unsaid = sum(report.few for report in most)
                lines[-1] += f"  They include {unsaid} of the {len(most)} whose removal changes the output most."
        if known:
            metric = ", ".join(sorted({report.metric for report in known}))
            lines.append(f"Damage: mean change of the output without the head ({metric}).")
        elif self:
            lines.append("What the model loses without a head is not known here: attsvm.torch.damage measures it.")
        return [("", line) for line in lines if line]

    def _tables(self) -> list[Table]:
        return [grid([report for report in self if not report.few], self.shown)]

    def _meaning(self) -> str:
        return meaning(self, self.shown)

    def _state(self) -> dict[str, Any]:
        return {"reports": list(self)}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Reports:
        return cls(state["reports"])


def results_table(reports: Sequence[HeadReport], columns: Any = SHOWN, caption: bool = True) -> str:
    """The reports as text: a table with one row per head.

    Parameters
    ----------
    reports : list of HeadReport
    columns : list of str, or "all"
        By default "head", "queries", "parked", "accuracy", "cosine", "damage" and "best rule".  The caption
        names the columns that are not shown, and the glossary of the site explains all of them.
    caption : bool
        Whether to explain the columns below the table.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        For an unknown column.

    Examples
    --------
    >>> print(attsvm.heads.results_table([], ["head", "margin"], caption=False).splitlines()[2])
    head  margin
    """
    found = Reports(as_reports(reports))
    names = NAMES if columns == "all" else [columns] if isinstance(columns, str) else columns
    found.shown = [as_choice("columns", name, NAMES) for name in names]
    return f"{found!r}\n\n{found._meaning()}\n" if as_flag("caption", caption) else f"{found!r}\n"
