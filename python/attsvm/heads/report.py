"""Reports of heads as text and as columns: what a person reads, and what a spreadsheet does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np

from ..report.tables import table
from .fit import Fit
from .model import Head, Text
from .outcome import FEW, HeadReport, as_reports

# One sentence a column, for somebody who has not read the paper.
CAPTION = """\
A row is an attention head: L1H8 is head 8 of layer 1, counted from 0.  A query counts when the head gives one token,
the selected one, more than the threshold of its attention.  The SVM looks for the matrix W that ranks every selected
token first, x_selected.Wz > x_other.Wz, by the largest margin; it is told those choices and nothing else.  Some W does
so always, the head's own, and in many dimensions some W does so for random choices: read each number beside its
control.  In brackets: a random head (Gaussian K and Q) on the same tokens with as many hard queries.
queries    that train the SVM, of all that count
parked     share of them that select the sentence's first token or [SEP], where heads leave attention they have no use
           for: easy to predict, and of no interest (drop_sinks leaves them out).  Of a head that parks most, "null":
           the values there are short, next to nothing is added; "value": one vector is added again and again
margin     of the best W of unit norm.  All digits are certified
random     the same for random choices of the same queries: what this many dimensions separate anyway.  "<": a bound,
           where the exact number would take minutes; "none": no W separates them
own W      margin of the head's own W, in percent of the best
support    pairs (query, rival token) that hold the SVM's W in place: the hardest cases
rank       of the SVM's W / of the W of least nuclear norm / of the head's own W
logits     correlation of the SVM's logits with the head's, on sentences it has not seen: at best 1
cosine     between the SVM's W and the head's own: at best 1
accuracy   how often the SVM selects the head's token on sentences it has not seen, mean over the splits
gain       that minus the accuracy of the best rule, with its 95 % interval over the splits; * where all is above 0
nuclear    accuracy of the W of least nuclear norm; behind it that of the Frobenius SVM of as many queries
best rule  accuracy of the best of six rules that need no SVM.  An SVM that does not beat it explains nothing new"""
SPACES = {
    "residual": "Residual space: tokens are what the layer is given, W is the head's own K Q^T.",
    "head": (
        "Head space: tokens are the keys and queries that attention compares, and the head's weights are inside them.  "
        "It is for prediction, margins and support tokens; a cosine there is no evidence that training went to the SVM."
    ),
}

HEADER = (
    "head",
    "queries",
    "parked",
    "margin",
    "random",
    "own W",
    "support",
    "rank",
    "logits",
    "cosine",
    "accuracy",
    "gain",
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
    reports = as_reports(reports)
    shown = [report for report in reports if not report.few]
    text = table(results_header(), results_rows(shown))
    rest = [report for report in reports if report.few]
    if rest:
        named = ", ".join(f"{report.head.label} ({report.hard})" for report in rest)
        text += f"\nFewer than {FEW} queries count, and nothing can be said, of {len(rest)} heads: {named}.\n"
    if not caption:
        return text + "\n"
    spaces = "\n".join(SPACES[space] for space in sorted({report.head.space for report in reports}))
    return f"{text}\n{CAPTION}\n{spaces}\n"


def results_header() -> tuple[str, ...]:
    return (*HEADER, "best rule")


def results_rows(reports: Sequence[HeadReport]) -> list[tuple[str, ...]]:
    return [_row(report) for report in reports]


def _row(report: HeadReport) -> tuple[str, ...]:
    head, fit, nuclear, null = report.head, report.fit, report.nuclear, report.null
    if fit is None:
        return head.label, "none", *["-"] * (len(HEADER) - 1)
    rule, right = report.best_baseline
    ranks = [fit.rank, None if nuclear is None else nuclear.rank, head.rank]
    own = f"{100 * fit.learned_margin / fit.margin:.1f} %" if fit.margin > 0 else "-"
    return (
        head.label,
        f"{fit.queries} of {report.hard}",
        f"{100 * report.sinks:.0f} % {report.sink_kind.removesuffix(' sink')}".rstrip(),
        certified(fit.margin, fit.margin_bound) if fit.status == "optimal" else fit.status,
        _random_margin(report),
        own + _beside(None if null is None else null.own, lambda value: f"{100 * value:.1f} %"),
        str(len(fit.rows)),
        " / ".join("-" if rank is None else str(rank) for rank in ranks),
        number(fit.score_correlation, 2),
        number(fit.cosine, 2) + _beside(None if null is None else null.cosine, lambda value: number(value, 2)),
        number(report.accuracy) + _beside(None if null is None else null.accuracy, number),
        gain(report),
        "-" if nuclear is None else f"{number(nuclear.accuracy)} ({number(same_size(report, nuclear).accuracy)})",
        f"{number(right)} {rule}" if rule else "too few queries",
    )


def _beside(value: float | None, shown: Callable[[float], str]) -> str:
    """The random head's number in brackets."""
    return "" if value is None or not math.isfinite(value) else f" ({shown(value)})"


