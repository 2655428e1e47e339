"""How balanced trained factors are, recomputed from factors that a callback has seen."""

import attsvm
import numpy as np
import pytest
from numpy.testing import assert_allclose


def by_hand(K, Q):
    product = K @ np.swapaxes(Q, -1, -2)
    return ((K**2).sum(axis=(-1, -2)) + (Q**2).sum(axis=(-1, -2))) / 2 / np.linalg.norm(product, "nuc", axis=(-2, -1))


@pytest.mark.parametrize("heads", [None, 3])
def test_balance_is_that_of_the_factors_at_each_record(heads, sphere):
    K, Q = np.random.default_rng(0).standard_normal((2, *((heads,) if heads else ()), 10, 4))
    s, seen = sphere(seed=1), []
    problem = attsvm.Problem(s.data, s.y, s.problem.head, heads=heads)
    run = attsvm.train(problem, K=K, Q=Q, steps=50, record=10, callback=lambda run: seen.append(by_hand(run.K, run.Q)))
    assert_allclose(run.balance, seen, rtol=1e-12)
    assert run.balance.shape == (6, *K.shape[:-2]) and (run.balance >= 1).all() and (run.balance[0] > 1.01).all()


def test_balanced_factors_have_balance_one(sphere):
    problem = sphere(seed=1).problem
    U, s, V = np.linalg.svd(np.random.default_rng(0).standard_normal((10, 10)))
    run = attsvm.train(problem, K=U * np.sqrt(s), Q=V.T * np.sqrt(s), steps=0)
    assert_allclose(run.balance, 1, rtol=1e-13)
    assert np.isinf(attsvm.train(problem, K=U, Q=0 * U, steps=0).balance).all()
    assert attsvm.train(problem, steps=0).balance is None
