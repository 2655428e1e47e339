"""Attention that runs without being read: which modules compute it.

A module is named when its class is called an attention and no head was read while it ran; when it calls a kernel with
attention in its name; when a softmax that is not followed runs inside a class with attention in its name; or when the
probabilities of such a softmax multiply values in any other module.  A softmax counts over the last of at least three
dimensions.  So routers of experts and the probabilities of a vocabulary are not named: they multiply no values.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
AN_ATTENTION = re.compile(r"(attention|attn)(\d+d?)?$", re.IGNORECASE)  # not its projections, norms or biases
OPEN = 8  # probabilities that are followed at one time
SHOWN = 6  # modules that are named


@dataclass(eq=False)
class Running:
    """A module that runs, and tensors it was given; ``done``: a head was read meanwhile, or an attention inside answers
    for itself."""

    name: str
    kind: str
    given: list[Tensor]
    done: bool = False


class Unseen:
    """``missed``: name and class of the modules whose attention is not read, in the order of the forward pass."""

    def __init__(self) -> None:
        self.running: list[Running] = []
        self.missed: dict[str, str] = {}
        self.open: deque[tuple[Tensor, Running]] = deque(maxlen=OPEN)

    def enter(self, name: str, module: torch.nn.Module, given: list[Tensor]) -> None:
        now = Running(name, type(module).__name__, given)
        if AN_ATTENTION.search(now.kind):
            self.read()
        self.running.append(now)

    def leave(self) -> None:
        module = self.running.pop()
        if AN_ATTENTION.search(module.kind) and not module.done:
            self._miss(module)

    def read(self) -> None:
        """A head is read in the modules that run, or an attention begins inside them."""
        for module in self.running:
            module.done = True

    def kernel(self) -> None:
        """One that computes attention as a whole, but is not ``scaled_dot_product_attention``, or from factors."""
        self._miss(self._within() or self.innermost())

    def softmax(self, prob: Tensor) -> None:
        """One that is not followed."""
        if prob.ndim < 3:
            return
        within = self._within()
        self._miss(within) if within else self.open.append((prob, self.innermost()))

    def same(self, given: Any, out: Tensor) -> None:
        """What was made of a tensor is still the same probabilities, if it was any."""
        for prob, module in self.open:
            if prob is given:
                self.open.append((out, module))
                return

    def product(self, tensors: list[Tensor]) -> None:
        for module in (module for prob, module in self.open for x in tensors if x is prob):
            self._miss(module)

    def _within(self) -> Running | None:
        """The innermost module with attention in the name of its class."""
        return next((module for module in reversed(self.running) if ATTENTION.search(module.kind)), None)

    def innermost(self) -> Running:
        return self.running[-1] if self.running else Running("", "outside its modules", [])

    def _miss(self, module: Running) -> None:
        self.missed.setdefault(module.name, module.kind)

    def message(self) -> str:
        """In words; empty where nothing is missed."""
        if not self.missed:
            return ""
        count = f"{len(self.missed)} module{'s' * (len(self.missed) > 1)}"
        shown = [f"{name or 'the model'} ({kind})" for name, kind in list(self.missed.items())[:SHOWN]]
        more = [f"{len(self.missed) - SHOWN} more"] if len(self.missed) > SHOWN else []
        return f"read does not follow the attention of {count}: {', '.join(shown + more)}; their heads are missing"
