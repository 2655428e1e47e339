"""Heads out of a PyTorch model: a forward hook keeps what the query map of an attention layer is given.

Imported by hand (``import attsvm.torch``), since it needs PyTorch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .heads import Head, from_arrays

__all__ = ["Capture", "capture"]


class Capture:
    """What went into the query map of one attention layer, batch after batch.

    Attributes
    ----------
    inputs : list of (B, T, d) arrays
        One per forward pass, padding and all.
    """

    def __init__(self, query: torch.nn.Module, key: torch.nn.Module):
        self.query, self.key = query, key
        self.inputs: list[np.ndarray] = []

    def heads(
        self,
        heads: int,
        lengths: Sequence[int] | None = None,
        *,
        tokens: Sequence[Sequence[str]] | None = None,
        causal: bool = False,
        scale: float | None = None,
        layer: int = 0,
    ) -> list[Head]:
        """The layer's heads, with the weights as they are now.

        Parameters
        ----------
        heads : int
        lengths : list of int, optional
            Tokens of each sentence without its padding, which must come last: ``attention_mask.sum(1)``, over all
            batches.  By default nothing is padding.
        tokens, causal, scale, layer
            As for :func:`attsvm.heads.from_arrays`.

        Returns
        -------
        list of Head
        """
        sentences = [x for batch in self.inputs for x in batch]
        if not sentences:
            raise ValueError("nothing was captured: run the model inside the with block")
        if lengths is not None:
            if len(lengths) != len(sentences):
                raise ValueError(f"lengths must be given for {len(sentences)} sentences, got {len(lengths)}")
            sentences = [x[: int(T)] for x, T in zip(sentences, lengths, strict=True)]
        weights = (_array(w) for map in (self.query, self.key) for w in (map.weight, map.bias))
        return from_arrays(
            sentences, *weights, heads=heads, scale=scale, tokens=tokens, causal=causal, layer=layer
        )


@contextlib.contextmanager
def capture(query: torch.nn.Module, key: torch.nn.Module) -> Iterator[Capture]:
    """Keep the inputs of an attention layer while the model runs.

    Parameters
    ----------
    query, key : torch.nn.Linear
        The maps that make its queries and its keys, all heads at once.  In Hugging Face's BERT they are
        ``model.encoder.layer[l].attention.self.query`` and ``.key``.

    Yields
    ------
    Capture

    Notes
    -----
    Where one map makes queries, keys and values together (``in_proj_weight`` of ``torch.nn.MultiheadAttention``,
    ``c_attn`` of GPT-2), cut its weight and bias and give the parts to :func:`attsvm.heads.from_arrays`; GPT-2 stores
    the transpose.  The logits must be a bilinear form of the inputs, which rotary positions make impossible.

    Examples
    --------
    >>> import attsvm.torch
    >>> import torch
    >>> query, key = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    >>> with attsvm.torch.capture(query, key) as layer:
    ...     _ = query(torch.ones(2, 5, 8))
    >>> layer.heads(heads=2, lengths=[5, 3])[1]
    <attsvm head 1 of layer 0: 2 sentences, 8 tokens, d=8, m=4>
    """
    kept = Capture(query, key)
    hook = query.register_forward_hook(lambda module, inputs, output: kept.inputs.append(_batch(inputs[0])))
    try:
        yield kept
    finally:
        hook.remove()


def _batch(x: torch.Tensor) -> np.ndarray:
    """(B, T, d), of one sentence too."""
    array = _array(x)
    return array if array.ndim == 3 else array[None]


def _array(x: torch.Tensor | None) -> Any:
    """A copy outside of PyTorch; in single precision what NumPy does not have (bfloat16)."""
    if x is None:
        return None
    x = x.detach().cpu()
    return (x.float() if x.element_size() < 4 else x).numpy().copy()
