"""Attention heads of any PyTorch model, read from its forward pass."""

import contextlib
import functools
import operator
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..common.check import as_choice, as_count
from ..common.progress import counted
from ..heads.head import QUERIES, THRESHOLD, ByName, as_threshold, place_of
from .batch import TOKENIZERS, Batch, check_batches
from .record import Recorder
from .watch import Watch

NOTHING = (
    "no attention seen: load the model with attn_implementation='sdpa' or 'eager' (flash and flex kernels, a softmax "
    "written out by hand, windows cut into chunks, as in Longformer, attention that was traced or scripted, and "
    "attention on another thread cannot be watched; state-space, recurrent and Fourier layers have none)"
)


def read(
    model: torch.nn.Module,
    batches: Iterable[Any],
    tokenizer: Any = None,
    *,
    forward: Callable[..., Any] | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int | str] | None = None,
    space: str = "auto",
    threshold: float = THRESHOLD,
    queries: int = QUERIES,
    tokens: int = 20_000,
    store: Any = None,
    seed: int = 0,
    progress: bool | None = None,
) -> ByName:
    """The attention heads of any PyTorch model, read while it runs.

    Parameters
    ----------
    model : torch.nn.Module
        A model of any library, with eager or sdpa attention.  It runs in evaluation mode without gradients, and is not
        changed.
    batches : iterable
        Inputs of the model, one forward pass each.  A dict becomes keyword arguments, a tuple or list positional
        arguments; anything else is the only argument.
    tokenizer : optional
        Gives the tokens their text in tables and pictures, by its ``convert_ids_to_tokens``, ``id_to_token`` or
        ``decode``.
    forward : callable, optional
        Called with each batch in place of the model, in the same way.  A function of one argument gets a tuple as a
        whole.
    layers : list of int, optional
        Numbers of attention calls within one forward pass, counted from 0; by default all.
    heads : list of int or str, optional
        Head numbers, taken from every layer, or names such as ``"5.3"`` or ``"L5H3"``; by default all.
    space : {"auto", "residual", "head"}
        "residual": tokens are the inputs of the layer, and W is the head's own ``K Q^T``.  This W exists only if
        queries and keys are linear in the inputs (no rotary positions, no norms).  "head": tokens are the keys and
        queries that attention compares.  "auto": the residual space if it exists, otherwise the head space.
    threshold : float
        A query counts if its attention on one token exceeds this.
    queries : int
        Largest number of queries that train an SVM.
    tokens : int
        Whole sequences are drawn at random from all batches until they have this number of tokens.  Their queries and
        keys are kept.
    store : path-like, optional
        Folder for the arrays, which are then memory-mapped; by default they stay in memory.
    seed : int
        Seed of the random draw of sequences.
    progress : bool, optional
        Whether to show a bar; by default at a terminal or in a notebook.

    Returns
    -------
    list of Head
        All heads, also those without hard queries, in the order of attention calls and then of head numbers.  A head
        is also found by name, ``found["L5H3"]`` or ``found[5, 3]``.  :func:`attsvm.heads.analyze_model` takes the list.

    Raises
    ------
    ValueError
        If no attention is seen; if parameters are on the meta device; with ``space="residual"`` if there is no residual
        space; if the attention that was read differs from the one that the model computed.  The comparison is of the
        probabilities (eager), or of the attended values divided by the largest value (sdpa).  It allows ``5e-6 + 2 eps
        (1 + L)``, with the rounding unit eps of the model's type (1.2e-7 in float32) and the largest ``L = scaling |q|
        |k|`` of a sequence.
    LookupError
        From a head's ``attention(b)``, if the sequence was not kept.

    Warns
    -----
    UserWarning
        If the attention of some modules is not read (see Notes); the warning names them.

    Notes
    -----
    The function sees calls of ``scaled_dot_product_attention``, and every softmax over a product of activations, in
    eager mode (compiled modules run uncompiled).  If the logits have a bias (ALiBi, relative positions), the heads get
    a coordinate for it.

    The function does not read attention in chunks or windows of the sequence (Longformer, LED, LongT5), attention from
    factors (Nystromformer, unless it has a landmark for every token), flash and flex kernels, and a softmax written out
    by hand.  The warning names a module if its class is called an attention, if it calls a kernel that is called so, or
    if a softmax over the last of three or more dimensions multiplies values there.  A softmax written out by hand in a
    class of another name is not noticed.

    The heads are those that ran, on this machine and in this precision.  A logit of size L has a rounding error of
    about ``eps L``, its probability the same relative error, and the next layer starts from there.  With logits above
    100 in float32, eager attention, sdpa attention and float64 differ by 1e-5 to 2e-4: compare such models in double
    precision.  For a model in half precision, probabilities are computed in float32 from its own queries and keys.

    Examples
    --------
    >>> import attsvm.torch
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> found = attsvm.torch.read(model, [(x, x, x)])
    >>> found[1]
    <attsvm head 1 of layer 0: residual space of 9, 3 sequences, 15 tokens, 0 of 15 (0 %) queries hard>
    >>> found[1].attention(2).shape
    (5, 5)
    """
    model = unwrap(model)
    as_choice("space", space, ("auto", "residual", "head"))
    threshold = as_threshold(threshold)
    if forward is not None and not callable(forward):
        raise TypeError(f"forward must be a function, got {type(forward).__name__}")
    if tokenizer is not None and not any(hasattr(tokenizer, name) for name in TOKENIZERS):
        raise TypeError(f"tokenizer must have one of {', '.join(TOKENIZERS)}, got {type(tokenizer).__name__}")
    queries, tokens = as_count("queries", queries, 1), as_count("tokens", tokens, 1)
    check_batches(batches)
    wanted = set() if heads is None else _wanted_heads(heads)
    folder = None
    if store is not None:
        folder = Path(store)
        folder.mkdir(parents=True, exist_ok=True)
    if layers is not None and not isinstance(layers, Iterable):
        raise TypeError(f"layers must be a list of numbers, got {type(layers).__name__}")
    chosen = None if layers is None else {as_count("layers", layer) for layer in layers}
    recorder = Recorder(tokens, as_count("seed", seed), space, chosen, folder)
    watch = Watch(recorder)
    try:
        with unchanged(model), named(model, watch), torch.no_grad():
            for values in counted(batches, operator.length_hint(batches) or None, "read", "batch", progress):
                batch = Batch(values, model, forward, tokenizer)
                recorder.begin(batch)
                with watch:
                    batch.call(*batch.args, **batch.kwargs)
                watch.finish()
                recorder.end()
        calls, missed = recorder.calls, watch.message()
        if calls is None:
            raise ValueError("batches must hold at least one batch, got none")
        if not calls:
            raise ValueError(f"{NOTHING}; {missed}" if missed else NOTHING)
        if missed:
            warnings.warn(missed, stacklevel=2)
        found = recorder.make(threshold=threshold, most=queries)
    finally:
        recorder.close()
    if chosen is not None and max(chosen, default=0) >= calls:
        raise ValueError(f"layers must lie in 0 .. {calls - 1}, got {sorted(chosen)}")
    if heads is None:
        return ByName(found)
    names = [{(None, head.number), (head.layer, head.number)} for head in found]
    if not wanted or wanted.difference(*names):
        raise ValueError(f"heads must name heads of the model's {calls} layers, got {heads!r}")
    return ByName(head for head, own in zip(found, names, strict=True) if wanted & own)


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """The model without torch.compile and (Distributed)DataParallel around it."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    while True:
        if isinstance(getattr(model, "_orig_mod", None), torch.nn.Module):
            model = model._orig_mod
        elif type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            model = model.module
        else:
            return model


@contextlib.contextmanager
def named(model: torch.nn.Module, watch: Watch) -> Iterator[None]:
    """A context in which hooks tell the Watch (torch/watch.py) which module of the model runs.

    Modules with hooks do not use torch.nn's fused kernels, which would hide their attention.
    """

    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            enter = functools.partial(watch.enter, name)
            stack.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
            stack.enter_context(module.register_forward_hook(watch.leave, always_call=True))
        yield


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """A context with the model in evaluation mode and uncompiled, which restores flags and random states at its end."""
    on_cuda = torch.cuda.is_initialized()
    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())
        stack.enter_context(torch.random.fork_rng(range(torch.cuda.device_count()) if on_cuda else ()))
        for device in ("cpu", "cuda")[: 1 + on_cuda]:
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
            module.training = False
        yield


def _wanted_heads(heads: Any) -> set[tuple[int | None, int]]:
    """The heads that were asked for, as pairs (layer, number), where layer None stands for every layer."""
    if isinstance(heads, (str, int)):
        heads = [heads]
    if not isinstance(heads, Iterable):
        raise TypeError(f"heads must be a list of numbers or names, got {type(heads).__name__}")
    wanted: set[tuple[int | None, int]] = set()
    for head in heads:
        if not isinstance(head, str) or head.strip().isdecimal():
            wanted.add((None, as_count("heads", int(head) if isinstance(head, str) else head)))
        elif place := place_of(head):
            wanted.add(place)
        else:
            raise ValueError(f"heads must be numbers, or names such as '5.3' or 'L5H3', got {head!r}")
    return wanted
