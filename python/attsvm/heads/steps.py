"""Measures attention heads at steps of a training run, and writes, reads and draws the table of all steps.

The gradient of the loss in a head's logits is a dual point of the head's SVM, except that some entries may be negative.
Let P be the probabilities of a query and G the gradient of the loss in P.  The gradient in the logits is ``delta = P (G
- P.G)``, which sums to zero.  In the head's weights the gradient is therefore ``-dL/dW = sum delta (x_ref - x_t) z^T``,
for any token ``ref`` of the query.  This is the adjoint of the rows of the SVM that selects the tokens ``ref``.  If
delta is negative, the loss asks for a larger logit of the token.
"""

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..attention.selection import Selection, intervals
from ..common.check import as_count, as_list
from ..common.render import new_figure
from ..common.storage import write_lines, write_table
from ..plot.curves import finish
from .analysis import RANDOM_HEAD, analyze_head
from .cases import as_cases
from .choices import all_queries, hard_queries
from .controls import gaussian_factors, null_head
from .fit import NO_ROWS
from .head import Head
from .table import PATHS, values

LEAST = 100  # No SVM is solved for fewer hard queries than this, since there is almost nothing to separate.
COLUMNS = (
    "step name layer head module space tokens hard top effective norm stable_rank queries status margin margin_bound "
    "own cosine accuracy logits support rank null_cosine null_own null_accuracy random_margin random_accuracy "
    "negative low high null_negative null_low null_high"
).split()
WORDS = "name module space status".split()
# the columns that a report's data frame has too, by their paths there
OF_REPORT = {name: PATHS[name] for name in COLUMNS if name in PATHS}
OF_REPORT |= {"logits": "fit.score_correlation", "random_margin": "report.random.margin_bound"}
Row = dict[str, Any]


def measure(
    head: Head, step: int, *, queries: int = 300, null: bool = True, seed: int = 0, gradients: Any = None
) -> Row:
    """The measurements of a head at one step of a training run, as one row of the run's table.

    Parameters
    ----------
    head : Head
    step : int
    queries : int
        Largest number of training queries of the SVM.
    null : bool
        Whether to solve the controls too.
    seed : int
    gradients : list of (S, T) array_like, optional
        Gradient of a loss in the head's probabilities for each kept sequence, as ``Monitor(loss=)`` computes it.

    Returns
    -------
    dict
        - ``hard``: share of queries above the threshold;
        - ``top``, ``effective``: means of the largest probability and of ``1 / sum p^2``;
        - ``norm``: norm of the head's W, or in the head space the standard deviation of its logits;
        - ``own``: margin of the head's W, divided by the largest margin;
        - ``negative``: sum of the negative entries in the gradients of the logits, over the sum of all absolute values;
        - ``low``, ``high``: bounds of the largest margin that the head's W and those gradients prove, without the SVM;
        - ``null_*``: the same numbers for a random head, whose probabilities get the same gradients.

        With fewer than 100 hard queries the numbers of the SVM are nan, and the status is empty.

    Examples
    --------
    >>> (head,) = attsvm.heads.from_arrays([[[9.0, 0.0], [0.0, 9.0]]], [[1.0, 0.0]], [0.5], [[0.0, 2.0]], None)
    >>> row = attsvm.heads.measure(head, step=10)
    >>> row["name"], row["hard"], row["status"]
    ('L0H0', 1.0, '')
    """
    row: Row = dict.fromkeys(COLUMNS, np.nan) | {"step": as_count("step", step)}
    hard, report, fit = len(hard_queries(head)), None, None
    if hard >= LEAST:
        report = analyze_head(head, queries=queries, nuclear_queries=0, splits=1, null=null, seed=seed)
        fit = report.fit
    owners = {"report": report, "fit": fit, "head": head}
    row |= {name: values(owners, path)[""] for name, path in OF_REPORT.items()}
    choosing = np.isfinite(head.choices.top) & (head.text.sizes > 1)
    if choosing.any():
        row["hard"] = float(hard / choosing.sum())
        row["top"], row["effective"] = (float(part[choosing].mean()) for part in head.choices[1:])
    if head.space == "residual":
        squares = head.singular_values**2
        row["norm"] = float(np.sqrt(squares.sum()))
        row["stable_rank"] = float(squares.sum() / max(squares[0], 1e-300))
    else:
        row["norm"] = _spread(head)
    if gradients is not None:
        row |= of_head(head, gradients, report.train if report else NO_ROWS[:, :3])
    if not report or not fit:
        return row | {"queries": 0, "support": 0, "rank": 0, "status": ""}
    row |= {"own": fit.learned_margin / fit.margin if fit.margin > 0 else np.nan, "rank": fit.rank or 0}
    if gradients is not None and report.null:
        rng = np.random.default_rng([seed, head.layer, head.number, RANDOM_HEAD, 0])
        other = null_head(head, gaussian_factors, hard, head.threshold, False, rng)
        found = of_head(other, gradients, hard_queries(other)[:queries])
        row |= {f"null_{name}": value for name, value in found.items()}
    return row


