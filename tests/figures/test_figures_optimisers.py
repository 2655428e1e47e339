"""The figure of the optimisers measures what it says, and its claims can fail."""

from __future__ import annotations

import attsvm
import numpy as np
import pytest
from attsvm.figures import optimisers
from attsvm.figures._instances import sphere_problem

OWN = list(optimisers.OWN)


@pytest.fixture
def results(results):
    return results(optimisers)


def test_shares_are_those_of_a_run_made_by_hand(results):
    rng = np.random.default_rng(np.random.SeedSequence(3).spawn(1)[0])
    problem = sphere_problem(rng, optimisers.N, optimisers.T, optimisers.D)
    lr = 0.3 / np.sqrt(np.arange(1, 8001))
    for name, norm in (("sign", "max"), ("spectral", "spectral")):
        run = attsvm.train(problem, rule=name, lr=lr, steps=8000, record=optimisers.RECORDS)
        low, high = attsvm.margin_share(run.data, run.selected, run.weights[1:], norm)
        i = OWN.index(name)
        np.testing.assert_allclose(results["along"][0, i], low, rtol=1e-9)
        assert results["shares"][0, i, optimisers.NORMS.index(norm)] == results["along"][0, i, -1]
        selected = [run.data.select(W) for W in run.weights]
        k = max((k for k, tokens in enumerate(selected) if not np.array_equal(tokens, run.selected)), default=-1)
        assert results["last change"][0, i] == run.steps[k + 1]
    run = attsvm.train(problem, rule="shampoo", lr=3.0, steps=8000, record=0)
    frozen = attsvm.train(problem, run.W, metric=run.metric, lr=0.3, steps=8000, record=0)
    i = optimisers.RULES.index("Shampoo")
    for k, which in enumerate((run, frozen)):
        answer = attsvm.solve_svm(which.data, which.selected, metric=run.metric)
        expected = attsvm.correlation(which.W, answer.W)
        np.testing.assert_allclose(results["metric"][0, i, k, 1], expected, rtol=1e-9)
    with_metric = {name for name in optimisers.RULES if name.split(",")[0] in ("AdaGrad", "Shampoo", "Adam")}
    assert set(np.array(optimisers.RULES)[~np.isnan(results["metric"][0, :, 0, 0])]) == with_metric - {"Adam, .9, 0"}


def test_the_exponent_is_that_of_a_power():
    along = 1 - 0.7 * np.power(optimisers.RECORDS.astype(float), [[-0.5], [-0.25]])
    np.testing.assert_allclose(optimisers.exponent(along), [-0.5, -0.25], rtol=1e-10)


def test_adam_diverges_where_its_mean_remembers_longer_than_its_square(results):
    """beta_2 = 0 and beta_1 = .9: m over the present gradient, which falls like e^-k, grows without end."""
    assert results["diverged"].all(axis=0).tolist() == [name == "Adam, .9, 0" for name in optimisers.RULES]
