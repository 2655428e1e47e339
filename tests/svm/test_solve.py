"""Answers of solve_svm, judged from the raw tokens: status, certificate, optimality conditions, symmetries."""

import functools
import threading
import warnings

import attsvm
import judge
import numpy as np
import pytest
from attsvm import _core
from kinds import draw
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from problems import CASES, Case, ball, correlated, pick, planted_margin

EPS = np.finfo(float).eps
METHODS = [("frobenius", "active"), ("frobenius", "gradient"), ("frobenius", "block"), ("nuclear", "interior")]
METHODS.append(("nuclear", "factored"))


STOPPING = ("gradient", "block", "factored")


def solve(case, norm="frobenius", method="auto", **options):
    """The answer; only a plain method may warn that it stopped early."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if method in STOPPING else "error", attsvm.ConvergenceWarning)
        return attsvm.solve_svm(case.data, case.selected, norm, method=method, **options)


@functools.cache
def solved(name, norm, method):
    case = CASES[name]()
    return solve(case, norm, method)


# Few rows a query: all of the matrix is made.  Many: parts of it.  More queries than have their products kept.
@pytest.mark.parametrize("shape", [(30, 4, 20), (17, 12, 13), (9, 30, 16), (60, 11, 24), (240, 3, 32)], ids=str)
def test_active_set_reads_the_gram_matrix_in_three_ways(shape):
    case = ball(3, *shape)
    sol, other = (attsvm.solve_svm(case.data, case.selected, method=method) for method in ("active", "block"))
    assert sol.status == other.status == "optimal"
    assert sol.gap <= 1e-13  # exact but for rounding
    assert np.linalg.norm(sol.W - other.W) <= 1e-4 * np.linalg.norm(sol.W)  # block: a gap of 1e-9
    again = attsvm.solve_svm(case.data, case.selected, method="active", warm_start=sol)
    assert again.iterations <= 2 and again.gap <= 1e-13


@pytest.mark.parametrize(("norm", "method"), METHODS)
@pytest.mark.parametrize("kind", ["random", "one query", "queries of few directions", "queries on a line", "ragged"])
def test_the_solution_takes_nothing_from_outside_the_queries(kind, norm, method):
    """So that its rank is at most the number of their directions."""
    for number in range(4):
        case = draw(kind, number)
        if (sol := solve(case, norm, method, margins=case.asked)).status != "optimal":
            continue
        _, sigma, V = np.linalg.svd(case.data.queries)
        span = V[: (sigma > 1e-12 * sigma[0]).sum()]
        assert np.linalg.norm(sol.W - sol.W @ span.T @ span) <= 1e-8 * np.linalg.norm(sol.W)
        assert sol.rank <= min(len(span), case.data.dk)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])  # of a column both are the Euclidean norm
@pytest.mark.parametrize(
    ("windows", "margins", "prompt"),
    [
        ([[[-0.1, 1], [1, 0]]], None, [-0.1 / 1.01, 1 / 1.01]),
        ([[[1, 0], [-0.1, 1]]], None, [1, 0]),
        ([[[1, 1]], [[1, -1]], [[0.5, 1]]], None, [4 / 3, 1 / 3]),
        ([[[1, 1]], [[1, -1]], [[0.5, 1.5]]], None, [1.25, 0.25]),
        # A sample that does not hold the label SVM need only not fall behind.
        ([[[1, 1]], [[1, -1]], [[0.5, 1.5]]], [[1, 1], [1, 1], [0, 0]], [1, 0]),
        ([[[1, 0], [0, 0]]], [[0, 1, 2]], [2, 0]),  # copies that ask for more are rows of their own
    ],
)
def test_prompts_by_hand(windows, margins, prompt, norm):
    """Those of the precursor: the first token of each window before the others and the origin."""
    data = attsvm.prompt_attention([[*window, [0, 0]] for window in windows])
    sol = attsvm.solve_svm(data, [0] * len(windows), norm, margins=margins)
    assert np.sum(sol.W**2) == pytest.approx(np.sum(np.square(prompt)), rel=1e-8)
    assert_allclose(sol.W[:, 0], prompt, atol=1e-4)  # sqrt of twice the gap


@pytest.mark.parametrize("power", [1.5, 2.0, 3.0])
def test_strongly_correlated_tokens_are_left_to_the_active_set(power):
    """Block ascent crawls there: the automatic choice must not end with it."""
    case = correlated(40, 16, 40, power)
    sol = solve(case)
    assert sol.status == "optimal" and sol.method == "active"
    assert judge.wrong(case, sol) is None


@pytest.mark.parametrize(("size", "power"), [((64, 16, 32), 2.0), ((96, 24, 48), 2.0), ((96, 24, 48), 2.5)])
def test_steep_spectra_of_tokens_and_queries_are_solved_by_block(size, power):
    """Ascent stands still there; the primal-dual active set has to come from far, on rows of a condition near 1e8."""
    n, T, d = size
    rng = np.random.default_rng(0)
    scale = np.arange(1, d + 1) ** -power
    case = Case(
        attsvm.cross_attention(rng.standard_normal((n, T, d)) * scale, rng.standard_normal((n, d)) * scale),
        pick(rng, n, T),
    )
    sol = solve(case, method="block")
    assert sol.status == "optimal"
    assert judge.wrong(case, sol) is None


def test_block_ends_next_to_no_margin():
    """Its last steps change the dual value by less than rounding does: 10 of these 40 give up, 40 where such steps are
    refused."""
    cases = [planted_margin(seed, 4, 8, 3, 1e-6) for seed in range(40)]
    assert sum(solve(case, "frobenius", method="block").status == "optimal" for case in cases) >= 20


@pytest.mark.parametrize("selected", [np.zeros(1, dtype=np.intp), np.array([[True, True, False]])], ids=str)
def test_what_is_given_stays_as_it_was_and_the_answer_when_it_changes(selected):
    given = np.eye(3)[None], np.ones((1, 1)), selected.copy()
    for array in given:
        array.flags.writeable = False
    for norm, method in METHODS:
        attsvm.solve_svm(attsvm.cross_attention(*given[:2]), given[2], norm, method=method)
    assert_equal(given, (np.eye(3)[None], np.ones((1, 1)), selected))
    sol = attsvm.solve_svm(attsvm.cross_attention(*given[:2]), selected)
    before = sol.message, np.array(sol.support)
    selected[:] = 1 - selected
    assert sol.message == before[0] and (sol.support == before[1]).all()


@pytest.mark.parametrize("kind", [np.intp, np.int32, bool])
def test_selected_may_change_during_a_solve(kind):
    """Another thread reuses the array; the answer is that of the call."""
    rng = np.random.default_rng(0)
    data = attsvm.cross_attention(rng.standard_normal((40, 32, 16)), rng.standard_normal((40, 16)))
    selected = np.zeros(40, dtype=kind) if kind is not bool else np.tile(np.arange(32) == 0, (40, 1))
    given, stop = selected.copy(), threading.Event()

    def scribble():
        while not stop.is_set():
            selected[:] = 1 if kind is bool else 2**30
            selected[:] = given

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        for _ in range(20):
            try:
                sol = attsvm.solve_svm(data, selected, max_iter=200)
            except ValueError:
                continue  # what it saw first was out of the window, or selected everything
            assert sol.selection.reference.max() < 32 and len(sol.message) > 0
    finally:
        stop.set()
        thread.join()


# ------------------------------------------------------------------------------------- what the user is told


@pytest.mark.parametrize(("norm", "method"), METHODS)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("paper_size", ""),
        ("equalities", ""),
        ("ragged", ""),
        ("one_token", "zero weights do"),
        ("infeasible_random", "the certificate combines the rows to zero"),
        ("zero_query", "query 1 is zero"),
        ("duplicate_token", "query 2, token 5 equals the selected token 1, so no weights can prefer one: select both"),
    ],
)
def test_prints(name, words, norm, method):
    sol = solved(name, norm, method)
    text = " ".join(repr(sol).split())
    assert sol.status in text and norm in text.lower() and " ".join(sol.message.split()) in text
    assert words in sol.message or sol.status == "undecided"
    assert sol.method == "presolve" or name not in ("zero_query", "duplicate_token")
    if sol.W is not None:
        assert f"{sol.margin:.12g}" in text and sol.method in text


NEARLY = {
    "a long third token": [[1.0, 0.0], [0.0, 1.0], [1e15, 0.0]],
    "a very long third token": [[1.0, 0.0], [0.0, 1.0], [1e30, 0.0]],
    "five millionths apart beside 1e9": [[1.0, 0.0], [1.0, 5e-6], [1e9, 0.0]],
    "integers on a common offset": [[2.0**47, 0.0], [2.0**47, 1.0]],
    "the last bit": [[1.0, 0.5], [1.0, 0.5 * (1 + EPS)]],
    "a difference whose square underflows": [[1.0, 0.0], [1.0, 1e-170]],
}


@pytest.mark.parametrize("options", [{}, {"norm": "nuclear"}, {"norm": 3.0}, {"C": 1.0}], ids=str)
@pytest.mark.parametrize("tokens", NEARLY.values(), ids=NEARLY)
@pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
def test_only_an_exact_copy_is_a_copy(tokens, options):
    """However near a token is beside the others of its window, some W ranks the selected one first."""
    case = Case(attsvm.cross_attention([tokens], [[1.0]]), [0])
    sol = attsvm.solve_svm(case.data, [0], **options)
    assert sol.status != "infeasible" and "equals the selected" not in sol.message and judge.wrong(case, sol) is None
    assert attsvm.feasible(case.data, [0]).status in ("feasible", "undecided")


@pytest.mark.parametrize(("norm", "method"), METHODS)
def test_windows_of_one_token_change_nothing(norm, method):
    """They have no row: the answer, its multipliers and what it names are those of the other windows."""
    case, rng = ball(3, 6, 5, 6), np.random.default_rng(0)
    X = [x for k in range(6) for x in (case.data.keys[5 * k : 5 * k + 5], rng.standard_normal((1, 6)))]
    Z, selected = np.repeat(case.data.queries, 2, 0), np.repeat(case.selected, 2) * (np.arange(12) % 2 == 0)

    def solved(X, selected=selected, **options):
        return attsvm.solve_svm(attsvm.cross_attention(X, Z), selected, norm, **options)

    one, more = solve(case, norm, method), solved(X, method=method)
    assert_array_equal(more.W, one.W)
    assert_array_equal(more.dual[::2], one.dual)
    assert not any(part.any() for part in more.dual[1::2])
    assert solved(X, warm_start=more).status == "optimal"
    with pytest.raises(ValueError, match="0 .. 0 for query 3, got 1"):
        solved(X, np.where(np.arange(12) == 3, 1, selected))
    X[4], other = X[4].copy(), int(selected[4] == 0)
    X[4][other] = X[4][selected[4]]
    sol = solved(X)
    assert sol.status == "infeasible" and f"in the window of query 4, token {other} equals" in sol.message


def test_queries_without_rows_cost_no_products(monkeypatch):
    """30,000 windows of one token beside one of three: C is told of the one query alone."""
    rng = np.random.default_rng(0)
    X = [*rng.standard_normal((30_000, 1, 4)), rng.standard_normal((3, 4))]
    data, selected = attsvm.cross_attention(X, rng.standard_normal((30_001, 3))), np.zeros(30_001, dtype=np.intp)
    for call in (attsvm.solve_svm, attsvm.feasible):
        sol = call(data, selected)
        assert sol.status in ("optimal", "feasible") and np.count_nonzero(np.concatenate(sol.dual)) <= 2
    assert _core.logits(data._in_range(data._choosing), np.eye(4, 3)).shape == (3,)
