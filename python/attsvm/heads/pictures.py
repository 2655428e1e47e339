"""Pictures of heads: the grid of a whole model, one sequence of one head, and curves over the training queries."""

import functools
from typing import Any

import numpy as np

from ..common.check import as_count
from ..common.render import drawing, new_figure
from ..plot.curves import COLORS
from .choices import is_sink
from .faithful import ALL, DRAWN, FIXED, OF_CHOICES, Faithfulness
from .fit import Fit, support_of
from .report import HeadReport, Reports, check_report
from .why import Why

BLUE, ORANGE = COLORS["W"], COLORS["(K, Q)"]
LETTERS = {"offset": "p", "the": "p", "first": "f", "frequent": "w", "same": "s", "induction": "i", "nearest": "n"}
# the accuracy with the darkest colour, and the fraction of the colour scale above which text is white
DARK, LIGHT = 1.125, 0.6
READABLE = range(8, 25)  # numbers of tokens of the sequences that are chosen for a picture, if there are any


@drawing(Reports)
def _grid(reports: Reports, ax: Any, **image_kw: Any) -> None:
    """Draws a grid of layers and heads, with each SVM's held-out accuracy and the letter of the best simple rule.

    A head has a frame if its SVM beats the rules by more than chance: the 95 % interval of the difference, over the
    splits, lies above 0.
    """
    from matplotlib.patches import Rectangle

    layers, rows = np.unique([report.head.layer for report in reports], return_inverse=True)
    heads, columns = np.unique([report.head.number for report in reports], return_inverse=True)
    values = np.full((len(layers), len(heads)), np.nan)
    values[rows, columns] = [np.nan if report.few else report.accuracy for report in reports]
    ax.set_facecolor("0.93")  # light grey for heads that have no accuracy
    ax.imshow(values, **{"cmap": "Greens", "vmin": 0.5, "vmax": DARK, "aspect": "auto"} | image_kw)
    ax.set(
        xticks=range(len(heads)), xticklabels=heads, xlabel="head",
        yticks=range(len(layers)), yticklabels=layers, ylabel="layer",
    )  # fmt: skip
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title("Does the SVM predict it?  Held-out accuracy", loc="left", fontsize=11)
    for report, row, column in zip(reports, rows, columns, strict=True):
        value = values[row, column]
        known = np.isfinite(value)
        said = f"{100 * value:.0f} {LETTERS[report.rule.split()[0]]}" if known else "few"
        ink = "0.5" if not known else "white" if ax.images[0].norm(value) > LIGHT else "black"
        ax.text(column, row, said, color=ink, ha="center", va="center", fontsize=8)
        if known and report.beats_rules:
            ax.add_patch(Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, fill=False, edgecolor=ORANGE, linewidth=2))


def choose_sequence(report: HeadReport) -> int:
    """Index of the hardest training sequence, whose support tokens have the largest sum of multipliers.

    It is chosen among the sequences of readable length that have at least three queries that do not select a sink (or
    the largest number of such queries, if no sequence has three).
    """
    lengths, (support, shares) = report.head.text.lengths, support_of(report.fit)
    rows = report.train[~is_sink(report.head, report.train)]
    counts = np.bincount((rows if len(rows) else report.train)[:, 0], minlength=len(lengths))
    held = np.bincount(support[:, 0], shares, len(lengths))
    fitting = np.isin(lengths, READABLE) & (counts > 0)
    enough = fitting & (counts >= min(3, counts[fitting].max(initial=0)))
    return int(np.argmax(np.where(enough, 1 + held, counts > 0)))


