"""Norms beside the Frobenius one: how soon they are solved, support, uniqueness and shares of the margin."""

import copy
import warnings

import attsvm
import judge
import numpy as np
import pytest
from attsvm.svm.support import pulls
from builders import paper
from kinds import draw
from numpy.testing import assert_allclose, assert_array_equal
from problems import Case, ball, gaussian, nearly_twins, several_kept, sphere

NORMS = ["max", "spectral", "nuclear", "frobenius", 3.0]


def test_two_is_the_frobenius_norm_and_infinity_the_max_norm():
    case = ball(3, 6, 8, 10)
    for norm in (2, 2.0, np.float32(2), np.inf):
        name = attsvm.solve_svm(case.data, case.selected, norm).norm
        assert name == ("max" if norm == np.inf else "frobenius")


@pytest.mark.parametrize("n, T, dk, dz", [(6, 8, 10, 10), (15, 6, 6, 6), (20, 3, 4, 12)])
def test_newton_finishes_the_spectral_norm(n, T, dk, dz):
    """More keys' than queries' dimensions, as many, and fewer.  The interior point is left at a gap of a tenth or a
    hundredth, and Newton's method converges: 8 to 13 iterations are the rule, where the interior point alone takes 13
    to 20, and one after a failure of the other 25 and more."""
    iterations = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        data = attsvm.cross_attention(sphere(rng, n, T, dk), sphere(rng, n, dz))
        sol = attsvm.solve_svm(data, data.select(rng.standard_normal((dk, dz))), "spectral")
        rows = judge.rows_of(Case(data, sol.selected))
        assert sol.status == "optimal" and rows.asked @ rows.multipliers(data, sol.dual)[0] == pytest.approx(
            1 / sol.margin, rel=1e-6
        )
        iterations.append(sol.iterations)
    assert np.median(iterations) <= 14


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", ["random", "tight", "barely feasible", "barely infeasible", "integers", "ragged"])
def test_feasible_agrees_with_the_solver(kind, norm):
    case = draw(kind, 1)
    answer, sol = (call(case.data, case.selected, norm) for call in (attsvm.feasible, attsvm.solve_svm))
    assert answer.status == ("feasible" if sol.status == "optimal" else sol.status) and answer.norm == norm
    assert judge.wrong(case, answer) is None
    if sol.status == "optimal":  # both intervals hold the margin, to rounding
        assert answer.margin * (1 - 1e-9) <= sol.margin_bound and sol.margin <= answer.margin_bound * (1 + 1e-9)
        assert answer.margin == pytest.approx(1 / judge.bounds(case, answer)[1], rel=1e-9)


@pytest.mark.parametrize("norm", ["max", "spectral"])
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


# --------------------------------------------------------------------------------------------- support, uniqueness


@pytest.mark.parametrize("seed", range(2, 26, 3))
@pytest.mark.parametrize("norm", NORMS)
def test_support_tokens_are_at_their_margin(norm, seed):
    """Whatever an interior point leaves on the others.  The gap of 1e-9 is the mean excess under the multipliers, so
    that an excess of 1e-4 has at most 1e-5 of them, and a multiplier of 1e-4 at most an excess of 1e-5."""
    case = gaussian(seed, *((4, 30, 6), (20, 8, 12))[seed % 2])
    sol = attsvm.solve_svm(case.data, case.selected, norm)
    margins = case.data.margins(sol.W, sol.selected)
    assert sol.support.any() and margins[sol.support].max() < 1 + 1e-4
    assert sol.support[sol.dual > 1e-4 * sol.dual.max()].all()


@pytest.mark.parametrize("scale", [1.0, 1e-140, 1e140])
def test_a_multiplier_at_rounding_level_is_no_support(scale):
    s = paper()
    sol = attsvm.solve_svm(attsvm.cross_attention(scale * s.X, s.Z), [0] * 6)
    as_left = copy.deepcopy(sol)
    multipliers = as_left.answer.dual.reshape(6, 8)  # the reference's is not read
    multipliers[multipliers == 0] = 1e-14 * multipliers.max()
    assert 0 < sol.support.sum() < 42 and (as_left.dual > 0).all()
    assert_array_equal(as_left.support[:, 1:], sol.support[:, 1:])
    assert f"{sol.support.sum()} tokens" in repr(sol)


