"""The table of the solver methods in C, and the function that calls a method and returns its answer in the data's
units."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _core
from ..attention.data import Data
from .cycle import cycle
from .request import OUT_OF_RANGE, Answer, Request, in_units, scaled_number
from .separation import Separation
from .vocabulary import Vocabulary, solve_levels

# METHODS[problem][norm][method] is a solver in the C extension.
# In problems that are "capped" there is a cap on the rank of W.
METHODS: dict[str, dict[str, dict[str, Any]]] = {"hard": {}, "soft": {}, "capped": {}}
for name, (word, problems) in _core.METHOD.items():
    for problem in problems.split():
        METHODS[problem].setdefault(name.partition("_")[0], {})[word] = getattr(_core, name)
# Problems of at most CYCLE_ROWS rows are not searched for preference cycles: a solver finds a contradiction faster.
CYCLE_ROWS = 400
# Over a vocabulary with more than LEVELS_ROWS rows, Newton's method ``solve_levels`` replaces the methods in C.
# On 4,000 rows Newton's method ``solve_levels`` was slower than the methods in C (0.25 s against 0.02 to 0.2 s).
# On 31,000 rows Newton's method ``solve_levels`` was mostly faster than the methods in C (0.9 s against 0.8 to 5 s).
LEVELS_ROWS = 20_000
# Largest number of contexts for Newton's method ``solve_levels``, in which a step solves a dense system of that order.
LEVELS_MOST = 4_000
CODE = {word: code for code, word in _core.STATUS.items()}


def solve_request(data: Data, request: Request) -> Separation:
    """Solves an SVM by the requested method; one over a vocabulary is solved over classes of tokens."""
    methods = methods_of(request.norm, request.C, request.rank)
    if request.method not in methods:  # method "auto" for a problem that has a single method
        request = replace(request, method=next(iter(methods)))
    whole, given, vocabulary = data, request, None
    if data._identity and all(part is None for part in (request.C, request.rank, request.selection.rhs)):
        vocabulary = Vocabulary(data, request)
        data, request = vocabulary.data, vocabulary.request

    def made(answer: Answer) -> Separation:
        return Separation(whole, given, answer if vocabulary is None else vocabulary.back(answer))

    answer: Answer | None = None
    try:
        if data._rows > CYCLE_ROWS and request.C is None and (dual := cycle(data, request.selection)) is not None:
            found = _call(_core.check, data, replace(request, dual=dual, W=None, report=None))
            answer = found if found.status == CODE["infeasible"] else None
        if answer is None and vocabulary is not None and (request.method, request.norm) == ("auto", "frobenius"):
            answer, request = _by_levels(vocabulary)
        sol = made(answer or _call(methods[request.method], data, request))
        if (exception := sol.answer.exception) is not None:
            exception.partial = sol  # type: ignore[attr-defined]
            raise exception
        return sol
    except KeyboardInterrupt as interrupt:  # after Ctrl-C at any point, attach an undecided answer to the exception
        if not hasattr(interrupt, "partial"):
            nothing = Answer(CODE["undecided"], np.zeros(data._W_shape), np.zeros(data._entries), 0.0, math.inf)
            interrupt.partial = made(nothing)  # type: ignore[attr-defined]
        raise


def _by_levels(vocabulary: Vocabulary) -> tuple[Answer | None, Request]:
    """The answer of Newton's method ``solve_levels``, or None if it reaches no final status; and the request with which
    a method in C then starts, from Newton's multipliers."""
    data, request = vocabulary.data, vocabulary.request
    fits = data._rows > LEVELS_ROWS and len(data) <= LEVELS_MOST and data._powers is None
    if not fits or not data.queries.any(axis=1).all():
        return None, request
    W, dual, steps, exception = solve_levels(vocabulary)
    request = replace(request, dual=dual.ravel())
    answer = _call(_core.check, data, replace(request, W=W / vocabulary.scale[:, None], report=None))._replace(
        method="newton", iterations=steps, exception=exception
    )
    if answer.status in (CODE["done"], CODE["infeasible"]) or 0 < request.max_iter <= steps:
        return answer, request
    return None if exception is None else answer._replace(status=CODE["interrupted"]), request


def methods_of(norm: str | float, C: float | None, rank: int | None) -> dict[str, Any]:
    problem = "soft" if C is not None else "capped" if rank is not None else "hard"
    return METHODS[problem][norm if isinstance(norm, str) else "entrywise"]


def _call(solver: Any, data: Data, request: Request) -> Answer:
    """Calls a solver in C and returns its answer in the units of the data.

    Tokens and queries are scaled by powers of two so that products are in range.  Starting values (multipliers,
    weights) have no units; the solver scales them to fit.
    """
    powers, choosing, selection, norm, C = data._powers, data._choosing, request.selection, request.norm, request.C
    power, p = sum(powers) if powers else 0, 2.0 if isinstance(norm, str) else norm
    soft = scaled_number(C or 0.0, 2 * power, "C in the units of W")
    reference, kept, rhs, dual = selection.reference, selection.kept, selection.rhs, request.dual
    if choosing is not None:  # leave out queries that see one token: they have no row in the SVM, but cost time
        queries, entries = choosing
        reference = selection.within(data).reference[queries]
        kept, rhs, dual = (None if array is None else array[entries] for array in (kept, rhs, dual))
    try:
        found = solver(
            data._in_range(choosing), reference, kept, rhs, request.tol, request.max_iter, soft, p, request.rank or 0,
            dual, request.W, request.report,
        )  # fmt: skip
    except IndexError:
        raise ValueError(data._outside(selection.reference)) from None
    # C could not square the length of a row: X or Z was changed since, or the rows differ too much in scale.
    except FloatingPointError:
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
    where = np.flatnonzero(entries)[answer.entry] if answer.entry >= 0 else -1
    return answer._replace(dual=dual, entry=where)
