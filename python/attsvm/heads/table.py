"""Tables of attention heads: numbers of each head, SVMs of more and more training queries, and the hardest cases."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..common.result import Table
from .fit import support_of
from .head import share_of
from .sequences import Text, printable

if TYPE_CHECKING:
    from .report import HeadReport


class Column(NamedTuple):
    """A column of the table of attention heads: its explanation, and how its cells are made.

    ``meaning`` explains the column to a reader who does not know the paper.  ``cell`` makes its text from a report.
    ``paths`` are the numbers of the column in a data frame, with spaces between them.  A path begins with "report",
    "fit" or "head" and is followed from there, attribute by attribute; "name=path" gives the number a name other than
    the path's.
    """

    meaning: str
    paths: str
    cell: Callable[[Any], str]


FALSE_STAR = 0.025  # share of heads without a gain that get a star by chance: one side of a 95 % interval
INTRODUCTION = """\
A row is an attention head: L1H8 is head 8 of layer 1, counted from 0.  A query counts when the head gives one token,
the selected one, more than the threshold of its attention, or when a given label names it with a token; of all other
queries the table says nothing.  The SVM looks for the matrix W that ranks every selected token first,
x_selected.Wz > x_other.Wz, by the largest margin; it is told those choices and nothing else.  The head's own W does so
for choices of its own at a threshold of 1/2 or more: read each number beside its control.  In brackets: untrained heads
on the same tokens with as many queries that count, means of three draws: random ones (Gaussian K and Q); and ones of
the head's own singular values, whose singular vectors were permuted among themselves (-: of a head of rank 1 or 2,
which that leaves nearly as it is)."""
SPACES = {
    "residual": "Residual space: tokens are what the layer is given, W is the head's own K Q^T.",
    "head": (
        "Head space: tokens are the keys and queries that attention compares, and the head's weights are inside them.  "
        "It is for prediction, margins and support tokens; a cosine there is no evidence that training went to the SVM."
    ),
}


def certified(low: float, high: float) -> str:
    """The number between the bounds as text, with the digits on which both bounds agree, at most five of them.

    "?" if they agree on no digit.
    """
    if not 0 < low < math.inf:
        return "-"
    digits = 5
    while digits and f"{low:.{digits}g}" != f"{high:.{digits}g}":
        digits -= 1
    return f"{low:.{digits}g}" if digits else "?"


def number(value: float, form: str = ".3f") -> str:
    return f"{value:{form}}" if math.isfinite(value) else "-"


def _random_margin(report: Any) -> str:
    random = report.random
    if not random:
        return "-"
    if random.status == "infeasible":
        return "none"
    return f"{random.margin:.2g}" if random.status == "optimal" else f"< {random.margin_bound:.2g}"


def _margin(report: Any) -> str:
    fit = report.fit
    return certified(fit.margin, fit.margin_bound) if fit.status == "optimal" else fit.status


def _own(report: Any) -> str:
    fit = report.fit
    own = f"{100 * fit.learned_margin / fit.margin:.1f} %" if fit.margin > 0 else "-"
    return own + _beside(report, "own", 1, 100)


def _ranks(report: Any) -> str:
    ranks = (getattr(owner, "rank", None) for owner in (report.fit, report.nuclear, report.head))
    return " / ".join("-" if rank is None else f"{rank}" for rank in ranks)


def _nulls(report: Any, name: str, shown: Callable[[Any], str]) -> str:
    """Text with the numbers of this name for both kinds of untrained heads, or "" if neither kind has such numbers."""
    found = [getattr(null, name, np.nan) for null in (report.null, report.shuffled)]
    texts = [shown(values) if np.isfinite(values).all() else "-" for values in found]
    return "" if texts == ["-", "-"] else "; ".join(texts)


def _beside(report: Any, name: str, digits: int = 2, times: float = 1.0) -> str:
    found = _nulls(report, name, lambda values: f"{times * values.mean():.{digits}f}")
    return f" ({found})" if found else ""


def _gain(report: Any) -> str:
    """Text with the SVM's gain over the best rule, its 95 % interval, and a star if the whole interval lies above 0."""
    if not len(report.accuracies):
        return "-"
    low, high = report.gain_interval
    bounds = f" [{low:+.3f}, {high:+.3f}]" if math.isfinite(low) else ""
    return f"{report.gain:+.3f}{bounds}{'*' if report.beats_rules else ''}"


def _nuclear(report: Any) -> str:
    """Accuracy of the nuclear-norm SVM; in brackets, of the Frobenius SVM whose number of queries is closest."""
    if not (nuclear := report.nuclear):
        return "-"
    same = min(report.curve, key=lambda fit: abs(fit.queries - nuclear.queries))
    return f"{number(nuclear.accuracy)} ({number(same.accuracy)})"


