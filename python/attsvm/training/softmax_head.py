"""An output head with several classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.data import Data
from ..common.check import as_floats, as_numbers_of, as_parts, check_shape
from .output_head import CallableHead


class SoftmaxHead(CallableHead):
    """The log-probability ``log softmax(V^T o)_c`` of each query's class c; with ``loss="linear"`` its cross-entropy.

    Parameters
    ----------
    V : (dv, C) array_like
        One output per class.
    classes : (n,) or (n, S) integer array_like, or list of (S_i,)
        The class of each query, 0 .. C - 1.

    Notes
    -----
    The cross-entropy is concave in the attended vector o, so that a query may keep several tokens: the mixture of its
    tokens under which its class is most probable.  Evaluated in NumPy, one call a step.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> head = attsvm.SoftmaxHead([[1.0, 0.0, -1.0]] * 10, classes=[0, 1, 2, 0, 1, 2])
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), head=head, loss="linear")
    >>> run = attsvm.train(problem, steps=100)
    >>> bool(run.loss[-1] < run.loss[0])
    True
    """

    def __init__(self, V: ArrayLike, classes: Any):
        self.V = as_floats("V", V, "dv, C")
        C = self.V.shape[1]
        self.classes = as_parts("classes", classes, True, lambda name, part: as_numbers_of(name, part, "class", C))
        self._flat = np.concatenate(self.classes) if isinstance(self.classes, list) else self.classes.ravel()

    def __repr__(self) -> str:
        return f"SoftmaxHead(dv={self.V.shape[0]}, C={self.V.shape[1]})"

    def value_and_grad(self, o: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities of the classes at attended vectors o (M, dv), and their gradients."""
        outputs, q, own = o @ self.V, np.arange(len(o)), self._flat
        top = outputs.argmax(axis=1)
        outputs -= outputs[q, top][:, None]
        p = np.exp(outputs)
        p[q, top] = 0.0
        rest = p.sum(axis=1)
        value = outputs[q, own] - np.log1p(rest)
        p[q, top] = 1.0
        p /= (1.0 + rest)[:, None]
        # The part of the own class is that of all others: 1 - p_own would lose what is left where p_own is nearly 1.
        p[q, own] = 0.0
        p[q, own] = -p.sum(axis=1)
        return value, -(p @ self.V.T)

    def take(self, sequences: np.ndarray) -> SoftmaxHead:
        own = self.classes
        return SoftmaxHead(self.V, own[sequences] if isinstance(own, np.ndarray) else [own[i] for i in sequences])

    def parameters(self, data: Data, dv: int) -> tuple[None, None, float, Any]:
        check_shape("V", self.V, "dv, C", (dv, None))
        data._layout.flatten_queries("classes", self.classes)  # as many as there are queries
        return super().parameters(data, dv)
