"""Claims: a statistic, a bound fixed beforehand, a 95 % interval of the statistic, and a verdict."""

from .claim import VERDICTS, Claim, claim, difference, exactly, mean, median, none, share
from .intervals import binomial_interval

__all__ = [
    "VERDICTS",
    "Claim",
    "binomial_interval",
    "claim",
    "difference",
    "exactly",
    "mean",
    "median",
    "none",
    "share",
]
