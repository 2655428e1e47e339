"""Samplers against what their docstrings say."""

import attsvm
import numpy as np
from numpy.testing import assert_allclose


def test_the_signal_is_where_the_true_label_says():
    X, y, truth = attsvm.sample.signal_noise(2000, 4, 5, 3.0, weak=0.5, wrong=0.25, rng=1)
    assert 0.2 < (y != truth).mean() < 0.3  # 5 standard deviations
    for label, own, other in ((1, 0, 1), (-1, 1, 0)):
        expected = np.zeros((4, 5))
        expected[0, own], expected[1, own], expected[2, other] = 3.0, 1.5, 1.5
        rest = X[truth == label] - expected
        assert_allclose(rest.mean(axis=0), 0, atol=0.15)  # 4.7 standard deviations of a mean of 1,000
        assert_allclose(rest.std(axis=0), 1, atol=0.12)
    _, y, truth = attsvm.sample.signal_noise(50, 3, 2, 1.0, wrong=0.0)
    assert (y == truth).all()
