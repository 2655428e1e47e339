"""Problems of different sizes and scales that share no dimension are, stacked, each alone: every field of an answer."""

import attsvm
import numpy as np
import pytest
from attsvm.svm.support import log_pulls
from compare import close
from numpy.testing import assert_allclose, assert_array_equal

pytestmark = pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
SIZES = [(2, 3, 2, 2), (3, 6, 4, 3), (2, 4, 3, 5)]  # queries, tokens, dk, dz
WAYS = {
    "one token": dict(),
    "several tokens": dict(kept=2),
    "soft": dict(C=0.7),
    "margins": dict(margins=True),
    "soft margins": dict(margins=True, C=0.7),
    "interior": dict(method="interior"),
    "gradient": dict(method="gradient"),
    "nuclear": dict(norm="nuclear"),
    "l3": dict(norm=3.0),
}


def draw(scale, kept=1, margins=False, **options):
    """Parts, each (X, Z, selection, margins); sizes of tokens and queries differ from part to part."""
    rng, parts = np.random.default_rng(3), []
    for k, (n, T, dk, dz) in enumerate(SIZES):
        X, Z = rng.standard_normal((n, T, dk)) * scale**k, rng.standard_normal((n, dz))
        # Of planted weights, so that they are separable; the equalities of several tokens are met by the last entries.
        chosen = np.einsum("ntd,de,ne->nt", X, rng.standard_normal((dk, dz)), Z).argmax(axis=1)
        if kept > 1:
            X[np.arange(n), (chosen + 1) % T] = X[np.arange(n), chosen]
        mask = (np.arange(T) - chosen[:, None]) % T < kept
        parts.append((X, Z, mask if kept > 1 else chosen, rng.uniform(0.5, 2, (n, T)) if margins else None))
    return parts, options


def solve(X, Z, selected, margins, norm="frobenius", **options):
    return attsvm.solve_svm(attsvm.cross_attention(X, Z), selected, norm, margins=margins, **options)


def together(parts):
    """The parts on the diagonal: their rows have nothing in common."""
    left, right = (np.cumsum([0, *(size[k] for size in SIZES)]) for k in (2, 3))
    X, Z, selected, margins = [], [], [], []
    for k, (x, z, chosen, asked) in enumerate(parts):
        X += [np.pad(a, ((0, 0), (left[k], left[-1] - left[k + 1]))) for a in x]
        Z += [np.pad(a, (right[k], right[-1] - right[k + 1])) for a in z]
        selected += list(chosen)
        margins += [None] * len(z) if asked is None else list(asked)
    several = np.ndim(selected[0]) > 0
    blocks = [(slice(*left[k : k + 2]), slice(*right[k : k + 2])) for k in range(len(SIZES))]
    return X, np.array(Z), selected if several else np.array(selected), None if margins[0] is None else margins, blocks


def flat(parts):
    return np.concatenate([np.ravel(part) for part in parts])


@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("way", WAYS)
def test_what_shares_nothing_is_solved_apart(way, scale):
    parts, options = draw(scale, **WAYS[way])
    *given, blocks = together(parts)
    sol, each = solve(*given, **options), [solve(*part, **options) for part in parts]
    assert_array_equal(flat(sol.selected), flat(np.ravel(one.selected) for one in each))
    assert {one.status for one in each} == {"optimal"} and sol.status == "optimal" and sol.gap <= 1e-9
    tol = 1e-3 if way in ("nuclear", "l3") else 1e-4  # a gap of 1e-9 leaves W to its root
    for at, one in zip(blocks, each, strict=True):
        close(sol.W[at], one.W, tol)
    off = sol.W.copy()
    for at in blocks:
        off[at] = 0
    assert way == "nuclear" or np.abs(off).max() <= tol * np.abs(sol.W).max()
    power = {"nuclear": 1, "l3": 3}.get(way, 2)
    if sol.C is None:
        assert sol.margin**-power == pytest.approx(sum(one.margin**-power for one in each), rel=1e-7)
        assert sol.margin_bound**-power == pytest.approx(sum(one.margin_bound**-power for one in each), rel=1e-7)
    else:
        assert sol.objective == pytest.approx(sum(one.objective for one in each), rel=1e-7)
        assert_allclose(flat(sol.slack), flat(np.ravel(one.slack) for one in each), atol=1e-4)
    assert sol.rank == sum(one.rank for one in each)
    assert all(one.unique for one in each)
    assert sol.unique == (way != "nuclear")  # whose face has room between the blocks, where no row looks
    assert_array_equal(flat(sol.support), flat(np.ravel(one.support) for one in each))
    if way not in ("nuclear", "l3"):  # of those norms multipliers carry the norm of all
        dual = flat(np.ravel(one.dual) for one in each)
        assert_allclose(flat(sol.dual), dual, rtol=0, atol=1e-4 * dual.max())


def test_the_sizes_of_rows_are_of_their_own_queries():
    """Multipliers of 1, tokens and queries far apart in size."""
    parts, _ = draw(1.0)
    X, Z, selected, _, _ = together([(x * 10.0 ** (9 * k), z * 1e-3**k, s, m) for k, (x, z, s, m) in enumerate(parts)])
    data = attsvm.cross_attention(X, Z)
    sol = solve(X, Z, selected, None, method="interior", max_iter=1)
    sol.answer.dual[:] = 1
    rows = [np.abs(x[s] - x).max(axis=1) / 2 * np.abs(z).max() for x, z, s in zip(X, Z, selected, strict=True)]
    with np.errstate(divide="ignore"):
        assert_allclose(log_pulls(sol, np.arange(data.indptr[-1])), np.log(flat(rows)), rtol=1e-12)
