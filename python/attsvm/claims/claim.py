"""Claims: a statistic, a bound fixed beforehand, and a 95 % interval of what was measured.

A claim names a statistic of the runs of a figure, and the bound [``low``, ``high``] that theory, a published number or
an independent computation sets.  The bound does not depend on the noise of the measurement.  The measured statistic has
a two-sided 95 % interval, and the verdict compares interval and bound:

- "holds": the whole interval lies inside the bound;
- "fails": the whole interval lies outside;
- "undecided": it lies on both sides of an end of the bound, or there are too few runs; the note says how many runs
  would decide.

There are five statistics:

============ ============================================= ==================================================
function     of                                            interval
============ ============================================= ==================================================
`share`      flags, one per run                            Clopper-Pearson (exact binomial)
`difference` two flags of every run                        Clopper-Pearson of the runs with one flag alone
`median`     numbers, one per run; ratios, heavy tails     order statistics (exact for any distribution)
`mean`       numbers between two known ends                Gaffke: Clopper-Pearson where they are flags
`exactly`    these runs, no sample: residuals, exceptions  the number itself, the worst one if there are many
============ ============================================= ==================================================

A run without a number (NaN or infinite) is never dropped; it counts against the claim.  It counts as beyond the bound;
if the bound has two ends, as beyond either of them.  In a mean it counts as the end of the range that is worse for the
claim.  The note says how many such runs there were.  A claim about some of the runs takes ``number[flags]``; another
claim then says how many runs these are.

If no run violates it, a lower bound b of a share holds from ln .025 / ln b runs on (.95: 72 runs, .99: 368), and a
bound of a median from 6 runs on.

Examples
--------
A figure returns its claims under headings:

>>> import numpy as np
>>> from attsvm.claims import exactly, median, share
>>> rng = np.random.default_rng(0)
>>> correlation, gap = 1 - 0.01 * rng.random(100), 1e-9 * rng.random(100)
>>> groups = {
...     "Direction": [
...         median("correlation with the SVM", correlation, low=0.99),
...         share("correlation above .98", correlation > 0.98, low=0.95),
...         share("correlation above .995", correlation > 0.995, low=0.5),
...     ],
...     "Certificates": [exactly("largest duality gap", gap, high=1e-8)],
... }
>>> for claim in (claim for claims in groups.values() for claim in claims):
...     print(f"{claim.text}, {claim.expected}: {claim.found}: {claim.verdict}")
correlation with the SVM, at least 0.99: 0.9941 [0.9933, 0.9955]: holds
correlation above .98, at least 0.95: 1 [0.9638, 1] (100 of 100): holds
correlation above .995, at least 0.5: 0.44 [0.3408, 0.5428] (44 of 100; about 285 runs would decide): undecided
largest duality gap, at most 1e-08: 9.949e-10: holds
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..common.check import as_number, as_numeric, check_shape
from .intervals import (
    LEAST_MEDIAN,
    binomial_interval,
    difference_interval,
    enough_runs,
    mean_interval,
    median_interval,
    median_rank,
)

VERDICTS = ("holds", "fails", "undecided")


@dataclass(frozen=True)
class Claim:
    """A claim: the bound expected, the statistic measured, and the verdict.

    Attributes
    ----------
    text : str
        The statistic in words.
    low, high : float or None
        The bound; at least one of the two is given.
    measured, measured_low, measured_high : float or None
        The statistic and the ends of its 95 % interval; each is None if it is not finite.
    runs : int
        Number of runs, those without a number included.
    verdict : {"holds", "fails", "undecided"}
    note : str
        The counts behind a share, the number of runs without a number, the number of runs that would decide.
    runs_needed : int or None
        About how many runs would decide: ``runs`` if the claim is decided, None if more runs alone would not decide.
    silent : int
        Number of runs without a number.
    interval : (float, float)
        The 95 % interval; an end is infinite if the runs do not bound it.
    """

    text: str
    low: float | None
    high: float | None
    measured: float | None
    measured_low: float | None
    measured_high: float | None
    runs: int
    verdict: str
    note: str = ""
    runs_needed: int | None = None
    silent: int = 0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the statistic; an end is infinite if the runs do not bound it."""
        return _ends(self.measured_low, self.measured_high)

    @property
    def expected(self) -> str:
        """The bound in words."""
        if self.high is None:
            return f"at least {self.low:.6g}"
        if self.low is None:
            return f"at most {self.high:.6g}"
        return f"exactly {self.low:.6g}" if self.low == self.high else f"{self.low:.6g} to {self.high:.6g}"

    @property
    def found(self) -> str:
        """The statistic measured, with its interval if it has one, and the note."""
        text = "no number" if self.measured is None else f"{self.measured:.4g}"
        if (self.measured_low, self.measured_high) != (self.measured, self.measured):
            text += f" [{_shown(self.measured_low)}, {_shown(self.measured_high)}]"
        return f"{text} ({self.note})" if self.note else text

    def __str__(self) -> str:
        return f"{self.text}, {self.expected}: {self.found}: {self.verdict}"


