"""What the model loses without one singular direction of a head's W."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..heads.faithful import LostDirection
from ..heads.model import Head
from ..heads.names import directions, name_directions
from .candidates import Source
from .replacement import Replacement, as_replacement

LEADING = 4  # directions of each head
RANDOM = 3  # directions beside each


def without_directions(
    source: Source, damage: Callable[[dict[Head, Replacement]], np.ndarray], seed: int, svm: np.ndarray | None
) -> Iterator[LostDirection]:
    """Of the leading directions; ``svm`` is the W of the SVM, whose directions are named beside them.

    A random one ``s a b^T`` lies in the spans of W's own singular vectors.
    """
    head = source.head
    left, values, right = directions(head)
    rng = np.random.default_rng([seed, head.layer, head.number])

    def of(W: np.ndarray) -> float:
        return float(damage({head: as_replacement(head, W, None)}).mean())

    beside = [] if svm is None else name_directions(head, source.rows, svm, LEADING)
    for named in name_directions(head, source.rows, most=LEADING):
        k, value = named.number, named.value
        lost = of(head.W - value * np.outer(left[:, k], right[:, k]))
        others = []
        for _ in range(RANDOM):
            a, b = (side @ _unit(rng.standard_normal(len(values))) for side in (left, right))
            others.append(of(head.W - value * np.outer(a, b)))
        beside_it = str(beside[k]) if k < len(beside) else ""
        yield LostDirection(head.label, k, str(named), named.share, value, lost, float(np.mean(others)), beside_it)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x)
