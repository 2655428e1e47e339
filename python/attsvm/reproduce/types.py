"""The kinds of things that figures pass on, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator

from ..claims import Claim

__all__ = ["Claims", "Found", "Generator", "Results"]

Found: TypeAlias = dict[str, Any]  # numbers of one random instance, by name
Results: TypeAlias = Mapping[str, np.ndarray]  # the same of all instances, stacked along the first axis
Claims: TypeAlias = dict[str, list[Claim]]  # under their headings
