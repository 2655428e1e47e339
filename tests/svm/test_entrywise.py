"""Interior points of entrywise and other norms: many rows, looser tolerances, working sets that grow."""

import attsvm
import pytest
from planted import planted


def test_many_rows_need_no_matrix_of_their_size():
    """40,000 rows of 16 weights: the system of the rows would take 12 GB."""
    assert attsvm.solve_svm(*planted(5, 8001, 4), 1.5).status == "optimal"


@pytest.mark.parametrize("norm", ["max", 1.5, 3.0, "spectral", "nuclear"])
def test_a_looser_tolerance_is_reached_sooner(norm):
    for seed in range(6):
        steps = []
        for tol in (1e-1, 1e-2, 1e-3, 1e-6, 1e-9):
            sol = attsvm.solve_svm(*planted(20, 12, 10, seed=seed), norm, method="interior", tol=tol)
            assert sol.status == "optimal" and sol.gap <= tol
            steps.append(sol.iterations)
        assert steps[0] < steps[-1]
        if norm not in ("spectral", "nuclear"):  # whose polish is tried in between
            assert steps == sorted(steps)


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_a_working_set_that_grows_goes_on_from_where_it_was(p):
    """Rows that were in it keep their slacks and multipliers: some 13 iterations, and 25 from others'."""
    assert max(attsvm.solve_svm(*planted(150, 30, 12, seed=seed), p).iterations for seed in range(3)) <= 18