def of_head(head: Head, gradients: Sequence[np.ndarray], rows: np.ndarray) -> dict[str, float]:
    """Share of negative multipliers in a loss's gradient, and bounds of the largest margin of a head's choices.

    ``gradients`` holds for each kept sequence the gradient (S, T) of the loss in the head's probabilities, ``rows`` (k,
    3) the queries with the tokens that they select.

    ``negative`` is the sum of the negative multipliers over the sum of all absolute values, for all queries that see
    several tokens; the reference of a query is the token that it attends to most.  ``low`` and ``high`` bound the
    largest margin of ``rows``: the head's W reaches ``low``, and the multipliers prove ``high``.  Their unit is a
    token's length times a query's length.
    """
    deltas = [in_logits(head.sequence_attention(i), gradient) for i, gradient in enumerate(gradients)]
    low, high = np.nan, np.nan
    if len(rows):
        cases = as_cases(head, rows)
        windows = zip(cases.rows, cases.split(cases.tokens), strict=True)
        found = np.concatenate([deltas[i][q, seen] for (i, q, _), seen in windows])
        found[cases.data._begin + cases.selected] = 0.0
        chosen = Selection(cases.data, cases.selected)
        low, high = (float(end[0]) for end in intervals(cases.data, chosen, head.W[None], found[None], "frobenius"))
    queries = all_queries(head)
    for i, query, selected in queries[queries[:, 2] >= 0].tolist():
        deltas[i][query, selected] = 0.0
    every = np.concatenate([delta.ravel() for delta in deltas])
    size = np.abs(every).sum()
    negative = float(-np.minimum(every, 0).sum() / size) if size > 0 else np.nan
    return {"negative": negative, "low": low, "high": high}


