"""Soft margins beyond what test_answers.py draws: many rows, large prices, poor starts, tiny tokens."""

import attsvm
import judge
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from problems import gaussian


def test_rows_beyond_the_unknowns_need_little():
    """14,000 rows of 100 unknowns and 40,000 of 12, with and without a W that separates."""
    for n, *sizes in ((2000, 8, 10, 10), (5, 8001, 4, 3)):
        case = gaussian(0, n, *sizes)
        for selected in (case.selected, np.zeros(n, dtype=np.intp)):
            sol = attsvm.solve_svm(case.data, selected, C=1.0)
            assert sol.status == "optimal" and sol.method == "interior" and sol.iterations < 100


def test_more_rows_and_unknowns_than_a_factor_holds():
    """Block ascent is then the only method, with its own limit."""
    case = gaussian(0, 600, 10, 64)
    sol = attsvm.solve_svm(case.data, case.selected, C=1.0)
    assert sol.status == "optimal" and sol.method == "block"


def test_interior_is_soon_there_at_a_large_price():
    """Here each exchange of the support lets in a row or two, although rows outnumber the entries of W."""
    case = gaussian(2, 60, 20, 8)
    sol = attsvm.solve_svm(case.data, case.selected, C=1e3, method="interior")
    assert sol.status == "optimal" and sol.iterations < 70 and judge.wrong(case, sol) is None


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


@pytest.mark.parametrize("size", [1e-120, 1e-150])
def test_tokens_so_small_that_no_row_can_be_met_have_every_multiplier(size):
    """Slacks are 1 to the last bit, so each dual is 2 C; the squares of duals underflow in units of these tokens."""
    X = np.random.default_rng(3).standard_normal((2, 3, 1)) * size
    sol = attsvm.solve_svm(attsvm.cross_attention(X, [[1.0, 0.5], [0.3, -1.0]]), [2, 2], C=10.0)
    assert sol.status == "optimal"
    assert_allclose(sol.dual, [[20, 20, 0], [20, 20, 0]], rtol=1e-9)
    assert sol.objective == pytest.approx(40, rel=1e-9)


def test_soft_rows_are_no_part_of_a_proof():
    """Of two copies of the selected token one is to have another logit than it, and the other a smaller one, softly."""
    a, b = np.eye(2)
    X, kept = np.array([[a, a, a, b]]), np.array([[True, False, True, False]])
    margins = np.array([[0.0, 2.0, -1.0, 1.0]])
    sol = attsvm.solve_svm(attsvm.cross_attention(X, [[1.0, 1.0]]), kept, C=10.0, margins=margins)
    assert sol.status == "infeasible" and "logits differ" in sol.message and "C=" not in sol.message
    assert_array_equal(sol.certificate, [[0.0, 0.0, -1.0, 0.0]])
