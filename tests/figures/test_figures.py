"""Figures measure what they say they measure, and claims can fail."""

from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
from attsvm import plot
from attsvm.common import storage
from attsvm.plot.curves import correlations, finish
from attsvm.reproduce.figures import local_convergence as figure
from attsvm.reproduce.problems import flat, linear_layer, sphere_problem
from attsvm.reproduce.textbook import Sequences, certificate, loss_gradient, softmax, tokens_of
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal

SEED = 3


def rng():
    return np.random.default_rng(SEED)


@pytest.fixture(scope="module")
def one():
    """One seed by the figure, and by the package's public functions."""
    start = rng()
    problem, (W, *_) = sphere_problem(start), linear_layer(start, 3, 10, 10)
    data, (X, Z) = problem.data, tokens_of(problem.data)
    run = attsvm.train(problem, W, record=10)
    solutions = {norm: attsvm.solve_svm(data, run.selected, norm) for norm in ("frobenius", "nuclear")}
    return SimpleNamespace(
        X=X, Z=Z, problem=problem, run=run, solutions=solutions, found=flat(figure.experiment(rng()))
    )


def _tampered(solution, **changes):
    fields = {name: getattr(solution, name) for name in ("data", "selection", "W", "dual", "norm", "metric")}
    return SimpleNamespace(**{**fields, **changes})


def test_certificate_sees_through_a_wrong_solution(one):
    for solution in one.solutions.values():
        good = certificate(solution)
        assert abs(good["gap"]) < 1e-9 and good["rank"] == solution.rank
        slack = solution.dual.copy()
        slack[np.where(slack == 0)] = 0.1  # every token that is not support, and the selected ones
        for changes in (
            {"W": solution.W + 0.01 * np.outer(one.X[0, 0], one.Z[0])},
            {"dual": slack},
            {"dual": solution.dual + np.where(solution.dual > 0, 0.1, 0)},
        ):
            assert certificate(_tampered(solution, **changes))["gap"] > 1e-5
    frobenius, nuclear = one.solutions.values()
    confused = _tampered(frobenius, norm="nuclear")
    assert certificate(confused)["gap"] > 0.01
    assert np.isnan(list(certificate(_tampered(nuclear, W=None)).values())).all()


def test_the_textbook_gradient_is_a_central_difference(one):
    rng = np.random.default_rng(0)
    W, step = rng.standard_normal((2, 10, 10))
    at = Sequences(one.X, one.Z, one.problem.scores)

    def loss(W):
        attention = softmax(np.einsum("ntd,nd->nt", one.X, one.Z @ W.T))
        return np.logaddexp(0, -(attention * one.problem.scores).sum(axis=1)).mean()

    along = np.vdot(loss_gradient(at, W), step)
    assert along == pytest.approx((loss(W + 1e-6 * step) - loss(W - 1e-6 * step)) / 2e-6, rel=1e-7)
    several = loss_gradient(Sequences(*(np.stack([a] * 3) for a in at)), np.stack([W] * 3))
    assert_allclose(several[2], loss_gradient(at, W), atol=1e-15)


def test_csv_reads_back_exactly(tmp_path):
    values = np.random.default_rng(0).standard_normal(5)
    storage.write_table(tmp_path / "a.csv", ["step", "x"], enumerate(values.tolist()))
    read = np.genfromtxt(tmp_path / "a.csv", delimiter=",", names=True)
    assert (read["x"] == values).all() and (read["step"] == np.arange(5)).all()


def test_band_is_mean_and_percentiles_of_the_runs_that_happened(ax):
    curves = np.vstack([np.arange(11.0)[:, None] * [1, 2], [np.nan, 0]])
    assert plot.band([0, 1], curves, "x", ax=ax) is ax
    assert_allclose(ax.lines[0].get_ydata(), [5, 10])
    edges = ax.collections[0].get_paths()[0].vertices
    at_end = edges[edges[:, 0] == 1, 1]
    assert at_end.min() == pytest.approx(2) and at_end.max() == pytest.approx(18)
    assert len(plot.band([0, 1], curves[-1:], ax=ax).lines) == 1  # nothing to draw


def test_run_curves(one, ax):
    plot.correlation(one.run, one.solutions["nuclear"], ax=ax, linewidth=3)
    line = ax.lines[0]
    assert_allclose(line.get_ydata(), one.found["W nuclear"][:201], atol=1e-12)
    curve = correlations(np.stack([np.zeros((10, 10)), one.run.W]), one.run.W)
    assert np.isnan(curve[0]) and curve[1] == pytest.approx(1)  # weights of zero have no direction
    assert line.get_linewidth() == 3 and line.get_linestyle() == "--" and "nuclear" in line.get_label()
    plot.saturation(one.run, ax=ax)
    assert_allclose(ax.lines[1].get_ydata(), one.found["W softmax"][:201], atol=1e-12)
    none = attsvm.solve_svm(attsvm.cross_attention(np.ones((1, 2, 2)), [[1.0]]), [0])
    with pytest.raises(ValueError, match="solution must have weights, got one that is infeasible"):
        plot.correlation(one.run, none, ax=ax)


def test_attention_of_ragged_windows(ax):
    plot.attention([np.array([0.25, 0.75]), np.array([1.0]), np.array([0.2, 0.3, 0.5])], [1, 0, 2], ax=ax)
    shown = ax.images[0].get_array()
    assert shown.shape == (3, 3)
    assert_array_equal(np.ma.getmaskarray(shown), [[0, 0, 1], [0, 1, 1], [0, 0, 0]])
    assert ax.lines[0].get_xdata().tolist() == [1, 0, 2]


def test_attention_of_several_queries(ax):
    plot.attention(np.full((2, 3, 4), 0.25), np.zeros((2, 3), int), ax=ax)
    assert ax.images[0].get_array().shape == (6, 4) and len(ax.lines[0].get_xdata()) == 6


def test_saturation_of_ragged_data(ax):
    X = [np.eye(3)[:2], np.eye(3)]
    problem = attsvm.Problem(attsvm.self_attention(X), [1, -1], attsvm.LinearHead([1.0, 0.5, 0.2]))
    run = attsvm.train(problem, steps=4, record=1)
    plot.saturation(run, ax=ax)
    assert ax.lines[0].get_ydata()[0] == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_a_panel_without_labels_has_no_legend_and_no_warning():
    for label in (None, "W"):
        ax = Figure().add_subplot()
        ax.plot([0, 1], [0, 1], label=label)
        finish(ax, "")  # a warning is an error here
        assert (ax.get_legend() is not None) == (label is not None)
