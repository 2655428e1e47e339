"""The parts of the active sets and of block ascent, compiled by themselves, beside NumPy on the whole Gram matrix."""

import ctypes

import numpy as np
import pytest
from compare import close
from marks import needs_gcc
from numpy.testing import assert_allclose, assert_array_equal
from parts import call, make

pytestmark = needs_gcc
SHAPES = [(3, 4, 5, 4), (12, 9, 16, 7), (8, 48, 11, 13), (60, 4, 24, 24)]  # n, T, dk, dz


def independent(p, size):
    """`size` rows whose Gram matrix is well conditioned, ascending."""
    chosen = []
    for k in p.rng.permutation(p.m):
        if np.linalg.eigvalsh(p.G[np.ix_([*chosen, k], [*chosen, k])])[0] > 1e-2:
            chosen.append(int(k))
        if len(chosen) == size:
            break
    return np.sort(np.array(chosen, dtype=np.intp))


@pytest.mark.parametrize("outside", [1.0, -1.0])
def test_rows_of_the_wrong_sign_change_sides(library, outside):
    """Rows within the tolerances stay; without a free scale (some b <= 0) only rounding is allowed."""
    p = make(7, 12, 9, 16, 7)
    free = outside > 0
    b, size = np.full(p.m, 2.0), 3.0
    rhs = np.ones((12, 9))
    rhs[0] = outside
    inside = (np.arange(p.m) % 2).astype(np.uint8)
    x, margin = np.where(inside, 0.5, 0.0), b + 0.0
    x[1], x[3], x[5] = -0.4, -1e-12, -1e-10  # the largest is 0.5: -5e-12 is the limit
    margin[0], margin[2], margin[4], margin[6] = 1.9, 2 - 1e-11, 2 - 1e-10, 2 - 2e-14
    expected = inside.copy()
    expected[[1, 5, 0, 4] + ([] if free else [2])] ^= 1
    changed = call(library.parts_change_sides, inside, x, margin, b, size, p.struct, None, rhs)
    assert_array_equal(inside, expected)
    assert changed == 4 + (not free)
    kept = np.zeros((12, 9), dtype=bool)
    kept[np.arange(12), p.kept[2]] = True
    kept[0] = True  # the first eight rows are equalities now, which stay on their side
    inside = (np.arange(p.m) % 2).astype(np.uint8)
    assert call(library.parts_change_sides, inside, x, margin, b, size, p.struct, kept, None) == 0


def with_one_equality(asked, equal=True, others=1.0):
    """Row 0 is an equality, or not, that asks for ``asked``, all others ask for ``others``."""
    p = make(7, 3, 4, 5, 4)
    rhs, kept = np.full((3, 4), others), np.zeros((3, 4), dtype=bool)
    first = int(p.kept[2][0] == 0)
    kept[0, first], rhs[0, first] = equal, asked
    return p, (p.struct, kept, rhs)


@pytest.mark.parametrize(("asked", "equal", "free"), [(0.0, 1, 1), (0.5, 1, 0), (0.5, 0, 1), (0.0, 0, 0), (-0.5, 0, 0)])
def test_rows_leave_a_scale(library, asked, equal, free):
    _, problem = with_one_equality(asked, equal, 0.25)
    largest = np.zeros(1)
    assert call(library.parts_rows, largest, *problem) == free
    assert largest == max(0.25, abs(asked))


