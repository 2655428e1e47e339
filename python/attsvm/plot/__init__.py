"""Pictures of results.  Each function draws into ``ax`` (pyplot's current one by default) and returns it."""

from .answers import attention, excess, margins, scores
from .curves import band
from .runs import correlation, interval, margin_share, saturation

__all__ = ["attention", "band", "correlation", "excess", "interval", "margin_share", "margins", "saturation", "scores"]