def in_logits(prob: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Gradient (S, T) of a loss in the logits of a softmax, from its gradient in the probabilities ``prob``."""
    # queries that see no token have rows of nan, which become 0 here
    return np.where(prob > 0, prob * (gradient - (prob * gradient).sum(axis=1, keepdims=True)), 0.0)


def _spread(head: Head) -> float:
    """Standard deviation of a head's logits on the first sequences, around the mean logit of each query."""
    squares = []
    for i in range(len(head.text.lengths))[:32]:
        logits = np.ma.masked_invalid(head.sequence_logits(i))
        logits = logits[logits.count(axis=1) > 1]
        squares.append((logits - logits.mean(axis=1, keepdims=True)).compressed() ** 2)
    every = np.concatenate(squares)
    return float(np.sqrt(every.mean())) if len(every) else np.nan


def append_rows(path: Path, rows: Sequence[Row]) -> None:
    """Appends rows to the CSV table at ``path``, after the header if the file is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        write_lines(file, [COLUMNS] * (file.tell() == 0) + _cells(rows))
        file.flush()
        os.fsync(file.fileno())


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows as a CSV table to ``path``; an older file is replaced."""
    write_table(path, COLUMNS, _cells(rows))


def _cells(rows: Sequence[Row]) -> list[list[Any]]:
    """The rows as lists of cells of a CSV file, with an empty cell for nan."""
    return [["" if row[name] != row[name] else row[name] for name in COLUMNS] for row in rows]


def read_training(path: Any) -> list[Row]:
    """The rows of a table that a training monitor wrote, one per head and step.

    Parameters
    ----------
    path : path-like
        A CSV file of :class:`attsvm.torch.Monitor`, or of ``attsvm heads --training``.

    Returns
    -------
    list of dict

    Raises
    ------
    ValueError
        If the file has other columns.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "heads.csv")
    >>> _ = path.write_text("step,name\\n")
    >>> attsvm.heads.read_training(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: ... must have the columns step, name, layer, ..., got step, name
    """
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    # A last line without a line end is dropped, since a monitor is still writing it.
    header, *found = csv.reader(text[: text.rfind("\n") + 1].splitlines() or [",".join(COLUMNS)])
    if header != COLUMNS:
        raise ValueError(f"{path} must have the columns step, name, layer, ..., got {', '.join(header)}")
    return [dict(zip(COLUMNS, map(_read, COLUMNS, row), strict=True)) for row in found if len(row) == len(COLUMNS)]


def _read(name: str, text: str) -> Any:
    """The value of a cell of the column ``name``.  A number without a decimal point is a count."""
    return text if name in WORDS else int(text) if text.isdigit() else float(text or "nan")


PANELS = (  # column, label, title, upper end of the axis
    ("norm", "norm of W", "Weights", None),
    ("hard", "share of queries", "Hard queries", 1.02),
    ("cosine", "cosine of W and its SVM", "Direction", 1.02),
    ("own", "margin of W / best margin", "Margin", 1.02),
)


def plot_training(rows: Sequence[Row], axes: Any = None) -> Any:
    """Draws norm of W, share of hard queries, cosine with the SVM and margin over the steps of a run, a line per head.

    Parameters
    ----------
    rows : list of dict
        From :attr:`attsvm.torch.Monitor.rows` or :func:`read_training`.
    axes : four matplotlib Axes, optional
        By default those of a new pyplot figure.

    Returns
    -------
    matplotlib Figure

    Notes
    -----
    Dotted lines are means over the random heads of a layer, each with as many hard queries as the trained head.  The
    two lower panels begin at the first step with 100 hard queries.  In the head space tokens contain the head's
    weights: a cosine there is no evidence that W goes to the SVM.

    Examples
    --------
    >>> (head,) = attsvm.heads.from_arrays([[[9.0, 0.0], [0.0, 9.0]]], [[1.0, 0.0]], [0.5], [[0.0, 2.0]], None)
    >>> figure = attsvm.heads.plot_training([attsvm.heads.measure(head, step) for step in (0, 10)])
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['Weights', 'Hard queries', 'Direction', 'Margin']
    """
    if axes is None:
        axes = new_figure((11, 6.5)).subplots(2, 2).ravel()
    from matplotlib import colormaps

    rows = sorted(as_list("rows", rows, dict, "attsvm.torch.Monitor or read_training"), key=lambda row: row["step"])
    columns = {name: np.array([row[name] for row in rows]) for name in COLUMNS}
    step, layer, head = (columns[name] for name in "step layer head".split())
    layers = np.unique(layer)
    colored = list(zip(layers, colormaps["viridis"](np.linspace(0, 0.9, len(layers))), strict=True))
    for ax, (column, label, title, top) in zip(axes, PANELS, strict=True):
        for k, color in colored:
            for number in np.unique(head[layer == k]):
                own = (layer == k) & (head == number)
                named = None if number > head[layer == k].min() else f"layer {k}"
                ax.plot(
                    step[own], columns[column][own], color=color, linewidth=1.2, marker="o", markersize=2.5, alpha=0.8,
                    label=named,
                )  # fmt: skip
        control = f"null_{column}"  # of the random heads
        for k, color in colored if control in columns else ():
            known = (layer == k) & np.isfinite(columns[control])
            steps = np.unique(step[known])
            means = [columns[control][known & (step == at)].mean() for at in steps]
            ax.plot(steps, means, ":", color=color, linewidth=2, label=f"layer {k}, random head")
        ax.set(xlabel="step", ylabel=label)
        ax.set_ylim(0, top)
        finish(ax, title, "best" if rows else None, fontsize=8)
    return axes[0].figure
