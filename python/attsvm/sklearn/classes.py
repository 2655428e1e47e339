"""Checks the labels of a classifier of two classes."""

from __future__ import annotations

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target


def two_classes(classes: np.ndarray) -> np.ndarray:
    """The two labels, sorted; raises unless there are exactly two."""
    check_classification_targets(classes)
    kind = type_of_target(classes, input_name="y", raise_unknown=True)
    if kind != "binary":
        raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
    found = np.unique(classes)
    if len(found) != 2:
        raise ValueError(f"y must hold two classes, got 1 class: {found[0]!r}")
    return found