COLUMNS = {
    "head": Column(
        "",
        "name=head.label head.layer head=head.number head.module head.kind head.space head.tokens",
        lambda report: report.head.label,
    ),
    "queries": Column(
        "that count, of all.  The table is about these; of the others it knows nothing",
        "hard_queries=report.hard all_queries=head.asking",
        lambda report: share_of(report.hard, report.head.asking),
    ),
    "parked": Column(
        "part of these queries that select the first token or [SEP], where heads leave attention they have no use for: "
        'easy to predict, and of no interest (drop_sinks leaves them out).  Of a head that parks most, "null": '
        'the values there are short, and these queries add next to nothing; "value": they add one and the same vector',
        "parked=report.sinks report.sink_value report.sink_kind",
        lambda report: f"{100 * report.sinks:.0f} % {report.sink_kind.removesuffix(' sink')}".rstrip(),
    ),
    "accuracy": Column(
        "how often the SVM ranks the selected token first on sequences it has not seen, mean over the splits",
        "test_queries=report.test.shape fit.missed fit.accuracy splits=report.accuracies.shape "
        "split_accuracy=report.accuracy split_accuracy_=report.accuracy_interval "
        "report.null.accuracy report.shuffled.accuracy",
        lambda report: number(report.accuracy) + _beside(report, "accuracy"),
    ),
    "cosine": Column(
        "between the SVM's W and the head's own: at best 1",
        "fit.cosine report.null.cosine report.shuffled.cosine",
        lambda report: number(report.fit.cosine, ".2f") + _beside(report, "cosine"),
    ),
    "damage": Column(
        "change of the model's output without the head (attsvm.torch.damage measures it)",
        "report.damage report.metric",
        lambda report: number(report.damage, ".2g"),
    ),
    "best rule": Column(
        "of six that need no SVM, the one that is best on the training queries: its accuracy on the test queries.  An "
        "SVM that does not beat it explains nothing new",
        "baseline=report.rule baseline_accuracy=report.rule_accuracy",
        lambda report: f"{number(report.rule_accuracy)} {report.rule}" if report.rule else "too few queries",
    ),
    "trained": Column(
        "queries that train the SVM, at most 1,500 by default",
        "fit.norm fit.queries fit.status",
        lambda report: f"{report.fit.queries}",
    ),
    "margin": Column(
        "of the best W of unit norm.  All digits are certified", "fit.margin fit.margin_bound fit.gap", _margin
    ),
    "random": Column(
        'the same for random choices of the same queries: what this many dimensions separate anyway.  "<": a bound, '
        'where the exact number would take minutes; "none": no W separates them',
        "report.random.status report.random.margin report.random.margin_bound report.random.accuracy",
        _random_margin,
    ),
    "capacity": Column(
        "chance that given choices in as many windows of these lengths could be separated if tokens were Gaussian; how "
        "far that is true of a model's tokens is not known",
        "report.capacity",
        lambda report: number(report.capacity, ".2f"),
    ),
    "own W": Column(
        "margin of the head's own W, in percent of the best",
        "fit.learned_margin report.null.own report.shuffled.own",
        _own,
    ),
    "support": Column(
        "pairs (query, rival token) that hold the SVM's W in place: the hardest cases",
        "support=fit.rows.shape",
        lambda report: f"{len(report.fit.rows)}",
    ),
    "error bound": Column(
        "share of the training sequences that hold a support token.  Without any other the SVM is the same, so that it "
        "bounds in expectation the share of new sequences (exchangeable with these) of which the SVM selects some "
        "token wrongly; near 1 it says nothing.  Of untrained heads that of the first draw",
        "report.support_share report.null.support_share report.shuffled.support_share",
        lambda report: number(report.support_share, ".2f") + _beside(report, "support_share"),
    ),
    "rank": Column(
        "of the SVM's W / of the W of least nuclear norm / of the head's own W",
        "fit.rank own_rank=head.rank report.effective_rank report.balance",
        _ranks,
    ),
    "logits": Column(
        "correlation of the SVM's logits with the head's, on sequences it has not seen: at best 1",
        "fit.score_correlation",
        lambda report: number(report.fit.score_correlation, ".2f"),
    ),
    "gain": Column(
        "accuracy minus that of the best rule, with its 95 % interval over the splits; * where all is above 0: the "
        "choices are those of some bilinear form that none of six rules imitates, which is true of a random head, too",
        "split_gain=report.gain split_gain_=report.gain_interval",
        _gain,
    ),
    "null gain": Column(
        "the gain of the untrained heads, least..largest of three draws: random; singular vectors permuted",
        "report.null.gain report.shuffled.gain report.null.hard report.shuffled.hard",
        lambda report: _nulls(report, "gain", lambda values: f"{values.min():+.2f}..{values.max():+.2f}") or "-",
    ),
    "nuclear": Column(
        "accuracy of the W of least nuclear norm; behind it that of the Frobenius SVM of as many queries", "", _nuclear
    ),
}
NAMES = tuple(COLUMNS)
# The path of each number of a data frame; an underscore stands for each dot after the first.
PATHS = {
    name or path.partition(".")[2].replace(".", "_"): path
    for column in COLUMNS.values()
    for name, _, path in (named.rpartition("=") for named in column.paths.split())
}
SHOWN = NAMES[:7]  # the columns that are shown by default, which fit into 120 characters
CASES = 10  # largest number of support tokens in a table
OF_HEAD = "head queries damage".split()  # columns that are filled for a head without an SVM


