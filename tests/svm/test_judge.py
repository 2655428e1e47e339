"""The judge of SVM answers notices each way in which an answer can be wrong."""

from types import SimpleNamespace

import attsvm
import judge
import numpy as np
import pytest
from kinds import draw
from scipy.optimize import linprog

FIELDS = (
    "status W dual certificate margin margin_bound gap norm metric C slack support objective objective_bound".split()
)


class Answer(SimpleNamespace):
    def __repr__(self):
        return self.status


def answer(kind, status, number=0, **options):
    """A problem of a kind with that status, several rows that hold W and an equality row among the margins that are
    asked; and its answer as something that can be changed."""
    while True:
        case = draw(kind, number)
        sol = attsvm.solve_svm(case.data, case.selected, margins=case.asked, **options)
        held = sol.W is None or (np.abs(sol.dual) > 1e-6 * np.abs(sol.dual).max()).sum() > 3
        if sol.status == status and held and (case.asked is None or judge.rows_of(case).equal.any()):
            assert judge.wrong(case, sol) is None
            return case, Answer(**{name: getattr(sol, name) for name in FIELDS})
        number += 1


def wrong(case, sol, **change):
    return judge.wrong(case, Answer(**{**vars(sol), **change}))


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "max", "spectral", 1.75, 3.0])
def test_norms_are_dual_to_each_other(norm):
    """<W, V> is at most ||W|| ||V||_*, and just that for the W that V is steepest along."""
    V, *others = np.random.default_rng(0).standard_normal((100, 4, 3))
    U, _, Vt = np.linalg.svd(V, full_matrices=False)
    q = norm / (norm - 1) if isinstance(norm, float) else 2
    steepest = {"max": np.sign(V), "spectral": U @ Vt, "nuclear": np.outer(U[:, 0], Vt[0])}
    W, dual = steepest.get(norm, np.sign(V) * np.abs(V) ** (q - 1)), judge.norms_of(V, norm)[1]
    assert np.vdot(W, V) == pytest.approx(float(judge.norms_of(W, norm)[0] * dual), rel=1e-12)
    assert all(np.vdot(W, V) <= judge.norms_of(W, norm)[0] * dual for W in others)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "max", "spectral", 3.0])
@pytest.mark.parametrize("kind", ["random", "margins: lognormal"])
def test_false_optimal_answers(kind, norm):
    case, sol = answer(kind, "optimal", norm=norm)
    rng = np.random.default_rng(0)
    for change in (
        {"W": sol.W * (1 - 1e-7)},  # misses margins
        {"W": sol.W * (1 + 1e-7)},  # is too long
        {"W": sol.W + 1e-4 * np.abs(sol.W).max() * rng.standard_normal(sol.W.shape)},
        {"W": None},
        {"dual": sol.dual * (1 + 1e-3 * rng.random(sol.dual.shape))},
        {"dual": sol.dual - 1e-12 * sol.dual.max()},  # the reference's, too
        {"dual": np.zeros_like(sol.dual)},
        {"dual": None},
        {"margin": sol.margin * (1 + 1e-7)},
        {"margin_bound": sol.margin_bound * (1 - 1e-7)},
        {"gap": np.nan},
        {"support": sol.support | True},
    ):
        assert wrong(case, sol, **change) is not None, change
    if norm in ("max", 3.0):
        assert wrong(case, sol, dual=1.001 * sol.dual) is not None
    negative = sol.dual.copy()
    negative[np.unravel_index(negative.argmax(), negative.shape)] *= -1
    assert wrong(case, sol, dual=negative) is not None


def test_equality_rows_off_their_value():
    case, sol = answer("margins: met", "optimal", 3)
    rows = judge.rows_of(case)
    k = int(np.argmax(rows.equal))
    push = np.outer(rows.delta[k], rows.z[rows.query[k]]).astype(float)
    sol.W = sol.W + 1e-6 * np.linalg.norm(sol.W) * push / np.linalg.norm(push)
    assert judge.wrong(case, sol) == "W misses a row"


def test_false_infeasible_answers():
    case, sol = answer("more queries than dimensions", "infeasible")
    for change in (
        {"certificate": sol.certificate * 1e-3},  # not of order one
        {"certificate": sol.certificate * (np.random.default_rng(0).random(sol.certificate.shape) < 0.5)},
        {"certificate": -sol.certificate},
        {"W": np.eye(case.data.dk, case.data.dz)},
        {"margin": 0.1},
    ):
        assert wrong(case, sol, **change) is not None, change
    feasible, good = answer("random", "optimal")
    false = Answer(**{**vars(good), "status": "infeasible", "W": None, "dual": None, "margin": 0.0})
    rows = judge.rows_of(feasible)
    assert judge._separable(rows, linprog) > 1e-3
    false.certificate = np.where(good.dual > 0, 1.0, 0.0)
    assert judge.wrong(feasible, false, linprog=linprog) is not None


def test_a_linear_program_finds_no_W_for_a_false_optimum():
    case, _ = answer("more queries than dimensions", "infeasible")
    assert judge._separable(judge.rows_of(case), linprog) < 1e-3


@pytest.mark.parametrize("C", [1e-2, 10.0])
def test_false_soft_answers(C):
    case, sol = answer("tight", "optimal", C=C)
    for change in (
        {"W": sol.W * (1 + 1e-3)},
        {"dual": sol.dual * (1 + 1e-3 * np.random.default_rng(0).random(sol.dual.shape))},
        {"slack": sol.slack * (1 + 1e-3)},
        {"objective": sol.objective * (1 - 1e-6)},
        {"objective_bound": sol.objective_bound * (1 + 1e-6)},
    ):
        assert wrong(case, sol, **change) is not None, change


def test_constraints_that_are_there():
    case, sol = answer("random", "optimal")
    assert wrong(case, sol, status="no constraint", W=0 * sol.W, gap=0.0) == "there are constraints"


def test_open_answers_with_false_bounds():
    case, sol = answer("random", "optimal")
    for change in ({"margin": 1.1 * sol.margin}, {"margin_bound": 0.9 * sol.margin_bound}):
        assert wrong(case, sol, status="iteration limit", **change) is not None
    assert wrong(case, sol, status="undecided") is not None
