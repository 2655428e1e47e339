"""Reports of heads as text and as columns: what a person reads, and what a spreadsheet does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..report import table
from .analysis import HeadReport
from .fit import Fit
from .model import Head, Text

# One sentence a column, for somebody who has not read the paper.
CAPTION = """\
A row is an attention head: L1H8 is head 8 of layer 1, counted from 0.  A query counts when the head gives one token,
the selected one, more than the threshold of its attention.  The SVM looks for the matrix W that ranks every selected
token first, x_selected.Wz > x_other.Wz, by the largest margin; it is told those choices and nothing else.
queries    that train the SVM, of all that count
parked     share of them that select the sentence's first token or [SEP], where heads leave attention they have no use
           for: easy to predict, and of no interest (drop_sinks leaves them out)
margin     of the best W of unit norm; positive: the head's choices are linearly separable.  All digits are certified
own W      margin of the head's own W, in percent of the best
support    pairs (query, rival token) that hold the SVM's W in place: the hardest cases
rank       of the SVM's W / of the W of least nuclear norm / of the head's own W
logits     correlation of the SVM's logits with the head's, on sentences it has not seen: at best 1
cosine     between the SVM's W and the head's own: at best 1, and about 0 for random matrices
accuracy   how often the SVM selects the head's token, on sentences it has not seen
nuclear    the same for the W of least nuclear norm; in brackets for the Frobenius SVM of as many queries
best rule  accuracy of the best of five rules that need no SVM.  An SVM that does not beat it explains nothing new"""

HEADER = (
    "head",
    "queries",
    "parked",
    "margin",
    "own W",
    "support",
    "rank",
    "logits",
    "cosine",
    "accuracy",
    "nuclear",
)


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
    >>> print(attsvm.heads.results_table([], caption=False).splitlines()[0])  # doctest: +ELLIPSIS
    head  queries  parked  margin ...
    """
    text = table(results_header(), results_rows(reports))
    return f"{text}\n{CAPTION}\n" if caption else text + "\n"


def results_header() -> tuple[str, ...]:
    return (*HEADER, "best rule")


def results_rows(reports: Sequence[HeadReport]) -> list[tuple[str, ...]]:
    return [_row(report) for report in reports]


def _row(report: HeadReport) -> tuple[str, ...]:
    head, fit, nuclear = report.head, report.fit, report.nuclear
    if fit is None:
        return head.label, "none", *["-"] * 10
    rule, right = report.best_baseline
    ranks = [fit.rank, None if nuclear is None else nuclear.rank, head.K.shape[1]]
    return (
        head.label,
        f"{fit.queries} of {report.hard}",
        f"{100 * report.sinks:.0f} %",
        certified(fit.margin, fit.margin_bound) if fit.status == "optimal" else fit.status,
        f"{100 * fit.learned_margin / fit.margin:.1f} %" if fit.margin > 0 else "-",
        str(len(fit.rows)),
        " / ".join("-" if rank is None else str(rank) for rank in ranks),
        number(fit.score_correlation, 2),
        number(fit.cosine, 2),
        number(fit.accuracy),
        "-" if nuclear is None else f"{number(nuclear.accuracy)} ({number(same_size(report, nuclear).accuracy)})",
        f"{number(right)} {rule}" if rule else "too few queries",
    )


def same_size(report: HeadReport, nuclear: Fit) -> Fit:
    """The Frobenius SVM of (about) as many queries as the nuclear one, for a fair comparison."""
    return min(report.curve, key=lambda fit: abs(fit.queries - nuclear.queries))


def certified(low: float, high: float, digits: int = 5) -> str:
    """The digits on which both bounds agree, at most so many."""
    if not math.isfinite(low) or low <= 0:
        return "-"
    while digits > 1 and f"{low:.{digits}g}" != f"{high:.{digits}g}":
        digits -= 1
    return f"{low:.{digits}g}"


def number(value: float, decimals: int = 3) -> str:
    return f"{value:.{decimals}f}" if math.isfinite(value) else "-"


