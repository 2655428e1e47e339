"""The SVM over a vocabulary, whose keys are the identity: tokens of the same selections share their weights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..attention.data import Data
from ..attention.selection import Selection
from .request import Answer, Request

__all__ = ["Vocabulary"]

OUTWARDS = 2.0**-50  # roundings of the keys' size and of W


class Vocabulary:
    """The same problem over kinds of tokens: those that the same queries select.

    Exchanging two tokens of a kind changes neither rows nor norm, so some solution gives them the same weights w_k.
    With n_k tokens of kind k and ``W'_k = n_k^(1/p) w_k``, ``||W'|| = ||W||`` and the keys are ``e_k / n_k^(1/p)``:
    p is that of an entrywise norm, infinite for the max norm, and 2 for every norm of the singular values.
    """

    def __init__(self, data: Data, request: Request):
        selection = request.selection.within(data)
        M, V = len(data), data.dk
        if selection.kept is None:
            chosen = np.zeros((M, V), dtype=bool)
            chosen[np.arange(M), selection.reference] = True
        else:
            chosen = selection.kept.reshape(M, V)
        queries = np.ascontiguousarray(np.packbits(chosen, axis=0).T)  # a row of bits for each token
        rows = queries.view(np.dtype((np.void, queries.shape[1]))).ravel()
        _, self.first, self.kind, self.count = np.unique(
            rows, return_index=True, return_inverse=True, return_counts=True
        )
        p = request.norm if not isinstance(request.norm, str) else {"max": math.inf}.get(request.norm, 2.0)
        self.scale = self.count ** (-1 / p)
        layout: Any = replace(data.layout, lengths=np.full(M, len(self.first)))  # type: ignore[type-var]
        self.data, self.reference = (
            Data(data.name, np.diag(self.scale), data.queries, None, layout),
            selection.reference,
        )
        self.chosen = chosen[:, self.first]  # the kinds that each query selects
        selected = self.kind[self.reference] if selection.kept is None else self.chosen
        self.request = replace(request, selection=Selection(self.data, selected), dual=None, W=None)

    def back(self, answer: Any) -> Answer:
        """The answer of all tokens: multipliers of a kind are shared by its tokens, as its weights are."""
        M, K, every = len(self.reference), len(self.first), np.arange(len(self.reference))
        pull = -answer.dual.reshape(M, K)  # of each query on every kind; that on its reference makes up for all
        pull[every, self.request.selection.reference] = -pull.sum(axis=1)
        dual = (pull / -self.count)[:, self.kind]
        dual[every, self.reference] = 0
        q, k = divmod(answer.entry, K)
        return answer._replace(
            W=(self.scale[:, None] * answer.W)[self.kind],
            dual=dual.ravel(),
            lower=answer.lower * (1 - OUTWARDS),
            upper=answer.upper * (1 + OUTWARDS),
            entry=int(q * len(self.kind) + self.first[k]) if answer.entry >= 0 else -1,
        )
