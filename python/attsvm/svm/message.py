"""What the status of an answer means, in a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

from .support import log_pulls

ROWS_SHOWN = 4  # of a certificate, listed one by one


def message_of(sol: Any) -> str:
    """Of a Separation."""
    soft, asked = sol.C is not None, sol.selection.rhs is not None
    if sol.status == "optimal" and soft:
        return f"no W has a smaller soft-margin objective (C={sol.C:g}), to a relative {sol.gap:.1e}"
    if sol.status == "optimal":
        return (
            f"every margin is at least {'what was asked' if asked else 1} and no smaller {sol.norm_name} norm does it, "
            f"to a relative {sol.gap:.1e}"
        )
    if sol.status == "feasible":
        return "every margin is at least 1; the least norm was not asked for"
    if sol.status == "no constraint" and asked:
        return "zero weights reach every margin asked"
    if sol.status == "no constraint":
        return "every query selects all the tokens it can tell apart, so zero weights do"
    if sol.status == "infeasible":
        what = "reach these margins" if asked else "rank the selected tokens first"
        impossible = _impossible_pair(sol) or f"no weights {what}{_at_least(sol)}: {_proof(sol)}"
        return impossible if soft else f"{impossible}; solve_svm(..., C=1.0) allows for exceptions"
    if sol.status == "stationary":
        return f"a stationary point at this rank; its norm is at most {1 + sol.gap:.6g} times the least"
    if sol.status == "undecided":
        return "no separating weights were found, and no proof that there are none"
    return f"stopped before the tolerance; its two bounds are a relative {sol.gap:.1e} apart"


def _at_least(sol: Any) -> str:
    """Up to which norm the multipliers y exclude W, rounding included: <W, sum y_e A_e> = sum y_e <A_e, W> >= b.y."""
    data, entries = sol.data, np.flatnonzero(sol.flat_dual)
    if data._identity:  # over a vocabulary
        return ""
    (q, chosen, token), y = data._rows_of(sol.selection.reference, entries), sol.flat_dual[entries]
    pull = log_pulls(sol, entries)
    some = pull > -np.inf  # a row that is zero excludes every W by itself
    q, y, pull, chosen, token, entries = (x[some] for x in (q, y, pull, chosen, token, entries))
    if not len(y):
        return ""
    D, Z = data.keys[chosen].astype(np.float64) / 2 - data.keys[token].astype(np.float64) / 2, data.queries[q]
    D, Z = (A / np.abs(A).max(axis=1, keepdims=True) for A in (D, Z))  # the numbers may leave double precision
    weights = np.sign(y) * np.exp(pull - pull.max())
    most = np.linalg.norm((weights[:, None] * D).T @ Z)
    most += (len(y) + 16) * 2.0**-52 * np.abs(weights) @ (np.linalg.norm(D, axis=1) * np.linalg.norm(Z, axis=1))
    margin = y if sol.selection.kept is None else np.where(sol.selection.kept[entries], 0.0, y)
    asked = margin.sum() if sol.selection.rhs is None else sol.selection.asked(entries) @ y
    with np.errstate(over="ignore"):
        bound = 0.5 * asked * np.exp(-pull.max()) / most * (1 - 1e-9)
    return f", at least none of Frobenius norm below {bound:.1e}"


def _proof(sol: Any) -> str:
    entries = np.flatnonzero(sol.flat_dual)
    if len(entries) > ROWS_SHOWN:
        return "the certificate combines the rows to zero"
    q = sol.data._query_at(entries)
    chosen, token = sol.selection.reference[q], entries - sol.data.indptr[q]
    rows = (f"query {i}, token {a} over {t}" for i, a, t in zip(q, chosen, token, strict=True))
    return f"these rows combine to zero: {'; '.join(rows)}"


def _impossible_pair(sol: Any) -> str | None:
    """The token that is a copy of the selected one, or the query that is zero."""
    if sol.answer.entry < 0:
        return None
    q = int(sol.data._query_at(sol.answer.entry))
    token, chosen = int(sol.answer.entry - sol.data.indptr[q]), int(sol.selection.reference[q])
    if not sol.data.queries[q].any():
        return f"query {q} is zero, so all its logits are 0 and it cannot prefer token {chosen}"
    equals = f"in the window of query {q}, token {token} equals the selected token {chosen}"
    if sol.selection.kept is not None and sol.selection.kept[sol.answer.entry]:
        return f"{equals}, so no weights make their logits differ, as margins asks"
    return (
        f"{equals}, so no weights can prefer "
        "one: select both by a bool selection, which asks for equal logits among the selected tokens"
    )