def grid(reports: Sequence[HeadReport], names: Sequence[str] = SHOWN) -> Table:
    """A table with the columns of these names and one row for each report of a head."""
    return names, [
        [COLUMNS[name].cell(report) if report.fit or name in OF_HEAD else "-" for name in names] for report in reports
    ]


def frame(reports: Sequence[HeadReport]) -> dict[str, list[Any]]:
    """All numbers of these reports by column, with one row for each SVM, and one for each head without an SVM."""
    found: dict[str, list[Any]] = {}
    for report in reports:
        for fit in report.fits or (None,):
            owners = {"report": report, "fit": fit, "head": report.head}
            for name, path in PATHS.items():
                for suffix, value in values(owners, path).items():
                    found.setdefault(name + suffix, []).append(value)
    return found


def values(owners: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the number at a path such as "fit.margin", or nan, keyed by the suffix that its column's name gets.

    An interval has two ends.  Numbers of untrained heads have a mean, a smallest and a largest one.  A shape becomes a
    length.
    """
    owner, *names = path.split(".")
    found: Any = owners[owner]
    for name in names:
        found = None if found is None else getattr(found, name)
    found = math.nan if found is None else found
    if names[-1].endswith("interval"):
        return {end: x if math.isfinite(x) else math.nan for end, x in zip(("low", "high"), found, strict=True)}
    if names[0] in ("null", "shuffled"):
        return {"": float(np.mean(found)), "_low": float(np.min(found)), "_high": float(np.max(found))}
    return {"": found[0] if isinstance(found, tuple) else found}


def meaning(reports: Sequence[HeadReport], names: Sequence[str] = SHOWN) -> str:
    """Text that explains the columns of these names, and the spaces of these heads."""
    lines = [
        textwrap.fill(column.meaning, 120, initial_indent=f"{name:<12}", subsequent_indent=" " * 12)
        for name, column in COLUMNS.items()
        if name in names and column.meaning
    ]
    spaces = [SPACES[space] for space in sorted({report.head.space for report in reports})]
    rest = [name for name in NAMES if name not in names]
    more = [f"More columns: {', '.join(rest)}: attsvm.heads.results_table(reports, columns=...)"] * bool(rest)
    return "\n".join([textwrap.fill(INTRODUCTION, 120), *lines, *(textwrap.fill(x, 120) for x in spaces + more)])


def stars(reports: Sequence[HeadReport]) -> str:
    """A sentence with the number of stars (heads whose SVM beats the rules) and the number that chance would give."""
    looked = [report for report in reports if math.isfinite(report.gain_interval[0])]
    if len(looked) < 2:
        return ""
    found, chance = sum(report.beats_rules for report in looked), FALSE_STAR * len(looked)
    counted = f"{found} star{'s' * (found != 1)} in {len(looked)} heads"
    return f"{counted}, of which chance leaves at most {chance:.1f} on average"


def curve_table(report: HeadReport) -> Table:
    """A table with one row for each SVM of a head: a head has an SVM for each number of training queries."""
    header = "head SVM queries margin support logits cosine accuracy".split()
    return header, [
        (
            report.head.label, fit.norm, f"{fit.queries}", certified(fit.margin, fit.margin_bound), f"{len(fit.rows)}",
            *map(number, (fit.score_correlation, fit.cosine, fit.accuracy)),
        )
        for fit in report.fits
    ]  # fmt: skip


def cases_table(report: HeadReport) -> Table:
    """A table of the support tokens with the largest multipliers, each with its share of the sum of multipliers."""
    text, parts = report.head.text, [part[:CASES] for part in support_of(report.fit)]
    return "multiplier query selected rival sequence".split(), [
        (f"{100 * share:.2f} %", *cased(text, *row), sequence_text(text, row[0]))
        for row, share in zip(*parts, strict=True)
    ]


def cased(text: Text, sequence: int, *tokens: int) -> list[str]:
    """A query and tokens that it sees, each as "text (position)"; the first of ``tokens`` is the query's position."""
    words = [*text.query_names(sequence, tokens[:1]), *text.names(sequence, tokens[1:])]
    return [f"{word} ({token})" for word, token in zip(words, tokens, strict=True)]


SPACED = ("\u0120", "\u2581")  # the space before a word, as the tokenizers of GPT-2 and SentencePiece write it


def sequence_text(text: Text, sequence: int, longest: int = 80) -> str:
    """The text of a sequence with its word pieces joined, cut to ``longest`` characters."""
    if text.words is None:
        return f"{sequence}"
    words = [*map(printable, text.words[sequence])]
    spaced = [f" {word[1:]}" if word[:1] in SPACED else word for word in words]
    joined = " ".join(words).replace(" ##", "") if spaced == words else "".join(spaced).strip()
    return joined if len(joined) <= longest else f"{joined[: longest - 3]}..."
