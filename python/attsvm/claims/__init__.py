"""Claims: bounds fixed beforehand, 95 % intervals of what was measured, three verdicts."""

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
