"""The methods of the solvers in C: which there are, and the answer of one in the units of the data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _core
from ..attention.data import Data
from .cycle import cycle
from .separation import Separation
from .transform import OUT_OF_RANGE, Answer, Request, in_units, scaled_number
from .vocabulary import Vocabulary, solve_levels

# The methods of a problem and a norm by their names, as the extension exports them.
METHODS: dict[str, dict[str, dict[str, Any]]] = {"hard": {}, "soft": {}, "capped": {}}
for name, (word, problems) in _core.METHOD.items():
    for problem in problems.split():
        METHODS[problem].setdefault(name.partition("_")[0], {})[word] = getattr(_core, name)
# Rows up to which any method finds the contradiction of a cycle sooner than the search for it takes.
CYCLE_ROWS = 400
# Rows of a vocabulary's kinds from which Newton's method in the levels is faster than those in C: 4,000 rows .25 s and
# .02 to .2, 31,000 .9 s and .8 to 5, 126,000 1.4 s and 4.
LEVELS_ROWS = 20_000
# Contexts up to which a step, a system of as many unknowns, takes about a second and no more memory than the rest.
LEVELS_MOST = 4_000
CODE = {word: code for code, word in _core.STATUS.items()}


def solve_request(data: Data, request: Request, kinds: Vocabulary | None = None) -> Separation:
    """The answer of one method.  ``kinds``: whose data these are."""
    methods = methods_of(request.norm, request.C, request.rank)
    if request.method not in methods:  # "auto" where there is but one
        request = replace(request, method=next(iter(methods)))
    if data._identity and all(part is None for part in (request.C, request.rank, request.selection.rhs)):
        return _solve_kinds(data, request, Vocabulary(data, request))
    try:
        if data._rows > CYCLE_ROWS and request.C is None and (dual := cycle(data, request.selection)) is not None:
            known = replace(request, method="presolve", max_iter=0, dual=dual, W=None, report=None)
            sol = Separation(data, known, _call(_core.check, data, known))
            if sol.status == "infeasible":
                return sol
        answer = None
        if kinds is not None and request.method == "auto" and request.norm == "frobenius" and data._rows > LEVELS_ROWS:
            answer, request = _by_levels(data, request, kinds)
        if answer is None:
            answer = _call(methods[request.method], data, request)
        sol = Separation(data, request, answer)
        if sol.status == "interrupted" or answer.exception is not None:
            exception = answer.exception or KeyboardInterrupt()
            exception.partial = sol  # type: ignore[attr-defined]
            raise exception
        return sol
    except KeyboardInterrupt as interrupt:  # wherever it came
        if not hasattr(interrupt, "partial"):
            nothing = Answer(CODE["undecided"], np.zeros((data.dk, data.dz)), np.zeros(data._entries), 0.0, math.inf)
            interrupt.partial = Separation(data, request, nothing)  # type: ignore[attr-defined]
        raise


def _solve_kinds(data: Data, request: Request, vocabulary: Vocabulary) -> Separation:
    try:
        found = solve_request(vocabulary.data, vocabulary.request, vocabulary)
        return Separation(data, request, vocabulary.back(found.answer))
    except KeyboardInterrupt as interrupt:
        partial: Any = interrupt.partial  # type: ignore[attr-defined]
        interrupt.partial = Separation(data, request, vocabulary.back(partial.answer))  # type: ignore[attr-defined]
        raise


def _by_levels(data: Data, request: Request, kinds: Vocabulary) -> tuple[Answer | None, Request]:
    """The answer of Newton's method in the levels; None where it decides nothing, with multipliers to begin with."""
    if len(data) > LEVELS_MOST or data._powers is not None or not data.queries.any(axis=1).all():
        return None, request
    found = solve_levels(data.queries, kinds.chosen, kinds.count, request.tol / 2, request.max_iter, request.report)
    request = replace(request, dual=found.dual.ravel())
    proposed = replace(request, W=found.W / kinds.scale[:, None], max_iter=0, report=None)
    answer = _call(_core.check, data, proposed)
    answer = answer._replace(method="newton", iterations=found.iterations, exception=found.exception)
    if answer.status in (CODE["done"], CODE["infeasible"]) or 0 < request.max_iter <= found.iterations:
        return answer, request
    return None if found.exception is None else answer._replace(status=CODE["interrupted"]), request


def methods_of(norm: str | float, C: float | None, rank: int | None) -> dict[str, Any]:
    problem = "soft" if C is not None else "capped" if rank is not None else "hard"
    return METHODS[problem][norm if isinstance(norm, str) else "entrywise"]


def _call(solver: Any, data: Data, request: Request) -> Answer:
    """The solver on data whose products are in range, its answer in the units given.  What it begins with (multipliers,
    weights, a report) has no units: it is scaled to fit."""
    powers, choosing, selection, norm, C = data._powers, data._choosing, request.selection, request.norm, request.C
    power, p = sum(powers) if powers else 0, 2.0 if isinstance(norm, str) else norm
    soft = 0.0 if C is None else scaled_number(C, 2 * power, "C in the units of W")
    reference, kept, rhs, dual = selection.reference, selection.kept, selection.rhs, request.dual
    if choosing is not None:  # a window of one token has no row, but would cost every product its share
        queries, entries = choosing
        if (reference[~queries] != 0).any():
            raise ValueError(selection.outside(data))
        reference = reference[queries]
        kept, rhs, dual = (None if array is None else array[entries] for array in (kept, rhs, dual))
    windows = data._stored if powers is None and choosing is None else data._in_range()
    try:
        found = solver(
            windows, reference, kept, rhs, request.tol, request.max_iter, soft, p, request.rank or 0,
            dual, request.W, request.report,
        )  # fmt: skip
    except IndexError:
        raise ValueError(selection.outside(data)) from None
    except FloatingPointError:  # a row's length: X or Z were changed since, or rows differ by too much
        data._check_finite()
        del data._powers
        if data._powers != powers:
            return _call(solver, data, request)
        raise ValueError(OUT_OF_RANGE.format("rows too short or too long to square")) from None
    answer = in_units(Answer._make(found), power, selection.power, C is not None, norm)
    if choosing is None:
        return answer
    dual = np.zeros(len(entries))
    dual[entries] = answer.dual
    where = int(np.flatnonzero(entries)[answer.entry]) if answer.entry >= 0 else -1
    return answer._replace(dual=dual, entry=where)