def claim(values: ArrayLike, at_least: float | None = None, at_most: float | None = None) -> Claim:
    """A claim on random runs, judged as ``attsvm reproduce`` judges the claims of the paper.

    The bound is fixed beforehand and compared with the 95 % interval of the measured statistic.  Values that are all
    true or false (1 or 0) are flags.  Then the statistic is the *share* of runs whose flag is true, with the exact
    binomial (Clopper-Pearson) interval.  For other numbers it is their *median*, with the interval by order statistics,
    which is exact for any distribution.

    Parameters
    ----------
    values : (runs,) array_like
        Flags or numbers, one per run.  A run with NaN or an infinite value counts against the claim; ``silent`` is the
        number of such runs.
    at_least, at_most : float, optional
        The bound; at least one of them.

    Returns
    -------
    Claim
        ``verdict`` is "holds" where the whole ``interval`` lies within the bound, "fails" where it lies outside,
        "undecided" where it does neither.  Then about ``runs_needed`` runs would decide; it is None if more runs alone
        would not.

    Raises
    ------
    ImportError
        Without SciPy: ``pip install scipy``.
    ValueError
        If ``values`` is not one-dimensional, or if there is no bound or one that no number can meet.

    See Also
    --------
    replicate : many random runs side by side.

    Examples
    --------
    >>> import attsvm
    >>> found = attsvm.claim([True] * 60 + [False], at_least=0.95)
    >>> found.verdict, found.runs_needed
    ('undecided', 142)
    >>> print(found)
    share of runs, at least 0.95: 0.9836 [0.912, 0.9996] (60 of 61; about 142 runs would decide): undecided
    >>> attsvm.claim([0.99, 0.98, 0.97, 0.99, 0.98, 0.99, 0.96], at_least=0.95).interval
    (0.96, 0.99)
    """
    if at_least is None and at_most is None:
        raise ValueError("a claim must have a bound, got neither at_least nor at_most: without one it cannot fail")
    low = None if at_least is None else as_number("at_least", at_least)
    high = None if at_most is None else as_number("at_most", at_most)
    least, most = _ends(low, high)
    if least > most:
        raise ValueError(f"at_least must not exceed at_most, got {least:g} and {most:g}")
    flags = np.asarray(values)
    values = flags.astype(float) if flags.dtype == bool else as_numeric("values", values)
    check_shape("values", values, "runs")
    if np.isin(values[np.isfinite(values)], (0, 1)).all():
        return share("share of runs", values, low, high)
    return median("median over runs", values, low, high)


def share(text: str, flags: Any, low: float | None = None, high: float | None = None) -> Claim:
    """A claim on the share of all runs whose flag is true.

    Parameters
    ----------
    text : str
    flags : (runs,) array of bool, or of 0, 1 and NaN
        A NaN counts as false for ``low`` and as true for ``high``.
    low, high : float, optional
        The bound.

    Returns
    -------
    Claim
    """
    sample = _Sample(text, flags, low, high, (0, 1))
    if not np.isin(sample.found, (0, 1)).all():
        raise ValueError(f"flags must be true, false or NaN, got numbers: use median() or mean() for {text!r}")

    def interval(flags: np.ndarray, n: int) -> tuple[float, float]:
        return binomial_interval(round(flags.sum() / max(len(flags), 1) * n), n)

    return sample.counted(sample.middle(_mean), interval, f"{sample.found.sum():.0f} of {sample.runs}")


def difference(text: str, more: Any, less: Any, low: float | None = None, high: float | None = None) -> Claim:
    """A claim on the share of all runs with one flag true, minus the share with another flag true.

    Parameters
    ----------
    text : str
    more, less : (runs,) arrays of bool, or of 0, 1 and NaN
        Both flags of each run.  A run with a NaN in either counts against the bound.
    low, high : float, optional
        The bound.

    Returns
    -------
    Claim
    """
    sample = _Sample(text, np.asarray(more, dtype=float) - np.asarray(less, dtype=float), low, high, (-1, 1))
    found, runs = sample.found, sample.runs
    if not np.isin(found, (-1, 0, 1)).all():
        raise ValueError(f"flags must be true, false or NaN, got numbers for {text!r}")

    def interval(signs: np.ndarray, n: int) -> tuple[float, float]:
        gains, losses = (round((signs == sign).sum() * (n / max(runs, 1))) for sign in (1, -1))
        return difference_interval(gains, losses, n)

    return sample.counted(_mean(found), interval, f"{(found > 0).sum()} to {(found < 0).sum()} of {runs}")


def median(text: str, values: Any, low: float | None = None, high: float | None = None) -> Claim:
    """A claim on the median over runs.

    Parameters
    ----------
    text : str
    values : (runs,) array_like
        A value that is not finite counts as below ``low`` and as above ``high``.
    low, high : float, optional
        The bound.

    Returns
    -------
    Claim
    """
    sample = _Sample(text, values, low, high, (-math.inf, math.inf))
    runs = sample.runs
    below = [(case < bound).sum() for case, bound in zip(sample.cases, sample.bounds, strict=True)]

    def needed() -> int | None:
        if runs < LEAST_MEDIAN:
            return LEAST_MEDIAN
        return enough_runs(lambda n: all(min(k, runs - k) * n < median_rank(n) * runs for k in below), runs)

    measured = sample.middle(lambda values: median_interval(values)[0])
    return sample.claim(measured, [median_interval(case)[1:] for case in sample.cases], needed)


def mean(
    text: str, values: Any, within: tuple[float, float], low: float | None = None, high: float | None = None
) -> Claim:
    """A claim on the mean over runs of numbers within a known range.

    `share` is for flags, `median` for numbers whose range is not known.

    Parameters
    ----------
    text : str
    values : (runs,) array_like
        A value that is not finite counts as the least number for ``low`` and as the largest for ``high``.
    within : (float, float)
        The least and the largest possible number.  Without them no sample bounds a mean.
    low, high : float, optional
        The bound.

    Returns
    -------
    Claim
    """
    least, most = within
    sample = _Sample(text, values, low, high, within)
    cases = [mean_interval(case, least, most) for case in sample.cases]
    middle, below, above = cases[0]

    def needed() -> int | None:
        away = min(abs(middle - bound) for bound in sample.bounds if least < bound < most)
        narrow = away > 0 and math.isfinite(above - below)  # the interval's length falls like 1 / sqrt(runs)
        return max(sample.runs + 1, math.ceil(sample.runs * ((above - below) / 2 / away) ** 2)) if narrow else None

    return sample.claim(middle, [case[1:] for case in cases], needed)


def exactly(text: str, values: Any, low: float | None = None, high: float | None = None) -> Claim:
    """A claim that every value of these runs lies within the bound; it says nothing about other runs.

    Parameters
    ----------
    text : str
    values : number or array_like
        The claim shows the value farthest beyond the bound, or the one closest to it if all are within.  It fails if a
        value is not finite, or if there are no values.
    low, high : float, optional
        The bound.

    Returns
    -------
    Claim
    """
    sample = _Sample(text, values, low, high)
    found, runs = sample.found, sample.runs
    fails = sample.silent or not runs
    worst = math.nan if fails else found[np.maximum(sample.least - found, found - sample.most).argmax()]
    return sample.claim(worst, [(worst, worst)], note="" if runs else "no values")