def _random_margin(report: HeadReport) -> str:
    random = report.random
    if random is None:
        return "-"
    if random.status == "infeasible":
        return "none"
    return f"{random.margin:.2g}" if random.status == "optimal" else f"< {random.margin_bound:.2g}"


def gain(report: HeadReport) -> str:
    """The gain over the best rule with its interval; a star where all of it lies above 0."""
    if not len(report.accuracies):
        return "-"
    low, high = report.gain_interval
    bounds = f" [{low:+.3f}, {high:+.3f}]" if math.isfinite(low) else ""
    return f"{report.gain:+.3f}{bounds}{'*' if report.beats_rules else ''}"


def same_size(report: HeadReport, nuclear: Fit) -> Fit:
    """The Frobenius SVM of (about) as many queries as the nuclear one, for a fair comparison."""
    return min(report.curve, key=lambda fit: abs(fit.queries - nuclear.queries))


def certified(low: float, high: float, digits: int = 5) -> str:
    """The digits on which both bounds agree, at most ``digits`` of them."""
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
        words = [*text.query_names([sentence], tokens[:1]), *text.names([sentence] * 2, tokens[1:])]
        shown = (f"{word} ({token})" for word, token in zip(words, tokens, strict=True))
        rows.append((f"{100 * multiplier / total:.2f} %", *shown, sentence_text(text, sentence)))
    return rows


SPACED = ("\u0120", "\u2581")  # what tokenizers of GPT-2 and of SentencePiece write for the space before a word


def sentence_text(text: Text, sentence: int, longest: int = 80) -> str:
    """Its words with the pieces of a word put together, cut when it is long."""
    if text.words is None:
        return f"{sentence}"
    words = text.words[sentence]
    if any(word[:1] in SPACED for word in words):
        joined = "".join(f" {word[1:]}" if word[:1] in SPACED else word for word in words).strip()
    else:
        joined = " ".join(words).replace(" ##", "")
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
    ['accuracy', 'balance', 'baseline']
    """
    reports = as_reports(reports)
    pairs = [(report, fit) for report in reports for fit in fits(report)]
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
    for name in ("hard", "cosine", "own", "accuracy"):
        columns[f"null_{name}"] = [getattr(report.null, name, np.nan) for report, _ in pairs]
    columns["splits"] = [len(report.accuracies) for report, _ in pairs]
    for name in ("accuracy", "gain"):
        columns[f"split_{name}"] = [getattr(report, name) for report, _ in pairs]
        bounds = [_finite(getattr(report, f"{name}_interval")) for report, _ in pairs]
        columns[f"split_{name}_low"], columns[f"split_{name}_high"] = ([b[k] for b in bounds] for k in (0, 1))
    return columns


def _finite(bounds: tuple[float, float]) -> tuple[float, ...]:
    return tuple(bound if math.isfinite(bound) else float("nan") for bound in bounds)


def results_html(reports: Sequence[HeadReport]) -> str:
    """The table of :func:`results_table` for a notebook."""
    shown = [report for report in reports if not report.few] or reports
    cells = "".join(f"<th>{escape(name)}</th>" for name in results_header())
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in results_rows(shown)
    )
    rest = len(reports) - len(shown)
    apart = f"<p>{rest} heads with fewer than {FEW} queries are left out.</p>" if rest else ""
    spaces = "".join(f"<p>{escape(SPACES[space])}</p>" for space in sorted({report.head.space for report in reports}))
    caption = f"<details><summary>What the columns mean</summary><pre>{escape(CAPTION)}</pre></details>"
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>{apart}{spaces}{caption}"
