"""Derivatives of an answer against differences of answers, and refused where the support changes."""

import pickle

import attsvm
import numpy as np
import pytest
from attsvm.svm.derivative import Tangent
from compare import close
from marks import slow

WAYS = {
    "frobenius": {},
    "soft": {"C": 1.0},
    "several": {},
    "margins": {},
    "nuclear": {"norm": "nuclear"},
    "max": {"norm": "max"},
    "l3": {"norm": 3.0},
    "l1.5": {"norm": 1.5},
}
STEP = 1e-6


def draw(way, rng):
    n, T, dk, dz = (int(rng.integers(*range_)) for range_ in ((1, 9), (3, 6), (1, 6), (1, 6)))
    X, Z = rng.standard_normal((n, T, dk)), rng.standard_normal((n, dz))
    selected = attsvm.cross_attention(X, Z).select(rng.standard_normal((dk, dz)))
    options = dict(WAYS[way])
    if way == "several":
        selected = np.arange(T) == selected[:, None]
        selected[0, rng.integers(T)] = True
    if way == "margins":
        options["margins"] = rng.random((n, T)) + 0.1
    return X, Z, selected, options


def exact(X, Z, selected, options):
    """W and margin at the solver's support, without its tolerance."""
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), selected, **options)
    W = Tangent(sol).W
    assert np.abs(W - sol.W).max() <= 1e-3 * np.abs(sol.W).max()  # by the tolerance: the same problem
    return W, sol.margin


def check(way, seed):
    """Whether a problem was compared; 0 where it has no derivative or none near it."""
    rng = np.random.default_rng(seed)
    X, Z, selected, options = draw(way, rng)
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), selected, **options)
    if sol.status != "optimal":
        return 0
    dX, dZ, G = (rng.standard_normal(shape) for shape in (X.shape, Z.shape, sol.W.shape))
    try:
        dW, dmargin = sol.derivative(dX, dZ)
        # If the support changes within the longer step, the two differences do not agree.
        ends, second = (
            [exact(X + h * dX, Z + h * dZ, selected, options) for h in (step, -step)] for step in (STEP, 3 * STEP)
        )
    except ValueError:
        return 0
    differences = (ends[0][0] - ends[1][0]) / (2 * STEP)
    if np.abs(differences - (second[0][0] - second[1][0]) / (6 * STEP)).max() > 1e-4 * np.abs(dW).max():
        return 0
    assert np.abs(differences - dW).max() <= 2e-5 * np.abs(dW).max(), (way, seed)
    if "C" in options:
        assert np.isnan(dmargin)
    else:  # margins are certified to 1e-9, a difference of two over the step to 1e-3
        assert abs((ends[0][1] - ends[1][1]) / (2 * STEP) - dmargin) <= 2e-3 * sol.margin + 1e-4 * abs(dmargin)
    weight = 0.0 if "C" in options else 0.7
    gX, gZ = Tangent(sol).backward(G, weight)
    forwards = np.vdot(G, dW) + (weight * dmargin if weight else 0.0)
    backwards = np.vdot(gX, dX) + np.vdot(gZ, dZ)
    assert backwards == pytest.approx(forwards, rel=1e-9, abs=1e-9 * np.abs(dW).max())
    return 1


@pytest.mark.parametrize(("seeds", "least"), [(range(8), 4), slow(range(1000, 1250), 150)])
@pytest.mark.parametrize("way", WAYS)
def test_differences(way, seeds, least):
    assert sum(check(way, seed) for seed in seeds) >= least


def test_margin_has_its_own_formula():
    """dmargin = -margin^3 <W, dW>, of a Frobenius answer."""
    X, Z, selected, _ = draw("frobenius", np.random.default_rng(0))
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), selected)
    dW, dmargin = sol.derivative(dX=X, dZ=None)
    assert dmargin == pytest.approx(-(sol.margin**3) * np.vdot(sol.W, dW), rel=1e-6)
    close(dW, -sol.W, 1e-6)  # tokens twice as long: half of W


PLAIN = [[1.0, 0.0], [0.0, 0.0], [0.0, 0.5]]
# Gram matrix of condition 1e11, both rows with half of the multiplier.
NEAR = [[[1.0, 3e-6], [0.0, 0.0]], [[1.0, -3e-6], [0.0, 0.0]]]


@pytest.mark.parametrize(
    ("X", "options", "direction", "why"),
    [
        ([PLAIN[:2]] * 2, {}, {}, "on the margin with no multiplier|depend on each other"),
        (NEAR, {}, {}, "depend on each other"),
        ([[*PLAIN[:2], [0.0, 1.0]]], {}, {}, "token [12] of query 0 is on the margin with no multiplier"),
        ([[[1.0], [1.0]]], {}, {}, "optimal answer, got one that is 'infeasible'"),
        ([PLAIN], {"norm": "spectral"}, {}, "spectral norm are not implemented"),
        ([PLAIN], {"metric": np.ones((2, 1))}, {}, "in a metric are not implemented"),
        ([PLAIN], {}, {"dX": np.zeros((1, 2, 2))}, "dX must have the shape of what it moves"),
    ],
)
def test_refused_with_the_reason(X, options, direction, why):
    sol = attsvm.solve_svm(attsvm.cross_attention(X, np.ones((len(X), 1))), [0] * len(X), **options)
    with pytest.raises(ValueError, match=why):
        sol.derivative(**direction)


@pytest.mark.parametrize(("off", "grows"), [(1e-5, False), (4e-7, True)])
def test_refused_where_the_rank_may_grow(off, grows):
    """W = w w^T, w = (1, 1), from rows e e^T and u u^T, u = (off, 1): the multipliers' other singular value is
    1 - 2 off, and the rank is two where it is 1."""
    u = np.array([off, 1.0])
    data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 0.0]], [u, [0.0, 0.0]]], [[1.0, 0.0], u])
    sol = attsvm.solve_svm(data, [0, 0], norm="nuclear", margins=[[1, 1], [1, (1 + off) ** 2]], tol=1e-12)
    np.testing.assert_allclose(sol.W, 1, atol=1e-3)
    if grows:
        with pytest.raises(ValueError, match="rank may grow"):
            sol.derivative()
    else:
        sol.derivative()


def test_an_answer_goes_to_another_process():
    X, Z, selected, _ = draw("frobenius", np.random.default_rng(0))
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), selected)
    sol.derivative(dX=X)
    assert pickle.loads(pickle.dumps(sol)) == sol
