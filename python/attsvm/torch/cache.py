"""Heads from queries and keys that were recorded by other means than :func:`attsvm.torch.read`."""

import itertools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..common.check import as_count, as_number
from ..heads.head import QUERIES, THRESHOLD, ByName, as_threshold
from .batch import Batch
from .products import as_added
from .record import Recorder
from .standard_form import products, single
from .watch import Attention, Running


def from_cache(
    q: Any,
    k: Any,
    mask: Any = None,
    scaling: float | None = None,
    bias: Any = None,
    *,
    tokens: Sequence[Sequence[str]] | None = None,
    layer: int = 0,
    module: str = "",
    threshold: float = THRESHOLD,
    queries: int = QUERIES,
) -> ByName:
    """The attention heads of one layer, made from the layer's queries and keys.

    Parameters
    ----------
    q : (B, H, S, m) tensor or array_like
        Queries as attention compares them: after rotation and norms, before the scaling.
    k : (B, G, T, m) tensor or array_like
        Keys.  G divides H if query heads share key heads.
    mask : (S, T), (B, S, T) or (B, 1, S, T) tensor or array_like, optional
        True at tokens that a query sees; or floats that are added to the logits, with the least float or -inf at hidden
        tokens.  A causal model needs a mask.
    scaling : float, optional
        Factor on the logits, by default ``m ** -0.5``.
    bias : tensor or array_like that broadcasts to (B, H, S, T), optional
        Numbers that are added to the logits besides the mask: ALiBi, relative positions.
    tokens : list of B lists of str, optional
        The tokens as text.  Rows of k after the last token of a list are padding.
    layer, module
        Number and name of the layer in tables and pictures.
    threshold, queries
        As in :func:`read`.

    Returns
    -------
    list of Head
        Heads in the head space: see :class:`attsvm.heads.Head`.

    Raises
    ------
    ValueError
        For shapes that do not fit together, numbers that are not finite, and a mask of integers.

    Notes
    -----
    This function cannot compare the heads with the model's own attention, as :func:`read` does.  TransformerLens keeps
    rotated queries and keys as ``blocks.L.attn.hook_rot_q`` and ``hook_rot_k``.  Their heads come after positions: use
    ``q.transpose(1, 2)``.

    Examples
    --------
    >>> import attsvm.torch
    >>> import torch
    >>> q, k = torch.ones(1, 2, 3, 4), torch.zeros(1, 1, 3, 4)
    >>> first, second = attsvm.torch.from_cache(q, k, mask=torch.ones(3, 3).tril().bool())
    >>> first.keys is second.keys
    True
    >>> second.attention(0)[1].tolist()
    [0.5, 0.5, 0.0]
    """
    q, k = _floats("q", q, 4), _floats("k", k, 4)
    if len(k) != len(q) or k.shape[3] != q.shape[3] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"k must have shape (B, G, T, m) with B = {len(q)}, G dividing {q.shape[1]} and m = {q.shape[3]}, "
            f"got {tuple(k.shape)}"
        )
    shape = (*q.shape[:3], k.shape[2])
    scaling = 1 / math.sqrt(q.shape[3]) if scaling is None else as_number("scaling", scaling)
    k = k.to(q.dtype)
    logits = scaling * products(q, k)
    if mask is not None:
        logits = logits + _mask(mask, shape, q.dtype)
    if bias is not None:
        logits = logits + _fit("bias", _floats("bias", bias), shape)
    within = Running(module, "", [])
    call = Attention(q, k, logits, scaling, plain=False, result=torch.softmax(logits, -1), within=within, maps=[])
    recorder = Recorder(shape[0] * shape[3], 0, "head")
    recorder.begin(_batch(shape[0], shape[3], tokens))
    recorder.count = as_count("layer", layer)
    recorder(call)
    return ByName(recorder.make(threshold=as_threshold(threshold), most=as_count("queries", queries, 1)))


def _batch(size: int, length: int, words: Sequence[Sequence[str]] | None) -> Batch:
    """A :class:`Batch` that has only words: the id of a token is the index of its word in a list of all words."""
    given: dict[str, Tensor] = {}
    if words is not None and (not isinstance(words, Sequence) or len(words) != size):
        raise ValueError(f"tokens must be a list of words for each of {size} sequences, got {words!r:.60}")
    vocabulary = [""]
    if words is not None and max(map(len, words)) <= length:
        held = torch.arange(length) < torch.tensor(list(map(len, words)))[:, None]
        given = {"attention_mask": held, "input_ids": held.flatten().cumsum(0).view_as(held) * held}
        vocabulary += itertools.chain.from_iterable(words)
    return Batch(given, torch.nn.Identity(), tokenizer=SimpleNamespace(id_to_token=vocabulary.__getitem__))


def _tensor(name: str, x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x.detach()
    try:
        return torch.from_numpy(np.array(x))
    except (ValueError, TypeError, RuntimeError) as error:
        raise TypeError(f"{name} must be a tensor or an array of numbers, got {type(x).__name__}: {error}") from None


def _floats(name: str, x: Any, ndim: int | None = None) -> Tensor:
    tensor = _tensor(name, x)
    if not tensor.is_floating_point() or (ndim is not None and (tensor.ndim != ndim or 0 in tensor.shape)):
        expected = "floats" if ndim is None else f"floats with {ndim} axes, none empty"
        raise ValueError(f"{name} must hold {expected}, got {tensor.dtype} {tuple(tensor.shape)}")
    if ndim is not None and not torch.isfinite(tensor).all():
        raise ValueError(f"{name} must be finite")
    return single(tensor)


def _mask(mask: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    mask = _tensor("mask", mask)
    if mask.ndim == 3:
        mask = mask[:, None]
    if mask.ndim == 2 and mask.shape == (shape[0], shape[3]) and mask.shape != shape[2:]:
        raise ValueError(
            f"mask must have shape (S, T) = {shape[2:]} or (B, S, T), got {tuple(mask.shape)}: an attention_mask of "
            "tokens goes in as mask[:, None, :].expand(B, S, T), with the causal one"
        )
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"mask must hold bools, or floats to be added to the logits, got {mask.dtype}")
    return _fit("mask", as_added(mask).to(dtype), shape)


def _fit(name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    try:
        return x.expand(shape)
    except RuntimeError:
        raise ValueError(f"{name} must broadcast to (B, H, S, T) = {shape}, got {tuple(x.shape)}") from None
