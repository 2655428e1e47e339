"""Answers of solve_svm, judged from the raw tokens: status, certificate, optimality conditions, symmetries."""

from __future__ import annotations

import functools
import os
import threading
import warnings

import attsvm
import judge
import numpy as np
import pytest
import reference
from attsvm import _core
from kinds import draw
from places import GOLDEN
from problems import CASES, Case, ball, copy_of_selected, correlated, pick, planted_margin, sphere

EPS = np.finfo(float).eps
TOL = 1e-9  # the gap solve_svm promises unless told otherwise
METHODS = [("frobenius", "active"), ("frobenius", "gradient"), ("frobenius", "block"), ("nuclear", "interior")]
METHODS.append(("nuclear", "factored"))
# These may stop short of the tolerance, or leave an infeasible problem undecided; "auto" does not take them
# for small problems.
PLAIN = {"gradient", "block"}
MAY_STOP = PLAIN | {"factored"}


def solve(case, norm="frobenius", method="auto", **options):
    """The answer; only a plain method may warn that it stopped early."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if method in MAY_STOP else "error", attsvm.ConvergenceWarning)
        return attsvm.solve_svm(case.data, case.selected, norm, method=method, **options)


@functools.cache
def solved(name, norm, method):
    case = CASES[name]()
    return case, solve(case, norm, method), reference.svm_rows(case.data, case.selected)


def flat(data, shaped):
    return np.concatenate(reference.per_entry(data, shaped))


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


def test_parallel_queries_need_rank_one():
    for norm, method in METHODS:
        _, sol, _ = solved("parallel_queries", norm, method)
        assert sol.rank == 1
    _, frobenius, _ = solved("parallel_queries", "frobenius", "active")
    _, nuclear, _ = solved("parallel_queries", "nuclear", "interior")
    assert nuclear.margin == pytest.approx(frobenius.margin, rel=2 * TOL)


@pytest.mark.parametrize(("norm", "method"), METHODS)
@pytest.mark.parametrize("kind", ["random", "one query", "queries of few directions", "ragged", "several queries"])
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


# ------------------------------------------------------------------------------------- known answers


@pytest.mark.parametrize("training", ["W", "KQ"])
@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
@pytest.mark.parametrize("path", GOLDEN, ids=os.path.basename)
def test_golden_norms(path, norm, training):
    with np.load(path) as golden:
        data = attsvm.cross_attention(golden["X"], golden["Z"])
        sol = attsvm.solve_svm(data, golden[f"{training}_chosen"], norm)
        stored = golden[f"{training}_svm_{'fro' if norm == 'frobenius' else 'nuc'}"]
    size = {"frobenius": "fro", "nuclear": "nuc"}[norm]
    norms = np.linalg.norm(sol.W, size), np.linalg.norm(stored, size)
    assert sol.status == "optimal"
    assert norms[0] == pytest.approx(norms[1], rel=1e-7)  # the stored solver reached about 1e-8
    assert norms[0] <= norms[1] * (1 + 1e-9)  # the stored one is feasible, so it cannot be smaller than the least


# The tokens of the precursor's multi-input figure, rounded; token 0 is the best of each.
THREE_INPUTS = [
    [[0.7748, -0.2305], [-1.0868, 1.1697], [-1.0632, 0.577], [-1.2527, 1.07]]
    + [[-0.476, -0.2525], [-0.5495, -0.7705], [-0.3867, -0.3413]],
    [[0.689, -0.0683], [-0.85, 0.8829], [-0.9633, 1.2779], [-0.8107, 0.8313]]
    + [[-0.4937, -0.5985], [-0.4121, -0.4775], [-0.4118, -0.5205]],
    [[0.9421, 0.0105], [-0.5396, 0.7062], [-1.1138, 1.184], [-0.742, 0.7044]]
    + [[-0.5946, -0.2349], [-0.6099, -0.596], [-0.7134, -0.277]],
]
ORIGIN = [0.0, 0.0]


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])  # of a column both are the Euclidean norm
@pytest.mark.parametrize(
    ("X", "selected", "prompt", "square"),
    [
        pytest.param([[[-0.1, 1], [1, 0], ORIGIN]], [0], [-0.1 / 1.01, 1 / 1.01], 1 / 1.01, id="single_input"),
        pytest.param([[[-0.1, 1], [1, 0], ORIGIN]], [1], [1, 0], 1.0, id="single_input_local"),
        pytest.param(
            [[[1, 1], ORIGIN], [[1, -1], ORIGIN], [[0.5, 1], ORIGIN]], [0] * 3, [4 / 3, 1 / 3], 17 / 9, id="tight"
        ),
        pytest.param(
            [[[1, 1], ORIGIN], [[1, -1], ORIGIN], [[0.5, 1.5], ORIGIN]], [0] * 3, [1.25, 0.25], 1.625, id="not_tight"
        ),
        pytest.param(THREE_INPUTS, [0] * 3, None, 0.7427, id="three_inputs"),
    ],
)
def test_prompts_of_the_precursor(X, selected, prompt, square, norm):
    sol = attsvm.solve_svm(attsvm.prompt_attention(X), selected, norm)
    if prompt is None:
        assert np.sum(sol.W**2) == pytest.approx(square, abs=1e-4)  # known to four digits
    else:
        assert np.sum(sol.W**2) == pytest.approx(square, rel=1e-8)
        np.testing.assert_allclose(sol.W[:, 0], prompt, atol=1e-4)  # sqrt of twice the gap


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


def test_generic_rank_of_the_frobenius_solution():
    for seed in range(5):
        case = ball(seed, 4, 5, 7)
        assert solve(case).rank == 4


# ------------------------------------------------------------------------------------- symmetries


def test_one_kept_token_is_an_index():
    case = ball(3, 5, 6, 8)
    kept = np.arange(6) == case.selected[:, None]
    one, other = attsvm.solve_svm(case.data, case.selected), attsvm.solve_svm(case.data, kept)
    np.testing.assert_array_equal(one.W, other.W)
    np.testing.assert_array_equal(one.dual, other.dual)


def test_repeats_bit_for_bit():
    for norm, method in METHODS:
        one, other = (solve(ball(2, 6, 8, 10), norm, method) for _ in range(2))
        np.testing.assert_array_equal(one.W, other.W)
        np.testing.assert_array_equal(one.dual, other.dual)


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

    want = attsvm.solve_svm(data, given)
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
    np.testing.assert_array_equal(want.selection.reference, np.zeros(40))


def test_a_solve_keeps_its_own_selection():
    data = attsvm.cross_attention(np.eye(3)[None], np.ones((1, 1)))
    for selected in (np.zeros(1, dtype=np.intp), np.array([[True, True, False]])):
        sol = attsvm.solve_svm(data, selected)
        before = sol.message, np.array(sol.support)
        selected[:] = 1 - selected if selected.dtype != bool else ~selected
        assert sol.message == before[0] and (sol.support == before[1]).all()


def test_inputs_stay_as_they_were():
    rng = np.random.default_rng(2)
    X, Z, selected = sphere(rng, 4, 5, 6), sphere(rng, 4, 6), np.array([0, 1, 2, 3])
    copies = X.copy(), Z.copy(), selected.copy()
    for array in (X, Z, selected):
        array.flags.writeable = False
    for norm, method in METHODS:
        attsvm.solve_svm(attsvm.cross_attention(X, Z), selected, norm, method=method)
    for array, copy in zip((X, Z, selected), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


# ------------------------------------------------------------------------------------- what the user is told


@pytest.mark.parametrize(("norm", "method"), METHODS)
def test_message_names_the_copy_of_the_selected_token(norm, method):
    message = solve(copy_of_selected(keep=False), norm, method).message
    for words in ("query 2", "token 5 equals the selected token 1", "bool selection"):
        assert words in message


NEARLY = {
    "a long third token": [[1.0, 0.0], [0.0, 1.0], [1e15, 0.0]],
    "a very long third token": [[1.0, 0.0], [0.0, 1.0], [1e30, 0.0]],
    "five millionths apart beside 1e9": [[1.0, 0.0], [1.0, 5e-6], [1e9, 0.0]],
    "integers on a common offset": [[2.0**47, 0.0], [2.0**47, 1.0]],
    "the last bit": [[1.0, 0.5], [1.0, 0.5 * (1 + EPS)]],
    "a difference whose square underflows": [[1.0, 0.0], [1.0, 1e-170]],
}


@pytest.mark.parametrize("C", [None, 1.0])
@pytest.mark.parametrize("tokens", NEARLY.values(), ids=NEARLY)
def test_only_an_exact_copy_is_a_copy(tokens, C):
    """However near a token is beside the others of its window, some W ranks the selected one first."""
    data = attsvm.cross_attention([tokens], [[1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
        for norm in ("frobenius",) if C else ("frobenius", "nuclear", 3.0):
            sol = attsvm.solve_svm(data, [0], norm, C=C)
            assert sol.status != "infeasible" and "equals the selected" not in sol.message
            if sol.status == "optimal" and C:
                best = min(
                    0.5 * w @ w + C * (np.maximum(1 - (np.array(tokens[0]) - tokens[1:]) @ w, 0) ** 2).sum()
                    for w in (np.array([0.0, s]) for s in np.linspace(-1.0, 1.0, 2001))
                )
                assert sol.objective <= best * (1 + 1e-6)
        assert attsvm.feasible(data, [0]).status in ("feasible", "undecided")


def test_an_exact_copy_far_from_the_origin_is_infeasible_with_a_proof():
    data = attsvm.cross_attention([[[2.0**47, 1.0], [2.0**47, 0.0], [2.0**47, 1.0]]], [[1.0, 1e-200]])
    for norm in ("frobenius", "nuclear", 3.0):
        sol = attsvm.solve_svm(data, [0], norm)
        assert sol.status == "infeasible" and "token 2 equals the selected token 0" in sol.message
        assert (sol.certificate == [[0, 0, 1]]).all()


@pytest.mark.parametrize(("norm", "method"), METHODS)
def test_message_names_the_zero_query(norm, method):
    _, sol, _ = solved("zero_query", norm, method)
    assert "query 1 is zero" in sol.message


def test_message_of_a_random_infeasible_problem():
    _, sol, _ = solved("infeasible_random", "frobenius", "active")
    assert "certificate" in sol.message


@pytest.mark.parametrize(("norm", "method"), METHODS)
@pytest.mark.parametrize("name", ["paper_size", "infeasible_contradiction", "one_token", "equalities", "ragged"])
def test_prints(name, norm, method):
    _, sol, _ = solved(name, norm, method)
    text = " ".join(repr(sol).split())
    assert sol.status in text and norm in text.lower() and " ".join(sol.message.split()) in text
    if sol.W is not None:
        assert f"{sol.margin:.12g}" in text and sol.method in text


def test_support_holds_the_solution():
    """Support tokens have margin 1; an equality row is never among them."""
    for name in ("paper_size", "equalities"):
        case, sol, rows = solved(name, "frobenius", "active")
        support = reference.per_entry(case.data, sol.support)
        assert not any(support[q][t] for q, t, _, _, equal in rows if equal)
        kept = [row for row in rows if row[-1] or support[row[0]][row[1]]]
        margins = reference.svm_apply([row for row in kept if not row[-1]], sol.W)
        np.testing.assert_allclose(margins, 1, rtol=1e-9)


@pytest.mark.parametrize(("norm", "method"), METHODS)
def test_too_few_iterations_warn_and_the_bounds_hold(norm, method):
    case = ball(1, 20, 20, 32)
    best = attsvm.solve_svm(case.data, case.selected, norm)
    for most in (1, 2, 5):
        with pytest.warns(attsvm.ConvergenceWarning, match="bounds|no separating"):
            sol = attsvm.solve_svm(case.data, case.selected, norm, method=method, max_iter=most, tol=1e-14)
        assert sol.status in ("iteration limit", "undecided") and sol.iterations <= most
        assert judge.wrong(case, sol) is None
        assert sol.margin <= best.margin_bound and sol.margin_bound >= best.margin


@pytest.mark.parametrize(("norm", "method"), METHODS)
def test_windows_of_one_token_change_nothing(norm, method):
    """They have no row: the answer, its multipliers and what it names are those of the other windows."""
    case = ball(3, 6, 5, 6)
    rng = np.random.default_rng(0)
    X = [x for pair in zip(case.data.keys.reshape(6, 5, 6), rng.standard_normal((6, 1, 6)), strict=True) for x in pair]
    Z = np.stack([case.data.queries, rng.standard_normal((6, 6))], axis=1).reshape(12, 6)
    selected = np.stack([case.selected, np.zeros(6, dtype=np.intp)], axis=1).reshape(12)
    one = solve(case, norm, method)
    all_of_them = attsvm.solve_svm(attsvm.cross_attention(X, Z), selected, norm, method=method)
    np.testing.assert_array_equal(all_of_them.W, one.W)
    np.testing.assert_array_equal(np.array(all_of_them.dual[::2]), one.dual)
    assert not any(part.any() for part in all_of_them.dual[1::2])
    warm = attsvm.solve_svm(attsvm.cross_attention(X, Z), selected, norm, warm_start=all_of_them)
    assert warm.status == "optimal"
    with pytest.raises(ValueError, match="0 .. 0 for query 3, got 1"):
        attsvm.solve_svm(attsvm.cross_attention(X, Z), np.where(np.arange(12) == 3, 1, selected), norm)
    copy, other = X[4].copy(), int(case.selected[2] == 0)
    copy[other] = copy[case.selected[2]]
    sol = attsvm.solve_svm(attsvm.cross_attention([*X[:4], copy, *X[5:]], Z), selected, norm)
    assert sol.status == "infeasible" and f"in the window of query 4, token {other} equals" in sol.message


def test_queries_without_rows_cost_no_products(monkeypatch):
    """30,000 windows of one token beside one of three: C is told of the one query alone."""
    rng = np.random.default_rng(0)
    X = [*rng.standard_normal((30_000, 1, 4)), rng.standard_normal((3, 4))]
    data, selected = attsvm.cross_attention(X, rng.standard_normal((30_001, 3))), np.zeros(30_001, dtype=np.intp)
    for call in (attsvm.solve_svm, attsvm.feasible):
        sol = call(data, selected)
        assert sol.status in ("optimal", "feasible") and np.count_nonzero(np.concatenate(sol.dual)) <= 2
    assert _core.logits(data._in_range(), np.eye(4, 3)).shape == (3,)
