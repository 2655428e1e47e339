"""Trains several layers of attention together, and solves the SVMs to whose directions the layers go.

    h_0 = X,    h_l,s = h_(l-1),s + (sum_t p_l,st h_(l-1),t) V_l,    p_l,s = softmax_t(h_(l-1),t . W_l h_(l-1),s)

for the inner layers l = 1 .. L - 1, then ``o = sum_s softmax_s(h_s . W_L z) h_s`` and the logistic loss of ``y v.o``.
Derivatives are stored as numbers of order one with the logarithm of a scale, so that directions still converge when the
loss has left double precision.  The derivative with respect to h_l,s has one vector and one logarithm for each s.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..attention.kinds import cross_attention
from ..common.check import as_count, as_floats, as_number, check_shape
from ..common.types import Norm
from ..svm.separation import Separation
from ..svm.solve import solve_svm

TINY = 1e-150  # a gradient whose norm is 0 is divided by this number, whose square is positive


class Stack(NamedTuple):
    """The layers that :func:`train_stack` has trained, in lists from the lowest layer to the last."""

    W: list[np.ndarray]  # weights (..., d, d) of each layer; K Q^T where factors were trained
    factors: list[Any]  # factors (K, Q) of each layer, or None if W was trained
    attention: list[np.ndarray]  # attention (..., n, T, T) of each inner layer, (..., n, T) of the last
    tokens: list[np.ndarray]  # tokens (..., n, T, d) that each layer reads
    gradient: list[np.ndarray]  # negative gradient (..., d, d) of the loss in each layer's weights, scaled to norm 1
    loss: np.ndarray  # (...) mean logistic loss
    records: list[list[np.ndarray]]  # W at every recorded step


def train_stack(
    X: ArrayLike,
    z: ArrayLike,
    y: ArrayLike,
    v: ArrayLike,
    V: ArrayLike,
    W: list[Any],
    *,
    lr: float = 0.1,
    steps: int = 4000,
    record: int = 0,
) -> Stack:
    """Trains all layers of a stack together, by normalised gradient descent.

    A step is ``W_l <- W_l - lr dL/dW_l / ||(dL/dW_1, ..., dL/dW_L)||`` for the weights W_l of each layer l.

    Parameters
    ----------
    X : (..., n, T, d) array_like
        Tokens; leading axes are independent runs, side by side.
    z, y, v : (..., n, d), (..., n) and (..., d) array_like
        Query of the last layer, labels, output head.
    V : (..., d, d) array_like, or a list of one per inner layer
        Value matrices of the inner layers: a layer adds ``attended V`` to its tokens.
    W : list of (..., d, d) array_like, or of pairs (K, Q)
        Weights of every layer to begin with, lowest first; of a pair the factors of ``W = K Q^T`` are trained.
    lr : float
    steps : int
    record : int
        Keep the weights every so many steps; 0: never.

    Returns
    -------
    Stack

    Raises
    ------
    ValueError, TypeError
        A shape that does not fit.

    Notes
    -----
    The attention of "Transformers as Support Vector Machines" in several layers, with residual connections.  Runs in
    NumPy; a step of 100 runs of 4 sequences of 5 tokens takes milliseconds.

    Examples
    --------
    >>> import attsvm, numpy as np
    >>> X, z, y, v = attsvm.sample.unit_sphere(3, 4, 6)
    >>> stack = attsvm.theory.train_stack(X, z, y, v, np.eye(6), [np.zeros((6, 6))] * 2, steps=500)
    >>> bool((stack.attention[-1].max(axis=-1) > 0.8).all())
    True
    """
    X = as_floats("X", X)
    if X.ndim < 3:
        raise ValueError(f"X must have shape (..., n, T, d), got {X.shape}")
    batch, (n, _, d) = X.shape[:-3], X.shape[-3:]
    given = []
    for name, value, letters, shape in (("z", z, "n, d", (n, d)), ("y", y, "n", (n,)), ("v", v, "d", (d,))):
        array = as_floats(name, value)
        check_shape(name, array[(0,) * (array.ndim - len(shape))], letters, shape)
        given.append(np.broadcast_to(array, (*batch, *shape)))
    z, y, v = given
    lr, steps, record = as_number("lr", lr, above=0.0), as_count("steps", steps), as_count("record", record)
    if not isinstance(W, list) or not W:
        raise TypeError(f"W must be a list of the weights of each layer, lowest first, got {type(W).__name__}")
    parts = [w if isinstance(w, tuple) else (w,) for w in W]
    weights = [tuple(np.broadcast_to(a, (*batch, *np.shape(a)[-2:])).astype(float) for a in part) for part in parts]
    for part in weights:
        check_shape("W", _product(part)[(0,) * len(batch)], "d, d", (d, d))
    values = [np.asarray(a, dtype=np.float64)[..., None, :, :] for a in of_layers(V, len(W) - 1)]
    records = []
    for step in range(steps + 1):
        matrices = [_product(part) for part in weights]
        hidden, logs, u, gradients = _pass(X, z, y, v, values, matrices)
        if record and step % record == 0:
            records.append(matrices)
        if step == steps:
            break
        # one normalised step of all layers together
        top, moves = np.max([scale for _, scale in gradients], axis=0), []
        for part, (G, scale) in zip(weights, gradients, strict=True):
            D = G * np.exp(scale - top)
            moves.append((D,) if len(part) == 1 else (D @ part[1], D.mT @ part[0]))
        length = np.sqrt(sum(_norm(D) ** 2 for move in moves for D in move))
        weights = [
            tuple(a - lr * D / length for a, D in zip(part, move, strict=True))
            for part, move in zip(weights, moves, strict=True)
        ]
    unit = [-G / _norm(G) for G, _ in gradients]
    attention = list(map(np.exp, logs))
    attention[-1] = attention[-1][..., 0, :]
    factors = [part if len(part) == 2 else None for part in weights]
    return Stack(matrices, factors, attention, hidden, unit, np.logaddexp(0.0, -u).mean(axis=-1), records)


def of_layers(V: Any, inner: int) -> Any:
    """The value matrix of each inner layer, as a list; ``V`` may be one matrix for all of them."""
    values = V if isinstance(V, (list, tuple)) else [V] * inner
    if len(values) != inner:
        raise ValueError(f"V must be one matrix or one for each of the {inner} inner layers, got {len(values)}")
    return values


def _product(part: tuple[np.ndarray, ...]) -> np.ndarray:
    return part[0] if len(part) == 1 else part[0] @ part[1].mT


def _norm(G: np.ndarray) -> Any:
    return np.maximum(np.linalg.norm(G, axis=(-2, -1), keepdims=True), TINY)


def _pass(
    X: Any, z: Any, y: Any, v: Any, values: Any, matrices: Any
) -> tuple[list[np.ndarray], list[Any], Any, list[Any]]:
    """Forward and backward pass.

    Returns the tokens that each layer reads; the logarithm of each layer's attention (..., n, S, T); the outputs times
    labels (..., n); and for each layer, lowest first, the gradient dL/dW_l and the logarithm of its scale (..., 1, 1).
    Batched ``values`` have an axis of length 1 for the sequences.
    """
    h, layers = X, []
    for W, V in zip(matrices, [*values, None], strict=True):
        W = W[..., None, :, :]  # an axis of length 1 for the sequences
        queries = z[..., None, :] if V is None else h
        logits = queries @ W.mT @ h.mT
        logits -= logits.max(axis=-1, keepdims=True)
        log = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        layers.append((h, log, queries, W, V))
        attended = np.exp(log) @ h
        if V is not None:
            h = h + attended @ V
    u = y * (attended @ v[..., None, :, None])[..., 0, 0]
    # backward pass
    slope = -y * np.exp(-np.logaddexp(0.0, u)) / y.shape[-1]  # dL/d(v.o)
    # the derivative of the loss with respect to a query's output is the query's row of D times e^scale
    D = slope[..., None, None] * v[..., None, None, :]
    scale = np.zeros(D.shape[:-1])
    gradients = []
    for h, log, queries, W, V in layers[::-1]:
        back = D if V is None else D @ V.mT
        # dL/dlogit_t = p_t (g_t - p.g) for the attention p and its derivative g = dL/dp.
        # The formula uses differences to the token of largest probability, so that nothing cancels.
        top = log.argmax(axis=-1)[..., None]
        gains = back @ h.mT
        gains -= np.take_along_axis(gains, top, -1)
        pull = gains - (np.exp(log) * gains).sum(axis=-1, keepdims=True)
        weight = scale[..., None] + log
        others = pull.copy()
        np.put_along_axis(others, top, 0.0, -1)
        with np.errstate(divide="ignore"):
            size = weight + np.log(np.abs(others))
        most = size.max(axis=(-3, -2, -1), keepdims=True)
        most = np.where(np.isfinite(most), most, 0.0)
        rows = _rows(np.sign(others) * np.exp(size - most), top, h)
        gradients.append(((rows.mT @ queries).sum(axis=-3), most[..., 0]))
        if h is X:
            break
        # The derivative of the loss with respect to the tokens that the layer reads has several terms.
        # Each token is a value and a key of every query.
        # In an inner layer the token is also a query, and the residual connection adds it to the output.
        # largest log scale among the terms of the derivative of the loss with respect to each token
        most = weight.max(axis=-2)
        most = most if V is None else np.maximum(scale, most)
        share = np.exp(weight - most[..., None, :])
        below = share.mT @ back + (share * pull).mT @ (queries @ W.mT)
        if V is not None:
            rows = _rows(np.exp(weight - most[..., None]) * others, top, h)
            below = below + D * np.exp(scale - most)[..., None] + rows @ W
        D, scale = below, most
    hidden, logs, *_ = map(list, zip(*layers, strict=True))
    return hidden, logs, u, gradients[::-1]


def _rows(c: np.ndarray, top: np.ndarray, h: np.ndarray) -> np.ndarray:
    """``sum_t c_t (h_t - h_top)`` over the tokens h_t, for every query: (..., n, S, d).  The coefficient c of the
    query's top token h_top is 0."""
    np.put_along_axis(c, top, -c.sum(axis=-1, keepdims=True), -1)
    return c @ h


