"""The chance that random tokens can be selected, against Cover's count, exact convolution and proved problems."""

import math
from fractions import Fraction

import attsvm
import numpy as np
import pytest
from attsvm.theory.random_tokens import capacity, log_volumes
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm


def textbook(T):
    """v_1 .. v_T by SciPy; the angles from sum v = 1, which cancels for large T."""

    def above(m, j):
        return quad(lambda w: norm.pdf(w) * norm.cdf(w / math.sqrt(j + 1)) ** m, -12, 12, epsabs=1e-15)[0]

    inside = [1.0]
    for s in range(1, T):
        inside.append(1 - sum(math.comb(s, j) * above(s - j, j) * inside[j] for j in range(s)))
    return np.array([math.comb(T - 1, T - k) * above(k - 1, T - k) * inside[T - k] for k in range(1, T + 1)])


@pytest.mark.parametrize("T", [1, 2, 3, 5, 8, 12])
def test_volumes_are_those_of_the_textbook(T):
    assert_allclose(np.exp(log_volumes(T)), textbook(T), rtol=1e-6, atol=1e-13)


@pytest.mark.parametrize("T", [2, 20, 60, 150])
def test_volumes_add_up(T):
    """To 1, and with alternating signs to 0 (Gauss and Bonnet)."""
    v = np.exp(log_volumes(T))
    assert v.sum() == pytest.approx(1, abs=1e-11)
    assert v @ (-1.0) ** np.arange(T) == pytest.approx(0, abs=1e-11)


@pytest.mark.parametrize("n, d", [(4, 2), (50, 10), (500, 200), (500, 300), (3000, 1400), (400, 3)])
def test_two_tokens_are_cover_s_count(n, d):
    exact = Fraction(sum(math.comb(n - 1, k) for k in range(d)), 2 ** (n - 1))
    assert capacity(n, 2, d) == pytest.approx(float(exact), rel=1e-8, abs=1e-300)
    assert capacity(n, [2] * n, d) == capacity(n, 2, d)


@pytest.mark.parametrize(
    "lengths, d", [([3] * 10, 8), ([5] * 7, 8), ([8] * 5, 7), ([2, 5, 3, 1, 8], 6), ([2, 5, 3, 1, 8], 12)]
)
def test_chances_are_those_of_plain_convolution(lengths, d):
    p = np.array([1.0])
    for T in lengths:
        p = np.convolve(p, [0.0, *textbook(T)])
    wanted = 2 * p[sum(lengths) - d + 1 :: 2].sum()
    assert capacity(len(lengths), lengths, d) == pytest.approx(wanted, rel=1e-9)


def test_enough_dimensions_are_enough_and_more_never_hurt():
    assert capacity(5, 3, 10) == capacity(5, 1, 1) == 1.0
    chances = [capacity(60, 4, d) for d in range(1, 181)]
    assert (np.diff(chances) >= -1e-12).all()
    assert chances[0] == pytest.approx(2 / 4**60, rel=1e-9)  # along one line either end or the other


def test_what_has_no_formula_is_refused():
    with pytest.raises(ValueError, match="T - 1 must be at most dk = 2 where dz > 1, got T = 8"):
        capacity(3, 8, 2, 4)
    with pytest.raises(ValueError, match=r"T must be one length or have shape \(n,\) = \(3,\), got \(2,\)"):
        capacity(3, [2, 2], 2)
    with pytest.raises(ValueError, match="n must be"):
        capacity(0, 2, 2)


def separable(rng, n, T, dk, dz):
    Z = rng.standard_normal((n, dz)) if dz > 1 else np.ones((n, 1))
    return attsvm.feasible(attsvm.cross_attention(rng.standard_normal((n, T, dk)), Z), np.zeros(n, int)).W is not None


@pytest.mark.slow
def test_a_hundred_thousand_proved_problems():
    """Chi-square of 100 random shapes with 1,000 problems each, at the level of one in a million."""
    rng, chi = np.random.default_rng(2), []
    while len(chi) < 100:
        n, T, dk, dz = (int(rng.integers(*r)) for r in ((2, 15), (2, 7), (1, 9), (1, 4)))
        if dz > 1 and T - 1 > dk:
            continue
        p = capacity(n, T, dk, dz)
        if not 0.01 < p < 0.99:
            continue
        found = sum(separable(rng, n, T, dk, dz) for _ in range(1000))
        chi.append((found - 1000 * p) ** 2 / (1000 * p * (1 - p)))
    assert 51 < sum(chi) < 176  # the central 1 - 2e-6 of chi-square with 100 degrees of freedom
