"""Two-sided 95 % intervals of shares, differences of shares, medians and means; and how many runs decide a claim."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

TAIL = 0.025  # probability of each of the two tails outside a 95 % interval
LEAST_MEDIAN = 6  # least number of runs whose range is a 95 % interval of the median: 2 * 0.5**6 < .05
# Number of random draws that estimate the ends of a mean's interval: the tails of .025 have a standard error of .0016.
DRAWS = 10_000
# enough_runs tries up to this number of runs; if that many do not decide, the statistic is taken to equal its bound.
MOST_RUNS = 100_000


def binomial_interval(successes: Any, runs: int, tail: float = TAIL) -> tuple[Any, Any]:
    """The exact (Clopper-Pearson) interval of a share, or of an array of shares; [0, 1] if there are no runs.

    Its ends solve P(Bin(runs, p) >= successes) = tail and P(Bin(runs, p) <= successes) = tail for p.  They are
    quantiles of beta distributions, and equal those of ``scipy.stats.binomtest(...).proportion_ci(method="exact")``.

    Examples
    --------
    >>> from attsvm.claims import binomial_interval
    >>> low, high = binomial_interval(94, 100)
    >>> print(f"{low:.4f} {high:.4f}")
    0.8740 0.9777
    """
    quantile, failures = _special().betaincinv, runs - successes
    low, high = quantile(successes, failures + 1, tail), 1 - quantile(failures, successes + 1, tail)
    # SciPy gives NaN for the lower end if there is no success, and for the upper end if there is no failure
    return np.nan_to_num(low), np.nan_to_num(high, nan=1.0)


def _special() -> Any:
    try:
        from scipy import special  # an optional dependency
    except ImportError as error:
        raise ModuleNotFoundError("attsvm.claim needs SciPy: pip install scipy", name=error.name) from None
    return special


def difference_interval(gains: int, losses: int, runs: int) -> tuple[float, float]:
    """The 95 % interval of the share of runs where only the first of two flags is true, minus the share of only the
    second.

    The ends combine the 98.75 % Clopper-Pearson intervals p10 and p01 of these two shares.  Their four tails of .625 %
    sum to .025.
    """
    (low10, high10), (low01, high01) = (binomial_interval(count, runs, TAIL / 4) for count in (gains, losses))
    return low10 - high01, high10 - low01


def median_rank(runs: int) -> int:
    """The rank r such that the r-th smallest and r-th largest run enclose the median in 95 % of samples; 0 if none.

    It is the largest r with P(Bin(runs, 1/2) < r) <= .025, for runs of any distribution.
    """
    return int((_special().bdtr(np.arange(runs), runs, 0.5) <= TAIL).sum())


def median_interval(sample: np.ndarray) -> tuple[float, float, float]:
    """Returns the median; and both ends of its 95 % interval by order statistics, infinite for too few runs."""
    middle, rank = float(np.median(sample)) if len(sample) else math.nan, median_rank(len(sample))
    ordered = np.sort([-math.inf, *sample, math.inf])
    return middle, float(ordered[rank]), float(ordered[-1 - rank])


def mean_interval(sample: np.ndarray, least: float, most: float) -> tuple[float, float, float]:
    """Returns the mean of numbers in ``least`` .. ``most``; and both ends of its 95 % interval, by Gaffke's method.

    Take the weighted mean of the sample and ``least``, with Dirichlet(1, ..., 1) weights; its .025 quantile is the
    lower end.  The upper end is the .975 quantile with ``most`` in place of ``least``.  For flags this is the
    Clopper-Pearson interval.  For other numbers the coverage is not proved, but no distribution is known for which it
    is below 95 % (Phan, Thomas and Learned-Miller, ICML 2021).
    """
    rng = np.random.default_rng(0)  # every call draws the same weights, so that a page can be reproduced to the digit
    runs, outside = len(sample), int(TAIL * DRAWS)
    weights = rng.standard_exponential((DRAWS, runs + 1))
    weights /= weights.sum(axis=1, keepdims=True)
    middle, rest = weights[:, :runs] @ sample, weights[:, runs]
    low, high = np.sort(middle + rest * least)[outside], np.sort(middle + rest * most)[-1 - outside]
    return float(sample.mean()) if runs else math.nan, float(low), float(high)


def enough_runs(decides: Callable[[int], bool], runs: int) -> int | None:
    """A number of runs n at which ``decides(n)`` becomes true, found by doubling ``runs`` and then by bisection.

    It is the least such number if ``decides`` stays true for all larger numbers.  None if doubling passes
    MOST_RUNS.
    """
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
