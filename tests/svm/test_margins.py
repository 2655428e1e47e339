"""Margins of each row's own, of any sign: every answer proved from the raw tokens, by CVXPY, and by what must hold."""

from __future__ import annotations

import attsvm
import judge
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import Case, ball, several_kept, sphere

NORMS = ["frobenius", "nuclear", 3.0]


# ------------------------------------------------------------------------------------- what must hold


@pytest.mark.parametrize("norm", NORMS)
@given(seed=st.integers(0, 50), factor=st.floats(1e-100, 1e100))
def test_margins_scale_the_answer(norm, seed, factor):
    case = ball(seed, 4, 5, 6)
    one = attsvm.solve_svm(case.data, case.selected, norm)
    other = attsvm.solve_svm(case.data, case.selected, norm, margins=np.full((4, 5), factor))
    assert other.status == one.status == "optimal"
    assert other.margin * factor == pytest.approx(one.margin, rel=2e-9)
    np.testing.assert_allclose(other.W / factor, one.W, atol=1e-3 * np.abs(one.W).max())
    if norm == "frobenius":
        np.testing.assert_allclose(np.array(other.dual) / factor, one.dual, atol=1e-4 * np.max(one.dual))


@pytest.mark.parametrize("norm", NORMS)
@given(seed=st.integers(0, 50), row=st.integers(0, 19), more=st.floats(0.0, 3.0))
def test_asking_more_never_costs_less(norm, seed, row, more):
    case = ball(seed, 4, 5, 6)
    margins = np.random.default_rng(seed).uniform(-1, 1, (4, 5))
    less = attsvm.solve_svm(case.data, case.selected, norm, margins=margins)
    margins.flat[row] += more
    larger = attsvm.solve_svm(case.data, case.selected, norm, margins=margins)
    assert judge.norms_of(larger.W, norm)[0] >= judge.norms_of(less.W, norm)[0] * (1 - 2e-9)


@given(seed=st.integers(0, 200))
def test_weights_that_reach_the_margins_are_not_smaller(seed):
    rng = np.random.default_rng(seed)
    case = ball(seed, 4, 5, 6)
    W = rng.standard_normal((6, 6))
    logits = case.data.logits(W)
    margins = logits[range(4), case.selected][:, None] - logits - rng.uniform(0, 1, (4, 5))
    sol = attsvm.solve_svm(case.data, case.selected, margins=margins)
    assert sol.status in ("optimal", "no constraint")
    assert np.linalg.norm(sol.W) <= np.linalg.norm(W) * (1 + 2e-9)


@pytest.mark.parametrize("seed", [13, 16, 17, 22])
def test_weights_of_rounding_alone_are_none(seed):
    """Weights of norm 1e13 seem to reach these margins; multipliers combine the rows to zero."""
    rng = np.random.default_rng(seed)
    X, Z = 5 * rng.standard_normal(5) + rng.standard_normal((16, 11, 5)), rng.standard_normal((16, 11))
    selected = np.zeros((16, 11), dtype=bool)
    selected[np.arange(16), rng.integers(0, 11, 16)] = True
    selected[::3, 0] = True
    margins = 0.6 + 0.5 * rng.standard_normal((16, 11))
    data = attsvm.cross_attention(X, Z)
    for method in ("active", "interior"):
        sol = attsvm.solve_svm(data, selected, margins=margins, method=method)
        assert sol.status == "infeasible", method
        assert judge.wrong(Case(data, selected, asked=margins), sol) is None


def test_nothing_positive_is_no_constraint():
    case = ball(0, 6, 8, 10)
    for norm in NORMS:
        sol = attsvm.solve_svm(case.data, case.selected, norm, margins=-np.ones((6, 8)))
        assert sol.status == "no constraint" and not sol.W.any() and "zero weights" in sol.message


def test_the_relaxed_prompt_of_the_precursor():
    """A sample that does not hold the label SVM need only not fall behind: p = (1, 0) instead of (1.25, 0.25)."""
    data = attsvm.prompt_attention([[[1.0, 1.0], [0.0, 0.0]], [[1.0, -1.0], [0.0, 0.0]], [[0.5, 1.5], [0.0, 0.0]]])
    full = attsvm.solve_svm(data, [0, 0, 0])
    relaxed = attsvm.solve_svm(data, [0, 0, 0], margins=[[1, 1], [1, 1], [0, 0]])
    np.testing.assert_allclose(full.W.ravel(), [1.25, 0.25], atol=1e-12)
    np.testing.assert_allclose(relaxed.W.ravel(), [1.0, 0.0], atol=1e-12)


