"""The types of public arguments, so that a type checker refuses ``norm="nuc"``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:  # NumPy loads numpy.random when it is first asked for: importing attsvm does not ask
    import numpy as np
    from numpy.typing import ArrayLike

Norm: TypeAlias = Literal["frobenius", "nuclear", "max", "spectral"] | float
Method: TypeAlias = Literal["auto", "active", "block", "interior", "gradient", "factored"]
Loss: TypeAlias = Literal["logistic", "exponential", "linear", "log"]
MetricLike: TypeAlias = "ArrayLike | tuple[ArrayLike, ArrayLike]"
Ball: TypeAlias = Literal["frobenius", "nuclear"]
Random: TypeAlias = "int | np.random.Generator | None"


class Selecting(Protocol):
    """What has selected tokens: a Run, of which the SVM knows nothing else."""

    @property
    def selected(self) -> Any: ...
