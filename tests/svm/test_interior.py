"""The Frobenius interior point: tight problems, every answer proved from the raw tokens."""

import attsvm
import judge
import numpy as np
import pytest
from problems import Case, ball, nearly_twins, planted_margin, several_kept, sphere

pytestmark = pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")


def interior(case, **options):
    return attsvm.solve_svm(case.data, case.selected, method="interior", **options)


def test_ends_exactly_and_soon():
    """With a clear support the last step solves for it: the gap is rounding.  Mehrotra's steps are few."""
    sols = []
    for seed in range(10):
        rng = np.random.default_rng([seed, 40])
        X = sphere(rng, 40, 8, 10)
        best = (X @ sphere(rng, 10)).argmax(axis=1)
        sols.append(interior(Case(attsvm.cross_attention(X, sphere(rng, 40, 10)), best)))
    assert max(sol.gap for sol in sols) <= 1e-12
    assert sum(sol.iterations for sol in sols) <= 120  # 109 measured


def test_implied_equalities_get_no_multiplier():
    """Four tokens on a line: one of the three equalities of a query implies the others, at any iteration."""
    case = several_kept(redundant=True)
    for most in (1, 2, 200):
        sol = interior(case, max_iter=most)
        assert (((np.abs(sol.dual) > 1e-50) & case.selected).sum(axis=1) <= 1).all()


@pytest.mark.parametrize("feasible", [True, False])
@pytest.mark.parametrize("margin", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
def test_thin_margins(margin, feasible):
    """Every row is active, far more than dimensions: no support can be guessed, the iteration has to do it."""
    for seed in range(4):
        case = planted_margin([seed, 1], 12, 8, 4, margin, feasible)
        sol = interior(case)
        assert sol.status == case.status and judge.wrong(case, sol) is None
        assert sol.margin == pytest.approx(case.margin or 0.0, rel=2e-9 + 1e-14 / margin)


def test_nearly_singular_systems():
    """A common mean and a spectrum i^-3: Cholesky fails on the first system and needs a larger proximal term."""
    rng = np.random.default_rng([100, 16, 24, 0])
    turn, scale = np.linalg.qr(rng.standard_normal((24, 24)))[0], np.arange(1, 25.0) ** -3
    mean = rng.standard_normal(24)
    X = (rng.standard_normal((100, 16, 24)) * scale) @ turn + mean
    data = attsvm.cross_attention(X, (rng.standard_normal((100, 24)) * scale) @ turn + 0.3 * mean)
    kept = np.arange(16) == data.select(rng.standard_normal((24, 24)))[:, None]
    kept[rng.permutation(100)[:33], rng.integers(0, 16, 33)] = True
    sol = interior(case := Case(data, kept))
    assert sol.status == "optimal" and judge.wrong(case, sol) is None


def test_auto_takes_it_for_tight_problems():
    cases = [((64, 16, 12), "interior"), ((60, 16, 20), "block"), ((32, 16, 16), "active"), ((40, 8, 8), "active")]
    for shape, method in cases:
        case = ball(0, *shape)
        assert attsvm.solve_svm(case.data, case.selected).method == method


def test_auto_goes_on_where_it_fails():
    """Its multipliers of all 21000 rows do not make the active set too expensive: 121 rows at most hold W."""
    case = nearly_twins(1, 420, 51, 11)
    stuck = interior(case)
    assert stuck.status == "iteration limit" and np.count_nonzero(stuck.dual) == 21000
    sol = attsvm.solve_svm(case.data, case.selected)
    assert (sol.status, sol.method) == ("optimal", "active")
    assert judge.wrong(case, sol) is None and sol.gap <= 2e-6  # 100 eps (longest row) / margin, certificate.h
