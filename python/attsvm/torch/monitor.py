"""A monitor that measures a model's heads during training."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..common.check import as_count, as_flag
from ..heads.head import THRESHOLD, Head
from ..heads.steps import COLUMNS, WORDS, Row, append_rows, measure, plot_training, read_training
from .batch import Batch, as_array
from .read import named, read, unchanged, unwrap
from .standard_form import products, standardize
from .watch import Attention, Watch


class Monitor:
    """Measures all heads of a model on fixed batches, at regular steps of its training.

    Parameters
    ----------
    model : torch.nn.Module
        The model that is trained.  A compiled model, or one in (Distributed)DataParallel, is unwrapped.
    probe : iterable
        Batches as for :func:`read`, the same at every check; they should not be training data.
    every : int
        Number of steps between two checks.
    file : path-like, optional
        CSV file to which each check appends one row per head.  Steps that it already holds are not measured again, so
        that a resumed run can go on.
    writer : optional
        A TensorBoard ``SummaryWriter``, or anything with ``add_scalar(tag, value, step)``.
    forward, layers, heads, space, threshold, tokens, seed
        As for :func:`read`.
    queries : int
        Largest number of queries that train an SVM.
    null : bool
        Whether to solve the controls too.
    loss : callable, optional
        ``loss(model, batch)``, called with each batch of the probe, returns one number with a gradient.  Its gradient
        in the attention proves bounds of each head's margin, which become columns of the rows.  This takes a second
        pass with gradients; the gradients of the parameters stay as they are.

    Attributes
    ----------
    rows : list of dict
        All rows so far, including those of the file; :func:`attsvm.heads.measure` explains them.

    Notes
    -----
    A check runs in evaluation mode, without gradients and without autocast.  It leaves flags, hooks and random states
    as they were, so that the losses of the training are the same to the bit with a monitor and without.  Sharded
    parameters (FSDP) are an error.

    Examples
    --------
    >>> import attsvm.torch
    >>> import torch
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> monitor = attsvm.torch.Monitor(model, [torch.randn(4, 6, 8)], every=10)
    >>> [len(monitor(step) or []) for step in (0, 1, 10)]
    [2, 0, 2]
    >>> sorted({row["step"] for row in monitor.rows})
    [0, 10]
    """

    def __init__(
        self,
        model: torch.nn.Module,
        probe: Iterable[Any],
        every: int = 200,
        file: Any = None,
        writer: Any = None,
        *,
        forward: Callable[..., Any] | None = None,
        layers: Sequence[int] | None = None,
        heads: Sequence[int | str] | None = None,
        space: str = "auto",
        threshold: float = THRESHOLD,
        queries: int = 300,
        tokens: int = 20_000,
        null: bool = True,
        loss: Callable[[torch.nn.Module, Any], torch.Tensor] | None = None,
        seed: int = 0,
    ):
        if not isinstance(probe, Iterable):
            raise TypeError(f"probe must be an iterable of batches, got {type(probe).__name__}")
        self.model, self.probe = unwrap(model), list(probe)
        self.every, self.queries = as_count("every", every, 1), as_count("queries", queries, 1)
        if not self.probe:
            raise ValueError("probe must hold at least one batch, got none")
        if writer is not None and not callable(getattr(writer, "add_scalar", None)):
            raise TypeError(f"writer must have add_scalar(tag, value, step), got {type(writer).__name__}")
        if loss is not None and not callable(loss):
            raise TypeError(f"loss must be a function of the model and a batch, got {type(loss).__name__}")
        self.writer, self.null, self.loss, self.seed = writer, as_flag("null", null), loss, seed
        self.file = None if file is None else Path(file)
        self.options: dict[str, Any] = {
            "forward": forward, "layers": layers, "heads": heads, "space": space, "threshold": threshold,
            "tokens": tokens, "seed": seed,
        }  # fmt: skip
        self.rows: list[Row] = []
        if self.file is not None and self.file.exists():
            self.rows = read_training(self.file)
            with open(self.file, "rb+") as table:  # an interruption leaves a last line incomplete, without a line end
                table.truncate(table.read().rfind(b"\n") + 1)
        self._steps = {row["step"] for row in self.rows}

    def __repr__(self) -> str:
        checks, heads = len(self._steps), len({row["name"] for row in self.rows})
        return f"<attsvm Monitor: every {self.every} steps, {checks} checks of {heads} heads so far>"

    def __call__(self, step: int) -> list[Row] | None:
        """Measures the heads if ``step`` is a multiple of ``every``.

        Returns
        -------
        list of dict, or None
            The new rows; None if the step is no multiple of ``every`` or was already measured.
        """
        if step % self.every or step in self._steps or not _is_first():
            return None
        return self.check(step)

    def check(self, step: int) -> list[Row]:
        """Measures all heads of the model now, and returns one new row of the table for each head."""
        for part in (*self.model.modules(), *self.model.parameters()):
            if type(part).__name__ in ("FullyShardedDataParallel", "DTensor"):
                raise NotImplementedError("FSDP keeps shards of the parameters, which Monitor cannot read")
        found = read(self.model, self.probe, queries=self.queries, progress=False, **self.options)
        whole = None if self.loss is None else in_probabilities(self.model, self.probe, self.loss)
        rows = [
            measure(
                head, step, queries=self.queries, null=self.null, seed=self.seed,
                gradients=None if whole is None else of_head(head, whole),
            )
            for head in found
        ]  # fmt: skip
        self._steps.add(step)
        self.rows += rows
        if self.file is not None:
            append_rows(self.file, rows)
        if self.writer is not None:
            for tag, value in self.scalars().items():
                self.writer.add_scalar(tag, value, step)
        return rows

    def scalars(self) -> dict[str, float]:
        """The numbers of the last check by name, ``attsvm/L0H3/cosine`` and so on, as ``wandb.log`` takes them."""
        names = [name for name in COLUMNS if name not in {*WORDS, "step", "layer", "head"}]
        return {
            f"attsvm/{row['name']}/{name}": float(row[name])
            for row in self.rows
            if row["step"] == self.rows[-1]["step"]
            for name in names
            if math.isfinite(row[name])
        }

    def plot(self, axes: Any = None) -> Any:
        """Draws the rows over the steps of the training, as :func:`attsvm.heads.plot_training` explains."""
        return plot_training(self.rows, axes)

    def for_trainer(self) -> Any:
        """A callback for ``transformers.Trainer(.., callbacks=[monitor.for_trainer()])``."""
        from transformers import TrainerCallback

        class MonitorCallback(TrainerCallback):
            def on_step_end(callback, args: Any, state: Any, control: Any, **others: Any) -> None:
                if state.is_world_process_zero:
                    self(state.global_step)

            on_train_begin = on_step_end

        return MonitorCallback()

    def for_lightning(self) -> Any:
        """A callback for ``lightning.Trainer(callbacks=[monitor.for_lightning()])``."""
        try:
            from lightning.pytorch import Callback
        except ImportError:
            from pytorch_lightning import Callback

        class MonitorCallback(Callback):
            def on_train_batch_end(callback, trainer: Any, *others: Any) -> None:
                if trainer.is_global_zero:
                    self(trainer.global_step)

            on_train_start = on_train_batch_end

        return MonitorCallback()


def _is_first() -> bool:
    """Whether this process is the first of a distributed run, the one that writes."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


