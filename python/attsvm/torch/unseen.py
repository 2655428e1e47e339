"""Finds the modules of a model that seem to compute attention which was not read.

A module is named in four cases: its class is called an attention, and no head was read while it ran; it calls a kernel
with attention in its name; a softmax whose logits are not followed runs in it, and its class has attention in its name;
the probabilities of such a softmax multiply values in it.  A softmax counts if it is over the last of at least three
dimensions.  Routers of experts and probabilities of a vocabulary are not named, since they multiply no values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .products import tensors

ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
# Names of classes of whole attention modules, not of their components (projection, norm, bias).
AN_ATTENTION = re.compile(r"(attention|attn)(\d+d?)?$", re.IGNORECASE)
SHOWN = 6  # largest number of modules that the warning names


@dataclass(eq=False)
class Running:
    """A module that runs, and the tensors that it was given.

    ``done``: a head was read while it ran, or it contains another attention, which is checked itself.
    """

    name: str
    kind: str
    given: list[Tensor]
    done: bool = False


class Modules:
    """Keeps the modules that run, and the modules whose attention is not read.

    ``enter`` and ``leave`` are hooks of the modules.  ``missed`` has the class of each module that is not read by its
    name, in the order of the forward pass.
    """

    def __init__(self) -> None:
        self.running: list[Running] = []
        self.missed: dict[str, str] = {}

    def enter(self, name: str, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        now = Running(name, type(module).__name__, tensors(args, kwargs))
        if AN_ATTENTION.search(now.kind):
            self.read()
        self.running.append(now)

    def leave(self, *unused: Any) -> None:
        module = self.running.pop()
        if AN_ATTENTION.search(module.kind) and not module.done:
            self.miss(module)

    def read(self) -> None:
        """Marks all modules that run now as read, since a head is read in them or an attention begins inside them."""
        for module in self.running:
            module.done = True

    def kernel(self) -> None:
        """Notes that a kernel ran whose attention is not read: a fused kernel, or attention from factors."""
        self.miss(self.within() or self.innermost())

    def within(self) -> Running | None:
        """The innermost module with attention in the name of its class."""
        return next((module for module in reversed(self.running) if ATTENTION.search(module.kind)), None)

    def innermost(self) -> Running:
        return self.running[-1] if self.running else Running("", "outside its modules", [])

    def miss(self, module: Running) -> None:
        self.missed.setdefault(module.name, module.kind)

    def message(self) -> str:
        """The text of a warning that names the modules whose attention is not read, or "" if there are none."""
        if not self.missed:
            return ""
        count = f"{len(self.missed)} module{'s' * (len(self.missed) > 1)}"
        shown = [f"{name or 'the model'} ({kind})" for name, kind in list(self.missed.items())[:SHOWN]]
        more = [f"{len(self.missed) - SHOWN} more"] if len(self.missed) > SHOWN else []
        return f"read does not follow the attention of {count}: {', '.join(shown + more)}; their heads are missing"
