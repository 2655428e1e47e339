"""The training objective: the mean loss of the head's output over all queries."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..attention.data import LEAST, Data, check_data, largest
from ..attention.selection import Selection, intervals
from ..common.check import as_choice, as_count, as_doubles, as_floats, as_numeric, as_parts, check_finite
from ..common.norms import Metric, read_norm
from ..common.storage import storable
from ..common.types import Loss, MetricLike, Norm
from .checked_losses import GRID, CallableLoss, check_log_loss
from .gradient import Gradient, product
from .output_head import CallableHead, LinearHead, MLPHead, QuadraticHead

QUERIES, TOKENS = 64, 256  # largest numbers of queries, and of tokens of a window, for an estimate of the data's scale
LEAST_PRODUCT = -305  # sums of products below 10 to this power lose digits or underflow


@storable
class Problem:
    """A training problem: the objective ``L(W) = mean over queries of loss(y head(o(W)))``.

    y is the label of a query, and ``o(W)`` its attended vector.

    Parameters
    ----------
    data : Data
        Data without sequences are accepted too, for a worker of ``reduce`` in :func:`train`.
    y : (n,) or (n, S) array_like of -1 and +1, or a list of (S_i,), optional
        Labels; +1 by default.
    head : LinearHead, MLPHead, QuadraticHead, SoftmaxHead or CallableHead
    loss : {"logistic", "exponential", "linear", "log"} or tuple of callables
        Of u = y head(o): log(1 + exp(-u)), exp(-u), -u, or -log u.  The log loss goes with a linear head and needs
        scores that are nowhere negative (beyond rounding), with a positive one for every query.  A loss of your own is
        a tuple ``(value, derivative)`` of functions from an array u (M,) to arrays (M,).  The derivative must be
        negative everywhere; it is compared once with differences of the value.  A third function, the logarithm of the
        derivative's size, keeps the gradient alive where the derivative underflows; without it, a run ends "stationary"
        there.
    heads : int, optional
        Attention heads, each with its own weights: W becomes (heads, dk, dz), K (heads, dk, m), Q (heads, dz, m).
    combine : {"sum", "concatenate"}
        How the attended vectors of several attention heads become the one that ``head`` reads; concatenated it has
        length heads * dv.

    Raises
    ------
    ValueError, TypeError
        Labels other than -1 and +1; a head whose v fits no value; scores below zero with "log"; a loss whose derivative
        is not negative, or not that of its value.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> problem.optimal.shape
    (6,)

    The square root of the logistic loss ("rooted logistic"), with the logarithm of its derivative's size:

    >>> import numpy as np
    >>> soft = lambda u: np.logaddexp(0.0, -u)
    >>> value = lambda u: np.sqrt(soft(u))
    >>> derivative = lambda u: -np.exp(-u - soft(u)) / (2 * value(u))
    >>> log_size = lambda u: -u - soft(u) - np.log(2 * value(u))
    >>> rooted = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v), (value, derivative, log_size))
    >>> run = attsvm.train(rooted, steps=1000)
    >>> bool((run.selected == rooted.optimal).all())
    True
    """

    def __init__(
        self,
        data: Data,
        y: ArrayLike | None = None,
        head: LinearHead | MLPHead | QuadraticHead | CallableHead | None = None,
        loss: Loss | tuple[Callable[[np.ndarray], Any], ...] = "logistic",
        *,
        heads: int | None = None,
        combine: Literal["sum", "concatenate"] = "sum",
    ):
        check_data("data", data, shard=True)
        if not isinstance(head, (LinearHead, MLPHead, CallableHead)):
            raise TypeError(
                "head must be a LinearHead, MLPHead, QuadraticHead, SoftmaxHead or CallableHead, "
                f"got {type(head).__name__}"
            )
        if callable(loss):
            raise TypeError(f"loss must be one of {list(_core.LOSS)} or (value, derivative), got a function alone")
        self.data = data
        self.head = head
        self.heads = None if heads is None else as_count("heads", heads, 1)
        self.combine = as_choice("combine", combine, ("sum", "concatenate"))
        self._labels = np.ones(len(data.queries)) if y is None else _labels(y, data)
        self._concatenated = combine == "concatenate" and self.heads is not None
        length = data.values.shape[1] * (self.heads if self._concatenated else 1)
        # The head as C reads it: its kind, its v, an MLP's output weights a, a quadratic head's factor lam of |o|^2.
        self._head: tuple[int, Any, Any, float] = _core.HEAD[head.kind], *head.parameters(data, length)
        # scores of a linear head, one per entry, which C reads instead of the values of the tokens
        scores: np.ndarray | None = None
        if head.kind == "linear" and self.heads is None:
            scores = _core.scores(data._handle, np.ascontiguousarray(data.values), self._labels, self._head[1])
            check_finite("the scores y v.x", scores)
        self._fixed_scores = scores
        # _with passes a CallableLoss, which was checked for the whole problem
        own = loss if isinstance(loss, CallableLoss) else None
        if isinstance(loss, tuple):
            # every output u is a mean of scores, so it lies between the least and the largest score
            grid = GRID if scores is None else np.linspace(scores.min(), scores.max(), 0 if data._none else 401)
            own = CallableLoss(loss, grid)
        self._own_loss: CallableLoss | None = own
        self._loss_name = as_choice("loss", loss, _core.LOSS) if own is None else own.name
        called: Any = head.value_and_grad if head.kind == "call" else None
        self._functions: tuple[Any, Any] = called, None if own is None else own.evaluate
        if data._none:  # the only query is a placeholder of zeros: do not call the user's functions on it
            self._functions = called and _nothing, None
        elif loss == "log":
            check_log_loss(scores, data._begin)
        self._from_scores = scores is not None and own is None  # whether C reads only the fixed scores of a linear head
        self._objective = self._capsule()

    def __getitem__(self, index: Any) -> Problem:
        """The problem of some sequences, with their labels and heads; its loss is the mean over their queries.

        Parameters
        ----------
        index : slice, list of integers or (n,) array of bool
            As of :class:`Data`, which shares its tokens.

        Returns
        -------
        Problem
            As made of those sequences alone.  The function of a CallableHead is called with their queries.

        Examples
        --------
        >>> import attsvm
        >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
        >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
        >>> problem[[0, 3]].optimal.tolist() == problem.optimal[[0, 3]].tolist()
        True
        """
        data, chosen, rows = self.data._take(index)
        y = data._layout.shape_queries(self._labels[rows])
        return self._with(data=data, y=y, head=self.head.take(chosen))

    def _capsule(self, trains_head: bool = False) -> Any:
        """The objective as a C object.  If a linear head is trained, C reads the values of the tokens as well as their
        scores."""
        loss = None if self._own_loss is not None else _core.LOSS[self._loss_name]
        # data without sequences hold one query of zeros in place of none; the linear loss is finite for any score of it
        if self.data._none:
            loss = _core.LOSS["linear"]
        last = self._labels, *self._head, self.heads or 1, self._concatenated
        if not self._from_scores:
            return _core.objective(self.data._handle, loss, None, self._values, *last)
        values = as_doubles(self.data.values) if trains_head else None
        return _core.objective(self.data._stored, loss, self._fixed_scores, values, *last)

    @cached_property
    def _values(self) -> np.ndarray | None:
        """The values of the tokens as C reads them; None for those of a vocabulary, the identity."""
        return None if self.data._identity and self.data._given_values is None else as_doubles(self.data.values)

    def _with(self, **changes: Any) -> Problem:
        """A copy of this problem with other arguments.  A loss of the user's own is not checked again."""
        return Problem(**self._state() | {"loss": self._own_loss or self._loss_name} | changes)

    def _state(self) -> dict[str, Any]:
        names = ("data", "y", "head", "heads", "combine")
        loss: Any = self._loss_name if self._own_loss is None else self._own_loss.functions
        return {"loss": loss} | {name: getattr(self, name) for name in names}

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Problem, **self._state()), ()

    def _require_linear(self) -> None:
        """Raises an error unless the problem has fixed scores, which the theory needs: a linear head, one attention
        head, and queries."""
        check_data("the data of problem", self.data)
        if self._fixed_scores is None:
            raise ValueError(f"problem must have a LinearHead and heads=None, got {self!r}")

    def _check_scale(self) -> None:
        """Raises an error if there are no queries, or if gradients (sums of products of scores, tokens and queries)
        would underflow."""
        check_data("the data of problem", self.data)
        data, parts = self.data, [self._fixed_scores]
        if parts[0] is None:  # values that are None stand for the identity matrix, whose largest number is 1
            parts = [array for array in (self._values, self._head[1]) if array is not None]
        scores = sum(map(_log10_largest, parts))
        if data._powers is None and scores + 2 * math.log10(LEAST) > LEAST_PRODUCT:
            return
        tokens, queries = math.log10(data._largest_key or math.inf), _log10_largest(data.queries)
        if scores + tokens + queries < LEAST_PRODUCT:
            raise ValueError(
                f"problem must be of a scale at which scores times tokens times queries are above 1e{LEAST_PRODUCT}, "
                f"got about 1e{round(scores)}, 1e{round(tokens)} and 1e{round(queries)}: rescale X, Z or the head"
            )

    __iter__ = None  # without this line, Python would iterate over a problem by calling __getitem__ with 0, 1, 2, ...

    @cached_property
    def _token_squares(self) -> tuple[float, float]:
        """The numbers ``(total, share)`` from which the default learning rate is computed: ``total / share`` is the
        squared scale of the data.

        ``total`` sums, over the queries that see several tokens, the mean of ``1/2 ||x - x'||^2 ||z||^2`` over pairs of
        these tokens, and divides by the number of all queries.  ``share`` is the fraction of queries that see several
        tokens.  The quotient is 1 for random vectors of length one.
        """
        data = self.data
        chosen = _spread(len(data.queries), QUERIES)
        keys, queries = data._powers or (0, 0)
        start, lengths, total = data.start[chosen], data.lengths[chosen], 0.0
        z = np.square(np.ldexp(data.queries[chosen], -queries)).sum(axis=1)
        for T in set(lengths[lengths > 1].tolist()):
            here = lengths == T
            if data._identity:
                total += z[here].sum()
                continue
            X = np.ldexp(data.keys[start[here, None] + _spread(T, TOKENS)].astype(np.float64), -keys)
            X -= X.mean(axis=1, keepdims=True)
            total += np.square(X, out=X).sum(axis=(1, 2)) @ z[here] / (X.shape[1] - 1)
        # The sum ``total`` is 0 or infinite if it left double precision; the default learning rate then ignores it.
        with np.errstate(over="ignore", under="ignore"):
            return float(np.ldexp(total / len(chosen), 2 * (keys + queries))), float(np.mean(lengths > 1))

    @cached_property
    def _flat_scores(self) -> np.ndarray:
        """The score ``y head(value)`` of every entry (pair of a query and a token that it sees), as a flat array."""
        if self._fixed_scores is not None:
            return self._fixed_scores
        if self._concatenated:
            raise ValueError("combine='concatenate' with several heads has no scores: the head reads no single token")
        evaluate = self._functions[0] or functools.partial(_core.head, *self._head)
        data, lengths, scores = self.data, self.data.lengths, np.empty(self.data._entries)
        for t in range(data._longest):  # token t of every query at once, since each query may have its own head
            value, _ = evaluate(as_doubles(data.values[data.start + np.minimum(t, lengths - 1)]))
            here = lengths > t
            scores[data._begin[here] + t] = (self._labels * value)[here]
        return scores

    def __repr__(self) -> str:
        several = "" if self.heads is None else f", {self.heads} attention heads ({self.combine})"
        return f"<attsvm Problem: {self._loss_name} loss, {self.head!r}{several}, {self.data!r}>"

    @property
    def y(self) -> Any:
        """The labels, +1 or -1 per query."""
        return self.data._layout.shape_queries(self._labels)

    @property
    def scores(self) -> Any:
        """The score ``y head(value)`` of every token that a query sees, as an array (or list) of queries by tokens.

        It is ``-inf`` after a causal query.
        """
        return self.data._layout.shape_entries(self._flat_scores, -np.inf)

    @property
    def optimal(self) -> Any:
        """The token with the highest score for each query (the lowest index on a tie)."""
        return self.data._layout.shape_queries(_core.top(self.data._handle, self._flat_scores))

    def loss(self, W: ArrayLike | None = None, *, K: ArrayLike | None = None, Q: ArrayLike | None = None) -> float:
        """The mean training loss at weights W, or at W = K Q^T.

        Parameters
        ----------
        W : (dk, dz) array_like
        K, Q : (dk, m) and (dz, m) array_like
            Instead of W.  With ``heads=H``, each has a first axis of length H.
        """
        check_data("the data of problem", self.data)
        return _core.loss(self._objective, *self._functions, *self._read_weights(W, K, Q))

    def loss_and_grad(
        self,
        W: ArrayLike | None = None,
        *,
        K: ArrayLike | None = None,
        Q: ArrayLike | None = None,
        scaled: bool = False,
    ) -> tuple[Any, ...]:
        """The mean training loss at weights W, and its gradient dL/dW.

        The gradient is ``1/M sum_q l'(u_q) keys^T (diag(s) - s s^T) g z_q^T``, with s the attention of query q.

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
        ValueError
            Scores, tokens and queries whose product underflows.
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
        weights = self._read_weights(W, K, Q)
        loss, *arrays, scale = self._differentiate(_core.loss_and_grad, *weights, bool(scaled))
        if self.heads is None:
            arrays, scale = [None if a is None else a[0] for a in arrays], float(scale[0])
        return (loss, Gradient._make((*arrays, scale))) if scaled else (loss, *[a for a in arrays if a is not None])

    def multipliers(
        self,
        W: ArrayLike | None = None,
        selected: ArrayLike | None = None,
        *,
        K: ArrayLike | None = None,
        Q: ArrayLike | None = None,
    ) -> tuple[Any, Any]:
        """The gradient with respect to the logits, ``delta = dL/dlogits``, which has the form of SVM multipliers.

        With x_ref a reference token of each query, ``-dL/dW = exp(log_scale) * sum delta (x_ref - x_t) z^T`` without
        remainder, because softmax makes the derivatives with respect to a query's logits sum to zero.  The SVM's
        least-norm weights are ``sum dual (x_ref - x_t) z^T`` with dual >= 0.

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
            Of either sign, not clipped; the largest is of order one; 0 at the reference.  For a linear head delta is
            positive at each token whose score is below the query's mean score, ``sum_t probability_t score_t``.  It is
            0 for queries that add nothing to dL/dW: a zero query, or tokens that are all equal.
        log_scale : float, or (H,) array
            The logarithm of the scale of delta, for the mean loss without a ridge; ``-inf`` if no query adds anything.

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
        delta, scale, top = self._differentiate(_core.multipliers, *self._read_weights(W, K, Q))
        for row, chosen in zip(delta, self._selections(selected, top), strict=True):
            row[self.data._begin + chosen.reference] = 0.0
        shaped = [self.data._layout.shape_entries(row) for row in delta]
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
        """A lower and an upper bound on the largest margin, proved by W and the gradient at W without a solver.

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
            In the scale of :attr:`attsvm.Separation.margin`.  Both are rounded outwards, so the interval is always
            right.  ``low`` is 0 if W does not separate, or misses an equality between selected tokens by more than
            rounding; ``high`` is infinite if no multiplier is positive.  If no W separates, the largest margin is 0.

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
        shape = self.data._W_shape
        kind, (stack, left, right) = read_norm(norm, metric, *shape), self._read_weights(W, K, Q)
        stack = product(left, right) if stack is None else stack
        low, high = self._intervals(stack.reshape(1, -1, *shape), selected, kind)[:, 0]
        return (float(low), float(high)) if self.heads is None else (low, high)

    def _intervals(self, weights: np.ndarray, selected: Any, norm: Norm | Metric) -> np.ndarray:
        """Bounds (low, high) of the largest margin, proved by each of ``weights`` (records, H, dk, dz) and its
        gradient, as an array (2, records), with H attention heads (2, records, H)."""
        records, H, dk, dz = weights.shape
        delta, _, top = self._differentiate(_core.multipliers, weights.reshape(-1, dk, dz), None, None)
        delta = delta.reshape(records, H, -1)
        each = enumerate(self._selections(selected, top[-H:]))
        ends = [intervals(self.data, chosen, weights[:, h], delta[:, h], norm) for h, chosen in each]
        return np.stack(ends, axis=-1) if self.heads else np.array(ends[0])

    def infimum(self) -> float:
        """The mean loss if each query gave its best token probability 1.

        No W has a smaller loss.  This is the infimum over W if some W separates the best tokens from all others; then
        a W reaches it only if every token scores as the best one of its query.
        """
        self._require_linear()
        return self._mean_loss(np.maximum.reduceat(self._flat_scores, self.data._begin))

    def _mean_loss(self, u: np.ndarray) -> float:
        """The mean loss at the outputs u, one of each query."""
        own = self._own_loss
        values = _core.loss_values(_core.LOSS[self._loss_name], u) if own is None else own.value(u)
        return float(values.mean())

    def _stack(self, runs: int | None) -> tuple[int, ...]:
        """The leading axes of an array of weights: one for several runs, one for several attention heads."""
        return tuple(count for count in (runs, self.heads) if count is not None)

    def _read_weights(self, W: Any, K: Any, Q: Any, runs: int | None = None) -> tuple[Any, Any, Any]:
        """Reads weights as (W, None, None) or (None, K, Q), checked for their shapes, with leading axes of runs and
        attention heads."""
        dk, dz, stack = *self.data._W_shape, self._stack(runs)
        before = "runs, " * (runs is not None) + "H, " * (self.heads is not None)
        if W is not None:
            if K is not None or Q is not None:
                raise ValueError("give either W, or K and Q, not both")
            return as_floats("W", W, before + "dk, dz", (*stack, dk, dz)), None, None
        if K is None or Q is None:
            raise ValueError("give W, or both K and Q")
        K = as_floats("K", K, before + "dk, m", (*stack, dk, None))
        return None, K, as_floats("Q", Q, before + "dz, m", (*stack, dz, K.shape[-1]))

    def _differentiate(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._check_scale()
        try:
            return function(self._objective, *self._functions, *arguments)
        except ArithmeticError as error:
            # an arithmetic error raised by the user's own functions
            if type(error) not in (ArithmeticError, FloatingPointError):
                raise
            raise FloatingPointError(f"the gradient cannot be computed: {error}") from None

    def _selections(self, selected: Any, top: np.ndarray) -> list[Selection]:
        """The selection of each attention head: the given one, or by default the tokens of the largest logits."""
        if selected is None:
            selected = [self.data._layout.shape_queries(row) for row in top]
        elif self.heads is None:
            selected = [selected]
        elif len(selected) != self.heads:
            raise ValueError(
                f"selected must be {self.heads} selections, one of each attention head, got {len(selected)}"
            )
        return [Selection(self.data, part).within(self.data) for part in selected]


def _nothing(o: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An output head that is zero everywhere, which replaces the user's function on a shard without queries."""
    return np.zeros(len(o)), np.zeros_like(o)


def _log10_largest(array: Any) -> float:
    """log10 of the largest absolute value in an array; infinite if all numbers are zero, since the gradient is then
    exactly zero."""
    return math.log10(largest(array) or math.inf)


def _labels(y: Any, data: Data) -> np.ndarray:
    flat = as_doubles(data._layout.flatten_queries("y", as_parts("y", y, not data._layout.uniform, as_numeric)))
    wrong = flat[np.abs(flat) != 1]
    if wrong.size and not data._none:
        advice = ": from labels 0 and 1 make 2 * y - 1" if np.isin(flat, (0, 1)).all() else ""
        raise ValueError(f"y must hold labels -1 and +1 only, got {wrong[0]:g}{advice}")
    return flat


def _spread(count: int, most: int) -> np.ndarray:
    """At most ``most`` indices from 0 to count - 1, evenly spread."""
    return np.linspace(0, count - 1, min(count, most)).astype(int)
