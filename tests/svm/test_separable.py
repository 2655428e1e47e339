"""Planes between two classes, by their own proofs and in exact numbers."""

from fractions import Fraction

import attsvm
import numpy as np
import pytest
from attsvm import check
from attsvm.svm import solve as solving
from compare import close
from numpy.testing import assert_allclose, assert_array_equal


def cloud(seed, n=150, d=4):
    """Points on either side of a plane that misses the origin."""
    rng = np.random.default_rng([271, seed])
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    height = X @ w / np.linalg.norm(w)
    X += 2 * w / np.linalg.norm(w)
    away = np.abs(height) > 0.2
    return X[away], height[away] > 0


def test_the_proof_holds_every_point(tmp_path):
    X, y = cloud(9, n=400)
    plane = attsvm.separable(X, y)
    plane.separation.prove(tmp_path / "plane.json.gz")
    assert check.main([str(tmp_path / "plane.json.gz")]) == 0
    points = {tuple(x) for x in np.concatenate([X, -X])}
    assert {tuple(x) for x in plane.separation.data.keys} <= points
    assert len({tuple(np.abs(x)) for x in plane.separation.data.keys}) == len(X)


def test_one_label_changed_among_many_points():
    X, y = cloud(3, n=20_000, d=6)
    assert attsvm.separable(X, y).status == "optimal"
    y[7] = not y[7]
    assert attsvm.separable(X, y).status == "infeasible"


def test_it_speaks_of_points():
    plane = attsvm.separable([[-1.0, 0.0], [1.0, 0.0], [0.0, 9.26e-10], [0.0, 1.0]], [0, 0, 1, 1])
    assert "hulls of 1 positive and 2 negative points" in plane.message  # which a plane of a small margin separates
    assert plane.margin_bound <= float(plane.message.split()[6].strip(":")) < 5.2e-10
    text = repr(attsvm.separable([[0.0], [1.0], [3.0]], [0, 0, 1]))
    assert "Plane between 1 and 2 points: optimal" in text and "2 points: 1, 2" in text and "query" not in text


def test_a_gap_is_that_of_the_points():
    """Of points so near to each other that a gap of 1e-9 in the rows with their bias is more between the points."""
    X, y = pytest.importorskip("sklearn.datasets").load_breast_cancer(return_X_y=True)
    for points in (X, (X - X.mean(axis=0)) / X.std(axis=0)):
        plane = attsvm.separable(points, y)
        assert plane.status == "optimal" and (plane.predict(points) == y).all() and plane.separation.proved_gap() < 1e-7


def test_what_rounding_hides_is_undecided():
    X, y = cloud(6, n=20)
    plane = attsvm.separable(X + 1e15, y)
    assert plane.status == "undecided" and plane.w is None and plane.margin == 0 < plane.margin_bound
    assert plane.message == "no separating plane was found, and no proof that there is none"


@pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
def test_no_plane_is_proved_beside_far_points(tmp_path):
    """Of five points one is farther than the others by so much that rounding hides these in its bias coordinate."""
    rng, said = np.random.default_rng(278), []
    for _ in range(60):
        X, y = rng.standard_normal((5, 2)), rng.permutation(5) % 2
        X[0] *= 10.0 ** rng.integers(8, 14)
        plane = attsvm.separable(X, y)
        said.append(plane.status)
        assert said[-1] != "infeasible" or plane.separation.prove(tmp_path / "plane.json") == "no W exists"
    assert min(map(said.count, ("optimal", "infeasible"))) > 15


def test_what_is_no_question():
    for y in ([0, 0, 0], [0, 1, 2], [0, 1]):
        with pytest.raises(ValueError, match="^y must"):
            attsvm.separable(np.eye(3), y)
    with pytest.raises(ValueError, match="^y must hold two different labels, got NaN for point 1"):
        attsvm.separable(np.eye(3), np.array([0, np.nan, 1], dtype=object))
    with pytest.raises(TypeError, match="^y must hold labels that can be ordered, got NoneType, str"):
        attsvm.separable(np.eye(3), ["a", None, "b"])
    met = attsvm.separable([[0.0], [1.0], [2.0]], [0, 1, 0])
    for ask in (met.influence, lambda: met.predict([[1.0]])):
        with pytest.raises(ValueError, match="there is none|optimal plane"):
            ask()
    with pytest.raises(TypeError, match="^bias must be a bool, got str"):
        attsvm.separable(np.ones((2, 1)), [0, 1], bias="yes")
    with pytest.raises(ValueError, match=r"^X must have shape"):
        attsvm.separable([[0.0], [1.0]], [0, 1]).predict([[1.0, 2.0]])


