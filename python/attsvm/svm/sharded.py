"""Solves the attention SVM of rows that are sharded over several processes, which share a working set of rows.

The least-norm W depends only on its support rows.  Each worker proposes the support rows of its own shard.  The first
worker solves the SVM of all proposed rows.  Each worker adds its rows that this W violates, until there are none.
A bound on the margin, or a proof that no W exists, that holds for the working set also holds for all rows: the other
rows have multiplier zero.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..attention.data import Data
from ..attention.kinds import cross_attention
from ..attention.selection import Selection
from ..common.workers import Workers
from .methods import CODE, solve_request
from .request import SHARDED, Answer, Request
from .separation import Separation

GOES_ON = CODE["done"], CODE["no constraint"]
# A worker does not propose rows (constraints) whose multiplier is below this fraction of the largest multiplier.
# Interior-point methods leave small positive multipliers on rows that are not support rows.
PROPOSED = 1e-6


def solve_sharded(data: Data, ask: Callable[[], Request], workers: Workers) -> Separation:
    """The SVM answer for the rows of all workers, with the multipliers of this worker's rows.  ``ask`` checks the
    arguments and returns the request."""
    request = workers.together(ask)
    selection, tol = request.selection, request.tol
    workers.agree(
        norm=str(request.norm), dk=data.dk, dz=data.dz, tol=tol, max_iter=request.max_iter, method=request.method
    )
    held = selection.flags(data)  # flags of the selected tokens, which have no margin row
    own = workers.together(lambda: solve_request(data, request))
    chosen, iterations = (own.flat_dual > PROPOSED * own.flat_dual.max()) & ~held, 0
    while True:
        # this worker's entries of the working set, for queries that have a row
        counts = np.add.reduceat(chosen | held, data._begin, dtype=np.intp)
        has_rows = counts > 1
        entries = np.flatnonzero((chosen | held) & np.repeat(has_rows, data.lengths))
        tokens = data.keys[data._rows_of(data.start, entries)[2]]
        parts = [workers.gather(a) for a in (held[entries], counts[has_rows], tokens, data.queries[has_rows])]
        first = sum(map(len, parts[0][: workers.rank]))  # the position of this worker's first entry in the working set
        kept, lengths, X, Z = map(np.concatenate, parts)
        if not len(lengths):  # no worker has a row
            return own
        # the data and the selection of the whole working set
        ends = np.cumsum(lengths, dtype=np.intp)[:-1]
        working = cross_attention(np.split(X.reshape(-1, data.dk), ends), Z.reshape(-1, data.dz), copy=False)
        asked = replace(request, selection=Selection(working, np.split(kept > 0, ends)), tol=tol / 2)
        nothing = Answer(0, np.zeros(working._W_shape), np.zeros(working._entries), 0.0, 0.0)
        answer = workers.together(lambda: solve_request(working, asked).answer if workers.rank == 0 else nothing)  # noqa: B023
        # The first worker sends its answer to all workers.  The numbers are the status code, the iterations, the entry
        # that no W meets even alone, and the bounds.
        numbers = np.array([answer.status, answer.iterations, answer.entry, answer.lower, answer.upper])
        numbers, W, dual = map(workers.first, (numbers, answer.W, answer.dual))
        (code, more, at), (lower, upper) = numbers[:3].astype(int).tolist(), numbers[3:].tolist()
        iterations += more
        margins = np.where(held, np.inf, data._flat_margins(W, selection.reference))
        worst = workers.table([margins.min()]).min()
        broken = (margins < 1 - tol / 4) & ~chosen
        if code not in GOES_ON or not workers.any(bool(broken.any())):
            break
        chosen |= broken
    if 0 < worst < 1:  # W misses a margin, since W was rounded or the solver stopped early: scale W up
        W, lower = W / worst, lower * worst
    elif worst <= 0:  # W does not separate, or there is no W
        lower = 0.0
    mine, here = np.zeros(len(chosen)), at - first
    mine[entries] = dual[first : first + len(entries)]
    entry = entries[here] if 0 <= here < len(entries) else -1
    return Separation(data, request, Answer(code, W, mine, lower, upper, iterations, entry, SHARDED))
