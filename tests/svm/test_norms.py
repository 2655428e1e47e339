"""Max and spectral norm: every answer proved from the raw tokens, norms compared with peers, uniqueness by hand."""

import copy
import warnings

import attsvm
import numpy as np
import pytest
import reference
from kinds import draw
from problems import CASES, Case, ball, nearly_twins, sphere

NORMS = ("max", "spectral")


def raw_rows(case):
    rows = reference.svm_rows(case.data, case.selected)
    A = np.array([np.outer(delta, z) for _, _, delta, z, _ in rows])
    return A, np.array([row[-1] for row in rows], dtype=bool)


def solve(case, norm, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error", attsvm.ConvergenceWarning)
        return attsvm.solve_svm(case.data, case.selected, norm, **options)


@pytest.mark.parametrize("n, T, dk, dz", [(6, 8, 10, 10), (15, 6, 6, 6), (20, 3, 4, 12)])
def test_newton_finishes_the_spectral_norm(n, T, dk, dz):
    """More keys' than queries' dimensions, as many, and fewer.  The interior point is left at a gap of a tenth or a
    hundredth, and Newton's method converges: 8 to 13 iterations are the rule, where the interior point alone takes 13
    to 20, and one after a failure of the other 25 and more."""
    iterations = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        data = attsvm.cross_attention(sphere(rng, n, T, dk), sphere(rng, n, dz))
        case = Case(data, data.select(rng.standard_normal((dk, dz))))
        iterations.append(solve(case, "spectral").iterations)
    assert np.median(iterations) <= 14


@pytest.mark.parametrize("norm", [*NORMS, "frobenius", "nuclear", 3.0])
@pytest.mark.parametrize("kind", ["random", "tight", "barely feasible", "barely infeasible", "integers", "ragged"])
def test_feasible_agrees_with_the_solver(kind, norm):
    case = draw(kind, 1)
    answer, sol = (
        attsvm.feasible(case.data, case.selected, norm),
        attsvm.solve_svm(case.data, case.selected, norm, tol=1e-6),
    )
    assert answer.status == ("feasible" if sol.status == "optimal" else sol.status)
    if sol.status == "optimal":  # both intervals hold the margin, to rounding
        assert answer.margin * (1 - 1e-9) <= sol.margin_bound and sol.margin <= answer.margin_bound * (1 + 1e-9)
        lower, _ = reference.certificate(case.data, case.selected, answer.W, answer.dual, norm)
        assert lower == pytest.approx(answer.margin, rel=1e-9)
    elif sol.status == "infeasible":
        assert reference.farkas(case.data, case.selected, answer.certificate) <= 1e-9


def test_infinity_is_the_max_norm():
    case = ball(3, 6, 8, 10)
    assert attsvm.solve_svm(case.data, case.selected, np.inf).norm == "max"
    with pytest.raises(ValueError, match=r"norm must be one of .*'max', 'spectral', or a number p > 1, got -inf"):
        attsvm.solve_svm(case.data, case.selected, -np.inf)


def test_a_large_exponent_comes_near_the_max_norm():
    case = ball(4, 6, 8, 10)
    sol, near = solve(case, "max"), attsvm.solve_svm(case.data, case.selected, 60.0)
    # ||W||_inf <= ||W||_p <= D^(1/p) ||W||_inf
    assert 1 / sol.margin <= 1 / near.margin <= 100 ** (1 / 60) / sol.margin * (1 + 1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_optimality_conditions(norm):
    """W is h times the polar factor, or the sign, of A^*(dual), which has dual norm 1."""
    case = ball(5, 8, 8, 10)
    sol = solve(case, norm)
    A, _ = raw_rows(case)
    multiplier = reference.svm_multipliers(case.data, reference.svm_rows(case.data, case.selected), sol.dual)
    M = np.einsum("k,kij->ij", multiplier, A)
    h, dual = reference.matrix_norms(sol.W, norm)[0], reference.matrix_norms(M, norm)[1]
    assert dual == pytest.approx(1, rel=1e-6)
    assert (M * sol.W).sum() == pytest.approx(h * dual, rel=1e-8)  # equality in Hoelder's inequality
    if norm == "max":
        plain = np.abs(M) > 1e-4 * np.abs(M).max()
        np.testing.assert_allclose(sol.W[plain], h * np.sign(M[plain]), rtol=1e-3)
        assert plain.sum() >= 50
    else:
        U, s, Vt = np.linalg.svd(M)
        k = int((s > 1e-4 * s[0]).sum())
        np.testing.assert_allclose(U[:, :k].T @ sol.W @ Vt[:k].T, h * np.eye(k), atol=1e-3 * h)


@pytest.mark.parametrize("norm", NORMS)
def test_warm_starts_change_nothing(norm):
    case = ball(7, 6, 8, 10)
    sol = solve(case, norm)
    again = solve(case, norm, warm_start=sol)
    assert again.margin == pytest.approx(sol.margin, rel=2e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_multipliers_on_all_rows_are_no_working_set(norm):
    """As an interior point leaves them: one on each of 1350 rows.  At most one for each of the 121 entries of W holds
    it, and after an iteration only rows of the working set (150 are its least) have one."""
    case = nearly_twins(0, 150, 10, 11)
    start = attsvm.solve_svm(case.data, case.selected).dual
    everywhere = np.where(np.arange(10) == np.asarray(case.selected)[:, None], 0.0, start + 1e-9 * start.max())
    assert np.count_nonzero(everywhere) == 1350
    with pytest.warns(attsvm.ConvergenceWarning):
        sol = attsvm.solve_svm(case.data, case.selected, norm, max_iter=1, warm_start=everywhere)
    assert np.count_nonzero(sol.dual) <= 1.3 * 150


# --------------------------------------------------------------------------------------------- uniqueness


@pytest.mark.parametrize("seed", range(2, 26, 3))
@pytest.mark.parametrize("norm", [*NORMS, "nuclear", "frobenius", 3.0])
def test_support_tokens_are_at_their_margin(norm, seed):
    """Whatever an interior point leaves on the others.  The gap of 1e-9 is the mean excess under the multipliers, so
    that an excess of 1e-4 has at most 1e-5 of them, and a multiplier of 1e-4 at most an excess of 1e-5."""
    rng = np.random.default_rng(seed)
    n, T, d = ((4, 30, 6), (20, 8, 12))[seed % 2]
    data = attsvm.cross_attention(rng.standard_normal((n, T, d)), rng.standard_normal((n, d)))
    sol = attsvm.solve_svm(data, data.select(rng.standard_normal((d, d))), norm)
    margins = data.margins(sol.W, sol.selected)
    assert sol.support.any() and margins[sol.support].max() < 1 + 1e-4
    assert sol.support[sol.dual > 1e-4 * sol.dual.max()].all()


@pytest.mark.parametrize("scale", [1.0, 1e-140, 1e140])
def test_a_multiplier_at_rounding_level_is_no_support(scale):
    rng = np.random.default_rng(0)
    data = attsvm.cross_attention(scale * rng.standard_normal((6, 8, 10)), rng.standard_normal((6, 10)))
    sol = attsvm.solve_svm(data, [0] * 6)
    as_left = copy.deepcopy(sol)
    multipliers = as_left.answer[2].reshape(6, 8)  # the reference's is not read
    multipliers[multipliers == 0] = 1e-14 * multipliers.max()
    assert 0 < sol.support.sum() < 42 and (as_left.dual > 0).all()
    np.testing.assert_array_equal(as_left.support[:, 1:], sol.support[:, 1:])
    assert f"{sol.support.sum()} tokens" in repr(sol)


def one_row(delta, z):
    """One sequence of two tokens that differ by delta."""
    return attsvm.cross_attention([[delta, np.zeros(len(delta))]], [z])


@pytest.mark.parametrize(
    ("norm", "delta", "z", "unique"),
    [
        ("max", [1.0, 2.0], [1.0, -1.0], True),  # no entry of delta z^T is zero: all are h sign
        ("max", [1.0, 0.0], [1.0, 1.0], False),  # the second row of W is free within h
        ("spectral", [1.0, 2.0], [1.0], True),  # W is a vector
        ("spectral", [1.0, 2.0], [1.0, 1.0], False),  # rank one: free off it
        ("nuclear", [1.0, 0.0], [1.0, 1.0], True),
        ("frobenius", [1.0, 0.0], [1.0, 1.0], True),
        (1.5, [1.0, 0.0], [1.0, 1.0], True),
    ],
)
def test_unique_by_hand(norm, delta, z, unique):
    assert attsvm.solve_svm(one_row(delta, z), [0], norm).unique is unique


def test_a_nuclear_solution_that_is_not_unique():
    """Rows that ask W_11 >= 1 and the trace of W to be >= 2 ... through e_1 e_1^T and e_2 e_2^T alone leave the other
    entries free in no norm; (e_1 + e_2)(e_1 + e_2)^T / 2 and (e_1 - e_2)(e_1 - e_2)^T / 2 do, in the nuclear one."""
    X = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
    sol = attsvm.solve_svm(attsvm.cross_attention(X, np.eye(2)), [0, 0], "nuclear")
    assert 1 / sol.margin == pytest.approx(2)  # I, and [[1, b], [b, 1]] for all |b| <= 1
    assert sol.unique is False


@pytest.mark.parametrize("norm", [*NORMS, "nuclear"])
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_unique_has_no_units(norm, scale):
    X, Z, _, _ = attsvm.sample.unit_sphere(6, 8, 10)
    plain = attsvm.solve_svm(attsvm.cross_attention(X, Z), [0] * 6, norm)
    scaled = attsvm.solve_svm(attsvm.cross_attention(scale * X, Z), [0] * 6, norm)
    assert plain.unique is not None and scaled.unique is plain.unique
    np.testing.assert_array_equal(scaled.support, plain.support)


def test_unique_says_nothing_where_there_is_no_answer():
    case = CASES["copy_of_selected"]() if "copy_of_selected" in CASES else Case(one_row([0.0, 0.0], [1.0, 1.0]), [0])
    sol = attsvm.solve_svm(case.data, case.selected, "max")
    assert sol.status == "infeasible" and sol.unique is None


@pytest.mark.parametrize("seed", range(6))
def test_unique_answers_agree_with_a_second_optimum(seed):
    """Among all W of the least max norm, HiGHS's that is farthest along a random direction: another one or the same."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (3, 4, 3)).astype(float)
    X[:, 0] += 0.5
    case = Case(attsvm.cross_attention(X, rng.integers(-1, 2, (3, 3)) + 0.25), np.zeros(3, dtype=int))
    sol = attsvm.solve_svm(case.data, case.selected, "max")
    if sol.status != "optimal":
        pytest.skip("not feasible")
    A, _ = raw_rows(case)
    flat, h = A.reshape(len(A), -1), np.abs(sol.W).max()
    direction = rng.standard_normal(9)
    ends = [
        linprog(s * direction, A_ub=-flat, b_ub=-np.ones(len(A)) * (1 - 1e-7), bounds=[(-h, h)] * 9, method="highs").x
        for s in (1, -1)
    ]
    apart = np.abs(ends[0] - ends[1]).max() / h
    if sol.unique is not None:
        assert (apart < 1e-3) == sol.unique


# --------------------------------------------------------------------------------------------- shares of the margin


@pytest.mark.parametrize("norm", [*NORMS, "frobenius", "nuclear", 3.0])
def test_share_is_one_at_the_solution_and_less_elsewhere(norm):
    case = ball(9, 6, 8, 10)
    sol = attsvm.solve_svm(case.data, case.selected, norm)
    low, high = attsvm.theory.margin_share(case.data, case.selected, 7 * sol.W, norm)
    assert 1 - 2e-9 <= low <= high <= 1
    rng = np.random.default_rng(0)
    stack = sol.W + 0.3 * np.abs(sol.W).max() * rng.standard_normal((3, 2, 10, 10))
    low, high = attsvm.theory.margin_share(case.data, case.selected, stack, norm)
    assert low.shape == high.shape == (3, 2) and (low <= high).all() and (high < 1).all()
    A, _ = raw_rows(case)
    for W, at_least, at_most in zip(stack.reshape(6, 10, 10), low.ravel(), high.ravel(), strict=True):
        size = (np.abs(W) ** norm).sum() ** (1 / norm) if norm == 3.0 else reference.matrix_norms(W, norm)[0]
        share = np.einsum("kij,ij->k", A, W).min() / size / sol.margin
        assert at_least * (1 - 1e-8) - 1e-12 <= share <= at_most * (1 + 1e-8) + 1e-12 or share < 0
        assert np.sign(share) == np.sign(at_least) == np.sign(at_most)


def test_share_of_zero_and_of_the_wrong_way():
    case = ball(9, 6, 8, 10)
    sol = attsvm.solve_svm(case.data, case.selected, "max")
    assert attsvm.theory.margin_share(case.data, case.selected, np.zeros((10, 10)), "max") == (0.0, 0.0)
    low, high = attsvm.theory.margin_share(case.data, case.selected, -sol.W, "max")
    assert low <= high <= -1  # the largest margin of -W is its least one


def test_share_with_several_selected_tokens():
    case = CASES["equalities"]()
    sol = attsvm.solve_svm(case.data, case.selected, "spectral")
    assert attsvm.theory.margin_share(case.data, case.selected, sol.W, "spectral")[0] >= 1 - 2e-9
    off = sol.W + 1e-3 * np.random.default_rng(0).standard_normal(sol.W.shape)
    assert attsvm.theory.margin_share(case.data, case.selected, off, "spectral")[1] < 0  # logits of the selected differ


def test_no_share_without_a_largest_margin():
    data = one_row([0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="selected must be feasible"):
        attsvm.theory.margin_share(data, [0], np.eye(2), "max")
    data = attsvm.cross_attention([[[1.0, 0.0]]], [[1.0, 1.0]])
    with pytest.raises(ValueError, match="selected must leave a token out"):
        attsvm.theory.margin_share(data, [0], np.eye(2), "max")
    with pytest.raises(ValueError, match=r"W must have shape \(..., dk, dz\) = \(..., 2, 2\), got \(3, 2\)"):
        attsvm.theory.margin_share(data, [0], np.ones((3, 2)), "max")


def test_shares_are_drawn_along_a_run():
    figure = pytest.importorskip("matplotlib.figure")
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    run = attsvm.train(problem, rule="spectral", steps=300, lr=0.1)
    line = attsvm.plot.margin_share(run, "spectral", ax=figure.Figure().subplots(), color="k").lines[0]
    np.testing.assert_array_equal(line.get_xdata(), run.steps)
    np.testing.assert_array_equal(
        line.get_ydata(), attsvm.theory.margin_share(run.data, run.selected, run.weights, "spectral")[0]
    )
    assert line.get_label() == "W, spectral norm" and line.get_color() == "k"


def test_weights_outside_the_span_are_told(rng):
    """Two queries of ten dimensions: the part of W that no row sees lowers its share, and a warning says so."""
    data = attsvm.cross_attention(rng.standard_normal((2, 4, 10)), rng.standard_normal((2, 10)))
    sol = attsvm.solve_svm(data, [0, 1])
    away = rng.standard_normal((10, 10))
    away -= away @ np.linalg.pinv(data.queries) @ data.queries
    outside = sol.W + 3 * away / np.linalg.norm(away) * np.linalg.norm(sol.W)
    with pytest.warns(UserWarning, match=r"W: only 0.32 of its Frobenius norm lies on the directions that"):
        low, high = attsvm.theory.margin_share(data, [0, 1], outside)
    assert low == pytest.approx(1 / np.sqrt(10), rel=1e-6) == high
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert attsvm.theory.margin_share(data, [0, 1], sol.W)[0] > 1 - 1e-8
        attsvm.theory.margin_share(data, [0, 1], outside, "spectral")  # of which a part outside may be
