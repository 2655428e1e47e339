"""What a command leaves behind: tables on the terminal, curves in a CSV, claims judged against measurements."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .plot import largest
from .problem import Problem
from .run import Run
from .separation import Separation
from .theory import correlation, is_locally_optimal

__all__ = [
    "Claim",
    "average",
    "average_near",
    "claims_table",
    "every",
    "never_falls",
    "runs_table",
    "share",
    "share_near",
    "solutions_table",
    "table",
    "write_csv",
]

SATURATED = 0.99  # below, a query's largest softmax leaves open which token it will select

RULE = (
    "± is one standard error of the mean over runs.  A bound on a mean or share is widened by three of them; two\n"
    "means agree within three joint standard errors; all other bounds hold as they are, for every run."
)


@dataclass(frozen=True)
class Claim:
    """What theory expects, what was measured, and whether they agree."""

    text: str
    expected: str
    measured: str
    holds: bool


def average(text: str, sample: Any, least: float = -math.inf, most: float = math.inf) -> Claim:
    """The mean over runs lies within bounds, to three standard errors.  NaN is a run that gave no number."""
    found, mean, error = _mean(sample)
    return Claim(
        text,
        _bounds(least, most),
        _measured(sample, found, mean, error),
        least - 3 * error <= mean <= most + 3 * error,
    )


def average_near(text: str, sample: Any, value: float, deviation: float, runs: int) -> Claim:
    """The mean over runs agrees with a reference: ``value``, with a standard deviation over that many runs."""
    found, mean, error = _mean(sample)
    reference_error = deviation / math.sqrt(runs)
    return Claim(
        text,
        f"{value:g} ± {reference_error:.1g}",
        _measured(sample, found, mean, error),
        abs(mean - value) <= 3 * math.hypot(error, reference_error),
    )


def every(text: str, values: Any, least: float = -math.inf, most: float = math.inf) -> Claim:
    """Every value lies within the bounds; shown is the range, or its end when there is one bound."""
    values = np.ravel(values)
    values = values[~np.isnan(values)]
    if values.size == 0:
        return Claim(text, _bounds(least, most), "no data", False)
    low, high = float(values.min()), float(values.max())
    shown = (
        f"{high:.3g}" if least == -math.inf else f"{low:.3g}" if most == math.inf else f"{low:.4g} to {high:.4g}"
    )
    return Claim(text, _bounds(least, most), shown, least <= low and high <= most)


def share(text: str, flags: Any, least: float) -> Claim:
    """Something is true in at least that share of the runs, to three standard errors; 1 means in all of them."""
    flags = np.ravel(flags).astype(float)
    flags = flags[~np.isnan(flags)]
    _, mean, error = _mean(flags)
    measured = f"{int(flags.sum())} of {flags.size}"
    if least == 1:
        return Claim(text, "all", measured, flags.size > 0 and bool(flags.all()))
    return Claim(text, f"at least {100 * least:g} %", measured, mean >= least - 3 * error)


def share_near(text: str, flags: Any, value: float, runs: int) -> Claim:
    """A share agrees with a reference: ``value`` of that many runs.

    Either share's standard error is that of one more success and one more failure, which stays honest at 0 and 1.
    """
    flags = np.ravel(flags).astype(float)
    measured, error, reference = flags.mean(), _share_error(flags.mean(), flags.size), _share_error(value, runs)
    holds = bool(abs(measured - value) <= 3 * math.hypot(error, reference))
    return Claim(text, f"{value:.3g} ± {reference:.1g}", f"{measured:.3f} ± {error:.1g}", holds)


def _share_error(share: float, runs: int) -> float:
    widened = (share * runs + 1) / (runs + 2)
    return math.sqrt(widened * (1 - widened) / runs)


def never_falls(text: str, samples: Any) -> Claim:
    """Means of several samples in a row do not decrease, to three joint standard errors of each step."""
    moments = [_mean(np.asarray(sample, dtype=float)) for sample in samples]
    steps = [(b[1] - a[1], math.hypot(a[2], b[2])) for a, b in zip(moments, moments[1:], strict=False)]
    means = ", ".join(f"{mean:.3g}" for _, mean, _ in moments)
    return Claim(text, "no decrease", means, all(step >= -3 * error for step, error in steps))


def _mean(sample: Any) -> tuple[int, float, float]:
    """How many runs gave a number, their mean and its standard error; NaN compares as false everywhere."""
    sample = np.ravel(sample)
    sample = sample[~np.isnan(sample)]
    if sample.size < 2:
        return sample.size, math.nan, math.nan
    return sample.size, float(sample.mean()), float(sample.std(ddof=1) / math.sqrt(sample.size))


def _measured(sample: Any, found: int, mean: float, error: float) -> str:
    runs = "" if found == np.size(sample) else f" ({found} of {np.size(sample)} runs)"
    if found < 2:
        return "no data" + runs
    return f"{mean:.4g} ± {error:.1g}{runs}"


def _bounds(least: float, most: float) -> str:
    if most == math.inf:
        return f"at least {least:.10g}"
    if least == -math.inf:
        return f"at most {most:.10g}"
    return f"{least:g} to {most:g}"


def claims_table(groups: Mapping[str, Sequence[Claim]]) -> str:
    """Claims under their headings, and the rule of comparison below them."""
    rows: list[Sequence[str]] = []
    for heading, claims in groups.items():
        rows.append((heading,))
        rows += [("  " + c.text, c.expected, c.measured, "yes" if c.holds else "NO") for c in claims]
    return table(("claim", "expected", "measured", "holds"), rows) + "\n" + RULE


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns two spaces apart, a line under the header; a row of one cell is a heading."""
    full = [header, *(row for row in rows if len(row) > 1)]
    widths = [max(len(row[j]) for row in full) for j in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(header, widths, strict=True)).rstrip()]
    lines.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows
    ]
    return "\n".join(lines)


def runs_table(problem: Problem, runs: Mapping[str, Run]) -> str:
    """How each training ended, and whether its attention has settled on one token per query."""
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
        lines.append(
            "The largest margin of weights of norm 1 lies between the two, both recomputed from the tokens."
        )
    lines += [f"{', '.join(which)}: {note}" for note, which in notes.items()]
    return "\n".join([*lines, ""])


def write_csv(path: Path, columns: Mapping[str, Any]) -> None:
    """Columns of one length below their names; floats so that they read back exactly."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True))
