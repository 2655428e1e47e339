"""Pictures made of several results or of arrays.  Each function draws into the axes ``ax`` (of a new figure by default)
and returns these axes."""

from .answers import attention
from .curves import band, correlation, margin_share, saturation

__all__ = ["attention", "band", "correlation", "margin_share", "saturation"]