@pytest.mark.parametrize(
    ("off", "short", "asked", "scale"),
    [
        (0.0, 1.0, 0.0, 1.0),
        (0.9e-10, 1.0, 0.0, 1.0),
        (1.1e-10, 1.0, 0.0, 0.0),  # an equality row, farther off than is allowed
        (-1.1e-10, 1.0, 0.0, 0.0),
        (0.0, 0.5, 0.0, 2.0),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 1.0, 0.5, 1.0),
        (0.0, 2.0, 0.5, 1.0),  # an equality with b != 0 leaves no scale
        (0.0, 0.5, 0.5, 0.0),
    ],
)
def test_scale_of_weights(library, off, short, asked, scale):
    """W of size 10 misses the rows by ``off``, and row 1 reaches ``short`` of what it asks."""
    p, problem = with_one_equality(asked)
    margin = 1 / p.length
    margin[0] = asked / p.length[0] + 10 * off
    margin[1] *= short
    library.parts_scaling.restype = ctypes.c_double
    assert call(library.parts_scaling, margin, 10.0, 1e-10, *problem) == pytest.approx(scale, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_exchange_from_set_to_set(library, shape):
    """Sets that differ by a few rows, of which some come and go again, and one that is quite another."""
    p = make(4, *shape)
    pool = independent(p, min(p.m - 1, 80))
    ridge = p.rng.uniform(1e-4, 1e-1, p.m)
    S = set(pool[: max(1, 3 * len(pool) // 4)].tolist())
    # All near the first, each by rows of its own: more columns than there is room for.
    sets = [sorted(S), *(sorted(S ^ set(rows.tolist())) for rows in np.array_split(pool, max(1, len(pool) // 8)))]
    sets.append(sorted(S))
    for _ in range(30):
        S = S ^ set(p.rng.choice(pool, max(1, len(pool) // 20), replace=False).tolist())
        sets.append(sorted(S))
    sets += [sorted(pool[::2].tolist()), sorted(S), sorted(S)]
    sets = [s for s in sets if s]
    member = np.concatenate(sets).astype(np.intp)
    b, x, factors = p.rng.standard_normal((len(sets), p.m)), np.zeros((len(sets), p.m)), np.zeros(1, dtype=np.intp)
    sizes = np.array([len(s) for s in sets], dtype=np.intp)
    assert call(library.parts_exchange, x, factors, p.struct, ridge, b, member, sizes, len(sets)) == 0
    for found, s, right in zip(x, sets, b, strict=True):
        expected = np.zeros(p.m)
        expected[s] = np.linalg.solve(p.G[np.ix_(s, s)] + np.diag(ridge[s]), right[s])
        assert_allclose(found, expected, atol=1e-10)  # conditions of a few hundred
    assert len(pool) < 40 or factors[0] < len(sets) / 2  # most sets were reached from another


@pytest.mark.parametrize("shape", SHAPES)
def test_systems_from_a_compact_copy(library, shape):
    """Sets without some queries, all rows, and the rows of one query alone, whose block is the whole system.  The same
    by a factor for the rows, or for W where these are more.
    """
    p = make(8, *shape)
    pool = independent(p, min(p.m - 1, 80))
    ridge = p.rng.uniform(1e-4, 1e-1, p.m)
    few, alone = pool[p.query[pool] % 3 > 0][::2], pool[p.query[pool] == p.query[pool[0]]]
    sets = [few, np.setdiff1d(pool, few[:2]), pool, few, np.arange(p.m), alone]
    sizes = np.array([len(s) for s in sets], dtype=np.intp)
    assert sizes.all()
    b = p.rng.standard_normal((len(sets), p.m))
    x, factored = np.zeros((len(sets), p.m)), np.zeros((len(sets), p.m))
    iterations, member = np.zeros(len(sets), dtype=np.intp), np.concatenate(sets).astype(np.intp)
    arguments = (x, iterations, factored, p.struct, ridge, b, member, sizes, len(sets), 1e-12)
    assert call(library.parts_support, *arguments) == 0
    for i, S in enumerate(sets):
        A, outside = p.G[np.ix_(S, S)] + np.diag(ridge[S]), np.setdiff1d(np.arange(p.m), S)
        # the target, and what conjugate gradients do not see of their own rounding
        close(A @ x[i, S], b[i, S], 3e-12)
        close(factored[i, S], x[i, S], 1e-8)
        assert not x[i, outside].any() and not factored[i, outside].any()
    assert iterations[-1] <= 2 < iterations[2]


def solves(p, x):
    """The conditions of  max beta.x - 1/2 x^T G x, x >= 0."""
    short = p.beta - p.G @ x
    scale = np.abs(p.beta).max()
    return (x >= 0).all() and short.max() <= 1e-9 * scale and np.abs(short[x > 0]).max(initial=0) <= 1e-9 * scale


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("shape", [(3, 4, 5, 4), (12, 9, 16, 7), (10, 4, 24, 24), (12, 9, 7, 7), (24, 6, 7, 8)])
def test_start_of_the_active_set(library, shape, copies):
    """What it calls solved is, and that is most of them, also where rows are tight or repeat each other."""
    settled, tries = 0, 20
    for seed in range(tries):
        p = make([5, seed], *shape, copies=copies)
        x, solved, iterations = np.zeros(p.m), np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.intp)
        assert call(library.parts_start, x, solved, iterations, p.struct, p.beta, 10**6) == 0
        support = np.flatnonzero(x)
        assert (x >= 0).all() and np.linalg.eigvalsh(p.G[np.ix_(support, support)])[0] > 1e-9  # independent rows
        assert 0 < iterations[0] <= 1 + 12 + 8 + 60 + 8  # two ascents, and the rounds after each
        settled += solved[0]
        if solved[0]:
            assert solves(p, x)
            again, before = x.copy(), iterations[0]  # from the solution: one look
            assert call(library.parts_start, again, solved, iterations, p.struct, p.beta, 10**6) == 0
            assert solved[0] == 1 and iterations[0] == before + 1
            assert_allclose(again, x, atol=1e-10 * x.max())
    assert settled >= (0.25 if p.m > shape[2] * shape[3] else 0.9) * tries
    x[:], iterations[0] = 0, 0
    assert call(library.parts_start, x, solved, iterations, p.struct, p.beta, 1) == 0
    assert iterations[0] <= 1 and (x >= 0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_ascent(library, shape):
    """Coordinate by coordinate, queries in order, whichever way the margins come about."""
    p = make(6, *shape)
    for step in (1.0, 1.75):
        x = np.where(p.rng.random(p.m) < 0.3, p.rng.random(p.m), 0.0)
        found, flips = x.copy(), np.zeros(3, dtype=np.intp)
        member = np.flatnonzero(x).astype(np.intp)
        assert call(library.parts_ascent, found, flips, p.struct, p.beta, member, len(member), step, 3) == 0
        for count in flips:
            changed = 0
            for k in range(p.m):
                after = max(0.0, x[k] - step * (p.G[k] @ x - p.beta[k]))
                changed += (after > 0) != (x[k] > 0)
                x[k] = after
            assert count == changed
        assert_allclose(found, x, atol=1e-11)


def block_epoch(p, lam, soft, kept, order, near):
    """One visit to these queries in this order: at most five cyclic sweeps of their rows that are near.  The number of
    signs that changed, and the queries that moved."""
    flips, moved = 0, []
    b = np.where(kept, 0.0, p.beta)
    full = p.G + np.diag(np.where(kept | (soft == 0), 0.0, p.beta**2 / (2 * (soft or 1))))
    for q in order:
        block = np.flatnonzero((p.query == q) & near)
        g = full[block] @ lam - b[block]
        before, first = lam[block].copy(), None
        for _ in range(5):
            largest = 0.0
            for i, k in enumerate(block):
                target = lam[k] - g[i] / full[k, k]
                move = (target if kept[k] else max(target, 0.0)) - lam[k]
                lam[k] += move
                g += move * full[block, k]
                largest = max(largest, abs(move))
            first = largest if first is None else first
            if largest <= 0.03 * first:
                break
        flips += (((before > 0) != (lam[block] > 0)) & ~kept[block]).sum()
        if (lam[block] != before).any():
            moved.append(q)
    return flips, moved


@pytest.mark.parametrize("soft", [0.0, 1.5])
@pytest.mark.parametrize("shape", [(3, 4, 5, 4), (30, 7, 11, 13), (75, 4, 8, 6), (129, 3, 6, 5)])
def test_block_ascent(library, shape, soft):
    """In groups of 64 queries, of which the last may be one query."""
    p = make(7, *shape)
    entries = p.rng.random((shape[0], shape[1])) < 0.15
    entries[np.arange(shape[0]), p.kept[2]] = True
    kept = entries[np.arange(shape[1]) != p.kept[2][:, None]]
    lam = np.where(kept, p.rng.standard_normal(p.m), np.where(p.rng.random(p.m) < 0.3, p.rng.random(p.m), 0.0))
    epochs = 9  # three looks
    found, flips = lam.copy(), np.zeros(epochs, dtype=np.intp)
    W, order = np.zeros((shape[2], shape[3])), np.zeros((epochs, shape[0]), dtype=np.intp)
    near = np.zeros((epochs, p.m), dtype=np.uint8)
    unit = p.rows * p.beta[:, None]
    looked = unit @ (lam @ unit)
    assert call(library.parts_blocks, found, flips, W, order, near, p.struct, entries.view(np.uint8), soft, epochs) == 0
    left_out = near[0] == 0
    assert not kept[left_out].any() and not lam[left_out].any() and (looked[left_out] > p.beta[left_out]).all()
    assert_array_equal(near[0], near[3])
    for epoch in range(epochs):
        assert sorted(order[epoch].tolist()) == list(range(shape[0]))
        if epoch % 4 == 0:
            broken = unit @ (lam @ unit) < p.beta * (1 - 1e-9)
            assert near[epoch][broken].all()
            moved = order[epoch].tolist()
        visited = order[epoch, : len(moved)]
        assert sorted(visited.tolist()) == sorted(moved)
        count, moved = block_epoch(p, lam, soft, kept, visited, near[epoch] == 1)
        assert flips[epoch] == count
    assert_allclose(found, lam, atol=1e-10)
    assert_allclose(W.ravel(), lam @ unit, atol=1e-10)
