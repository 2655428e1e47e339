"""Planes between two classes: against scikit-learn, against linear programming, and by their own proofs."""

from __future__ import annotations

import attsvm
import numpy as np
import pytest
from attsvm import check


def cloud(seed, n=150, d=4, gap=0.2, offset=2.0):
    """Points on either side of a plane that misses the origin."""
    rng = np.random.default_rng([271, seed])
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    height = X @ w / np.linalg.norm(w)
    X += offset * w / np.linalg.norm(w)
    return X[np.abs(height) > gap], height[np.abs(height) > gap] > 0


@pytest.mark.parametrize("seed", range(4))
def test_it_is_scikit_learns_plane(seed):
    svm = pytest.importorskip("sklearn.svm")
    X, y = cloud(seed)
    plane, peer = attsvm.separable(X, np.where(y, "yes", "no")), svm.SVC(kernel="linear", C=1e10, tol=1e-8).fit(X, y)
    assert plane.status == "optimal"
    assert plane.margin == pytest.approx(1 / np.linalg.norm(peer.coef_), rel=1e-3)  # SVC stops at its tolerance
    np.testing.assert_allclose(plane.w, peer.coef_[0], rtol=0, atol=1e-2 * np.abs(plane.w).max())
    heights = np.where(y, 1, -1) * (X @ plane.w + plane.b)
    assert heights.min() == pytest.approx(1, abs=1e-9)
    assert plane.margin == pytest.approx(1 / np.linalg.norm(plane.w), rel=1e-9)
    signs = np.where(y, 1, -1)
    np.testing.assert_allclose((plane.dual * signs) @ X, plane.w, atol=1e-9 * np.abs(plane.w).max())
    assert plane.support.tolist() == sorted(peer.support_) and (heights[plane.support] < 1 + 1e-6).all()
    assert 0 <= plane.separation.proved_gap() < 1e-8


@pytest.mark.parametrize("bias", [True, False])
def test_against_linear_programming(bias):
    """Separable or not, from 1 dimension to more than there are points."""
    optimize = pytest.importorskip("scipy.optimize")
    said = set()
    for seed in range(40):
        rng = np.random.default_rng([272, seed])
        n, d = int(rng.integers(2, 15)), int(rng.integers(1, 7))
        X, y = rng.standard_normal((n, d)), np.arange(n) % 2 == 0
        plane = attsvm.separable(X, y, bias=bias)
        signs = np.where(y, 1.0, -1.0)[:, None]
        A = np.hstack([X, np.ones((n, 1))]) if bias else X
        feasible = optimize.linprog(np.zeros(A.shape[1]), -signs * A, -np.ones(n), bounds=(None, None)).status == 0
        assert plane.status == ("optimal" if feasible else "infeasible"), seed
        said.add(plane.status)
        if feasible:
            assert (signs[:, 0] * (X @ plane.w + plane.b)).min() == pytest.approx(1, abs=1e-7)
            assert plane.b == 0 or bias
        else:
            assert plane.w is None and plane.margin == 0
            weights = plane.dual * signs[:, 0]  # a mean of points of one class is one of the other
            np.testing.assert_allclose(weights @ A, 0, atol=1e-8 * plane.dual.max())
            with pytest.raises(ValueError, match="which W are excluded"):
                plane.separation.proved_gap()
    assert said == {"optimal", "infeasible"}


def test_the_proof_holds_every_point(tmp_path):
    X, y = cloud(9, n=400)
    plane = attsvm.separable(X, y)
    plane.separation.prove(tmp_path / "plane.json.gz")
    assert check.main([str(tmp_path / "plane.json.gz")]) == 0
    points = {tuple(x) for x in np.concatenate([X, -X])}
    assert {tuple(x) for x in plane.separation.data.keys} <= points
    assert len({tuple(np.abs(x)) for x in plane.separation.data.keys}) == len(X)
    plane.save(tmp_path / "plane.npz")
    again = attsvm.load(tmp_path / "plane.npz")
    assert again.b == plane.b and again == plane and (again.w == plane.w).all()


def test_one_label_changed_among_many_points():
    X, y = cloud(3, n=20_000, d=6)
    assert attsvm.separable(X, y).status == "optimal"
    y[7] = not y[7]
    assert attsvm.separable(X, y).status == "infeasible"


def test_it_speaks_of_points():
    plane = attsvm.separable([[0.0, 1.0], [0.0, 1.0], [2.0, 3.0]], [1, 0, 0])
    assert plane.message == "not separable: points 0 and 1 are equal, to rounding, and have different labels"
    text = repr(attsvm.separable([[0.0], [1.0], [3.0]], [0, 0, 1]))
    assert "Plane between 1 and 2 points: optimal" in text and "2 points: 1, 2" in text and "query" not in text


def test_what_is_no_question():
    for y in ([0, 0, 0], [0, 1, 2], [0, 1]):
        with pytest.raises(ValueError, match="^y must"):
            attsvm.separable(np.eye(3), y)
    with pytest.raises(ValueError, match="^X must"):
        attsvm.separable([[np.nan]], [1])
