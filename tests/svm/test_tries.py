"""Methods in turn, starts, the presolve and row generation around a method that is told what to answer: what it gets
to see, and which answer is kept."""

from types import SimpleNamespace

import numpy as np
import pytest
from attsvm import _core
from marks import needs_gcc
from parts import call, make

pytestmark = needs_gcc
CODE = {word: code for code, word in _core.STATUS.items()} | {"done": 0}
SEEN = ("rows", "equal", "start", "start_W", "limit")


PRESOLVE, FROM_START, IN_TURN = range(3)


def told(library, way, answers, p, kept=None, soft=0.0, limit=0):
    """The status, which call's answer was kept, and a row of SEEN per call; answers: status, gap[, iterations]."""
    seen, first, calls = np.zeros((4, len(SEEN)), dtype=np.intp), np.zeros(1), np.zeros(1, dtype=np.intp)
    answers = [(CODE[word], gap, *(rest or (0,))) for word, gap, *rest in [*answers, *[("done", 0.0)] * 4]][:4]
    status, gap, iterations = (np.array(column) for column in zip(*answers, strict=True))
    codes = status.astype(np.intc), iterations.astype(np.intc), gap
    code = call(library.tries, seen, first, calls, *codes, way, p.struct, kept, soft, limit)
    looks = [SimpleNamespace(**dict(zip(SEEN, row, strict=True))) for row in seen[: calls[0]].tolist()]
    return next(word for word, known in CODE.items() if known == code), int(first[0]), looks


OPEN = [("undecided", np.inf), ("undecided", np.inf), ("done", 0.0)]  # the reduced problem, with its start and without


def test_what_the_reduced_problem_leaves_open_is_tried_whole(library):
    p = make(1, 4, 5, 6, 3, copies=True)
    status, kept, looks = told(library, PRESOLVE, OPEN, p)
    assert (status, kept) == ("done", 3) and [look.rows for look in looks] == [p.m - 4, p.m - 4, p.m]
    assert [(look.start, look.start_W) for look in looks] == [(1, 1), (0, 0), (1, 1)]


def test_equality_rows_stay_equality_rows_where_copies_leave(library):
    p = make(1, 4, 5, 6, 3, copies=True)
    selected = np.arange(5) == p.kept[2][:, None]
    selected[:2, (p.kept[2][:2] + 3) % 5] |= np.eye(2, dtype=bool)
    _, _, looks = told(library, PRESOLVE, OPEN, p, selected.view(np.uint8))
    assert [look.equal for look in looks] == [2, 2, 2] and looks[0].rows == p.m - 4


def test_copies_stay_with_a_soft_margin(library):
    """Each costs what it misses: there is nothing to leave out, and one problem to solve."""
    p = make(1, 4, 5, 6, 3, copies=True)
    _, _, looks = told(library, PRESOLVE, [("done", 0.0)], p, soft=2.0)
    assert [look.rows for look in looks] == [p.m]


@pytest.mark.parametrize(
    ("answers", "limit", "expected"),
    [
        ([("done", 0.0)], 0, ("done", 1)),
        ([("infeasible", 1.0)], 0, ("infeasible", 1)),
        ([("iteration limit", 0.1, 7), ("done", 0.0)], 0, ("done", 2)),
        ([("iteration limit", 0.1, 7), ("iteration limit", 0.2)], 0, ("iteration limit", 1)),
        ([("undecided", 0.3), ("iteration limit", 0.2)], 0, ("iteration limit", 2)),
        ([("iteration limit", 0.1, 7), ("interrupted", 0.2)], 0, ("interrupted", 1)),
        ([("iteration limit", 0.1, 7), ("infeasible", 9.0)], 8, ("infeasible", 2)),
        ([("iteration limit", 0.1, 8)], 8, ("iteration limit", 1)),  # all that was allowed
    ],
)
def test_a_start_that_leads_nowhere_is_followed_by_none(library, answers, limit, expected):
    status, kept, looks = told(library, FROM_START, answers, make(1, 3, 4, 5, 4), limit=limit)
    assert (status, kept) == expected and len(looks) == len(answers)
    assert [(look.start, look.start_W) for look in looks] == [(1, 1), (0, 0)][: len(answers)]


@pytest.mark.parametrize(
    ("answers", "limits", "expected"),
    [
        ([("done", 0.0)], [10], ("done", 1)),
        ([("iteration limit", 0.9), ("done", 0.0)], [10, 20], ("done", 2)),
        ([("iteration limit", 0.4), ("done", 0.0)], [10, 30], ("done", 2)),  # the second is not worth it
        ([("iteration limit", 0.9), ("undecided", np.inf), ("declined", np.inf)], [10, 20, 30], ("iteration limit", 1)),
        ([("iteration limit", 0.9), ("iteration limit", 0.7), ("iteration limit", 0.8)], [10, 20, 30],
         ("iteration limit", 2)),
        ([("iteration limit", 0.9), ("interrupted", 0.95)], [10, 20], ("interrupted", 1)),
    ],
)  # fmt: skip
def test_methods_in_turn(library, answers, limits, expected):
    """Each with its own limit, or with that of the caller; until one decides, or the best of all."""
    p = make(1, 3, 4, 5, 4)
    for limit in (0, 7):
        status, kept, looks = told(library, IN_TURN, answers, p, limit=limit)
        assert (status, kept) == expected
        assert [look.limit for look in looks] == ([7] * len(limits) if limit else limits)


@pytest.mark.parametrize("better", [0, 1])
def test_the_better_answer_stays_where_row_generation_is_interrupted(library, better):
    """The W of the multipliers that it began with, or what the interrupted round came to."""
    p = make(1, 3, 4, 5, 4)  # nine rows for 20 unknowns: all may hold W
    near = np.ones(p.m)
    for _ in range(2000):  # projected gradient on the dual; no multiplier is zero
        near = np.maximum(near + 0.1 * (p.beta - p.G @ near), 1e-4)
    solution, lam = p.rows.T @ (near / p.length), np.stack([p.rng.uniform(0.5, 1.5, p.m)] * 2)
    noise = p.rng.standard_normal(20)
    W = np.stack([solution + 0.02 * np.linalg.norm(solution) / np.linalg.norm(noise) * noise] * 2)
    assert (p.rows @ W[0]).min() > 0
    W[better], lam[better] = solution, near
    found = np.zeros(20)
    assert call(library.tries_row_generation, found, W, lam, p.struct) == CODE["interrupted"]
    np.testing.assert_allclose(found / np.linalg.norm(found), solution / np.linalg.norm(solution), atol=1e-12)
