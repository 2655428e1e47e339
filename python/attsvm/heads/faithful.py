"""The result of :func:`attsvm.torch.faithfulness`: a table of damage, importance and recovered fractions."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..common.result import Result, Table
from ..common.storage import storable
from .head import count_heads

# table columns of substitutes for a head's W that are made from n of its choices, drawn anew for each repetition
OF_CHOICES = ("SVM", "SVM of the rule", "logistic", "distilled")
DRAWN = ("random head", "shuffled")  # table columns of random substitutes for a head's W
# table columns of substitutes for a head's W that involve no random draw
FIXED = ("own", "rule", "cut", "whitened cut")
ALL = "all of these"
# An importance counts only above this multiple of the damage with the head's own W, which is a rounding error.
ROUNDING = 10
SHOWN = ("SVM", "SVM of the rule", "rule", "logistic", "distilled", "random head", "shuffled", "cut", "whitened cut")

COLUMNS = (
    "row column queries draws inputs damage importance recovered spread_of_draws error_of_inputs hard rule follows "
    "metric"
).split()


OF_DIRECTIONS = (
    "head",
    "direction",
    "queries → tokens",
    "share of the mean margin",
    "damage without it",
    "a random one",
    "the SVM's of this number",
)


@storable
@dataclass(frozen=True)
class LostDirection:
    """Damage to a model's output if the singular direction ``number`` is removed from the W of the head ``label``.

    ``name`` and ``share`` (of the mean margin) are those of :func:`attsvm.heads.why`; ``value`` is the singular value.
    ``damage`` is the damage without the direction, ``random`` the mean damage without a random direction of the same
    size.  ``svm`` is the name of the SVM's direction of the same number, or "".
    """

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
    """Result of :func:`attsvm.torch.faithfulness`: the damage to a model's output with substitutes for its heads' W.

    Attributes
    ----------
    labels : list of str
        Names of the heads.
    layers : dict of str to int
        The last layer of each row, if a row is all heads up to a layer; empty if each head is a row.
    metric : {"KL", "1 - cosine"}
        Measure of the damages.
    rules : dict of str to (str, float)
        The best positional rule of each head, and the share of its hard queries that follow the rule.
    hard : dict of str to int
        Number of hard queries of each head on the recorded text.
    damages : dict of (str, str, int) to (draws, inputs) array
        Damage on each held-out input in each draw, by row, column and number of choices (0 for columns without
        choices).
    directions : list of LostDirection
        Damage without each of the leading singular directions; empty unless ``directions=True``.
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
        """Names of the table's rows: each head and then all heads at once, or all heads up to each layer."""
        return list(self.layers) or [*self.labels, ALL]

    @property
    def queries(self) -> list[int]:
        return sorted({n for _, column, n in self.damages if column in OF_CHOICES})

    def importance(self, row: str) -> float:
        """Mean damage to the output if the heads of this row attend to all tokens equally."""
        return float(self.damages[row, "uniform", 0].mean())

    def recovered(self, row: str, column: str, queries: int | None = None) -> float:
        """Share of a row's importance that a column recovers: ``1 - damage / importance``.

        It is taken for the largest number of choices unless ``queries`` is given.  nan if the importance is not above
        rounding.
        """
        return self._recovered(row, column, queries)[0]

    def spread(self, row: str, column: str, queries: int | None = None) -> tuple[float, float]:
        """Returns, for :meth:`recovered`: the standard deviation over draws (nan for one); the standard error over
        inputs."""
        return self._recovered(row, column, queries)[1:]

    def _recovered(self, row: str, column: str, queries: int | None) -> tuple[float, float, float]:
        """Returns the recovered share of importance; its standard deviation over draws; its error over inputs."""
        if column in OF_CHOICES and queries is None:
            queries = max(self.queries, default=0)
        damage, size = self.damages.get((row, column, queries or 0)), self.importance(row)
        if damage is None or not size > ROUNDING * self.damages[row, "own", 0].mean():
            return math.nan, math.nan, math.nan
        lost, (uniform,) = float(damage.mean() / size), self.damages[row, "uniform", 0]
        draws, inputs = damage.mean(axis=1) / size, (damage.mean(axis=0) - lost * uniform) / size
        return 1 - lost, _deviation(draws), _deviation(inputs) / math.sqrt(len(inputs))

    def columns(self) -> dict[str, Any]:
        """The damages as lists by name, with one line for each row, column and number of choices."""
        lines = [
            (
                row, column, n, *damage.shape, float(damage.mean()), self.importance(row),
                *self._recovered(row, column, n), self.hard.get(row), *self._rule(row), self.metric,
            )
            for (row, column, n), damage in self.damages.items()
        ]  # fmt: skip
        return dict(zip(COLUMNS, map(list, zip(*lines, strict=True)), strict=True))

    def _rule(self, row: str) -> tuple[str, float]:
        return self.rules.get(row, ("", math.nan))

    def _cells(self) -> Table:
        of_heads = [] if self.layers else ["hard", "best rule"]
        lines = []
        for row in self.rows:
            rule, follows = self._rule(row)
            of_head = [f"{self.hard.get(row, '')}", rule if math.isnan(follows) else f"{rule} ({100 * follows:.0f} %)"]
            line = [row, *of_head[: len(of_heads)], f"{self.importance(row):.3g}"]
            for column in SHOWN:
                mean, draws, inputs = self._recovered(row, column, None)
                off = np.fmax(draws, inputs)
                line.append("" if math.isnan(mean) else f"{mean:.2f}" + ("" if np.isnan(off) else f" ± {off:.2f}"))
            lines.append(line)
        return ["head", *of_heads, f"importance ({self.metric})", *SHOWN], lines

    def _title(self) -> str:
        were = "was" if len(self.labels) == 1 else "were"
        return f"Faithfulness: {count_heads(len(self.labels))} {were} looked at"

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
        lines = [
            [d.label, f"{d.number}", d.name, f"{100 * d.share:.0f} %", f"{d.damage:.3g}", f"{d.random:.3g}", d.svm]
            for d in self.directions
        ]
        return [self._cells(), (OF_DIRECTIONS, lines)] if lines else [self._cells()]


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan
