"""Two-sided 95 % intervals of a share, a median and a mean, and how many runs would narrow them enough."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

__all__ = ["LEAST_MEAN", "LEAST_MEDIAN", "binomial_interval", "enough_runs", "mean_interval", "median_interval"]

TAIL = 0.025  # on either side
LEAST_MEDIAN = 6  # 2 * 0.5**6 < .05: the range of six runs encloses the median
LEAST_MEAN = 20  # the means of fewer, resampled, spread visibly less than means do
RESAMPLES = 10_000
MOST_RUNS = 100_000  # a measurement that this many runs do not tell from its bound lies on it


def binomial_interval(successes: int, runs: int) -> tuple[float, float]:
    """The exact (Clopper-Pearson) interval of a share.

    Its ends solve P(Bin(runs, p) >= successes) = .025 and P(Bin(runs, p) <= successes) = .025 for p.

    Examples
    --------
    >>> from attsvm.report.intervals import binomial_interval
    >>> low, high = binomial_interval(94, 100)
    >>> print(f"{low:.4f} {high:.4f}")
    0.8740 0.9777
    """
    if not 0 <= successes <= runs or runs < 1:
        raise ValueError(f"successes must lie between 0 and runs >= 1, got {successes} of {runs}")
    if successes == runs:
        return TAIL ** (1 / runs), 1.0
    if successes == 0:
        return 0.0, 1 - TAIL ** (1 / runs)
    return 1 - _most(runs - successes, runs), _most(successes, runs)


def _most(successes: int, runs: int) -> float:
    """The p at which P(Bin(runs, p) <= successes) has fallen to .025, by bisection of the sum."""
    factorial = np.concatenate([[0.0], np.log(np.arange(1, runs + 1)).cumsum()])
    # The rest lies 20 standard deviations, of at most sqrt(runs) / 2, below: less than rounding.
    k = np.arange(max(0, successes - 10 * math.isqrt(runs) - 10), successes + 1)
    ways = factorial[runs] - factorial[k] - factorial[runs - k]
    low, high = successes / runs, 1.0
    while low < (p := (low + high) / 2) < high:
        if np.exp(ways + k * math.log(p) + (runs - k) * math.log1p(-p)).sum() > TAIL:
            low = p
        else:
            high = p
    return high


def median_rank(runs: int) -> int:
    """The largest r with P(Bin(runs, 1/2) < r) <= .025; 0 if there is none.

    The r-th smallest and the r-th largest of the runs enclose the median in 95 % of all samples, whatever their
    distribution.
    """
    if runs >= 1000:  # 2**-runs leaves double precision, and the normal tail is exact to less than one rank
        return math.floor((runs - 1.96 * math.sqrt(runs)) / 2)
    below, term = 0.0, 0.5**runs
    for r in range(runs):
        if below + term > TAIL:
            return r
        below, term = below + term, term * (runs - r) / (r + 1)
    return 0


def median_interval(sample: np.ndarray) -> tuple[float, float, float]:
    """The median and its interval by order statistics, infinite for too few runs; values may be infinite."""
    runs, ordered = len(sample), np.sort(sample)
    if runs == 0:
        return math.nan, -math.inf, math.inf
    below, above = float(ordered[(runs - 1) // 2]), float(ordered[runs // 2])
    middle = below if below == above else (below + above) / 2
    rank = median_rank(runs)
    return (middle, float(ordered[rank - 1]), float(ordered[-rank])) if rank else (middle, -math.inf, math.inf)


def mean_interval(sample: np.ndarray) -> tuple[float, float, float]:
    """The mean and its bootstrap interval, infinite for too few runs; values may be infinite of one sign."""
    runs = len(sample)
    if runs < LEAST_MEAN:
        return float(sample.mean()) if runs else math.nan, -math.inf, math.inf
    rng = np.random.default_rng(0)  # the same resamples for everyone, so that a page can be reproduced to the digit
    means = np.concatenate([sample[rng.integers(runs, size=(500, runs))].mean(axis=1) for _ in range(RESAMPLES // 500)])
    means.sort()
    outside = int(TAIL * RESAMPLES)
    return float(sample.mean()), float(means[outside]), float(means[-1 - outside])


def enough_runs(decides: Callable[[int], bool], runs: int) -> int | None:
    """About how many runs would decide, where ``decides(n)`` says whether n do; None if no reasonable number does."""
    enough = max(runs, 1)
    while not decides(enough):
        enough *= 2
        if enough > MOST_RUNS:
            return None
    short = enough // 2
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (short, middle) if decides(middle) else (middle, enough)
    return enough