# -------------------------------------------------------------------------------- the SVMs of the layers

# A token holds the SVM in place if its multiplier is above this fraction of the largest multiplier.
# Interior-point methods leave smaller multipliers on tokens that do not hold the SVM.
HOLDS = 1e-9


def hierarchy(
    X: ArrayLike,
    V: ArrayLike,
    z: ArrayLike,
    attention: list[ArrayLike],
    norm: Norm = "frobenius",
    *,
    selected: float = 0.5,
    kept: float = 0.02,
) -> list[Separation]:
    """One SVM for each layer of a stack, constructed from the tokens that the layers select.

    The inner layers are ``h_s + (sum_t p_st h_t) V``, the last is ``sum_s p_s h_s``.

    - In the last layer, W separates the token that it selects from the others, with margins of 1.
    - In a layer below, some queries are on the way to the output: the token that the layer above selects, and for each
      query on the way there the token that this query selects.  They have margins of 1.  Other queries are support
      tokens of the SVM above; their output must not change.  They have margins of 0, and equal logits between the
      tokens that the query keeps mixing.

    Parameters
    ----------
    X : (n, T, d) array_like
        Tokens.
    V : (d, d) array_like, or a list of one per inner layer
        Values.
    z : (n, d) array_like
        Queries of the last layer.
    attention : list of arrays
        Of the layers, lowest first: (n, T, T) of each inner layer, query by token, and (n, T) of the last.
    norm : as in :func:`attsvm.solve_svm`
        "nuclear" where K and Q were trained.
    selected : float
        A query on the way to the output has selected a token if it gives the token more attention than this.
    kept : float
        A query off the way keeps mixing the tokens to which it gives more attention than this.

    Returns
    -------
    list of Separation
        The SVM of each layer, lowest first.  Its data hold the tokens that the layers below produce in the limit, where
        attention to a selected token is 1.

    Raises
    ------
    ValueError
        If a query on the way to the output has not selected a token; the message names it: train for more steps.  Also
        if the tokens that a layer selects cannot be separated.

    Notes
    -----
    This is a conjecture, confirmed on random draws (the figure "hierarchy"): layers that are trained together from
    small weights go to these directions, and their norms balance the margins, ``margin_1 ||W_1|| = margin_2 ||W_2||``.
    It answers the question of "transformers as a hierarchy of SVMs" (Tarzanagh, Li, Thrampoulidis, Oymak, 2023).  If
    the values let a lower layer move the tokens above by mixing, the layers could be one joint problem; with orthogonal
    values three times as long they still went to these SVMs.

    Examples
    --------
    >>> import attsvm, numpy as np
    >>> X, z, _, _ = attsvm.sample.unit_sphere(3, 4, 6)
    >>> inner, outer = np.zeros((3, 4, 4)), np.zeros((3, 4))
    >>> inner[:, :, 1], outer[:, 2] = 1.0, 1.0  # each inner query attends to token 1, the last one to token 2
    >>> lower, upper = attsvm.theory.hierarchy(X, np.eye(6), z, [inner, outer])
    >>> upper.status, lower.status
    ('optimal', 'optimal')
    """
    X = as_floats("X", X, "n, T, d")
    n, T, d = X.shape
    z = as_floats("z", z, "n, d", (n, None))
    selected, kept = as_number("selected", selected, above=0.0), as_number("kept", kept, above=0.0)
    if not isinstance(attention, (list, tuple)) or not attention:
        raise TypeError(f"attention must be a list of arrays, lowest layer first, got {type(attention).__name__}")
    inner = [as_floats(f"attention[{k}]", p, "n, T, T", (n, T, T)) for k, p in enumerate(attention[:-1])]
    last = as_floats(f"attention[{len(inner)}]", attention[-1], "n, T", (n, T))
    values = [as_floats(f"V[{k}]", v, "d, d", (d, d)) for k, v in enumerate(of_layers(V, len(inner)))]
    one = np.eye(T, dtype=bool)  # row t flags token t
    tokens = [X]
    for p, v in zip(inner, values, strict=True):
        # Attention in the limit of training is 1 on the token that a query has selected.  If it has selected none, the
        # tokens with more attention than ``kept`` share it.
        some = p * (p > kept)
        shared = some / some.sum(axis=-1, keepdims=True)
        limit = np.where(p.max(axis=-1, keepdims=True) > 1 - kept, one[p.argmax(axis=-1)], shared)
        tokens.append(tokens[-1] + limit @ tokens[-1] @ v)
    # way: bool (n, T), marks the tokens that the layers above select on the way to the output.
    # held: bool (n, T), the tokens that hold the SVM of the layer above in place.
    chosen = _choice(last, True, selected, len(inner))
    found = [solve_svm(cross_attention(tokens[-1], z), chosen, norm)]
    way = one[chosen]
    held = _holds(found[0], T) & ~way
    for k in range(len(inner) - 1, -1, -1):
        p, h = inner[k], tokens[k]
        queries = way | held
        chosen = _choice(p, way, selected, k)
        mixed = np.where(way[..., None], one[chosen], p > kept)
        asked = 1.0 * (way[..., None] & ~mixed)
        data = cross_attention(list(h), [h[i, queries[i]] for i in range(n)])
        shaped = (data._layout.shape_entries(part[queries].ravel()) for part in (mixed, asked))
        found.append(solve_svm(data, next(shaped), norm, margins=next(shaped)))
        holds = np.zeros_like(mixed)
        holds[queries] = _holds(found[-1], T)
        held |= (mixed & held[..., None] | holds).any(axis=1) | holds.any(axis=2)
        way |= (mixed & way[..., None]).any(axis=1)
        held &= ~way
    return found[::-1]


def _choice(p: np.ndarray, queries: np.ndarray | bool, selected: float, layer: int) -> np.ndarray:
    """The token to which each query attends most; raises ValueError if one of the given ``queries`` has not selected a
    token."""
    undecided = queries & (p.max(axis=-1) <= selected)
    if undecided.any():
        place = tuple(np.argwhere(undecided)[0])
        query = f"query {place[1]} of sequence {place[0]}" if len(place) == 2 else f"sequence {place[0]}"
        raise ValueError(
            f"attention[{layer}] has not selected for {query}: its largest is {p[place].max():.2g}, and selected is "
            f"{selected:g}; train for more steps"
        )
    return p.argmax(axis=-1)


def _holds(sol: Separation, T: int) -> Any:
    """Which tokens have a multiplier so large that they hold an SVM in place, as a bool array (queries, T)."""
    if sol.W is None:
        raise ValueError(f"the tokens that a layer selects must be separable: {sol.message}")
    sizes = np.abs(sol.flat_dual).reshape(-1, T)
    return sizes > HOLDS * sizes.max()
