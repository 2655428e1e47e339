"""What heads do in their model, as :func:`attsvm.torch.faithfulness` measures it: the table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..common.result import Result, Table
from ..common.storage import storable

# Columns that are made of n choices, each draw of its own; those with draws alone; and those without.
OF_CHOICES = ("SVM", "SVM of the rule", "logistic", "distilled")
DRAWN = ("random head", "shuffled")
FIXED = ("own", "rule", "cut", "whitened cut")
ALL = "all of these"
ROUNDING = 10  # times the damage of the own W: an importance below that is none
SHOWN = ("SVM", "SVM of the rule", "rule", "logistic", "distilled", "random head", "shuffled", "cut", "whitened cut")

COLUMNS = (
    *("row", "column", "queries", "draws", "inputs", "damage", "importance", "recovered", "spread_of_draws"),
    *("error_of_inputs", "hard", "rule", "follows", "metric"),
)


@storable
@dataclass(frozen=True)
class LostDirection:
    """Of head ``label`` the singular direction ``number``: its ``name`` and ``share`` of the mean margin as
    :func:`attsvm.heads.why` has them, its singular ``value``, the ``damage`` without it, that without a ``random``
    direction of its size (mean of several); and the name of the ``svm``'s direction of the same number, or ""."""

    label: str
    number: int
    name: str
    share: float
    value: float
    damage: float
    random: float
    svm: str

    def __str__(self) -> str:
        return f"{self.name}, damage {self.damage:.2g} (random direction {self.random:.2g})"


@dataclass(frozen=True, repr=False, eq=False)
class Faithfulness(Result):
    """What :func:`attsvm.torch.faithfulness` found.

    Attributes
    ----------
    labels : list of str
        The heads.
    layers : dict of str to int
        Of rows that are all heads up to a layer, that layer; empty where each head is a row.
    metric : {"KL", "1 - cosine"}
        Of the damages.
    rules : dict of str to (str, float)
        Of each head the best positional rule, and the share of its hard queries that follow it.
    hard : dict of str to int
        Hard queries of each head on the recorded text.
    damages : dict of (str, str, int) to (draws, inputs) array
        By row, column and number of choices (0 where there are none): damage of each held-out input in each draw.
    directions : list of LostDirection
        Damage without singular directions, with their names; empty unless asked for.
    """

    labels: list[str]
    layers: dict[str, int]
    metric: str
    rules: dict[str, tuple[str, float]]
    hard: dict[str, int]
    damages: dict[tuple[str, str, int], np.ndarray]
    directions: list[LostDirection]

    @property
    def rows(self) -> list[str]:
        """What stood in whose place at one time: the heads, or all up to a layer; the last row is all of these."""
        return list(self.layers) or [*self.labels, ALL]

    @property
    def queries(self) -> list[int]:
        return sorted({n for _, column, n in self.damages if column in OF_CHOICES})

    def importance(self, row: str) -> float:
        """Damage of equal attention in its place."""
        return float(self.damages[row, "uniform", 0].mean())

    def recovered(self, row: str, column: str, queries: int | None = None) -> float:
        """``1 - damage / importance``; of as many choices as there are unless told.  nan where importance is none."""
        damage, uniform = self._pair(row, column, queries)
        own = float(self.damages[row, "own", 0].mean())
        if damage is None or not uniform.mean() > ROUNDING * own:
            return float("nan")
        return float(1 - damage.mean() / uniform.mean())

    def spread(self, row: str, column: str, queries: int | None = None) -> tuple[float, float]:
        """Standard deviation of what is recovered over draws (nan for one), and its standard error over inputs."""
        damage, uniform = self._pair(row, column, queries)
        if damage is None or math.isnan(self.recovered(row, column, queries)):
            return float("nan"), float("nan")
        size = uniform.mean()
        draws = float(np.std(damage.mean(axis=1) / size, ddof=1)) if len(damage) > 1 else float("nan")
        off = (damage.mean(axis=0) - damage.mean() / size * uniform[0]) / size
        inputs = float(off.std(ddof=1) / math.sqrt(len(off))) if len(off) > 1 else float("nan")
        return draws, inputs

    def _pair(self, row: str, column: str, queries: int | None) -> tuple[np.ndarray | None, np.ndarray]:
        if column in OF_CHOICES and queries is None:
            queries = max(self.queries, default=0)
        return self.damages.get((row, column, queries or 0)), self.damages[row, "uniform", 0]

    def columns(self) -> dict[str, Any]:
        """A line for each row, column and number of choices."""
        lines = []
        for (row, column, n), damage in self.damages.items():
            rule, follows = self.rules.get(row, ("", float("nan")))
            numbers = (len(damage), damage.shape[1], float(damage.mean()), self.importance(row))
            found = (self.recovered(row, column, n), *self.spread(row, column, n))
            lines.append((row, column, n, *numbers, *found, self.hard.get(row), rule, follows, self.metric))
        return dict(zip(COLUMNS, map(list, zip(*lines, strict=True)), strict=True))

    def _cells(self) -> Table:
        of_heads = [] if self.layers else ["hard", "best rule"]
        names = ["head", *of_heads, f"importance ({self.metric})", *SHOWN]
        lines = []
        for row in self.rows:
            line = [row]
            if of_heads:
                rule, follows = self.rules.get(row, ("", float("nan")))
                line += [f"{self.hard.get(row, '')}", f"{rule} ({100 * follows:.0f} %)" if follows == follows else rule]
            line.append(f"{self.importance(row):.3g}")
            for column in SHOWN:
                mean, (draws, inputs) = self.recovered(row, column), self.spread(row, column)
                off = max((x for x in (draws, inputs) if x == x), default=float("nan"))
                line.append("" if mean != mean else f"{mean:.2f}" + ("" if off != off else f" ± {off:.2f}"))
            lines.append(line)
        return names, lines

    def _title(self) -> str:
        return f"Faithfulness: {len(self.labels)} heads were looked at"

    def _lines(self) -> list[tuple[str, str]]:
        one = next(iter(self.damages.values())).shape[1]
        most = max(self.queries, default=0)
        said = (
            f"Importance: damage of equal attention, mean over {one} held-out inputs.  Other columns: part of it "
            f"recovered, with {most} choices at most, ± the larger of the spread over draws and the standard error "
            f"over inputs; empty: no importance."
        )
        return [("", said)]

    def _tables(self) -> list[Table]:
        if not self.directions:
            return [self._cells()]
        names = [
            "head",
            "direction",
            "queries → tokens",
            "share of the mean margin",
            "damage without it",
            "a random one",
            "the SVM's of this number",
        ]
        lines = [
            [d.label, f"{d.number}", d.name, f"{100 * d.share:.0f} %", f"{d.damage:.3g}", f"{d.random:.3g}", d.svm]
            for d in self.directions
        ]
        return [self._cells(), (names, lines)]
