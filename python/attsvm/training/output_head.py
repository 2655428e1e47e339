"""Output heads: functions of an attended vector, with their derivatives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ..attention.data import Data
from ..common.check import (
    as_doubles,
    as_floats,
    as_number,
    as_numbers_of,
    as_numeric,
    as_parts,
    check_finite,
    check_shape,
    depth,
)
from ..common.storage import storable


class _Parametric:
    """An output head that C evaluates, given by its ``kind`` and its parameters: v or V, a, lam."""

    kind: str  # the head's name in _core.HEAD
    names: tuple[str, ...]  # the names of the head's parameters
    v: Any
    a: Any = None
    lam: float = 0.0
    dv: int

    def value_and_grad(self, o: ArrayLike) -> tuple[Any, np.ndarray]:
        """Returns the value of the output head at attended vectors; and its gradient with respect to these vectors.

        Parameters
        ----------
        o : (..., dv) array_like
            With a v per query, one vector per query.

        Returns
        -------
        value : (...) array
        gradient : (..., dv) array

        Examples
        --------
        >>> import attsvm
        >>> value, gradient = attsvm.QuadraticHead([1.0, 2.0], lam=0.5).value_and_grad([1.0, 1.0])
        >>> float(value), gradient
        (2.0, array([0., 1.]))
        """
        array = as_numeric("o", o)
        if array.shape[-1:] != (self.dv,) or array.size == 0:
            raise ValueError(f"o must have shape (..., dv) = (..., {self.dv}), got {array.shape}")
        rows = as_floats("o", array.reshape(-1, self.dv), "M, dv")
        v = self.v
        if not self.shared:
            v = np.concatenate(v) if isinstance(v, list) else v.reshape(-1, self.dv)
            if len(v) != len(rows):
                raise ValueError(f"o must have one vector for each of the {len(v)} queries of v, got {len(rows)}")
        value, gradient = _core.head(_core.HEAD[self.kind], v, self.a, self.lam, rows)
        return value.reshape(array.shape[:-1]), gradient.reshape(array.shape)

    @property
    def shared(self) -> bool:
        """Whether all queries have the same parameters of the head."""
        return isinstance(self.v, np.ndarray) and (self.v.ndim == 1 or self.kind == "mlp")

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.names}

    def row(self) -> np.ndarray:
        """All parameters of the head in one flat array; all queries must share them."""
        return np.concatenate([np.ravel(value) for value in self._state().values()])

    def from_row(self, row: np.ndarray) -> Any:
        """A head of the kind of this one, with the parameters of a flat array."""
        own = self._state().values()
        parts = np.split(row, np.cumsum([np.size(value) for value in own])[:-1])
        make: Any = type(self)
        return make(*(part.reshape(np.shape(value)) for part, value in zip(parts, own, strict=True)))

    def take(self, sequences: np.ndarray) -> Any:
        """The head for the queries of the given sequences."""
        part = copy.copy(self)
        if not self.shared:
            part.v = _of_sequences(self.v, sequences)
        return part

    def parameters(self, data: Data, dv: int) -> tuple[Any, Any, float]:
        """The head's parameters (v, a, lam) as C reads them, for attended vectors of length ``dv``."""
        v = self.v
        if self.shared:
            check_shape(self.names[0], v, "dv" if v.ndim == 1 else "dv, h", (dv, None)[: v.ndim])
        else:
            v = np.ascontiguousarray(data._layout.flatten_queries("v", v, dv))
        return v, self.a, self.lam


def _of_sequences(parts: Any, sequences: np.ndarray) -> Any:
    """The rows of an array, or the parts of a list, that belong to the given sequences."""
    return parts[sequences] if isinstance(parts, np.ndarray) else [parts[i] for i in sequences]


@storable
class LinearHead(_Parametric):
    """A linear output head: ``v . o`` for the attended vector ``o`` of a query.

    Parameters
    ----------
    v : (dv,) array_like, or one v per query: (n, dv), (n, S, dv), or a list of (S_i, dv)

    Examples
    --------
    >>> import attsvm
    >>> attsvm.LinearHead([1.0, 0.0])
    LinearHead(dv=2)
    """

    kind = "linear"
    names: tuple[str, ...] = ("v",)

    def __init__(self, v: ArrayLike):
        if isinstance(v, (list, tuple)) and any(depth(part) == 2 for part in v):
            self.v = [as_floats(f"v[{i}]", part, "S_i, dv") for i, part in enumerate(v)]
            self.dv = self.v[0].shape[1]
            return
        array = as_numeric("v", v)
        if not 1 <= array.ndim <= 3:
            raise ValueError(f"v must have shape (dv,), (n, dv) or (n, S, dv), got {array.shape}")
        if 0 in array.shape[array.ndim > 1 :]:  # a shard without queries has an empty v, of shape (0, dv)
            raise ValueError(f"v must not be empty, got shape {array.shape}")
        self.v = as_doubles(array)
        check_finite("v", self.v)
        self.dv = self.v.shape[-1]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dv={self.dv})"


