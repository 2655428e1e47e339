"""Soft margin and feasibility: values recomputed from the tokens, agreement with scikit-learn, limits in C."""

import attsvm
import judge
import numpy as np
import pytest
from problems import Case

SHAPES = [(6, 8, 10), (1, 5, 3), (12, 8, 5), (30, 6, 4), (20, 16, 32)]


def make(n, T, d, seed):
    X, Z, y, v = attsvm.sample.unit_sphere(n, T, d, rng=seed)
    selected = np.random.default_rng(seed).integers(0, T, n)
    return X, Z, attsvm.cross_attention(X, Z), selected


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: ",".join(map(str, s)))
def test_slacks_are_what_the_multipliers_say(shape, C):
    """Half the multiplier over C, as the stationarity of the slack says; the gap fixes it to its root."""
    _, _, data, selected = make(*shape, seed=3)
    sol = attsvm.solve_svm(data, selected, C=C)
    assert sol.status == "optimal" and judge.wrong(case := Case(data, selected), sol) is None
    rows = judge.rows_of(case)
    missing = np.maximum(rows.asked - rows.apply(sol.W), 0)
    np.testing.assert_allclose(rows.multipliers(data, sol.slack)[0], missing, atol=1e-4 * max(1, missing.max()))


def test_large_C_is_the_hard_margin():
    _, _, data, selected = make(6, 8, 10, seed=0)
    hard = attsvm.solve_svm(data, selected)
    soft = attsvm.solve_svm(data, selected, C=1e9)
    # slack = dual / (2 C) of order 1e-9 moves W by as much.
    np.testing.assert_allclose(soft.W, hard.W, atol=1e-7)


def test_what_cannot_be_met_costs_its_price():
    """A copy of the selected token has slack 1 whatever W is; a zero query all of its tokens."""
    X, Z, _, selected = make(4, 5, 6, seed=2)
    X[1, (selected[1] + 1) % 5] = X[1, selected[1]]
    Z[3] = 0
    data = attsvm.cross_attention(X, Z)
    assert attsvm.solve_svm(data, selected).status == "infeasible"
    sol = attsvm.solve_svm(data, selected, C=2.0)
    assert judge.wrong(Case(data, selected), sol) is None and sol.gap <= 1e-9
    assert sol.slack[1, (selected[1] + 1) % 5] == 1 and sol.objective > 2.0 * 5


@pytest.mark.parametrize("method", ["auto", "interior"])
@pytest.mark.parametrize("C", [1e-6, 1e-2, 1e1, 1e3, 1e5, 1e7])
@pytest.mark.parametrize("shape", [(5, 6, 3, 4), (12, 8, 2, 3), (30, 6, 2, 2), (6, 8, 10, 10)], ids=str)
def test_several_selected_tokens_are_solved(shape, C, method):
    """More rows than dimensions or fewer, feasible or far from it, equalities that leave no W but zero."""
    n, T, dk, dz = shape
    for seed in range(10):
        rng = np.random.default_rng([seed, n])
        data = attsvm.cross_attention(rng.standard_normal((n, T, dk)), rng.standard_normal((n, dz)))
        kept = rng.random((n, T)) < 0.4
        kept[:, 0] = True
        sol = attsvm.solve_svm(data, kept, C=C, method=method)
        assert sol.status == "optimal" and sol.gap <= 1e-9
        assert judge.wrong(Case(data, kept), sol) is None


def test_rows_beyond_the_unknowns_need_little():
    """14,000 rows of 100 unknowns and 40,000 of 12, with and without a W that separates."""
    rng = np.random.default_rng(0)
    for n, T, dk, dz in ((2000, 8, 10, 10), (5, 8001, 4, 3)):
        data = attsvm.cross_attention(rng.standard_normal((n, T, dk)), rng.standard_normal((n, dz)))
        for selected in (data.select(rng.standard_normal((dk, dz))), np.zeros(n, dtype=np.intp)):
            sol = attsvm.solve_svm(data, selected, C=1.0)
            assert sol.status == "optimal" and sol.method == "interior" and sol.iterations < 100


def test_methods_agree_on_a_loose_selection_at_a_large_price():
    """Here each exchange of the support lets in a row or two, although rows outnumber the entries of W."""
    rng = np.random.default_rng(2)
    X, Z = rng.standard_normal((60, 20, 8)), rng.standard_normal((60, 8))
    data = attsvm.cross_attention(X, Z)
    selected = data.select(rng.standard_normal((8, 8)))
    block, interior = (attsvm.solve_svm(data, selected, C=1e3, method=method) for method in ("block", "interior"))
    assert block.status == interior.status == "optimal" and interior.iterations < 70
    assert judge.wrong(Case(data, selected), interior) is None
    assert block.objective == pytest.approx(interior.objective, rel=2e-9)