def draws():
    """Tall and wide, with repeated points, one point of a class, points on a grid, far from the origin."""
    rng = np.random.default_rng(274)
    for n, d in [(2, 1), (12, 3), (8, 30), (20, 20), (25, 2), (30, 40)]:
        X, y = rng.standard_normal((n, d)), rng.permutation(n) % 2 == 0
        y[:2] = True, False
        yield X, y
        yield X, np.arange(n) == 1
        yield np.concatenate([X, X[:3]]), np.concatenate([y, y[:3]])
        yield X + 1000, y
        yield np.round(X), y


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.filterwarnings("error")
def test_the_bounds_hold_in_exact_numbers(bias):
    """The margin of w and b, and the distance of the means of the multipliers, by fractions; they are as near to each
    other as is promised, or the means are one point."""
    said = []
    for X, y in draws():
        plane = attsvm.separable(X, y, bias=bias)
        signs, others = np.where(y, 1, -1), np.setdiff1d(np.arange(len(X)), plane.support)
        rows = [[Fraction(v) * s for v in x] for x, s in zip(X.tolist(), signs.tolist(), strict=True)]
        dual = [Fraction(v) for v in plane.weights.tolist()]
        sums = [sum(v for v, s in zip(dual, y, strict=True) if not bias or s == side) for side in (False, True)]
        weights = [v / sums[int(s)] / (2 if bias else 1) for v, s in zip(dual, y, strict=True)]
        mean = [sum(v * row[j] for v, row in zip(weights, rows, strict=True)) for j in range(X.shape[1])]
        assert sum(v * v for v in mean) <= Fraction(plane.margin_bound) ** 2 and float(sum(sums)) == pytest.approx(
            1 if bias else 2
        )
        assert (plane.dual >= 0).all() and (plane.weights[others] < 1e-6 * plane.weights.max()).all()
        said.append(plane.status)
        if plane.w is None:
            assert plane.status == plane.separation.status == "infeasible"
            assert plane.margin == 0 <= plane.margin_bound < 1e-9 * np.abs(X).max()
            with pytest.raises(ValueError, match="which W are excluded"):
                plane.separation.proved_gap()
            continue
        w, b = [Fraction(v) for v in plane.w.tolist()], Fraction(plane.b)
        least = min(sum(map(Fraction.__mul__, w, row)) + s * b for row, s in zip(rows, signs.tolist(), strict=True))
        assert least > 0 and least**2 >= Fraction(plane.margin) ** 2 * sum(v * v for v in w)
        assert plane.status == "optimal" and plane.margin_bound / plane.margin - 1 < 1e-9
        assert 0 <= plane.separation.proved_gap() < 1e-8
        close((plane.dual * signs) @ X, plane.w, 1e-9)
        heights = signs * plane.decision_function(X)
        assert abs(heights.min() - 1) < 1e-9 and (heights[plane.support] < 1 + 1e-6).all() and (bias or plane.b == 0)
        assert_array_equal(plane.predict(X), y)
    assert 3 <= said.count("infeasible") <= len(said) - 15


@pytest.mark.parametrize(("n", "d"), [(30, 60), (40, 41), (25, 1000)])
def test_wide_points_take_a_row_each(monkeypatch, n, d):
    sparse = pytest.importorskip("scipy.sparse")
    asked = []
    monkeypatch.setattr(solving, "listeners", [asked.append])
    rng = np.random.default_rng([275, n])
    X, y = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3), np.arange(n) % 3 == 0
    plane = attsvm.separable(X, y)
    assert asked and all(sol.data.indptr[-1] <= n + 1 and sol.data.keys.shape[1] <= n + 1 for sol in asked)
    assert plane.separation.data.indptr[-1] <= 2 * n and 0 <= plane.separation.proved_gap() < 1e-8
    assert attsvm.separable(sparse.csc_array(X), y) == plane
    assert_array_equal(plane.decision_function(sparse.csr_matrix(X)), X @ plane.w + plane.b)


@pytest.mark.parametrize("bias", [True, False])
def test_influence_is_the_plane_without_the_point(bias):
    rng = np.random.default_rng(276)
    X, y = rng.standard_normal((8, 6)), np.arange(8) < 3
    plane = attsvm.separable(X, y, bias=bias)
    found = plane.influence()
    others = [attsvm.separable(np.delete(X, i, 0), np.delete(y, i), bias=bias) for i in range(8)]
    assert_allclose(found.margin, [other.margin for other in others], rtol=1e-8)
    assert_allclose(found.turn, [1 - attsvm.correlation(plane.w, other.w) for other in others], atol=1e-8)
    assert_array_equal(found.solved, np.isin(np.arange(8), plane.support))
    assert_array_equal(found.multiplier, plane.dual)
    assert "of 8; without any other point" in repr(found) and found.columns()["point"].tolist() == list(range(8))
    assert 0 < found.solved.sum() < 8 and not found.unfinished
    alone = attsvm.separable([[0.0], [1.0]], [0, 1]).influence()
    assert np.isinf(alone.margin).all() and np.isnan(alone.turn).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
@pytest.mark.filterwarnings("error")
def test_units_do_not_matter(scale):
    X, y = cloud(5, n=20)
    plane, far = attsvm.separable(X, y), attsvm.separable(X * scale, y)
    assert far.margin / scale == pytest.approx(plane.margin, rel=1e-9) and far.status == "optimal"
    assert_allclose(far.decision_function(X * scale), plane.decision_function(X), rtol=1e-6)
    assert_allclose(far.influence().margin / scale, plane.influence().margin, rtol=1e-8)
    assert far.separation.margin / scale == pytest.approx(plane.margin, rel=1e-9)


def test_a_plane_in_two_dimensions_is_drawn(ax):
    plane = attsvm.separable([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]], [0, 0, 1])
    lines = plane.plot(ax).get_lines()
    assert [line.get_xdata().tolist() for line in lines[:2]] == [[0.0], [1.0, 3.0]]
    assert [round(line.get_xy1()[0], 9) for line in lines[3:]] == [1, 2, 3]
    met = attsvm.separable([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]], [0, 1, 0])
    assert len(met.plot(ax).get_lines()) == len(lines) + 3