def test_the_sizes_of_rows_are_of_their_own_queries(rng):
    """Multipliers of 1, tokens and queries far apart in size."""
    far = np.arange(3)
    X, Z = rng.standard_normal((3, 4, 6)) * 1e9 ** far[:, None, None], rng.standard_normal((3, 6)) / 1e3 ** far[:, None]
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), [0, 1, 2])
    sol.answer.dual[:] = 1
    sizes = np.abs(X[far, far][:, None] - X).max(axis=2) * np.abs(Z).max(axis=1, keepdims=True)
    assert_allclose(pulls(sol, np.arange(12)), sizes.ravel() / sizes.max(), rtol=1e-12)


def rows(deltas, Z):
    """One sequence of two tokens that differ by delta for each."""
    return attsvm.cross_attention([[delta, np.zeros(len(delta))] for delta in deltas], Z)


@pytest.mark.parametrize(
    ("norm", "deltas", "Z", "unique"),
    [
        ("max", [[1.0, 2.0]], [[1.0, -1.0]], True),  # no entry of delta z^T is zero: all are h sign
        ("max", [[1.0, 0.0]], [[1.0, 1.0]], False),  # the second row of W is free within h
        ("max", [[0.0, 0.0]], [[1.0, 1.0]], None),  # infeasible
        ("spectral", [[1.0, 2.0]], [[1.0]], True),  # W is a vector
        ("spectral", [[1.0, 2.0]], [[1.0, 1.0]], False),  # rank one: free off it
        ("nuclear", [[1.0, 0.0]], [[1.0, 1.0]], True),
        ("nuclear", np.eye(2), np.eye(2), False),  # I, and [[1, b], [b, 1]] for all |b| <= 1
        ("frobenius", [[1.0, 0.0]], [[1.0, 1.0]], True),
        (1.5, [[1.0, 0.0]], [[1.0, 1.0]], True),
    ],
)
@pytest.mark.parametrize("margin", [1.0, 5.0, 1e-5])
def test_unique_by_hand(norm, deltas, Z, unique, margin):
    data = rows(deltas, Z)
    assert attsvm.solve_svm(data, [0] * len(Z), norm, margins=np.full((len(Z), 2), margin)).unique is unique