def test_interior_begins_where_it_is_told():
    _, _, data, selected = make(30, 6, 4, seed=1)
    cold = attsvm.solve_svm(data, selected, C=10.0, method="interior")
    warm = attsvm.solve_svm(data, selected, C=10.0, method="interior", warm_start=cold)
    assert warm.status == "optimal" and warm.iterations < cold.iterations
    np.testing.assert_allclose(warm.W, cold.W, atol=1e-7)


def test_a_poor_start_costs_interior_no_answer():
    """Multipliers at random, where the equality row leaves W = 0 alone: what its projection leaves of the W that they
    make is rounding, and must not be taken for a W that misses the row."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, Z, kept = rng.standard_normal((4, 11, 1)), rng.standard_normal((4, 1)), np.zeros((4, 11), dtype=bool)
        kept[np.arange(4), rng.integers(0, 11, 4)] = kept[0, rng.integers(11)] = True
        X[:, 3] = X[:, 5]
        data, C, start = attsvm.cross_attention(X, Z), 10 ** rng.uniform(-2, 13), rng.standard_normal((4, 11))
        warm = attsvm.solve_svm(data, kept, C=C, method="interior", warm_start=start)
        assert warm.status == "optimal", seed


def test_equality_rows_stay_hard():
    X, Z, data, selected = make(6, 8, 10, seed=4)
    kept = np.zeros((6, 8), dtype=bool)
    kept[np.arange(6), selected] = kept[np.arange(6), (selected + 3) % 8] = True
    sol = attsvm.solve_svm(data, kept, C=0.5)
    logits = data.logits(sol.W)
    apart = logits[np.arange(6), selected] - logits[np.arange(6), (selected + 3) % 8]
    assert sol.status == "optimal" and np.abs(apart).max() <= 1e-12


@pytest.mark.parametrize("size", [1e-120, 1e-150])
def test_tokens_so_small_that_no_row_can_be_met_have_every_multiplier(size):
    """Slacks are 1 to the last bit, so each dual is 2 C; the squares of duals underflow in units of these tokens."""
    X = np.random.default_rng(3).standard_normal((2, 3, 1)) * size
    sol = attsvm.solve_svm(attsvm.cross_attention(X, [[1.0, 0.5], [0.3, -1.0]]), [2, 2], C=10.0)
    assert sol.status == "optimal"
    np.testing.assert_allclose(sol.dual, [[20, 20, 0], [20, 20, 0]], rtol=1e-9)
    assert sol.objective == pytest.approx(40, rel=1e-9)


def test_soft_rows_are_no_part_of_a_proof():
    """Of two copies of the selected token one is to have another logit than it, and the other a smaller one, softly."""
    a, b = np.eye(2)
    X, kept = np.array([[a, a, a, b]]), np.array([[True, False, True, False]])
    margins = np.array([[0.0, 2.0, -1.0, 1.0]])
    sol = attsvm.solve_svm(attsvm.cross_attention(X, [[1.0, 1.0]]), kept, C=10.0, margins=margins)
    assert sol.status == "infeasible" and "logits differ" in sol.message and "C=" not in sol.message
    np.testing.assert_array_equal(sol.certificate, [[0.0, 0.0, -1.0, 0.0]])


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_equality_rows_that_contradict_each_other_are_found(seed, others):
    """In a plane three rows depend on each other.  With the right sides of some W they are met; with others, never."""
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((1, 6, 2)), rng.standard_normal((2, 1))
    kept = np.array([[True, True, False, True, True, False]])
    X, kept = (X, kept) if others else (X[:, kept[0]], kept[:, kept[0]])  # without margin rows
    data = attsvm.cross_attention(X, [[1.0]])
    margins = (X[:, :1] - X) @ W[:, 0]
    assert attsvm.solve_svm(data, kept, C=3.0, margins=margins).status == "optimal"
    margins[0, -2 if others else -1] += 1e-3
    sol = attsvm.solve_svm(data, kept, C=3.0, margins=margins)
    assert sol.status == attsvm.solve_svm(data, kept, margins=margins).status == "infeasible"
    assert not sol.certificate[~kept].any() and (sol.certificate * margins).sum() > 0
    parts = sol.certificate[0, :, None] * (X[0, 0] - X[0])
    assert np.linalg.norm(parts.sum(axis=0)) <= 1e-9 * np.linalg.norm(parts, axis=1).sum()
