"""One batch of a model's inputs: how the model is called with it, its padding, and its tokens as text."""

import contextlib
import inspect
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .products import tensors

MASKS = ("attention_mask", "decoder_attention_mask")
# Names of masks of torch.nn that are true at padding, not at tokens.
HIDING = ("src_key_padding_mask", "tgt_key_padding_mask", "key_padding_mask")
EXTRA = 8  # largest number of tokens before an image's patches: a class token, a distillation token, registers
TOKENIZERS = ("convert_ids_to_tokens", "id_to_token", "decode")  # a tokenizer needs one of these methods
IDS = ("input_ids", "decoder_input_ids")


class Batch:
    """One batch of a model's inputs, with which the model can be run.

    ``given`` is the batch on the model's device, ``named`` its parts by the names of the arguments, ``size`` its number
    of entries (None if no tensor shows it).
    """

    def __init__(self, batch: Any, model: torch.nn.Module, forward: Any = None, tokenizer: Any = None):
        call = model if forward is None else forward
        self.call, self.tokenizer, device = call, tokenizer, device_of(model)
        self.given: Any
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        if isinstance(batch, Mapping):
            self.given = self.kwargs = {name: _move(value, device) for name, value in batch.items()}
        elif isinstance(batch, (tuple, list)):
            self.given = self.args = tuple(_move(value, device) for value in batch)
        else:
            self.given = _move(batch, device)
            self.args = (self.given,)
        self.named, self.size = dict(self.kwargs), entries(self.args, self.kwargs)
        self.two_stacks = any(name.startswith("decoder_") for name in self.kwargs) or "labels" in self.kwargs
        with contextlib.suppress(ValueError):  # without a signature, positional arguments have no names
            self._bind(inspect.signature(call.forward if isinstance(call, torch.nn.Module) else call))

    def _bind(self, signature: inspect.Signature) -> None:
        """Gives the positional arguments their names, and passes a tuple as one argument if the function needs that.

        Raises TypeError if the function can take the batch neither as several arguments nor as one.
        """
        with contextlib.suppress(TypeError):
            self.named |= signature.bind_partial(*self.args).arguments
        if isinstance(self.call, torch.nn.Module) or _takes(signature, *self.args, **self.kwargs):
            return
        if self.given is not self.args or not _takes(signature, self.given):
            held = f"names {', '.join(self.kwargs)}" if self.kwargs else f"positions 1 to {len(self.args)}"
            raise TypeError(f"forward must take what a batch gives it by {held}, got {signature}")
        self.args = (self.given,)

    def tokens(self, entry: int, T: int) -> int:
        """How many tokens this entry of the batch has, without padding."""
        mask = self._row("attention_mask", entry, T)
        return T if mask is None else int((mask != 0).sum())

    def _row(self, name: str, b: int, size: int) -> Tensor | None:
        """Row b of the batch's argument of this name, or None unless it is a matrix with rows of this size."""
        rows = self.named.get(name)
        return rows[b] if isinstance(rows, Tensor) and rows.shape[1:] == (size,) and b < len(rows) else None

    def _decodes(self, module: str, kind: str, keys: bool = False) -> bool:
        """Whether the queries, or the keys, of an attention belong to the decoder of a model with an encoder too."""
        return self.two_stacks and (not keys if kind == "cross" else "decoder" in module)

    def live(self, b: int, S: int, module: str, kind: str) -> np.ndarray:
        """Flags (S,): whether each query of sequence b belongs to a token, and not to padding."""
        names = (MASKS[self._decodes(module, kind)], *(HIDING[1:] if "decoder" in module else HIDING[::2]))
        for name in names:
            mask = self._row(name, b, S)
            if mask is not None:
                return as_array((mask == 0) == (name in HIDING))
        return np.ones(S, dtype=bool)

    def words(
        self, b: int, module: str, kind: str, sequences: int, size: int, live: slice, keys: bool
    ) -> list[str] | None:
        """Texts of the ``live`` ones of ``size`` tokens of sequence ``b`` in an attention call, or None if unknown.

        The call has ``sequences`` sequences.  Without a tokenizer the texts are the tokens' numbers.  Image patches
        have names such as r0c3.
        """
        ids = self._row(IDS[self._decodes(module, kind, keys)], b, size)
        if ids is not None:
            return self._named(ids[live].tolist())
        of_image = "decoder" not in module if kind == "self" else keys
        return self._patches(size, live) if of_image and sequences == self.size else None

    def _named(self, row: list[int]) -> list[str]:
        tokenizer, found = self.tokenizer, list[Any](row)
        other = "tokenizer must name all tokens of the model, as its own does"
        try:
            if hasattr(tokenizer, "convert_ids_to_tokens"):
                found = tokenizer.convert_ids_to_tokens(row)
            elif tokenizer is not None:
                name_of = getattr(tokenizer, "id_to_token", None) or (lambda i: tokenizer.decode([i]))
                found = [name_of(i) for i in row]
        except Exception as error:  # a tokenizer may raise any exception for an unknown token number
            raise ValueError(f"{other}, got {type(error).__name__}: {error}") from error
        if None in found:
            raise ValueError(f"{other}, got none for number {row[found.index(None)]}")
        return [str(token) for token in found]

    def _patches(self, size: int, live: slice) -> list[str] | None:
        """Names of the ``live`` ones of ``size`` tokens as patches of an image, such as r0c3 for row 0 and column 3.

        The tokens must be all square patches of some size, after at most ``EXTRA`` other tokens.  Otherwise, as in a
        window of patches, there are no names, and None is returned.
        """
        images = [x.shape[2:] for x in tensors((), self.named) if x.ndim == 4 and x.is_floating_point()]
        for (height, width), extra in itertools.product(images, range(EXTRA + 1)):
            for patch in range(1, min(height, width) + 1):
                rows, columns = height // patch, width // patch
                if rows * columns == size - extra:
                    before = ["[CLS]", *(f"[extra {k}]" for k in range(1, extra))][:extra]
                    return (before + [f"r{r}c{c}" for r in range(rows) for c in range(columns)])[live]
        return None


def as_array(x: Tensor) -> np.ndarray:
    """The tensor as a NumPy array, without its gradient."""
    return x.detach().cpu().numpy()


def check_batches(batches: Any) -> None:
    if isinstance(batches, (str, bytes, Mapping, Tensor)) or not isinstance(batches, Iterable):
        raise TypeError(f"batches must be an iterable of what the model takes, got {type(batches).__name__}: [batch]?")


def device_of(model: torch.nn.Module) -> torch.device | None:
    """The device of the model's parameters, or None if the model has no parameters."""
    device = None
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ValueError(
                f"model must hold its values, got {name} on the meta device: load all weights, without offloading them"
            )
        device = device or parameter.device
    return device


def entries(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """Number of entries of the batch in a model's arguments, or None if no tensor shows this number."""
    return next((len(x) for x in tensors(args, kwargs) if x.ndim >= (3 if x.is_floating_point() else 2)), None)


def _takes(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _move(value: Any, device: torch.device | None) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.as_tensor(value)
    if isinstance(value, str) or (isinstance(value, (list, tuple)) and any(isinstance(part, str) for part in value)):
        raise TypeError(
            "batches must hold what the model takes, numbers, got text: make each batch by "
            'tokenizer(list_of_texts, return_tensors="pt", padding=True)'
        )
    return value.to(device) if isinstance(value, Tensor) else value