def describe(report: HeadReport) -> str:
    """The row of a head, its curve over the number of queries, and its hardest cases."""
    name = f"{report.head.name}: {report.hard} queries count (attention above {report.threshold:g})"
    lines = [name, results_table([report], caption=False)]
    if report.fit is not None and report.fit.margin > 0:
        low, high = report.fit.margin, report.fit.margin_bound
        lines.append(
            f"The best margin of a W of unit norm lies in [{low:.12g}, {high:.12g}]; the head's own W has "
            f"{report.fit.learned_margin:.6g}.\n"
        )
    if len(report.curve) > 1:
        lines.append(table(CURVE_HEADER, curve_rows([report])))
    if report.fit is not None:
        lines += ["", table(CASES_HEADER, cases_rows(report))]
    return "\n".join(lines)


CURVE_HEADER = ("head", "SVM", "queries", "margin", "support", "logits", "cosine", "accuracy")


def curve_rows(reports: Sequence[HeadReport]) -> list[tuple[str, ...]]:
    """One row per SVM: what more queries teach."""
    return [
        (
            report.head.label,
            fit.norm,
            str(fit.queries),
            certified(fit.margin, fit.margin_bound),
            str(len(fit.rows)),
            number(fit.score_correlation),
            number(fit.cosine),
            number(fit.accuracy),
        )
        for report in reports
        for fit in fits(report)
    ]


def fits(report: HeadReport) -> list[Fit]:
    return [*report.curve, *([report.nuclear] if report.nuclear else [])]


CASES_HEADER = ("multiplier", "query", "selected", "rival", "sentence")


def cases_rows(report: HeadReport, most: int = 10) -> list[tuple[str, ...]]:
    """The support tokens of largest multiplier, with their multiplier as a share of all."""
    fit = report.fit
    if fit is None or len(fit.rows) == 0:
        return []
    total, text = fit.multipliers.sum(), report.head.text
    rows = []
    for (sentence, *tokens), multiplier in zip(fit.rows[:most], fit.multipliers, strict=False):
        words = text.names([sentence] * 3, tokens)
        shown = (f"{word} ({token})" for word, token in zip(words, tokens, strict=True))
        rows.append((f"{100 * multiplier / total:.2f} %", *shown, sentence_text(text, sentence)))
    return rows


def sentence_text(text: Text, sentence: int, longest: int = 80) -> str:
    """Its words with the pieces of a word put together, cut when it is long."""
    if text.words is None:
        return f"{sentence}"
    joined = " ".join(text.words[sentence]).replace(" ##", "")
    return joined if len(joined) <= longest else joined[: longest - 3] + "..."


def results_columns(reports: Sequence[HeadReport]) -> dict[str, list[Any]]:
    """Everything measured as columns, one entry per SVM: each size of the curve, and the nuclear one.

    Parameters
    ----------
    reports : list of HeadReport

    Returns
    -------
    dict of str to list
        Columns of one length; NaN where there is no number.

    Examples
    --------
    >>> import attsvm
    >>> sorted(attsvm.heads.results_columns([]))[:3]
    ['accuracy', 'baseline', 'baseline_accuracy']
    """
    pairs = [(report, fit) for report in reports for fit in fits(report)]
    heads: list[Head] = [report.head for report, _ in pairs]
    columns: dict[str, list[Any]] = {
        "layer": [head.layer for head in heads],
        "head": [head.head for head in heads],
        "hard_queries": [report.hard for report, _ in pairs],
        "parked": [report.sinks for report, _ in pairs],
        "test_queries": [len(report.test) for report, _ in pairs],
        "own_rank": [head.K.shape[1] for head in heads],
        "baseline": [report.best_baseline[0] for report, _ in pairs],
        "baseline_accuracy": [report.best_baseline[1] for report, _ in pairs],
    }
    for name in ("norm", "queries", "status", "margin", "margin_bound", "gap", "learned_margin", "rank"):
        columns[name] = [getattr(fit, name) for _, fit in pairs]
    columns["rank"] = [np.nan if rank is None else rank for rank in columns["rank"]]
    columns["support"] = [len(fit.rows) for _, fit in pairs]
    for name in ("missed", "accuracy", "score_correlation", "cosine"):
        columns[name] = [getattr(fit, name) for _, fit in pairs]
    return columns