def none(text: str, flags: Any) -> Claim:
    """A claim that no flag of these runs is true; its value is the number of true flags."""
    return exactly(text, np.sum(flags), 0, 0)


class _Sample:
    """The values of a claim, and its bounds.

    ``found`` are the finite values, ``silent`` is the number of the others.  ``cases`` has the values for each bound,
    with those that are not finite at their worst: the least possible number for a lower bound, the largest for an upper
    bound.
    """

    def __init__(
        self, text: str, values: Any, low: float | None, high: float | None, within: tuple[float, float] = (0, 0)
    ):
        self.text, self.low, self.high = text, low, high
        self.least, self.most = _ends(low, high)
        values = np.ravel(np.asarray(values, dtype=float))
        finite = np.isfinite(values)
        self.found, self.runs = values[finite], len(values)
        self.silent = self.runs - len(self.found)
        self.unsaid = f"{self.silent} without a number" if self.silent else ""
        worst = [(bound, filler) for bound, filler in zip((low, high), within, strict=True) if bound is not None]
        if not worst:
            raise ValueError(f"a claim must have a bound, got neither low nor high for {text!r}")
        self.bounds = [bound for bound, _ in worst]
        self.cases = [np.where(finite, values, filler) for _, filler in worst]

    def middle(self, statistic: Callable[[np.ndarray], float]) -> float:
        """A statistic of the finite values; if there is one bound alone, or no finite value, of the first case."""
        return statistic(self.cases[0] if len(self.cases) == 1 or not len(self.found) else self.found)

    def verdict(self, intervals: Iterable[tuple[float, float]]) -> str:
        if all(self.least <= a and b <= self.most for a, b in intervals):
            return "holds"
        # an interval of NaN, of a claim without a number, fails
        return "fails" if all(not (b >= self.least and a <= self.most) for a, b in intervals) else "undecided"

    def counted(self, measured: float, interval: Callable[[np.ndarray, int], tuple[float, float]], note: str) -> Claim:
        """A claim on shares of runs.  ``interval(case, n)``: the interval that n runs with the shares of a case would
        have."""
        runs = self.runs

        def intervals(n: int) -> list[tuple[float, float]]:
            return [interval(case, n) for case in self.cases]

        def needed() -> int | None:
            return enough_runs(lambda n: self.verdict(intervals(n)) != "undecided", runs) if runs else None

        return self.claim(measured, intervals(runs), needed, note)

    def claim(
        self,
        measured: float,
        intervals: Sequence[tuple[float, float]],
        needed: Callable[[], int | None] = lambda: None,
        note: str = "",
    ) -> Claim:
        verdict = self.verdict(intervals)
        notes = [note, self.unsaid]
        enough = needed() if verdict == "undecided" else self.runs
        if verdict == "undecided":
            notes.append(f"about {enough:,} runs would decide" if enough else "more runs alone would not decide")
        least, most = min(a for a, _ in intervals), max(b for _, b in intervals)
        # runs without a number may lie on either side of the bound
        if verdict == "fails" and self.verdict([(least, most)]) != "fails":
            least, most = -math.inf, math.inf
        shown, below, above = (float(x) if math.isfinite(x) else None for x in (measured, least, most))
        note = "; ".join(filter(None, notes))
        return Claim(self.text, self.low, self.high, shown, below, above, self.runs, verdict, note, enough, self.silent)


def _mean(values: np.ndarray) -> float:
    return values.sum() / len(values) if len(values) else math.nan


def _ends(low: float | None, high: float | None) -> tuple[float, float]:
    """The ends of an interval; infinite where there is None."""
    return -math.inf if low is None else low, math.inf if high is None else high


def _shown(number: float | None) -> str:
    return "?" if number is None else f"{number:.4g}"
