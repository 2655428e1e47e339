"""Which tokens hold a solution in place: multipliers that are more than what rounding and interior points leave."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["ROUNDED", "holding", "log_pulls"]

ROUNDED = 1e-12  # of the largest multiplier, each times the size of its row: what sums of thousands of rows leave
CHUNK = 65536  # rows whose sizes are taken at a time


def holding(sol: Any) -> np.ndarray:
    """The entries of an answer's support, flat."""
    selection, found = sol.selection, sol.flat_dual > 0
    if selection.kept is not None:
        found &= ~selection.kept
    entries = np.flatnonzero(found)
    pull = log_pulls(sol, entries)
    largest = pull.max(initial=-np.inf)
    if largest == -np.inf:  # none, or that of a copy or a zero query, whose row is zero
        return found
    part = np.exp(pull - largest)
    found[entries] = part > ROUNDED
    if sol.status == "optimal" and sol.C is None:  # else W and multipliers need not belong together
        excess = sol.data.flat_margins(sol.W, selection.reference)[entries] - selection.asked(entries)
        found[entries] &= part > excess / selection.largest
    return found


def log_pulls(sol: Any, entries: np.ndarray) -> np.ndarray:
    """Logarithms, as the numbers may leave double precision, of the multipliers of these entries, each times the size
    of its row: the largest number in x_ref - x_t times that in z."""
    data, sizes = sol.data, np.empty(len(entries))
    q = data.query_at(entries)
    token, chosen = entries - data.indptr[q] + data.start[q], sol.selection.reference[q] + data.start[q]
    if data.identity:
        sizes = (chosen != token) / 2
    for k in range(0, 0 if data.identity else len(entries), CHUNK):
        a, t = (data.keys[at[k : k + CHUNK]].astype(np.float64) / 2 for at in (chosen, token))
        sizes[k : k + CHUNK] = np.abs(a - t).max(axis=1)
    with np.errstate(divide="ignore"):
        return np.log(np.abs(sol.flat_dual[entries])) + np.log(sizes) + np.log(np.abs(data.queries).max(axis=1))[q]
