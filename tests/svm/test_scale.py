"""Scales of double precision, and tokens that change after the data were made: an answer that holds, or a ValueError
that names the scale or the argument."""

import attsvm
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytestmark = pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
WAYS = [
    {},
    {"method": "block"},
    {"method": "interior"},
    {"method": "gradient"},
    {"norm": "nuclear"},
    {"norm": "nuclear", "method": "factored"},
    {"norm": 3.0},
    {"norm": 1.1},  # q = 11: unscaled powers of the adjoint would vanish
    {"C": 1.0},
]
POWERS = [-1000, -900, -650, -450, -210, 0, 210, 450, 650, 900, 1000]


def solve(X, Z, selected, **way):
    return attsvm.solve_svm(attsvm.cross_attention(X, Z), selected, **way)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_scale_is_solved_or_named(way, rng):
    """Powers of two round nothing: what is solved is the answer of scale 1, scaled."""
    X, Z = rng.standard_normal((6, 8, 10)), rng.standard_normal((6, 10))
    selected = np.zeros(6, dtype=np.intp)
    one = solve(X, Z, selected, **way)
    assert one.status == "optimal"
    solved = 0
    for tokens in POWERS:
        for queries in (0, tokens):
            try:
                with np.errstate(over="ignore"):
                    C = {"C": np.ldexp(way["C"], -2 * (tokens + queries))} if "C" in way else {}
                sol = solve(np.ldexp(X, tokens), np.ldexp(Z, queries), selected, **(way | C))
            except ValueError as error:
                assert "scale" in str(error) or "C must be" in str(error)
                continue
            solved += 1
            assert sol.status == "optimal" and "optimal" in repr(sol)
            assert_allclose(np.ldexp(sol.W, tokens + queries), one.W, rtol=1e-6, atol=1e-9)
            assert np.isfinite(sol.dual).all() and sol.dual.max() > 0
            assert sol.gap <= 1e-6
    assert solved >= (5 if "C" in way else 13)  # W of up to 2^1000; a soft margin's multipliers go with its square


def test_margins_beyond_double_precision_are_named(rng):
    X, Z = rng.standard_normal((3, 4, 8)) * 1e-160, rng.standard_normal((3, 8))
    with pytest.raises(ValueError, match="must be of a scale .* rescale X or Z"):
        solve(X, Z, [0, 1, 2], margins=np.full((3, 4), 1e150))


@pytest.mark.parametrize(
    ("before", "after", "solved"),
    [(1.0, 2.0**800, False), (2.0**800, 1.0, False), (2.0**-800, 1.0, False), (1.0, 2.0**300, True)],
)
def test_tokens_rescaled_before_a_solve(before, after, solved, rng):
    """What was found when the data were made, or solved, is not what the solve sees; powers of two change no digit."""
    X, Z = rng.standard_normal((6, 8, 10)), rng.standard_normal((6, 10))
    tokens = before * X
    data = attsvm.cross_attention(tokens, Z, copy=False)
    if solved:
        attsvm.solve_svm(data, [0] * 6)
    tokens *= after / before
    expected = attsvm.solve_svm(attsvm.cross_attention(after * X, Z), [0] * 6)
    sol = attsvm.solve_svm(data, [0] * 6)
    assert sol.status == expected.status == "optimal" and sol.margin == expected.margin
    assert_array_equal(sol.W, expected.W)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("d", [1, 10])
def test_tokens_made_infinite_afterwards_are_named(way, bad, d, rng):
    """One coordinate as well as ten: a difference that is no number is not a copy either."""
    for name, at in (("X", (2, 3, d - 1)), ("X", (2, 0, 0)), ("Z", (1, d - 1))):
        arrays = {"X": rng.standard_normal((6, 8, d)), "Z": rng.standard_normal((6, d))}
        data = attsvm.cross_attention(**arrays, copy=False)
        attsvm.feasible(data, [0] * 6)
        arrays[name][at] = bad
        with pytest.raises(ValueError, match=f"{name} must stay finite, got {bad}.* changed after"):
            attsvm.solve_svm(data, [0] * 6, **way)


def test_a_result_holds_finite_numbers_or_none():
    """Tokens whose norms span the range of the numbers: what stays open has no multipliers that prove nothing."""
    stopped = 0
    for seed in range(40):
        rng = np.random.default_rng([66, seed])
        X = rng.standard_normal((3, 4, 4)) * 10.0 ** rng.uniform(-150, 150, (3, 4, 1))
        data = attsvm.cross_attention(X, rng.standard_normal((3, 4)))
        sol = attsvm.solve_svm(data, rng.integers(0, 4, 3), ["frobenius", "nuclear", "spectral", "max"][seed % 4])
        assert all(np.isfinite(array).all() for array in (sol.W, sol.dual, sol.certificate) if array is not None)
        stopped += sol.margin_bound == np.inf
    assert stopped
