"""The training objective: mean loss of the head's output over all queries."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._check import as_choice, as_count, as_doubles, as_floats, as_numeric, check_finite, depth
from .data import Data
from .output import KINDS, CallableHead, LinearHead, MLPHead, QuadraticHead

__all__ = ["Gradient", "Problem"]

LOSSES = ("logistic", "exponential", "linear", "log")  # the order of the C enum
COMBINATIONS = ("sum", "concatenate")


class Gradient(NamedTuple):
    """A gradient kept in range: the true one is ``exp(log_scale)`` times the arrays.

    With ``heads=H`` the arrays have H matrices, each with a scale of its own in ``log_scale (H,)``.
    """

    W: np.ndarray | None
    K: np.ndarray | None
    Q: np.ndarray | None
    log_scale: float | np.ndarray


class Problem:
    """``L(W) = mean over queries of loss(y head(o(W)))``, with ``o(W)`` the attended vector of a query.

    Parameters
    ----------
    data : Data
    y : (n,) or (n, S) array_like of -1 and +1, or a list of (S_i,), optional
        Labels; +1 by default.
    head : LinearHead, MLPHead, QuadraticHead or CallableHead
    loss : {"logistic", "exponential", "linear", "log"}
        Of u = y head(o): log(1 + exp(-u)), exp(-u), -u, or -log u.  The log loss goes with a linear head and needs
        scores that are nowhere negative, with a positive one for every query.
    heads : int, optional
        Attention heads, each with its own weights: W becomes (heads, dk, dz), K (heads, dk, m), Q (heads, dz, m).
    combine : {"sum", "concatenate"}
        How the attended vectors of several attention heads become the one that ``head`` reads; concatenated it has
        length heads * dv.

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

    def __init__(
        self,
        data: Data,
        y: Any = None,
        head: LinearHead | MLPHead | QuadraticHead | CallableHead | None = None,
        loss: str = "logistic",
        *,
        heads: int | None = None,
        combine: str = "sum",
    ):
        if not isinstance(data, Data):
            raise TypeError(f"data must come from cross_attention or its siblings, got {type(data).__name__}")
        if not isinstance(head, (LinearHead, MLPHead, CallableHead)):
            raise TypeError(
                f"head must be a LinearHead, MLPHead, QuadraticHead or CallableHead, got {type(head).__name__}"
            )
        self.data = data
        self.head = head
        self.heads = None if heads is None else as_count("heads", heads, 1)
        self.combine = as_choice("combine", combine, COMBINATIONS)
        self.loss_name = as_choice("loss", loss, LOSSES)
        self._loss = LOSSES.index(loss)
        self._y = np.ones(len(data)) if y is None else _labels(y, data)
        values = np.ascontiguousarray(data.values, dtype=np.float64)
        side_by_side = combine == "concatenate" and self.heads is not None
        v, a, lam, function = head.parameters(data, values.shape[1] * (self.heads if side_by_side else 1))
        if head.kind == "linear" and self.heads is None:  # scores that never change: the shorter way through C
            self._rule: Any = _core.scores(data._handle, values, self._y, v)
            check_finite("the scores y v.x", self._rule)
        else:
            kind = KINDS.index(head.kind)
            self._rule = (kind, values, self._y, v, a, lam, function, self.heads or 1, int(side_by_side))
        if loss == "log":
            self._check_log_loss()

    def _check_log_loss(self) -> None:
        if self.head.kind != "linear" or self.heads is not None:
            raise ValueError("loss='log' goes with a LinearHead and heads=None")
        scores = self._rule
        best = np.maximum.reduceat(scores, self.data.indptr[:-1])
        if scores.min() < 0 or best.min() <= 0:
            raise ValueError(
                "loss='log' needs scores y v.x that are nowhere negative, with a positive one for every query; "
                f"got a least score of {scores.min():g} and a query whose best is {best.min():g}"
            )

    def require_linear(self) -> None:
        """Raises where a theory of fixed scores does not apply: other heads, several attention heads."""
        if not isinstance(self._rule, np.ndarray):
            raise ValueError(f"problem must have a LinearHead and heads=None, got {self!r}")

    @functools.cached_property
    def _scores(self) -> np.ndarray:
        """``y head(value)`` of every entry."""
        if isinstance(self._rule, np.ndarray):
            return self._rule
        kind, values, y, v, a, lam, function, _, side_by_side = self._rule
        if side_by_side:
            raise ValueError(
                "combine='concatenate' with several heads has no scores: the head reads no single token"
            )
        data = self.data
        lengths, scores = data.stop - data.start, np.empty(data.indptr[-1])
        for t in range(lengths.max()):  # the t-th token of every query at once, as the head may differ by query
            o = np.ascontiguousarray(values[data.start + np.minimum(t, lengths - 1)])
            value, _ = function(o) if function is not None else _core.head(kind, v, a, lam, o)
            here = lengths > t
            scores[data.indptr[:-1][here] + t] = (y * value)[here]
        return scores

    def __repr__(self) -> str:
        several = "" if self.heads is None else f", {self.heads} attention heads ({self.combine})"
        return f"<attsvm Problem: {self.loss_name} loss, {self.head!r}{several}, {self.data!r}>"

    @property
    def y(self) -> Any:
        """Labels, +1 or -1 per query."""
        return self.data.layout.shape_queries(self._y)

    @property
    def scores(self) -> Any:
        """``y head(value)`` of every token a query sees, in the data's entry shape (``-inf`` after a causal query)."""
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
            Instead of W.  With ``heads=H``, each has a first axis of length H.
        """
        return _core.loss(self.data._handle, self._rule, self._loss, *self._weights(W, K, Q))

    def loss_and_grad(self, W: Any = None, *, K: Any = None, Q: Any = None, scaled: bool = False) -> tuple:
        """Mean loss and its gradient: ``dL/dW = 1/M sum_q l'(u_q) keys^T (diag(s) - s s^T) g z_q^T``.

        ``g_t = y <d head / d o, value_t>`` is the score of a token when the head is linear.  Softmax is differentiated
        by differences to the largest logit, so nothing cancels when attention saturates.

        Parameters
        ----------
        W : (dk, dz) array_like
        K, Q : (dk, m) and (dz, m) array_like
            Instead of W; then ``dK = dW Q`` and ``dQ = dW^T K``.  With ``heads=H``, each has a first axis of length H.
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
            loss, *found, scale = _core.loss_and_grad(self.data._handle, self._rule, self._loss, *weights)
        except ArithmeticError as error:
            raise FloatingPointError(f"the gradient cannot be computed: {error}") from None
        arrays = [a for a in found if a is not None]
        if scaled:
            # Order one whatever the windows' own scales were, each attention head by itself.
            largest = np.max([np.abs(a).max(axis=(1, 2)) for a in arrays], axis=0)
            flat = largest == 0
            arrays = [a / np.where(flat, 1.0, largest)[:, None, None] for a in arrays]
            scale = np.where(flat, -np.inf, scale + np.log(np.where(flat, 1.0, largest)))
        else:
            arrays = [a * np.exp(scale)[:, None, None] for a in arrays]
        if self.heads is None:
            arrays, scale = [a[0] for a in arrays], float(scale[0])
        if not scaled:
            return loss, *arrays
        return loss, Gradient(arrays[0], None, None, scale) if len(arrays) == 1 else Gradient(None, *arrays, scale)

    def _infimum(self) -> float:
        """The mean loss with every query on its optimal token: no W is below it, none reaches it."""
        self.require_linear()
        u = np.maximum.reduceat(self._scores, self.data.indptr[:-1])
        losses = {
            "logistic": lambda: np.logaddexp(0.0, -u),
            "exponential": lambda: np.exp(-u),
            "linear": lambda: -u,
            "log": lambda: -np.log(u),
        }
        return float(losses[self.loss_name]().mean())

    def _weights(self, W: Any, K: Any, Q: Any, runs: int | None = None) -> tuple:
        """(W, None, None) or (None, K, Q), checked, with the matrices of all runs and heads along the first axis."""
        dk, dz = self.data.dk, self.data.dz
        before = "" if runs is None else "runs, "
        before, stack = (
            before + ("" if self.heads is None else "H, "),
            [a for a in (runs, self.heads) if a is not None],
        )
        if W is not None:
            if K is not None or Q is not None:
                raise ValueError("give either W, or K and Q, not both")
            W = as_floats("W", W, before + "dk, dz", (*stack, dk, dz))
            return W.reshape(-1, dk, dz), None, None
        if K is None or Q is None:
            raise ValueError("give W, or both K and Q")
        K = as_floats("K", K, before + "dk, m", (*stack, dk, None))
        m = K.shape[-1]
        Q = as_floats("Q", Q, before + "dz, m", (*stack, dz, m))
        return None, K.reshape(-1, dk, m), Q.reshape(-1, dz, m)


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