def plot_sequence(report: HeadReport, sequence: int | None = None, ax: Any = None) -> Any:
    """Picture of one sequence: an arrow from each training query to the token it selects, and its support tokens.

    Parameters
    ----------
    report : HeadReport
    sequence : int, optional
        Index among the kept sequences; by default the hardest one of readable length.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    A blue arrow leads from a query (left) to its selected token (right).  A dashed orange line leads from a query to a
    support token; its width shows the multiplier.  The numbers at the right are multipliers summed over the queries, in
    percent of the sum for the sequence.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk = rng.standard_normal((2, 8, 8))
    >>> (head,) = attsvm.heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None)
    >>> ax = attsvm.heads.plot_sequence(attsvm.heads.analyze_head(head), ax=Figure().subplots())
    >>> ax.get_title(loc="left")
    'layer 0 head 0'
    """
    check_report(report)
    fit, text = report.fit, report.head.text
    if not fit:
        raise ValueError("report must have queries to draw, got a head without any above its threshold")
    sequence = choose_sequence(report) if sequence is None else as_count("sequence", sequence)
    if sequence >= len(text.lengths):
        raise ValueError(f"sequence must be one of the head's {len(text.lengths)}, counted from 0, got {sequence}")
    size = text.lengths[sequence]
    if ax is None:
        ax = new_figure((6.5, 1.2 + 0.26 * size)).subplots()
    rows, shares = (part[fit.rows[:, 0] == sequence] for part in support_of(fit))
    shares = shares / shares.sum()
    for (_, query, _, rival), share in zip(rows, shares, strict=True):
        thick = 0.3 + 3 * share / max(shares)
        ax.plot([0, 1], [query, rival], color=ORANGE, linewidth=thick, linestyle=(0, (3, 2)), alpha=0.7)
    for _, query, selected in report.train[report.train[:, 0] == sequence]:
        ax.annotate(
            "", (1, selected), (0, query),
            arrowprops={"arrowstyle": "-|>", "color": BLUE, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
    held, queries = np.bincount(rows[:, 3], 100 * shares, size), text.counts[sequence]
    write = functools.partial(ax.text, va="center", fontsize=9)
    for query, word in enumerate(text.query_names(sequence, range(queries))):
        write(-0.03, query, word, ha="right")
    for token, word in enumerate(text.names(sequence, range(size))):
        write(1.03, token, word, color=ORANGE if held[token] else "black")
        if held[token]:
            ax.plot(1.4, token, "o", color=ORANGE, markersize=3 + 6 * np.sqrt(held[token] / held.max()))
            write(1.44, token, f"{held[token]:.0f} %", fontsize=8, color=ORANGE)
    ax.set(xlim=(-0.45, 1.65), ylim=(max(size, queries) - 0.4, -1.4))
    for x, title in ((-0.03, "query"), (1.03, "token"), (1.4, "multiplier")):
        write(x, -1, title, ha="right" if x < 0 else "left", color="0.45")
    ax.axis("off")
    ax.set_title(report.head.name, loc="left", fontsize=11)
    return ax


@drawing(HeadReport)
def _curve(report: HeadReport, ax: Any, **line_kw: Any) -> None:
    """Draws the SVM's accuracy, and its logits' correlation with the head's, over the number of training queries."""
    if not report.fit:
        raise ValueError("report must have an SVM, got a head without queries")
    queries = [fit.queries for fit in report.curve]
    for label, name, line in (("accuracy", "accuracy", "-"), ("correlation of logits", "score_correlation", ":")):
        numbers = [getattr(fit, name) for fit in report.curve]
        ax.plot(queries, numbers, **{"label": label, "marker": "o", "color": BLUE, **line_kw, "linestyle": line})
    if report.rule:
        ax.axhline(report.rule_accuracy, color="0.5", linewidth=0.8, label=report.rule)
    ax.set(xlabel="training queries", ylabel="on unseen sequences", title=report.head.label)
    ax.legend(frameon=False, fontsize="small")


@drawing(Fit)
def _multipliers(fit: Fit, ax: Any, **line_kw: Any) -> None:
    """Draws the multipliers of an SVM's support tokens, the largest first."""
    ax.plot(np.arange(1, len(fit.rows) + 1), 100 * support_of(fit)[1], **{"marker": ".", "color": BLUE, **line_kw})
    ax.set(xlabel="support tokens, the hardest first", ylabel="multiplier, % of all")


@drawing(Why)
def _shares(found: Why, ax: Any, **bar_kw: Any) -> None:
    """Draws the contribution of each singular direction of W to a query's margin as bars."""
    ax.bar(np.arange(len(found.shares)), found.shares, **{"color": BLUE, **bar_kw})
    ax.set(xlabel=f"singular direction of the {found.of} W", ylabel="share of the margin")


@drawing(Faithfulness)
def _recovered(found: Faithfulness, ax: Any, row: str | None = None, **line_kw: Any) -> None:
    """Draws the share of the importance of heads that each substitute for W recovers, with its deviation over draws.

    The share is drawn against the number of choices, for one ``row`` of the table (a head; by default all heads), with
    the controls as horizontal lines.  If rows are layers and ``row`` is not given, the axis is the last replaced layer.
    """
    by_layer = bool(found.layers) and row is None
    row = row or ALL
    sizes = [n for n in found.queries if (row, OF_CHOICES[0], n) in found.damages]
    places, points = sizes, [(row, n) for n in sizes]
    if by_layer:
        places, points = [*found.layers.values()], [(name, max(found.queries)) for name in found.layers]
    for k, column in enumerate([*OF_CHOICES, *DRAWN, *FIXED[1:]]):
        drawn = column in OF_CHOICES
        line = {"label": column, "color": f"C{k}", "linestyle": "-" if drawn else "--"}
        if by_layer or drawn:
            numbers = [found._recovered(name, column, n if drawn else 0) for name, n in points]
            means, errors, _ = np.reshape(numbers, (-1, 3)).T
            ax.errorbar(places, means, np.nan_to_num(errors), **{**line, "marker": "o", "capsize": 3, **line_kw})
        else:
            ax.axhline(found.recovered(row, column), linewidth=1, **line)
    if by_layer:
        ax.set(xlabel="all heads up to this layer", title=f"at most {max(found.queries)} choices a head")
        ax.set_xticks(places)
    else:
        ax.set(xscale="log", xlabel="choices a head", title=row)
        ax.set_xticks(sizes, [f"{n}" for n in sizes])
        ax.minorticks_off()
    ax.set(ylabel="recovered", ylim=(-0.55, 1.05))
    ax.legend(fontsize=8, ncols=2)