def in_probabilities(
    model: torch.nn.Module, batches: Iterable[Any], loss: Callable[[torch.nn.Module, Any], torch.Tensor]
) -> dict[int, list[np.ndarray]]:
    """Gradients of a loss in the attention probabilities of a model, for each attention call by its number.

    A call has an array (H, S, T) for each sequence, in the order of :func:`read`.  The loss is
    computed batch by batch, in evaluation mode.  No ``.grad`` of the model changes.
    """
    found: defaultdict[int, list[np.ndarray]] = defaultdict(list)
    for values in batches:
        calls: list[Attention] = []
        watch = Watch(calls.append)
        batch = Batch(values, model)
        with unchanged(model), named(model, watch), torch.enable_grad(), watch:
            value = loss(model, batch.given)
            watch.finish()
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            raise ValueError(f"loss must return one number with a gradient, got {value!r:.80}")
        results = [call.result for call in calls if call.result.requires_grad]
        gradients = iter(torch.autograd.grad(value, results, allow_unused=True, materialize_grads=True))
        for number, call in enumerate(calls):
            whole = standardize(call, batch.size)
            gradient = next(gradients) if call.result.requires_grad else torch.zeros_like(call.result)
            part = gradient.reshape(whole.result.shape)
            if call.fused:
                assert whole.v is not None  # a fused call has values
                part = products(part, whole.v)
            else:  # the call's result is the probabilities, those of sinks last
                part = part[..., : whole.k.shape[2]]
            found[number] += list(as_array(part.double()))
    return found


def of_head(head: Head, gradients: dict[int, list[np.ndarray]]) -> list[np.ndarray]:
    """The gradients that belong to a head: an array (S, T) without padding for each kept sequence."""
    text = head.text
    return [
        gradients[head.layer][number][head.number, query : query + S, token : token + T]
        for number, query, token, S, T in zip(text.numbers, *text.places.T[2:], text.counts, text.lengths, strict=True)
    ]
