"""The SVMs that a stack of attention layers goes to, from what its layers select."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.kinds import cross_attention
from ..common.check import as_floats, as_number
from ..common.types import Norm
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from .stack import of_layers

HOLDS = 1e-9  # of the largest multiplier: what interior points leave


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
    """One SVM for each layer of a stack, from what the layers select.

    The layers are ``h_s + (sum_t p_st h_t) V`` and, the last, ``sum_s p_s h_s``; of the tokens h that they leave,

    - the last layer's W separates the token that it selects from the others: margins of 1;
    - a layer below has margins of 1 at the queries on the way to the output (the token that the layer above selects,
      and for each query there the token that it selects), and margins of 0 at the other queries on which the SVM above
      rests (its support tokens): they must not change what it holds.  Between the tokens that such a query goes on
      mixing the logits are equal.

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
        A query on the way has selected a token to which it gives more than this.
    kept : float
        A query beside the way goes on mixing the tokens to which it gives more than this.

    Returns
    -------
    list of Separation
        Of each layer, lowest first.  Their data hold the tokens that the layers below make in the limit: attention that
        has selected is taken as 1.

    Raises
    ------
    ValueError
        For a query on the way that has not selected, which is named: train for more steps.

    Notes
    -----
    A conjecture, confirmed on random draws (the figure "hierarchy"): trained together from small weights the layers go
    to these directions, and their norms balance the margins, ``margin_1 ||W_1|| = margin_2 ||W_2||``.  It is what
    "transformers as a hierarchy of SVMs" (Tarzanagh, Li, Thrampoulidis, Oymak, 2023) asks for.  Where values let a
    lower layer move the tokens above by mixing, the layers could be one joint problem; with orthogonal values three
    times as long they went to these SVMs, too.

    Examples
    --------
    >>> import attsvm, numpy as np
    >>> X, z, _, _ = attsvm.sample.unit_sphere(3, 4, 6)
    >>> inner, outer = np.zeros((3, 4, 4)), np.zeros((3, 4))
    >>> inner[:, :, 1], outer[:, 2] = 1.0, 1.0  # all attend to token 1, and then to token 2
    >>> lower, upper = attsvm.theory.hierarchy(X, np.eye(6), z, [inner, outer])
    >>> upper.status, lower.status
    ('optimal', 'optimal')
    """
    X = as_floats("X", X, "n, T, d")
    n, T, d = X.shape
    z = as_floats("z", z, "n, d", (n, None))
    selected, kept = as_number("selected", selected, above=0.0), as_number("kept", kept, above=0.0)
    if not isinstance(attention, (list, tuple)) or not len(attention):
        raise TypeError(f"attention must be a list of arrays, lowest layer first, got {type(attention).__name__}")
    inner = [as_floats(f"attention[{k}]", p, "n, T, T", (n, T, T)) for k, p in enumerate(attention[:-1])]
    last = as_floats(f"attention[{len(inner)}]", attention[-1], "n, T", (n, T))
    values = [as_floats(f"V[{k}]", v, "d, d", (d, d)) for k, v in enumerate(of_layers(V, len(inner)))]
    tokens = [X]
    for p, v in zip(inner, values, strict=True):
        tokens.append(tokens[-1] + _limit(p, selected, kept) @ tokens[-1] @ v)
    # way, held (n, T): which tokens of a layer lie on the way to the output, and which hold the SVM above
    chosen = _choice(last, np.ones(n, dtype=bool), selected, len(inner))
    found = [solve_svm(cross_attention(tokens[-1], z), chosen, norm)]
    way = np.arange(T) == chosen[:, None]
    held = _holds(found[0], T) & ~way
    for k in range(len(inner) - 1, -1, -1):
        p, h = inner[k], tokens[k]
        queries = way | held
        chosen = _choice(p, way, selected, k)
        mixed = np.where(way[..., None], np.arange(T) == chosen[..., None], p > kept)
        asked = np.where(way[..., None], 1.0, 0.0) * ~mixed
        data = cross_attention(list(h), [rows[some] for rows, some in zip(h, queries, strict=True)])
        shaped = (data._layout.shape_entries(part[queries].ravel(), 0) for part in (mixed, asked))
        found.append(solve_svm(data, next(shaped), norm, margins=next(shaped)))
        i, s = np.nonzero(queries)
        holds = _holds(found[-1], T)
        held |= (mixed & held[..., None]).any(axis=1)
        np.logical_or.at(held, i, holds)
        held[i, s] |= holds.any(axis=1)
        i, s = np.nonzero(way)
        way[i, chosen[i, s]] = True
        held &= ~way
    return found[::-1]


def _choice(p: np.ndarray, queries: np.ndarray, selected: float, layer: int) -> np.ndarray:
    """The token that each query selects; ValueError where one of those that matter has not."""
    undecided = queries & (p.max(axis=-1) <= selected)
    if undecided.any():
        place = tuple(int(i) for i in np.argwhere(undecided)[0])
        query = f"query {place[1]} of sequence {place[0]}" if len(place) == 2 else f"sequence {place[0]}"
        raise ValueError(
            f"attention[{layer}] has not selected for {query}: its largest is {p[place].max():.2g}, and selected is "
            f"{selected:g}; train for more steps"
        )
    return np.asarray(p.argmax(axis=-1))


def _limit(p: np.ndarray, selected: float, kept: float) -> np.ndarray:
    """Attention as it goes on: on one token where it has selected, else shared by the tokens that are kept."""
    one = np.arange(p.shape[-1]) == p.argmax(axis=-1)[..., None]
    some = np.where(p > kept, p, 0.0)
    return np.where(p.max(axis=-1, keepdims=True) > 1 - kept, one, some / some.sum(axis=-1, keepdims=True))


def _holds(sol: Separation, T: int) -> Any:
    """(queries, T): which tokens hold an SVM, by their multipliers, of either sign."""
    sizes = np.abs(sol.data._layout.flatten_entries("dual", sol.dual)).reshape(-1, T)
    return sizes > HOLDS * sizes.max()
