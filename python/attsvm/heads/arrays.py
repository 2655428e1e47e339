"""Makes the attention heads of a layer from arrays: its inputs and the weights of its query and key maps."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..attention.tokens import read_tokens
from ..common.check import as_count, as_flag, as_floats, as_number
from .head import ByName, Head
from .sequences import Text


def from_arrays(
    inputs: Any,
    Wq: Any,
    bq: Any,
    Wk: Any,
    bk: Any,
    *,
    heads: int = 1,
    scale: float | None = None,
    tokens: Sequence[Sequence[str]] | None = None,
    causal: bool = False,
    layer: int = 0,
) -> ByName:
    """The heads of a layer of any model, from its inputs and the weights of its query and key maps.

    Parameters
    ----------
    inputs : (n, T, d) array_like, or list of n (T_i, d) array_likes
        Vectors to which the layer applies its query and key maps (after the layer norm, where the model has one).
    Wq : (heads * m, d) array_like
        Stored as ``torch.nn.Linear`` does: ``queries = inputs Wq^T + bq``; head h owns the rows ``h m .. h m + m - 1``.
    Wk : (groups * m, d) array_like
        As many rows as Wq, or fewer if ``heads / groups`` query heads share a key head (grouped queries).
    bq, bk : (heads * m,) and (groups * m,) array_like, or None
    heads : int
        Number of query heads.
    scale : float, optional
        Factor on the logits, by default ``1 / sqrt(m)``.
    tokens : list of n lists of str, optional
        The tokens as text, for tables and pictures.
    causal : bool
        Whether a token attends only to itself and to earlier tokens.
    layer : int
        Number of the layer in tables and pictures.

    Returns
    -------
    list of Head
        A head is also found by name, ``found["L0H1"]`` or ``found[0, 1]``.

    Notes
    -----
    The logits must be a bilinear form of the inputs.  They are not if the layer has rotary positions, or a norm on
    queries and keys; :func:`attsvm.torch.read` reads such layers.

    Examples
    --------
    >>> (head,) = attsvm.heads.from_arrays([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0]], [0.5], [[0.0, 2.0]], None)
    >>> head.logits(0)
    array([[0., 3.],
           [0., 1.]])
    """
    flat, lengths = read_tokens("inputs", inputs)
    heads = as_count("heads", heads, 1)
    Wq = as_floats("Wq", Wq, "heads * m, d", (None, flat.shape[1]))
    if len(Wq) % heads:
        raise ValueError(f"Wq must have a multiple of heads = {heads} rows, got {len(Wq)}")
    m = len(Wq) // heads
    Wk = as_floats("Wk", Wk, "groups * m, d", (None, flat.shape[1]))
    groups = len(Wk) // m
    if len(Wk) % m or heads % groups:
        raise ValueError(f"Wk must have {len(Wq)} rows, or {m} for each key head that query heads share, got {len(Wk)}")
    bq = np.zeros(len(Wq)) if bq is None else as_floats("bq", bq, "heads * m", (len(Wq),))
    bk = np.zeros(len(Wk)) if bk is None else as_floats("bk", bk, "groups * m", (len(Wk),))
    try:
        named = lengths.tolist() if tokens is None else [*map(len, tokens)]
    except TypeError:
        raise TypeError(f"tokens must be a list of words for each sequence, got {tokens!r:.60}") from None
    if named != lengths.tolist():
        raise ValueError(
            f"tokens must name every token of the {len(lengths)} sequences of inputs, {lengths.sum()} in all, "
            f"got {sum(named)} in {len(named)} sequences"
        )
    stop = np.concatenate([np.arange(1, T + 1) for T in lengths]) if as_flag("causal", causal) else None
    text = Text(np.column_stack([flat, np.ones(len(flat), flat.dtype)]), lengths, tokens, stop=stop)
    factor = 1 / math.sqrt(m) if scale is None else as_number("scale", scale)
    K = np.split(np.column_stack([Wk, bk]).T, groups, axis=1)
    Q = np.split(np.column_stack([Wq, bq]).T * factor, heads, axis=1)
    return ByName(Head(layer, h, text, K[h * groups // heads], Q[h]) for h in range(heads))
