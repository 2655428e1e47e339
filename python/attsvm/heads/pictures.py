"""Pictures of heads: the grid of a whole model, one sentence of one head, and what more queries teach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..common.check import as_count
from ..common.render import drawing, new_figure
from ..plot.curves import COLORS, finish, style
from .analysis import SIZES
from .choices import is_sink
from .report import HeadReport, as_reports, check_report

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
    layers = sorted({report.head.layer for report in reports})
    heads = sorted({report.head.number for report in reports})
    if axes is None:
        size = (2 + 1.2 * len(heads), 1.6 + 0.45 * len(layers))
        axes = new_figure((max(size[0], 9), max(size[1], 2.4))).subplots(1, 2)
    margin, accuracy = (np.full((len(layers), len(heads)), np.nan) for _ in range(2))
    for report in reports:
        at = layers.index(report.head.layer), heads.index(report.head.number)
        if report.fit is not None and not report.few:
            margin[at], accuracy[at] = max(report.fit.margin, 0), report.accuracy
    shown = np.log10(np.where(margin > 0, margin, np.nan))
    _cells(axes[0], shown, layers, heads, "Blues", None, "Are its choices separable?  Margin")
    _cells(axes[1], accuracy, layers, heads, "Greens", (0.5, 1), "Does the SVM predict it?  Held-out accuracy")
    for report in reports:
        _label(axes, report, layers.index(report.head.layer), heads.index(report.head.number), (shown, accuracy))
    return axes[0].figure


def _cells(
    ax: Any, values: np.ndarray, layers: list[int], heads: list[int], colours: str, limits: Any, title: str
) -> None:
    low, high = limits or (np.nanmin(values, initial=0.0), np.nanmax(values, initial=0.1))
    ax.set_facecolor("0.93")  # seen where there is no number
    ax.imshow(values, cmap=colours, vmin=low, vmax=high + 0.25 * (high - low), aspect="auto")
    ax.set(xticks=range(len(heads)), xticklabels=heads, yticks=range(len(layers)), yticklabels=layers)
    ax.set(xlabel="head", ylabel="layer")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title, loc="left", fontsize=11)


def _label(axes: Any, report: HeadReport, row: int, column: int, values: Any) -> None:
    from matplotlib.patches import Rectangle

    fit = report.fit
    look = {"ha": "center", "va": "center", "fontsize": 8}
    if fit is None or report.few:
        for ax in axes:
            ax.text(column, row, "-" if fit is None else "few", color="0.5", **look)
        return
    word = "no" if fit.margin <= 0 else f"{fit.margin:.2g}" if fit.margin < 99.5 else f"{fit.margin:.0f}"
    axes[0].text(column, row, word, color=_ink(axes[0], values[0][row, column]), **look)
    if not np.isfinite(report.accuracy):
        axes[1].text(column, row, "few", color="0.5", **look)
        return
    rule, _ = report.best_baseline
    word = f"{100 * report.accuracy:.0f} {LETTERS[rule.split()[0]]}"
    axes[1].text(column, row, word, color=_ink(axes[1], values[1][row, column]), **look)
    if report.beats_rules:
        axes[1].add_patch(Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, fill=False, edgecolor=ORANGE, linewidth=2))


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
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.gca()
    fits = report.curve
    look = {"marker": "o", "label": "SVM", **style("W"), **line_kw}
    ax.plot([fit.queries for fit in fits], [fit.accuracy for fit in fits], **look)
    rule, right = report.best_baseline
    if rule:
        ax.axhline(right, color="0.5", linewidth=0.8, label=rule)
    ax.set(xlabel="training queries", ylabel="accuracy on unseen sentences", title=report.head.label)
    ax.legend(frameon=False, fontsize="small")
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
