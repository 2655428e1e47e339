"""Types of public arguments, so that a type checker refuses ``norm="nuc"``."""

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:  # for type checkers only: at run time `np.random` would make NumPy load numpy.random
    import numpy as np
    from numpy.typing import ArrayLike

Norm: TypeAlias = Literal["frobenius", "nuclear", "max", "spectral"] | float
Method: TypeAlias = Literal["auto", "active", "block", "interior", "gradient", "factored"]
Loss: TypeAlias = Literal["logistic", "exponential", "linear", "log"]
MetricLike: TypeAlias = "ArrayLike | tuple[ArrayLike, ArrayLike]"
Ball: TypeAlias = Literal["frobenius", "nuclear"]
Random: TypeAlias = "int | np.random.Generator | None"


class Selecting(Protocol):
    """All that the SVM needs to know of an object that has selected tokens, such as a Run."""

    @property
    def selected(self) -> Any: ...
