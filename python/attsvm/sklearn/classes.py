"""Labels and tokens as the estimators take them."""

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from ..attention.data import Data
from ..attention.kinds import cross_attention, self_attention


def two_classes(classes: np.ndarray) -> np.ndarray:
    """The two labels, sorted; raises unless there are exactly two."""
    check_classification_targets(classes)
    kind = type_of_target(classes)
    if kind != "binary":
        raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
    found = np.unique(classes)
    if len(found) != 2:
        raise ValueError(f"y must hold two classes, got 1 class: {found[0]!r}")
    return found


def sequences(X: Any, Z: Any) -> Data:
    """The tokens X of sequences with their queries Z, by default the first token of each sequence."""
    return self_attention(X) if Z is None else cross_attention(X, Z)
