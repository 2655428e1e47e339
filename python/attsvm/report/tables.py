"""What a command leaves behind: tables on the terminal, curves in a CSV, pictures, claims against measurements."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..common.result import table
from ..common.storage import replacing, write_table
from ..plot.curves import largest
from ..svm.separation import Separation
from ..theory.conditions import correlation, is_locally_optimal
from ..training.problem import Problem
from ..training.run import Run
from .claims import VERDICTS, Claim

__all__ = [
    "claims_table",
    "count_verdicts",
    "picture_bytes",
    "runs_table",
    "solutions_table",
    "verdicts_line",
    "write_csv",
    "write_picture",
]

WORDS = ("hold", "fail", "undecided")  # of the verdicts, in a count

DPI = 160
COMPRESSION = 3  # of PNG: 7 % larger files than by 6, in half the time
SATURATED = 0.99  # below, a query's largest softmax leaves open which token it will select

RULE = (
    "A claim has a bound, fixed beforehand, and a 95 % interval of what was measured (in brackets; a statement about\n"
    "these very runs is a number without one).  It holds when the whole interval lies inside the bound, fails when\n"
    "the whole interval lies outside, and is undecided when it straddles or there are too few runs."
)


def count_verdicts(verdicts: Iterable[str]) -> dict[str, int]:
    """How many claims hold, fail, are undecided."""
    verdicts = list(verdicts)
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


def verdicts_line(counts: Mapping[str, int]) -> str:
    """ "12 claims: 11 hold, 0 fail, 1 undecided"."""
    words = ", ".join(f"{counts[verdict]} {word}" for verdict, word in zip(VERDICTS, WORDS, strict=True))
    return f"{sum(counts.values())} claims: {words}"


def claims_table(groups: Mapping[str, Sequence[Claim]]) -> str:
    """Claims under their headings, and the rule of comparison below them."""
    rows: list[Sequence[str]] = []
    for heading, claims in groups.items():
        rows.append((heading,))
        rows += [
            ("  " + c.text, c.expected, c.found, c.verdict.upper() if c.verdict == "fails" else c.verdict)
            for c in claims
        ]
    return table(("claim", "expected", "measured", "verdict"), rows) + "\n" + RULE


def runs_table(problem: Problem, runs: Mapping[str, Run]) -> str:
    """How each training ended, and whether its attention has saturated on one token per query."""
    rows, notes = [], []
    optimal = np.asarray(problem.optimal)
    for name, run in runs.items():
        peaks = largest(run.probabilities)
        late = int((peaks < SATURATED).sum())
        loss = f"{run.loss[0]:.4g} -> {run.loss[-1]:.4g}"
        hits = f"{int((run.selected == optimal).sum())} of {len(optimal)}"
        rows.append((name, run.status, loss, f"{run.norm[-1]:.4g}", f"{peaks.min():.6g}", hits))
        if late:
            notes.append(
                f"{name}: attention has not saturated: {late} of {len(optimal)} queries have no softmax above "
                f"{SATURATED}, so their tokens may still change."
            )
    header = ("trained", "status", "loss", "norm", "least max softmax", "optimal token selected")
    return "\n".join([table(header, rows), *notes, ""])


def solutions_table(
    solutions: Mapping[tuple[str, str], Separation],
    runs: Mapping[str, Run] | None = None,
    problem: Problem | None = None,
) -> str:
    """One certificate per (trained, norm), and how the training relates to it."""
    header = ["trained", "SVM", "status", "margin from", "to", "gap", "rank", "support"]
    header += ["correlation", "locally optimal"]
    rows: list[list[str]] = []
    notes: dict[str, list[str]] = {}
    for (name, norm), solution in solutions.items():
        row = [name, norm, solution.status] + ["-"] * 7
        if solution.W is not None:
            support = solution.support if isinstance(solution.support, list) else [solution.support]
            row[3:5] = f"{solution.margin:.9g}", f"{solution.margin_bound:.9g}"
            row[5:7] = f"{solution.gap:.1e}", str(solution.rank)
            row[7] = str(sum(int(part.sum()) for part in support))
            if runs is not None and problem is not None:
                row[8] = f"{correlation(runs[name].W, solution.W):.6f}"
                row[9] = "yes" if is_locally_optimal(problem, solution) else "no"
        if solution.status != "optimal":
            notes.setdefault(f"{solution.status}: {solution.message}.", []).append(f"{name} {norm}".strip())
        rows.append(row)
    shown = slice(None) if runs is not None else slice(1, -2)
    lines = [table(header[shown], [row[shown] for row in rows])]
    if any(solution.W is not None for solution in solutions.values()):
        lines.append("The largest margin of weights of norm 1 lies between the two, both recomputed from the tokens.")
    lines += [f"{', '.join(which)}: {note}" for note, which in notes.items()]
    return "\n".join([*lines, ""])


def write_csv(path: Path, columns: Mapping[str, Any]) -> None:
    """Columns of one length below their names; floats so that they read back exactly."""
    write_table(path, list(columns), zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True))


def write_picture(path: Path, figure: Any) -> None:
    """A matplotlib figure, as PNG or SVG by the name."""
    with replacing(path) as file:
        file.write(picture_bytes(figure, path.suffix))


def picture_bytes(figure: Any, suffix: str) -> bytes:
    """A matplotlib figure as a .png or a .svg.

    There are no minor ticks, which take a third of the time and tell nothing that the major ones do not.  Canvases
    draw once (``savefig`` twice where there is a layout to find), and a second format keeps the layout of the first.
    """
    from matplotlib.backends import backend_agg, backend_svg  # an extra

    for ax in figure.axes:
        ax.minorticks_off()
    figure.set_dpi(DPI)
    file = io.BytesIO()
    if suffix == ".png":
        backend_agg.FigureCanvasAgg(figure).print_png(file, pil_kwargs={"compress_level": COMPRESSION})
    else:
        backend_svg.FigureCanvasSVG(figure).print_svg(file)
    figure.set_layout_engine("none")
    return file.getvalue()
