"""Pictures of heads: the grid of a whole model, one sentence of one head, and what more queries teach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..common.check import as_count
from ..common.render import axes as current
from ..common.render import drawing, new_figure
from ..plot.curves import COLORS, finish, style
from .analysis import SIZES
from .choices import is_sink
from .faithful import ALL, DRAWN, FIXED, OF_CHOICES, Faithfulness
from .fit import Fit
from .report import HeadReport, Reports, as_reports, check_report
from .why import Why

BLUE, ORANGE = COLORS["W"], COLORS["(K, Q)"]
LETTERS = {"offset": "p", "the": "p", "first": "f", "frequent": "w", "same": "s", "induction": "i", "nearest": "n"}
TINY = 1e-300
READABLE = (8, 24)  # tokens of a sentence that make a picture


def plot_grid(reports: Sequence[HeadReport], axes: Any = None) -> Any:
    """Layers x heads: the margin on the left, the held-out accuracy on the right.

    Parameters
    ----------
    reports : list of HeadReport
    axes : two matplotlib Axes, optional
        Of a new figure of pyplot by default.

    Returns
    -------
    matplotlib Figure

    Notes
    -----
    On the right a frame marks heads whose SVM beats the best simple rule by more than chance: the 95 % interval of the
    difference, over the splits of the sentences, lies above 0.  The letter says what the best rule is: p the relative
    position, f the first token, w the most frequent token, s the same word elsewhere, i induction (the token after an
    earlier copy), n the nearest query.

    Examples
    --------
    >>> import attsvm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk = rng.standard_normal((2, 8, 8))
    >>> heads = attsvm.heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None, heads=2)
    >>> figure = attsvm.heads.plot_grid(attsvm.heads.analyze_model(heads, queries=40))
    >>> [axes.get_title(loc="left") for axes in figure.axes[:2]]
    ['Are its choices separable?  Margin', 'Does the SVM predict it?  Held-out accuracy']
    """
    reports = as_reports(reports)
    if axes is None:
        heads, layers = ({getattr(report.head, name) for report in reports} for name in ("number", "layer"))
        axes = new_figure((max(2 + 1.2 * len(heads), 9), max(1.6 + 0.45 * len(layers), 2.4))).subplots(1, 2)
    margins = [np.log10(max(r.fit.margin, TINY)) if r.fit and r.fit.margin > 0 else np.nan for r in reports]
    _cells(axes[0], reports, margins, _margin_word, "Blues", None, "Are its choices separable?  Margin")
    _accuracies(Reports(reports), axes[1])
    return axes[0].figure


@drawing(Reports)
def _accuracies(reports: Reports, ax: Any = None, **image_kw: Any) -> Any:
    """Layers x heads: held-out accuracy, and the letter of the best rule; a frame where the SVM beats it."""
    from matplotlib.patches import Rectangle

    ax = current(ax)
    found = [report.accuracy for report in reports]
    title = "Does the SVM predict it?  Held-out accuracy"
    places = _cells(ax, reports, found, _accuracy_word, "Greens", (0.5, 1), title, **image_kw)
    for report, (row, column) in zip(reports, places, strict=True):
        if report.fit is not None and report.beats_rules and not report.few:
            frame = Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, fill=False, edgecolor=ORANGE, linewidth=2)
            ax.add_patch(frame)
    return ax


def _cells(
    ax: Any,
    reports: Sequence[HeadReport],
    numbers: Sequence[float],
    word: Callable[[HeadReport], str],
    colours: str,
    limits: tuple[float, float] | None,
    title: str,
    **image_kw: Any,
) -> list[tuple[int, int]]:
    """A cell for each head, with its number as colour and its word; where each lies."""
    layers = sorted({report.head.layer for report in reports})
    heads = sorted({report.head.number for report in reports})
    places = [(layers.index(report.head.layer), heads.index(report.head.number)) for report in reports]
    values = np.full((len(layers), len(heads)), np.nan)
    for report, place, number in zip(reports, places, numbers, strict=True):
        if report.fit is not None and not report.few:
            values[place] = number
    low, high = limits or (np.nanmin(values, initial=0.0), np.nanmax(values, initial=0.1))
    ax.set_facecolor("0.93")  # seen where there is no number
    look = {"cmap": colours, "vmin": low, "vmax": high + 0.25 * (high - low), "aspect": "auto"}
    ax.imshow(values, **look | image_kw)
    ax.set(xticks=range(len(heads)), xticklabels=heads, yticks=range(len(layers)), yticklabels=layers)
    ax.set(xlabel="head", ylabel="layer")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title, loc="left", fontsize=11)
    for report, (row, column) in zip(reports, places, strict=True):
        said = "-" if report.fit is None else "few" if report.few else word(report)
        color = "0.5" if said in ("-", "few") else _ink(ax, values[row, column])
        ax.text(column, row, said, color=color, ha="center", va="center", fontsize=8)
    return places


def _margin_word(report: HeadReport) -> str:
    margin = report.fit.margin if report.fit else 0.0
    return "no" if margin <= 0 else f"{margin:.2g}" if margin < 99.5 else f"{margin:.0f}"


def _accuracy_word(report: HeadReport) -> str:
    if not np.isfinite(report.accuracy):
        return "few"
    return f"{100 * report.accuracy:.0f} {LETTERS[report.best_baseline[0].split()[0]]}"


def _ink(ax: Any, value: float) -> str:
    """Black or white, whichever can be read on the cell."""
    image = ax.images[0]
    return "white" if np.isfinite(value) and image.norm(value) > 0.6 else "black"


def choose_sentence(report: HeadReport) -> int:
    """Of the training sentences of readable length with at least three queries that are not parked, the hardest: the
    one whose support tokens have the largest multipliers."""
    lengths, fit = report.head.text.lengths, report.fit
    rows = report.train[~is_sink(report.head, report.train)]
    rows = rows if len(rows) else report.train
    counts = np.bincount(rows[:, 0], minlength=len(lengths))
    held: np.ndarray = np.zeros(len(lengths))
    if fit is not None:
        held = np.bincount(fit.rows[:, 0], weights=fit.multipliers, minlength=len(lengths))
    fitting = (lengths >= READABLE[0]) & (lengths <= READABLE[1]) & (counts > 0)
    enough = fitting & (counts >= min(3, counts[fitting].max(initial=0)))
    return int(np.argmax(np.where(enough, 1 + held, counts > 0)))


def plot_sentence(report: HeadReport, number: int | None = None, ax: Any = None) -> Any:
    """One sentence: an arrow from each training query to the token it selects, and the support tokens it beats.

    Parameters
    ----------
    report : HeadReport
    number : int, optional
        Of the sentence; by default the hardest of readable length.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Blue: query (left) to selected token (right).  Orange, dashed: query to support token, as thick as its multiplier.
    The numbers at the right are multipliers summed over the queries, in percent of those of the sentence.

    Examples
    --------
    >>> import attsvm
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk = rng.standard_normal((2, 8, 8))
    >>> (head,) = attsvm.heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None)
    >>> ax = attsvm.heads.plot_sentence(attsvm.heads.analyze_head(head), ax=Figure().subplots())
    >>> ax.get_title(loc="left")
    'layer 0 head 0'
    """
    check_report(report)
    fit, text = report.fit, report.head.text
    if fit is None:
        raise ValueError("report must have queries to draw, got a head without any above its threshold")
    number = choose_sentence(report) if number is None else as_count("number", number)
    if number >= len(text.lengths):
        raise ValueError(f"number must be that of one of the head's {len(text.lengths)} sentences, got {number}")
    size = int(text.lengths[number])
    if ax is None:
        ax = new_figure((6.5, 1.2 + 0.26 * size)).subplots()
    here = fit.rows[:, 0] == number
    share = 100 * fit.multipliers[here] / max(fit.multipliers[here].sum(), TINY)
    width = 3 * fit.multipliers[here] / max(fit.multipliers[here].max(initial=0.0), TINY)
    for (_, query, _, rival), thick in zip(fit.rows[here], width, strict=True):
        ax.plot([0, 1], [query, rival], color=ORANGE, linewidth=0.3 + thick, linestyle=(0, (3, 2)), alpha=0.7)
    for _, query, selected in report.train[report.train[:, 0] == number]:
        ax.annotate(
            "",
            (1, selected),
            (0, query),
            arrowprops={"arrowstyle": "-|>", "color": BLUE, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0},
        )
    held = np.bincount(fit.rows[here][:, 3], weights=share, minlength=size)
    queries = int(text.counts[number])
    for query, word in enumerate(text.query_names([number] * queries, range(queries))):
        ax.text(-0.03, query, word, ha="right", va="center", fontsize=9)
    for token, word in enumerate(text.names([number] * size, range(size))):
        ax.text(1.03, token, word, ha="left", va="center", fontsize=9, color=ORANGE if held[token] else "black")
        if held[token]:
            ax.plot(1.4, token, "o", color=ORANGE, markersize=3 + 6 * np.sqrt(held[token] / held.max()))
            ax.text(1.44, token, f"{held[token]:.0f} %", ha="left", va="center", fontsize=8, color=ORANGE)
    ax.set(xlim=(-0.45, 1.65), ylim=(max(size, queries) - 0.4, -1.4))
    ax.text(-0.03, -1, "query", ha="right", va="center", color="0.45", fontsize=9)
    ax.text(1.03, -1, "token", ha="left", va="center", color="0.45", fontsize=9)
    ax.text(1.4, -1, "multiplier", ha="left", va="center", color="0.45", fontsize=9)
    ax.axis("off")
    ax.set_title(report.head.name, loc="left", fontsize=11)
    return ax


@drawing(HeadReport)
def _curve(report: HeadReport, ax: Any = None, **line_kw: Any) -> Any:
    """Accuracy on unseen sentences over the number of training queries."""
    if report.fit is None:
        raise ValueError("report must have an SVM, got a head without queries")
    ax, fits = current(ax), report.curve
    look = {"marker": "o", "label": "SVM", **style("W"), **line_kw}
    ax.plot([fit.queries for fit in fits], [fit.accuracy for fit in fits], **look)
    rule, right = report.best_baseline
    if rule:
        ax.axhline(right, color="0.5", linewidth=0.8, label=rule)
    ax.set(xlabel="training queries", ylabel="accuracy on unseen sentences", title=report.head.label)
    ax.legend(frameon=False, fontsize="small")
    return ax


@drawing(Fit)
def _multipliers(fit: Fit, ax: Any = None, **line_kw: Any) -> Any:
    """How much each support token holds, the hardest first."""
    ax = current(ax)
    share = 100 * fit.multipliers / max(fit.multipliers.sum(), TINY)
    ax.plot(np.arange(1, len(share) + 1), share, **{"marker": ".", **style("W"), **line_kw})
    ax.set(xlabel="support tokens, the hardest first", ylabel="multiplier, % of all")
    return ax


@drawing(Why)
def _shares(found: Why, ax: Any = None, **bar_kw: Any) -> Any:
    """What each singular direction adds to the margin."""
    ax = current(ax)
    ax.bar(np.arange(len(found.shares)), found.shares, **{"color": BLUE, **bar_kw})
    ax.set(xlabel=f"singular direction of the {found.of} W", ylabel="share of the margin")
    return ax


@drawing(Faithfulness)
def _recovered(found: Faithfulness, ax: Any = None, row: str | None = None, **line_kw: Any) -> Any:
    """What is recovered, with the spread over draws.

    Of a row, by default all of these, against the number of choices, with controls as lines across; where rows are
    layers and none is named, against the last layer whose heads are replaced.
    """
    ax = current(ax)
    others = [*DRAWN, *(name for name in FIXED if name != "own")]
    look: dict[str, Any] = {"marker": "o", "capsize": 3, **line_kw}
    if found.layers and row is None:
        places = list(found.layers.values())
        for k, column in enumerate([*OF_CHOICES, *others]):
            means = [found.recovered(name, column) for name in found.layers]
            errors = np.nan_to_num([found.spread(name, column)[0] for name in found.layers])
            line = {"label": column, "color": f"C{k}", "linestyle": "-" if column in OF_CHOICES else "--"}
            ax.errorbar(places, means, errors, **line | look)
        ax.set(xlabel="all heads up to this layer", title=f"at most {max(found.queries)} choices a head")
        ax.set_xticks(places)
    else:
        row = ALL if row is None else row
        sizes = [n for n in found.queries if (row, OF_CHOICES[0], n) in found.damages]
        for k, column in enumerate(OF_CHOICES):
            means = [found.recovered(row, column, n) for n in sizes]
            errors = np.nan_to_num([found.spread(row, column, n)[0] for n in sizes])
            ax.errorbar(sizes, means, errors, **{"label": column, "color": f"C{k}"} | look)
        for k, column in enumerate(others, start=len(OF_CHOICES)):
            ax.axhline(found.recovered(row, column), label=column, color=f"C{k}", linestyle="--", linewidth=1)
        ax.set(xscale="log", xlabel="choices a head", title=row)
        ax.set_xticks(sizes, [f"{n}" for n in sizes])
        ax.minorticks_off()
    ax.set(ylabel="recovered", ylim=(-0.55, 1.05))
    ax.legend(fontsize=8, ncols=2)
    return ax


def plot_curve(reports: Sequence[HeadReport], axes: Any = None) -> Any:
    """Accuracy on unseen sentences, and correlation with the head's own logits, over the number of training queries.

    Parameters
    ----------
    reports : list of HeadReport
    axes : two matplotlib Axes, optional
        Of a new figure of pyplot by default.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import attsvm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk = rng.standard_normal((2, 8, 8))
    >>> heads = attsvm.heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None)
    >>> figure = attsvm.heads.plot_curve(attsvm.heads.analyze_model(heads))
    >>> figure.axes[0].get_xlabel()
    'training queries'
    """
    reports = as_reports(reports)
    if axes is None:
        axes = new_figure((11, 4)).subplots(1, 2)
    for report in reports:
        if not report.curve:
            continue
        n = [fit.queries for fit in report.curve]
        (line,) = axes[0].plot(n, [fit.accuracy for fit in report.curve], "o-", markersize=4, label=report.head.label)
        rule, right = report.best_baseline
        axes[0].axhline(right, color=line.get_color(), linestyle=":", linewidth=1)
        axes[1].plot(n, [fit.score_correlation for fit in report.curve], "o-", markersize=4, label=report.head.label)
    for ax, title in zip(axes, ("Held-out accuracy (dotted: best simple rule)", "Correlation of logits"), strict=True):
        sizes = sorted({fit.queries for report in reports for fit in report.curve})
        ax.set(xscale="log", xlabel="training queries", ylim=(0, 1.03))
        ax.set_xticks([size for size in sizes if size in SIZES or size == sizes[-1]])
        ax.xaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        finish(ax, title)
        ax.margins(x=0.03)
    return axes[0].figure