def test_an_equality_without_a_multiplier_can_make_an_answer_unique():
    """W = (1, w) with |w| <= 1 in the max norm; w = 0 where the tokens (0, 0) and (0, 1) are both selected."""
    data = attsvm.cross_attention([[[0.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]], [[1.0]])
    free = attsvm.cross_attention([[[0.0, 0.0], [-1.0, 0.0]]], [[1.0]])
    assert attsvm.solve_svm(free, [0], "max").unique is False
    assert attsvm.solve_svm(data, [[True, True, False]], "max").unique is True


@pytest.mark.parametrize("norm", NORMS[:3])
@pytest.mark.parametrize(
    "scale, margins",
    [*((1.0, np.full((6, 8), m)) for m in (1e-12, 1e12)), *((x, None) for x in (1e-300, 1e-160, 1e160, 1e300))],
    ids=str,
)
def test_support_and_uniqueness_have_no_units(norm, scale, margins):
    s = paper()
    plain = attsvm.solve_svm(s.data, [0] * 6, norm)
    scaled = attsvm.solve_svm(attsvm.cross_attention(scale * s.X, s.Z), [0] * 6, norm, margins=margins)
    assert plain.unique is not None and scaled.unique is plain.unique
    assert_array_equal(scaled.support, plain.support)


@pytest.mark.parametrize("seed", range(6))
def test_unique_answers_agree_with_a_second_optimum(seed):
    """Among all W of the least max norm, HiGHS's that is farthest along a random direction: another one or the same."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    rng = np.random.default_rng(seed)
    X, Z = rng.integers(-1, 2, (3, 4, 3)).astype(float), rng.integers(-1, 2, (3, 3)) + 0.25
    X[:, 0] += 0.5
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), [0] * 3, "max")
    if sol.status != "optimal":
        pytest.skip("not feasible")
    A = np.einsum("nti,nj->ntij", X[:, 1:] - X[:, :1], Z).reshape(9, 9)
    h, direction = np.abs(sol.W).max(), rng.standard_normal(9)
    one, other = (
        linprog(s * direction, A_ub=A, b_ub=np.full(9, 1e-7 - 1), bounds=(-h, h), method="highs").x for s in (1, -1)
    )
    assert sol.unique is None or (np.abs(one - other).max() / h < 1e-3) == sol.unique


# --------------------------------------------------------------------------------------------- shares of the margin


@pytest.mark.parametrize("norm", NORMS)
def test_share_is_one_at_the_solution_and_less_elsewhere(norm):
    case = ball(9, 6, 8, 10)
    sol = attsvm.solve_svm(case.data, case.selected, norm)
    stack = sol.W + 0.3 * np.abs(sol.W).max() * np.random.default_rng(0).standard_normal((4, 2, 10, 10))
    stack[0] = 7 * sol.W, -sol.W  # of which the largest margin is the least one
    low, high = attsvm.theory.margin_share(case.data, case.selected, stack, norm)
    least = [judge.rows_of(case).apply(W).min() / judge.norms_of(W, norm)[0] for W in stack.reshape(8, 10, 10)]
    share = np.array(least, dtype=float).reshape(4, 2) / sol.margin
    assert_allclose(low, share, rtol=1e-8)
    assert_allclose(high, share, rtol=1e-8)
    assert (low <= high).all() and (high <= 1).all() and (high.ravel()[1:] < 1).all() and low[0, 0] >= 1 - 2e-9
    zero = np.zeros((10, 10))
    assert attsvm.theory.margin_share(case.data, case.selected, zero, norm) == (0.0, 0.0)


def test_share_with_several_selected_tokens():
    case = several_kept()
    W = attsvm.solve_svm(case.data, case.selected, "spectral").W
    off = W + 1e-3 * np.random.default_rng(0).standard_normal(W.shape)  # logits of the selected differ
    low, high = attsvm.theory.margin_share(case.data, case.selected, np.array([W, off]), "spectral")
    assert low[0] >= 1 - 2e-9 and high[1] < 0


@pytest.mark.parametrize(
    ("data", "W", "why"),
    [
        (rows([[0.0, 0.0]], [[1.0, 1.0]]), np.eye(2), "selected must be feasible"),
        (attsvm.cross_attention([[[1.0, 0.0]]], [[1.0, 1.0]]), np.eye(2), "selected must leave a token out"),
        (rows([[1.0, 0.0]], [[1.0, 1.0]]), np.ones((3, 2)), r"W must have shape \(..., dk, dz\) = \(..., 2, 2\)"),
    ],
)
def test_no_share_without_a_largest_margin(data, W, why):
    with pytest.raises(ValueError, match=why):
        attsvm.theory.margin_share(data, [0], W, "max")


def test_shares_are_drawn_along_a_run(ax):
    run = attsvm.train(paper().problem, rule="spectral", steps=30)
    line = attsvm.plot.margin_share(run, "spectral", ax=ax, color="k").lines[0]
    low, _ = attsvm.theory.margin_share(run.data, run.selected, run.weights, "spectral")
    assert_array_equal(line.get_xydata().T, [run.steps, low])
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
    with warnings.catch_warnings(action="error"):
        assert attsvm.theory.margin_share(data, [0, 1], sol.W)[0] > 1 - 1e-8
        attsvm.theory.margin_share(data, [0, 1], outside, "spectral")  # of which a part outside may be
