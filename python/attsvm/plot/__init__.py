"""Pictures made of several results or of arrays.  Each draws into ``ax`` (a new figure by default) and returns it."""

from .answers import attention
from .curves import band
from .runs import correlation, margin_share, saturation

__all__ = ["attention", "band", "correlation", "margin_share", "saturation"]
