"""What weights and the gradient there prove of the largest margin: no solver is asked.

The gradient in the logits, ``delta = dL/dlogits``, gives that in the weights by differences to a reference token of
each query, ``-dL/dW = sum delta (x_ref - x_t) z^T``: it has the form of multipliers of the attention SVM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..attention.data import Data
from ..attention.intervals import intervals
from ..attention.selection import Selection
from ..common.check import as_norm
from ..common.norms import Metric, as_metric
from ..common.types import MetricLike, Norm

AT_ONCE = 1 << 15  # numbers of several records, which stay in cache


class ProvesMargins:
    """What a :class:`Problem` knows of the attention SVM by its gradient alone."""

    data: Data
    heads: int | None
    _objective: Any
    _functions: tuple[Any, Any]
    _read_weights: Callable[..., tuple[Any, ...]]
    _check_scale: Callable[[], None]

    def multipliers(
        self,
        W: ArrayLike | None = None,
        selected: ArrayLike | None = None,
        *,
        K: ArrayLike | None = None,
        Q: ArrayLike | None = None,
    ) -> tuple[Any, Any]:
        """The gradient in the logits, which are the multipliers of the attention SVM: ``delta = dL/dlogits``.

        With the differences of all tokens to a reference token of each query, ``x_ref - x_t``, and no remainder,
        ``-dL/dW = exp(log_scale) * sum delta (x_ref - x_t) z^T``, because softmax makes the gradients of a query sum
        to zero.  The SVM's least-norm weights are ``sum dual (x_ref - x_t) z^T`` with dual >= 0.

        Parameters
        ----------
        W : (dk, dz) array_like
        selected : as in :func:`attsvm.solve_svm`, optional
            The reference is the (first) selected token of each query; by default the one with the largest logit.  With
            ``heads=H``, a list of H selections.
        K, Q : (dk, m) and (dz, m) array_like
            Instead of W.  With ``heads=H``, each has a first axis of length H.

        Returns
        -------
        delta : array or list, in the data's entry shape; with ``heads=H`` (H, ...), or a list of lists
            Of either sign, not clipped; the largest of order one; 0 at the reference.  For a linear head positive at
            each token whose score is below the query's mean, ``sum_t probability_t score_t``.  0 for queries that add
            nothing to dL/dW: a zero query, tokens that are all alike.
        log_scale : float, or (H,) array
            Of the mean loss, without a ridge; ``-inf`` where no query adds anything.

        Raises
        ------
        ValueError
            Scores, tokens and queries whose product underflows.
        FloatingPointError
            When the logits overflow.

        Notes
        -----
        Derived here.  For linear classifiers, gradient descent as mirror descent on the dual: Ji, Telgarsky (2019).

        Examples
        --------
        >>> import attsvm, numpy as np
        >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
        >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
        >>> W = np.eye(10)
        >>> delta, log_scale = problem.multipliers(W)
        >>> reference = X[range(6), problem.data.select(W)]
        >>> step = np.exp(log_scale) * np.einsum("nt,ntd,ne->de", delta, reference[:, None] - X, Z)
        >>> bool(np.abs(step + problem.loss_and_grad(W)[1]).max() < 1e-15)
        True
        """
        delta, scale, top = self._logit_gradients(*self._read_weights(W, K, Q))
        for row, chosen in zip(delta, self._selections(selected, top), strict=True):
            row[self.data.indptr[:-1] + chosen.reference] = 0.0
        shaped = [self.data._layout.shape_entries(row, 0.0) for row in delta]
        if self.heads is None:
            return shaped[0], float(scale[0])
        return shaped if isinstance(shaped[0], list) else np.stack(shaped), scale

    def margin_interval(
        self,
        W: ArrayLike | None = None,
        selected: ArrayLike | None = None,
        norm: Norm = "frobenius",
        metric: MetricLike | None = None,
        *,
        K: ArrayLike | None = None,
        Q: ArrayLike | None = None,
    ) -> tuple[Any, Any]:
        """Both ends of the largest margin, as W and the gradient there prove them, without a solver.

        ``min margin(W) / ||W||  <=  largest margin  <=  ||sum lambda (x_ref - x_t) z^T||_dual / sum lambda`` with
        ``lambda = max(delta, 0)`` of :meth:`multipliers` (delta itself between several selected tokens, whose logits
        are to be equal): every lambda >= 0 proves its bound.  Where no delta is negative, the second is
        ``||dL/dW||_dual / sum dL/dlogits``.

        Parameters
        ----------
        W : (dk, dz) array_like
        selected : as in :func:`attsvm.solve_svm`, optional
            What W itself selects, by default.  With ``heads=H``, a list of H selections.
        norm : as in :func:`attsvm.solve_svm`
            Of the weights; the dual norm goes with it.
        metric : (dk, dz) array_like, or tuple of (dk, dk) and (dz, dz) array_like, optional
            With ``norm="frobenius"``: ``||W|| = sqrt(sum metric W^2)``, positive; or of a tuple (P, R), symmetric and
            positive definite, ``||P^(1/2) W R^(1/2)||_F``.
        K, Q : (dk, m) and (dz, m) array_like
            Instead of W.  With ``heads=H``, each has a first axis of length H.

        Returns
        -------
        low, high : float; (H,) arrays with ``heads=H``
            In the scale of :attr:`attsvm.Separation.margin`, and never false: each is rounded outwards.  ``low`` is 0
            where W does not separate, or misses an equality between selected tokens by more than rounding; ``high`` is
            infinite where no multiplier is positive.  Where no W separates, the largest margin is 0.

        Raises
        ------
        ValueError, TypeError, FloatingPointError
            As :meth:`multipliers`.

        Notes
        -----
        Derived here: multipliers of any problem's gradient are a dual point of the SVM.

        Examples
        --------
        >>> import attsvm
        >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
        >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
        >>> run = attsvm.train(problem, steps=5000)
        >>> low, high = problem.margin_interval(run.W)
        >>> low <= attsvm.solve_svm(problem.data, run.selected).margin <= high < 1.02 * low
        True
        """
        kind, weights = self._read_norm(norm, metric), self._read_weights(W, K, Q)
        delta, _, top = self._logit_gradients(*weights)
        stack = weights[0] if weights[0] is not None else weights[1] @ weights[2].swapaxes(-1, -2)
        stack = stack.reshape(len(delta), 1, self.data.dk, self.data.dz)
        each = zip(self._selections(selected, top), stack, delta[:, None], strict=True)
        low, high = np.array([intervals(self.data, *of, kind) for of in each])[:, :, 0].T
        return (float(low[0]), float(high[0])) if self.heads is None else (low, high)

    def _read_norm(self, norm: Any, metric: Any) -> Norm | Metric:
        """The norm of W that the two arguments mean."""
        norm = as_norm("norm", norm)
        if metric is None:
            return norm
        if norm != "frobenius":
            raise ValueError(f"metric goes with norm='frobenius', got norm={norm!r}")
        return as_metric("metric", metric, self.data.dk, self.data.dz)

    def _logit_gradients(self, W: Any, K: Any, Q: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """delta (N, entries), log_scale (N) and the top token (N, M) of N matrices."""
        return self._differentiate(_core.multipliers, W, K, Q)

    def _differentiate(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._check_scale()
        try:
            return function(self._objective, *self._functions, *arguments)
        except ArithmeticError as error:
            if type(error) not in (ArithmeticError, FloatingPointError):  # of the caller's own functions
                raise
            raise FloatingPointError(f"the gradient cannot be computed: {error}") from None

    def _selections(self, selected: Any, top: np.ndarray) -> list[Selection]:
        """That of each attention head: the one given, or its top tokens."""
        if selected is None:
            return [Selection(self.data, self.data._layout.shape_queries(row)) for row in top]
        if self.heads is not None and len(selected) != self.heads:
            raise ValueError(
                f"selected must be {self.heads} selections, one of each attention head, got {len(selected)}"
            )
        given = [selected] if self.heads is None else selected
        return [Selection(self.data, part).within(self.data) for part in given]


def proved_by(run: Any, norm: Norm | Metric, selected: Any, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of a single run at these weights (records, [H,] dk, dz), the last of those recorded.

    Both (records, H) of a problem with attention heads, each for its own selection; else (records,).
    """
    problem, data = run.problem, run.data
    alone, selected = problem.heads is None, run.selected if selected is None else selected
    selections = [Selection(data, part) for part in ([selected] if alone else selected)]
    weights = np.ascontiguousarray(weights[:, None] if alone else weights)
    records, H, dk, dz = weights.shape
    ends = np.empty((2, records, H))
    heads = None if run.head_records is None else run.head_records[-records:]  # of the output, trained too
    chunk = 1 if heads is not None else max(1, AT_ONCE // (H * max(int(data.indptr[-1]), dk * dz)))
    for first in range(0, records, chunk):
        W = weights[first : first + chunk]
        at = problem if heads is None else problem._with_head(run.start.from_row(heads[first]))
        delta = at._logit_gradients(W.reshape(-1, dk, dz), None, None)[0].reshape(len(W), H, -1)
        for h, chosen in enumerate(selections):
            ends[:, first : first + chunk, h] = intervals(data, chosen, W[:, h], delta[:, h], norm)
    low, high = ends[..., 0] if alone else ends
    return low, high