def test_equal_logits_may_be_set_apart():
    """Between two selected tokens the margin is met exactly, whatever its sign."""
    case = several_kept()
    margins = np.ones((5, 6))
    margins[:, 4] = [-2.0, -0.5, 0.0, 0.5, 2.0]
    for norm in NORMS:
        sol = attsvm.solve_svm(case.data, case.selected, norm, margins=margins)
        logits = case.data.logits(sol.W)
        np.testing.assert_allclose(logits[:, 1] - logits[:, 4], margins[:, 4], atol=1e-9)
        assert (logits[:, [1]] - logits >= 1 - 1e-9)[:, [0, 2, 3, 5]].all()


def test_what_is_not_read():
    """The selected token's own margin, and what a causal query cannot see."""
    case = ball(1, 6, 8, 10)
    margins = np.ones((6, 8))
    one = attsvm.solve_svm(case.data, case.selected, margins=margins)
    margins[range(6), case.selected] = 1e9
    np.testing.assert_array_equal(attsvm.solve_svm(case.data, case.selected, margins=margins).W, one.W)
    np.testing.assert_array_equal(attsvm.solve_svm(case.data, case.selected).W, one.W)
    causal = attsvm.causal_attention(sphere(np.random.default_rng(0), 2, 4, 6))
    selected = causal.select(np.eye(6))
    np.testing.assert_array_equal(
        attsvm.solve_svm(causal, selected, margins=np.ones((2, 4, 4))).W, attsvm.solve_svm(causal, selected).W
    )


# ------------------------------------------------------------------------------------- tokens without a row


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("options", [{}, {"C": 1.0}, {"norm": "nuclear"}, {"norm": 3.0}, {"norm": "max"}], ids=str)
def test_minus_infinity_is_no_row(options, kept):
    """As if the token were not in its window."""
    rng = np.random.default_rng(2)
    X, Z = rng.standard_normal((5, 4, 3)), rng.standard_normal((5, 3))
    selected = attsvm.cross_attention(X[:, :3], Z).select(rng.standard_normal((3, 3)))
    if kept:
        selected = np.arange(3) == selected[:, None]
        selected[0] = [True, True, False]
    whole = np.pad(selected, ((0, 0), (0, 1))) if kept else selected
    margins = rng.uniform(0.5, 1.5, (5, 4)) * (1 - np.pad(selected, ((0, 0), (0, 1))) if kept else 1)
    margins[:, 3] = -np.inf
    short = attsvm.solve_svm(attsvm.cross_attention(X[:, :3], Z), selected, margins=margins[:, :3], **options)
    long = attsvm.solve_svm(attsvm.cross_attention(X, Z), whole, margins=margins, **options)
    assert long.status == short.status == "optimal"
    assert long.objective == pytest.approx(short.objective, rel=1e-8)
    assert (long.dual[:, 3] == 0).all() and not long.support[:, 3].any()
    for wrong in (np.inf, np.nan):
        margins[0, 3] = wrong
        with pytest.raises(ValueError, match="margins must be finite"):
            attsvm.solve_svm(attsvm.cross_attention(X, Z), whole, margins=margins, **options)


def test_nothing_asked_is_no_constraint(tmp_path):
    data = attsvm.cross_attention(
        [[[1.0], [1.0]]], [[1.0]]
    )  # a copy of the selected token: infeasible, if it had a row
    sol = attsvm.solve_svm(data, [0], margins=[[1.0, -np.inf]])
    assert sol.status == "no constraint" and not sol.W.any()
    sol.save(tmp_path / "answer.npz")
    assert attsvm.load(tmp_path / "answer.npz") == sol


@pytest.mark.parametrize("scale", [1.0, 1e-13])  # of the scores: what counts as equal has it too
def test_ties_of_a_run_have_no_row(scale):
    """The best token's value twice: training goes to the SVM without the rows between the two."""
    X, Z, y, _ = attsvm.sample.unit_sphere(4, 6, 12, rng=6)
    v, q = scale * np.eye(12)[0], np.arange(4)
    best = (y[:, None] * X[:, :, 0]).argmax(1)
    twin = (best + 1) % 6
    X[q, twin, 0] = X[q, best, 0]
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    run = attsvm.train(problem, steps=4000, record=0)
    with pytest.warns(UserWarning, match="in 4 of 4 queries of the run another token scores as much"):
        sol = attsvm.solve_svm(problem.data, run)
    margins = np.ones((4, 6))
    margins[q, np.where(run.selected == best, twin, best)] = -np.inf
    assert (sol.W == attsvm.solve_svm(problem.data, run.selected, margins=margins).W).all()
    assert attsvm.correlation(run.W, sol.W) > 0.999
    assert attsvm.correlation(run.W, attsvm.solve_svm(problem.data, run.selected).W) < 0.99
