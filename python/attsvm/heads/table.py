"""Tables of heads: a row of each, what its columns mean, the curve over the number of queries, the hardest cases."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .fit import Fit
from .sequences import Text

if TYPE_CHECKING:
    from .report import HeadReport


class Column(NamedTuple):
    """A column of the table: name, meaning for somebody who has not read the paper, text for a head with an SVM."""

    name: str
    meaning: str
    cell: Callable[[HeadReport, Fit], str]


FALSE_STAR = 0.025  # of heads without a gain: the interval is one of 95 %, and one of its two sides a star
INTRODUCTION = (
    "A row is an attention head: L1H8 is head 8 of layer 1, counted from 0.  A query counts when the head gives one "
    "token, the selected one, more than the threshold of its attention.  The SVM looks for the matrix W that ranks "
    "every selected token first, x_selected.Wz > x_other.Wz, by the largest margin; it is told those choices and "
    "nothing else.  Some W does so always, the head's own, and in many dimensions some W does so for random choices: "
    "read each number beside its control.  In brackets: heads that learned nothing, on the same tokens with as many "
    "hard queries, means of three draws: random ones (Gaussian K and Q); and ones of the head's own singular values, "
    "whose singular vectors were permuted among themselves.  A head of rank 1 is its own permuted one, and one of rank "
    "2 nearly so: there stands -."
)
SPACES = {
    "residual": "Residual space: tokens are what the layer is given, W is the head's own K Q^T.",
    "head": (
        "Head space: tokens are the keys and queries that attention compares, and the head's weights are inside them.  "
        "It is for prediction, margins and support tokens; a cosine there is no evidence that training went to the SVM."
    ),
}


def certified(low: float, high: float, digits: int = 5) -> str:
    """The digits on which both bounds agree, at most ``digits`` of them."""
    if not math.isfinite(low) or low <= 0:
        return "-"
    while digits > 1 and f"{low:.{digits}g}" != f"{high:.{digits}g}":
        digits -= 1
    return f"{low:.{digits}g}"


def number(value: float, decimals: int = 3) -> str:
    return f"{value:.{decimals}f}" if math.isfinite(value) else "-"


def _margin(report: HeadReport, fit: Fit) -> str:
    return certified(fit.margin, fit.margin_bound) if fit.status == "optimal" else fit.status


def _random_margin(report: HeadReport, fit: Fit) -> str:
    random = report.random
    if random is None:
        return "-"
    if random.status == "infeasible":
        return "none"
    return f"{random.margin:.2g}" if random.status == "optimal" else f"< {random.margin_bound:.2g}"


def _own(report: HeadReport, fit: Fit) -> str:
    own = f"{100 * fit.learned_margin / fit.margin:.1f} %" if fit.margin > 0 else "-"
    return own + _beside(report, "own", lambda values: f"{100 * values.mean():.1f}")


def _ranks(report: HeadReport, fit: Fit) -> str:
    ranks = (fit.rank, None if report.nuclear is None else report.nuclear.rank, report.head.rank)
    return " / ".join("-" if rank is None else str(rank) for rank in ranks)


def _nulls(report: HeadReport, name: str, shown: Callable[[np.ndarray], str]) -> str:
    """What the two kinds of heads that learned nothing have."""
    kinds = (report.null, report.shuffled)
    found = [np.full(1, np.nan) if null is None else getattr(null, name) for null in kinds]
    if not any(np.isfinite(values).all() for values in found):
        return ""
    return "; ".join(shown(values) if np.isfinite(values).all() else "-" for values in found)


def _beside(report: HeadReport, name: str, shown: Callable[[np.ndarray], str]) -> str:
    found = _nulls(report, name, shown)
    return f" ({found})" if found else ""


def _cosine(report: HeadReport, fit: Fit) -> str:
    return number(fit.cosine, 2) + _beside(report, "cosine", lambda values: f"{values.mean():.2f}")


def _accuracy(report: HeadReport, fit: Fit) -> str:
    return number(report.accuracy) + _beside(report, "accuracy", lambda values: f"{values.mean():.2f}")


def _gain(report: HeadReport, fit: Fit) -> str:
    """The gain over the best rule with its interval; a star where all of it lies above 0."""
    if not len(report.accuracies):
        return "-"
    low, high = report.gain_interval
    bounds = f" [{low:+.3f}, {high:+.3f}]" if math.isfinite(low) else ""
    return f"{report.gain:+.3f}{bounds}{'*' if report.beats_rules else ''}"


def _null_gain(report: HeadReport, fit: Fit) -> str:
    return _nulls(report, "gain", lambda values: f"{values.min():+.2f}..{values.max():+.2f}") or "-"


def _nuclear(report: HeadReport, fit: Fit) -> str:
    """Behind it the Frobenius SVM of (about) as many queries, for a fair comparison."""
    if (nuclear := report.nuclear) is None:
        return "-"
    same = min(report.curve, key=lambda fit: abs(fit.queries - nuclear.queries))
    return f"{number(nuclear.accuracy)} ({number(same.accuracy)})"


def _best_rule(report: HeadReport, fit: Fit) -> str:
    rule, right = report.best_baseline
    return f"{number(right)} {rule}" if rule else "too few queries"


COLUMNS = (
    Column("queries", "that train the SVM, of all that count", lambda report, fit: f"{fit.queries} of {report.hard}"),
    Column(
        "parked",
        "share of them that select the sentence's first token or [SEP], where heads leave attention they have no use "
        'for: easy to predict, and of no interest (drop_sinks leaves them out).  Of a head that parks most, "null": '
        'the values there are short, next to nothing is added; "value": one vector is added again and again',
        lambda report, fit: f"{100 * report.sinks:.0f} % {report.sink_kind.removesuffix(' sink')}".rstrip(),
    ),
    Column("margin", "of the best W of unit norm.  All digits are certified", _margin),
    Column(
        "random",
        'the same for random choices of the same queries: what this many dimensions separate anyway.  "<": a bound, '
        'where the exact number would take minutes; "none": no W separates them',
        _random_margin,
    ),
    Column("own W", "margin of the head's own W, in percent of the best", _own),
    Column(
        "support",
        "pairs (query, rival token) that hold the SVM's W in place: the hardest cases",
        lambda report, fit: str(len(fit.rows)),
    ),
    Column("rank", "of the SVM's W / of the W of least nuclear norm / of the head's own W", _ranks),
    Column(
        "logits",
        "correlation of the SVM's logits with the head's, on sentences it has not seen: at best 1",
        lambda report, fit: number(fit.score_correlation, 2),
    ),
    Column("cosine", "between the SVM's W and the head's own: at best 1", _cosine),
    Column(
        "accuracy",
        "how often the SVM selects the head's token on sentences it has not seen, mean over the splits",
        _accuracy,
    ),
    Column(
        "gain",
        "that minus the accuracy of the best rule, with its 95 % interval over the splits; * where all is above 0: the "
        "choices are those of some bilinear form that none of six rules imitates, which is true of a random head, too",
        _gain,
    ),
    Column(
        "null gain",
        "the gain of the heads that learned nothing, least..largest of three draws: random; singular vectors permuted",
        _null_gain,
    ),
    Column(
        "nuclear",
        "accuracy of the W of least nuclear norm; behind it that of the Frobenius SVM of as many queries",
        _nuclear,
    ),
    Column(
        "best rule",
        "of six that need no SVM, the one that is best on the training queries: its accuracy on the test queries.  An "
        "SVM that does not beat it explains nothing new",
        _best_rule,
    ),
)
HEADER = ("head", *(column.name for column in COLUMNS))


def meaning(reports: Sequence[HeadReport]) -> str:
    """What the columns mean, and the spaces of these heads."""
    indent = " " * 11
    columns = (textwrap.fill(c.meaning, 120, initial_indent=f"{c.name:<11}", subsequent_indent=indent) for c in COLUMNS)
    spaces = (SPACES[space] for space in sorted({report.head.space for report in reports}))
    return "\n".join([textwrap.fill(INTRODUCTION, 120), *columns, *spaces])


def rows_of(reports: Sequence[HeadReport]) -> list[tuple[str, ...]]:
    """A row for each head, below HEADER."""
    empty = ("none", *["-"] * (len(COLUMNS) - 1))
    return [
        (r.head.label, *(empty if r.fit is None else (column.cell(r, r.fit) for column in COLUMNS))) for r in reports
    ]


def stars(reports: Sequence[HeadReport]) -> str:
    """How many heads were looked at, and how many stars chance alone would leave; nothing of a single head."""
    looked = [report for report in reports if math.isfinite(report.gain_interval[0])]
    if len(looked) < 2:
        return ""
    found, chance = sum(report.beats_rules for report in looked), FALSE_STAR * len(looked)
    return f"{found} stars in {len(looked)} heads, of which chance leaves at most {chance:.1f} on average"


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
        for fit in report.fits
    ]


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
