"""Margins of each row's own, beyond what test_answers.py draws: rounding, entries without a row, ties of a run."""

import attsvm
import judge
import numpy as np
import pytest
from builders import tied
from problems import Case, sphere


@pytest.mark.parametrize("seed", [13, 16, 17, 22])
def test_weights_of_rounding_alone_are_none(seed):
    """Weights of norm 1e13 seem to reach these margins; multipliers combine the rows to zero."""
    rng = np.random.default_rng(seed)
    X, Z = 5 * rng.standard_normal(5) + rng.standard_normal((16, 11, 5)), rng.standard_normal((16, 11))
    selected = np.arange(11) == rng.integers(0, 11, 16)[:, None]
    selected[::3, 0] = True
    case = Case(attsvm.cross_attention(X, Z), selected, asked=0.6 + 0.5 * rng.standard_normal((16, 11)))
    for method in ("active", "interior"):
        sol = attsvm.solve_svm(case.data, selected, margins=case.asked, method=method)
        assert sol.status == "infeasible" and judge.wrong(case, sol) is None, method


def test_what_a_causal_query_cannot_see_is_not_read():
    data = attsvm.causal_attention(sphere(np.random.default_rng(0), 2, 4, 6))
    selected = data.select(np.eye(6))
    one, other = (attsvm.solve_svm(data, selected, margins=asked) for asked in (np.ones((2, 4, 4)), None))
    np.testing.assert_array_equal(one.W, other.W)


@pytest.mark.parametrize("scale", [1.0, 1e-13])  # of the scores: what counts as equal has it too
def test_ties_of_a_run_have_no_row(scale):
    """The best token's value twice: training goes to the SVM without the rows between the two."""
    problem, best, twin = tied(scale)
    run = attsvm.train(problem, steps=4000, record=0)
    with pytest.warns(UserWarning, match="in 4 of 4 queries of the run another token scores as much"):
        sol = attsvm.solve_svm(problem.data, run)
    margins = np.ones((4, 6))
    margins[np.arange(4), np.where(run.selected == best, twin, best)] = -np.inf
    assert (sol.W == attsvm.solve_svm(problem.data, run.selected, margins=margins).W).all()
    assert attsvm.correlation(run.W, sol.W) > 0.999
    assert attsvm.correlation(run.W, attsvm.solve_svm(problem.data, run.selected).W) < 0.99