@storable
class QuadraticHead(LinearHead):
    """A quadratic output head, ``v . o - lam |o|^2`` for the attended vector ``o`` of a query.

    For lam > 0 and labels +1 it makes attention keep several tokens.

    Parameters
    ----------
    v : as in :class:`LinearHead`
    lam : float

    Notes
    -----
    :func:`attsvm.theory.tokens_kept` counts the tokens exactly when they are orthonormal.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.QuadraticHead([1.0, 0.0], lam=0.3)
    QuadraticHead(dv=2, lam=0.3)
    """

    kind = "quadratic"
    names = ("v", "lam")

    def __init__(self, v: ArrayLike, lam: float):
        super().__init__(v)
        self.lam = as_number("lam", lam)

    def __repr__(self) -> str:
        return f"QuadraticHead(dv={self.dv}, lam={self.lam:g})"


@storable
class LogarithmHead(LinearHead):
    """An output head ``v . log o`` with a v for each query.  With attention over a vocabulary it is minus the
    cross-entropy with v."""

    kind = "logarithm"


@storable
class MLPHead(_Parametric):
    """An output head with one hidden layer: ``a . relu(V^T o)`` for the attended vector ``o`` of a query.

    It is convex in o if a is positive; a query then keeps several tokens only if its label is -1 (and for negative a
    only if it is +1).  At exactly ``V^T o = 0`` the derivative of relu is taken as 0.  So if a query selects a token
    that is exactly zero (padding, a sink), and the other tokens' probabilities underflow, its gradient is 0.

    Parameters
    ----------
    V : (dv, h) array_like
    a : (h,) array_like, optional
        Ones by default.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.MLPHead([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]])
    MLPHead(dv=2, h=3)
    """

    kind = "mlp"
    names = ("V", "a")

    def __init__(self, V: ArrayLike, a: ArrayLike | None = None):
        self.v = as_floats("V", V, "dv, h")
        self.dv, h = self.v.shape
        self.a = np.ones(h) if a is None else as_floats("a", a, "h", (h,))

    @property
    def V(self) -> np.ndarray:
        return self.v

    def __repr__(self) -> str:
        return f"MLPHead(dv={self.dv}, h={self.v.shape[1]})"


class CallableHead:
    """An output head given as a function of all queries' attended vectors at once, called once per step.

    Parameters
    ----------
    value_and_grad : callable
        From o (M, dv), one row per query (those of a sequence together), to its values (M,) and gradients (M, dv).

    Examples
    --------
    >>> import attsvm, numpy as np
    >>> head = attsvm.CallableHead(lambda o: (np.sin(o).sum(axis=1), np.cos(o)))
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, head)
    >>> attsvm.train(problem, steps=5).status
    'completed'
    """

    kind = "call"
    shared = True

    def __init__(self, value_and_grad: Callable[[np.ndarray], tuple[Any, Any]]):
        if not callable(value_and_grad):
            raise TypeError(f"value_and_grad must be a function, got {type(value_and_grad).__name__}")
        self._function = value_and_grad

    def __repr__(self) -> str:
        return f"CallableHead({getattr(self._function, '__name__', type(self._function).__name__)})"

    def value_and_grad(self, o: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Calls the user's function at attended vectors o (M, dv); returns its checked values and gradients."""
        answer = self._function(o)
        if not isinstance(answer, tuple) or len(answer) != 2:
            came = f"a tuple of {len(answer)}" if isinstance(answer, tuple) else type(answer).__name__
            raise TypeError(f"value_and_grad must return a tuple (value, gradient), got {came}")
        value = as_floats("the value that value_and_grad returns", answer[0], "M", (len(o),))
        return value, as_floats("the gradient that value_and_grad returns", answer[1], "M, dv", o.shape)

    def take(self, sequences: np.ndarray) -> CallableHead:
        """The head for the queries of the given sequences."""
        return self

    def parameters(self, data: Data, dv: int) -> tuple[None, None, float]:
        return None, None, 0.0


class SoftmaxHead(CallableHead):
    """An output head for classes: the log-probability ``log softmax(V^T o)_c`` of each query's class c.

    With ``loss="linear"`` the objective is the cross-entropy.

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
        """Returns the log-probabilities of the queries' classes at attended vectors o (M, dv); and their gradients in
        o."""
        outputs, q, own = o @ self.V, np.arange(len(o)), self._flat
        top = outputs.argmax(axis=1)
        outputs -= outputs[q, top][:, None]
        p = np.exp(outputs)
        p[q, top] = 0.0
        rest = p.sum(axis=1)
        value = outputs[q, own] - np.log1p(rest)
        p[q, top] = 1.0
        p /= (1.0 + rest)[:, None]
        # 1 - p for a query's own class is the sum of the other probabilities, which keeps digits where p is nearly 1.
        p[q, own] = 0.0
        p[q, own] = -p.sum(axis=1)
        return value, -(p @ self.V.T)

    def take(self, sequences: np.ndarray) -> SoftmaxHead:
        return SoftmaxHead(self.V, _of_sequences(self.classes, sequences))

    def parameters(self, data: Data, dv: int) -> tuple[None, None, float]:
        check_shape("V", self.V, "dv, C", (dv, None))
        data._layout.flatten_queries("classes", self.classes)  # raises an error unless there is one class per query
        return super().parameters(data, dv)
