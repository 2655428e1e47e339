"""Projections: against readable twins, and against the inequality that only the nearest point satisfies."""

import judge
import numpy as np
import pytest
import reference
from attsvm import _core
from numpy.testing import assert_allclose, assert_array_equal

BALLS = _core.BALL


@pytest.mark.parametrize(
    "sigma",
    [
        [0.3],
        [1.0, 1.0, 1.0],
        [0.2, 0.5, 0.1, 0.4],
        [1e9, 1e9 + 0.5, 0.0],  # sums of the raw entries would lose seven digits
        [5e-324, 0.0, 0.0],
        list(np.linspace(0, 1, 101)),
    ],
)
@pytest.mark.parametrize("radius", [0.0, 1e-3, 1.0, 40.0])
def test_singular_values_go_to_the_simplex(sigma, radius):
    kept = np.diag(sigma)
    found = _core.projection_ball(kept, 1, radius)
    assert_array_equal(kept, np.diag(sigma))
    scale = max(radius, *sigma)
    expected = reference.projection_simplex(np.array(sigma), radius) if sum(sigma) > radius else sigma
    assert_allclose(found, np.diag(expected), rtol=0, atol=2e-15 * scale)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 4), (7, 3), (3, 40)])
@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("radius", [0.0, 0.3, 1.0, 4.0, 1e9])
def test_ball(rng, shape, ball, radius):
    W = rng.standard_normal(shape)
    found = _core.projection_ball(W, BALLS[ball], radius)
    assert_allclose(found, reference.projection_ball(W, ball, radius), atol=1e-14 * np.linalg.norm(W))
    assert judge.norms_of(found, ball)[0] <= radius * (1 + 1e-14)
    if judge.norms_of(W, ball)[0] <= radius:
        assert_array_equal(found, W)
    # Nothing in the ball is nearer: its linear function W - found is largest over the ball at found itself.
    _, dual_norm = judge.norms_of(W - found, ball)
    assert radius * dual_norm == pytest.approx(np.vdot(W - found, found), abs=1e-13 * (1 + radius))


def test_norms_beyond_the_range_of_squares(rng):
    W = rng.standard_normal((3, 3))
    W /= np.linalg.norm(W)
    assert_allclose(_core.projection_ball(1e200 * W, 0, 2.0), 2 * W, rtol=1e-14)
    assert_allclose(_core.projection_ball(1e-200 * W, 0, 1e-201), 1e-201 * W, rtol=1e-14)
