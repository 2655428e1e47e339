"""The training objective: mean loss of the head's output over all queries."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._check import as_choice, as_doubles, as_floats, as_numeric, check_finite, check_shape, depth
from .data import Data

__all__ = ["Gradient", "LinearHead", "Problem"]

LOSSES = ("logistic", "exponential", "linear", "log")  # the order of the C enum


class LinearHead:
    """The output ``v . o`` of the attended vector ``o``.

    Parameters
    ----------
    v : (dv,) array_like, or one v per query: (n, dv), (n, S, dv), or a list of (S_i, dv)

    Examples
    --------
    >>> import attsvm
    >>> attsvm.LinearHead([1.0, 0.0])
    LinearHead(dv=2)
    """

    def __init__(self, v: Any):
        if isinstance(v, (list, tuple)) and any(depth(part) == 2 for part in v):
            self.v: Any = [as_floats(f"v[{i}]", part, "S_i, dv") for i, part in enumerate(v)]
            self.dv = self.v[0].shape[1]
            return
        array = as_numeric("v", v)
        if not 1 <= array.ndim <= 3:
            raise ValueError(f"v must have shape (dv,), (n, dv) or (n, S, dv), got {array.shape}")
        if array.size == 0:
            raise ValueError(f"v must not be empty, got shape {array.shape}")
        self.v = as_doubles(array)
        check_finite("v", self.v)
        self.dv = self.v.shape[-1]

    def __repr__(self) -> str:
        return f"LinearHead(dv={self.dv})"

    def flat(self, data: Data) -> np.ndarray:
        """v as (dv,), or (M, dv) when every query has its own."""
        dv = data.values.shape[1]
        if isinstance(self.v, np.ndarray) and self.v.ndim == 1:
            check_shape("v", self.v, "dv", (dv,))
            return self.v
        return np.ascontiguousarray(data.layout.flatten_queries("v", self.v, "dv", dv))


class Gradient(NamedTuple):
    """A gradient kept in range: the true one is ``exp(log_scale)`` times the arrays."""

    W: np.ndarray | None
    K: np.ndarray | None
    Q: np.ndarray | None
    log_scale: float


class Problem:
    """``L(W) = mean over queries of loss(y v . o(W))``, with ``o(W)`` the attended vector of a query.

    Parameters
    ----------
    data : Data
    y : (n,) or (n, S) array_like of -1 and +1, or a list of (S_i,), optional
        Labels; +1 by default.
    head : LinearHead
    loss : {"logistic", "exponential", "linear", "log"}
        Of u = y v.o: log(1 + exp(-u)), exp(-u), -u, or -log u.  The log loss needs scores that are nowhere negative,
        with a positive one for every query.

    Raises
    ------
    ValueError, TypeError
        Naming the argument that does not fit.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> problem.optimal.shape
    (6,)
    """

    def __init__(self, data: Data, y: Any = None, head: LinearHead | None = None, loss: str = "logistic"):
        if not isinstance(data, Data):
            raise TypeError(f"data must come from cross_attention or its siblings, got {type(data).__name__}")
        if not isinstance(head, LinearHead):
            raise TypeError(f"head must be a LinearHead, got {type(head).__name__}")
        self.data = data
        self.head = head
        self.loss_name = as_choice("loss", loss, LOSSES)
        self._loss = LOSSES.index(loss)
        self._y = np.ones(len(data)) if y is None else _labels(y, data)
        values = np.ascontiguousarray(data.values, dtype=np.float64)
        self._scores = _core.scores(data._handle, values, self._y, head.flat(data))
        check_finite("the scores y v.x", self._scores)
        if loss == "log":
            best = np.maximum.reduceat(self._scores, data.indptr[:-1])
            if self._scores.min() < 0 or best.min() <= 0:
                raise ValueError(
                    "loss='log' needs scores y v.x that are nowhere negative, with a positive one for every query; "
                    f"got a least score of {self._scores.min():g} and a query whose best is {best.min():g}"
                )

    def __repr__(self) -> str:
        return f"<attsvm Problem: {self.loss_name} loss, {self.head!r}, {self.data!r}>"

    @property
    def y(self) -> Any:
        """Labels, +1 or -1 per query."""
        return self.data.layout.shape_queries(self._y)

    @property
    def scores(self) -> Any:
        """``y v . value`` of every token a query sees, in the data's entry shape (``-inf`` after a causal query)."""
        return self.data.layout.shape_entries(self._scores, -np.inf)

    @property
    def optimal(self) -> Any:
        """The token with the highest score for each query (the lowest index on a tie)."""
        return self.data.layout.shape_queries(_core.top(self.data._handle, self._scores))

    def loss(self, W: Any = None, *, K: Any = None, Q: Any = None) -> float:
        """Mean loss at W, or at W = K Q^T.

        Parameters
        ----------
        W : (dk, dz) array_like
        K, Q : (dk, m) and (dz, m) array_like
            Instead of W.
        """
        return _core.loss(self.data._handle, self._scores, self._loss, *self._weights(W, K, Q))

    def loss_and_grad(self, W: Any = None, *, K: Any = None, Q: Any = None, scaled: bool = False) -> tuple:
        """Mean loss and its gradient: ``dL/dW = 1/M sum_q l'(u_q) keys^T (diag(s) - s s^T) scores z_q^T``.

        Softmax is differentiated by differences to the largest logit, so nothing cancels when attention saturates.

        Parameters
        ----------
        W : (dk, dz) array_like
        K, Q : (dk, m) and (dz, m) array_like
            Instead of W; then ``dK = dW Q`` and ``dQ = dW^T K``.
        scaled : bool
            Return a :class:`Gradient` whose arrays are of order one and whose ``log_scale`` holds the rest, exact
            where the plain gradient underflows (beyond ||W|| of some hundreds).

        Returns
        -------
        loss : float
        dW : (dk, dz) array, or dK, dQ, or a Gradient

        Raises
        ------
        FloatingPointError
            When the logits overflow.

        Examples
        --------
        >>> import attsvm, numpy as np
        >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
        >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
        >>> loss, dW = problem.loss_and_grad(np.zeros((10, 10)))
        >>> loss, gradient = problem.loss_and_grad(1e6 * np.eye(10), scaled=True)
        >>> gradient.log_scale < -10000
        True
        """
        weights = self._weights(W, K, Q)
        try:
            loss, *arrays, scale = _core.loss_and_grad(self.data._handle, self._scores, self._loss, *weights)
        except ArithmeticError as error:
            raise FloatingPointError(f"the gradient cannot be computed: {error}") from None
        if scaled:
            # Order one whatever the windows' own scales were.
            largest = max(float(np.abs(a).max()) for a in arrays)
            if largest > 0:
                arrays = [a / largest for a in arrays]
                scale += math.log(largest)
            else:
                scale = -math.inf
            return loss, Gradient(arrays[0], None, None, scale) if len(arrays) == 1 else Gradient(
                None, *arrays, scale
            )
        return loss, *(a * math.exp(scale) for a in arrays)

    def _weights(self, W: Any, K: Any, Q: Any) -> tuple:
        """(W, None, None) or (None, K, Q), checked."""
        dk, dz = self.data.dk, self.data.dz
        if W is not None:
            if K is not None or Q is not None:
                raise ValueError("give either W, or K and Q, not both")
            return as_floats("W", W, "dk, dz", (dk, dz)), None, None
        if K is None or Q is None:
            raise ValueError("give W, or both K and Q")
        K = as_floats("K", K, "dk, m", (dk, None))
        return None, K, as_floats("Q", Q, "dz, m", (dz, K.shape[1]))


def _labels(y: Any, data: Data) -> np.ndarray:
    if isinstance(y, (list, tuple)) and any(depth(part) > 0 for part in y) and not data.layout.uniform:
        flat = data.layout.flatten_queries("y", [as_numeric(f"y[{i}]", part) for i, part in enumerate(y)])
    else:
        flat = data.layout.flatten_queries("y", as_numeric("y", y))
    flat = as_doubles(flat)
    wrong = flat[np.abs(flat) != 1]
    if wrong.size:
        raise ValueError(f"y must hold labels -1 and +1 only, got {wrong[0]:g}")
    return flat
