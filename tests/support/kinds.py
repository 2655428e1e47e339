"""Random attention SVMs of every awkward kind, by name: ``KINDS[name](rng)`` draws one, ``draw(name, number)`` again.

Sizes are small, so that thousands can be judged (``judge.py``).  What is known of an answer by construction goes with
the case; the rest is settled by certificates.
"""

import attsvm
import numpy as np
import reference
from problems import Case, planted_margin, sphere

__all__ = ["KINDS", "draw"]


def size(rng, least, most):
    """Log-uniform."""
    return int(round(np.exp(rng.uniform(np.log(least), np.log(most + 0.49)))))


def selection(rng, data, several=0.0):
    """At random, or what random weights select (so that it can be met), or the latter with a tenth exchanged; with
    probability `several`, some windows keep more than one token."""
    chosen = reference.selections(data, rng.standard_normal((data.dk, data.dz)))
    lengths = data.stop - data.start
    change = rng.random(len(chosen)) < rng.choice([0.0, 0.1, 1.0])
    chosen = np.where(change, (rng.random(len(chosen)) * lengths).astype(int), chosen)
    if rng.random() >= several:
        return data._layout.shape_queries(chosen)
    kept = rng.random(data.indptr[-1]) < 0.3
    kept[data.indptr[:-1] + chosen] = True
    return data._layout.shape_entries(kept, False)


def cross(rng, tokens=None, queries=None, sizes=((2, 20), (2, 12), (2, 12)), several=0.3, margins=None):
    """Tokens and queries on the sphere, changed by what a kind does to them."""
    n, T, d = (size(rng, *pair) for pair in sizes)
    X, Z = sphere(rng, n, T, d), sphere(rng, n, size(rng, 2, 12) if rng.random() < 0.5 else d)
    X = X if tokens is None else tokens(rng, X)
    Z = Z if queries is None else queries(rng, Z)
    data = attsvm.cross_attention(X, Z)
    case = Case(data, selection(rng, data, several))
    if margins is not None:
        case.asked = margins(rng, case)
    return case


def cross_with(tokens=None, queries=None, **more):
    return lambda rng: cross(rng, tokens, queries, **more)


def some_copied(apart):
    """A third of a window's tokens copies of others, but for `apart(rng)`."""

    def change(rng, X):
        n, T, d = X.shape
        near = apart(rng)
        for i in range(n):
            copies = rng.integers(0, T, (max(1, T // 3), 2))
            for to, source in copies[copies[:, 0] != copies[:, 1]]:
                X[i, to] = X[i, source] + near * sphere(rng, d)
        return X

    return change


def first_copied(rng, X):
    """One token all but repeats another, along an axis."""
    i = rng.integers(len(X))
    X[i, -1] = X[i, 0] + 10.0 ** -rng.integers(3, 16) * np.eye(X.shape[2])[0]
    return X


def doubled(rng, Z, near=None):
    """Half of the queries repeat the other half, nearly or exactly."""
    half = len(Z) // 2
    Z[half : 2 * half] = Z[:half] + (10.0 ** rng.uniform(-12, -3) if near is None else near) * sphere(
        rng, *Z[:half].shape
    )
    return Z


def steep(rng, A):
    turn = np.linalg.qr(rng.standard_normal((A.shape[-1],) * 2))[0]
    mean = rng.choice([0.0, 1.0]) * rng.standard_normal(A.shape[-1])
    return (rng.standard_normal(A.shape) + mean) * np.arange(1.0, A.shape[-1] + 1) ** -rng.uniform(1, 3) @ turn


def spread(rng, A):
    return A * np.exp(rng.standard_normal((*A.shape[:-1], 1)))


def offset(rng, X):
    return X + 10.0 ** rng.integers(0, 14)


def integers(rng, A):
    return rng.integers(-1, 2, A.shape) * 1.0


def same(rng, A):
    return A[:1] + 0 * A


def scaled(low, high, each=False):
    """Times a power of ten: one for all, or one for each vector."""
    return lambda rng, A: A * 10.0 ** rng.integers(low, high, (*A.shape[:-1], 1) if each else ())


def collinear(rng, X):
    return X[:, :1] + rng.standard_normal((*X.shape[:2], 1)) * X[:, -1:]


def one_line(rng, Z):
    return np.outer(rng.standard_normal(len(Z)), Z[0])


def few_directions(rng, A):
    """Span of one to three directions."""
    flat = A.reshape(-1, A.shape[-1])
    k = rng.integers(1, 4)
    return (rng.standard_normal((len(flat), k)) @ rng.standard_normal((k, A.shape[-1]))).reshape(A.shape)


def zero_queries(rng):
    case = cross(rng, several=0.0)
    data = case.data
    Z = data.queries * (rng.random((len(data), 1)) >= 0.2)
    data = attsvm.cross_attention(data.keys.reshape(len(data), -1, data.dk), Z)
    kept = np.arange(data.stop[0] - data.start[0]) == np.asarray(case.selected)[:, None]
    if rng.random() < 0.8:  # their other tokens must be kept, too, else nothing can be met
        kept[~Z.any(axis=1)] = True
    return Case(data, kept)


def ragged(rng):
    d, n = size(rng, 2, 12), size(rng, 2, 20)
    data = attsvm.cross_attention(
        [sphere(rng, size(rng, 1, 12), d) for _ in range(n)], sphere(rng, n, size(rng, 1, 12))
    )
    return Case(data, selection(rng, data, 0.3))


def causal(rng):
    data = attsvm.causal_attention(sphere(rng, size(rng, 1, 4), size(rng, 1, 9), size(rng, 2, 12)))
    return Case(data, selection(rng, data, 0.3))


def several_queries(rng):
    d, dz = size(rng, 2, 10), size(rng, 2, 10)
    data = attsvm.cross_attention(sphere(rng, 3, size(rng, 2, 8), d), sphere(rng, 3, size(rng, 1, 5), dz))
    return Case(data, selection(rng, data, 0.3))


def self_every(rng):
    X = sphere(rng, size(rng, 1, 4), size(rng, 2, 6), size(rng, 2, 10))
    data = attsvm.self_attention(X, query=None if rng.random() < 0.7 else 0)
    return Case(data, selection(rng, data, 0.3))


def prompt(rng):
    data = attsvm.prompt_attention(sphere(rng, size(rng, 1, 12), size(rng, 2, 8), size(rng, 1, 8)))
    return Case(data, selection(rng, data, 0.3))


def barely(feasible):
    def make(rng):
        n, T, d = int(rng.integers(2, 7)), int(rng.integers(4, 9)), int(rng.integers(2, 5))
        case = planted_margin(rng, n, T, d, float(10.0 ** rng.uniform(-7, -1)), feasible)
        return Case(case.data, case.selected)  # too few rows here to know the margin

    return make


def contradictory(rng):
    """Alike in everything but the tokens that are to have equal logits."""
    n, T = size(rng, 2, 6), size(rng, 2, 6)
    X, Z, kept = sphere(rng, T, size(rng, 1, 6)), sphere(rng, size(rng, 1, 5)), rng.random((n, T)) < 0.5
    kept[:, 0] = True
    return Case(attsvm.cross_attention(np.tile(X, (n, 1, 1)), np.tile(Z, (n, 1))), kept)


def dependent_equalities(rng):
    """Most tokens or all selected, as many equality rows as unknowns or more, met by some W or, by 1e-3, by none."""
    n, T, d, dz = ((1, 6, 2, 1), (4, 5, 4, 4))[rng.integers(2)]
    data = attsvm.cross_attention(rng.standard_normal((n, T, d)), rng.standard_normal((n, dz)))
    logits, kept = data.logits(rng.standard_normal((d, dz))), rng.random((n, T)) < rng.choice([0.7, 1.0])
    kept[:, [0, 1]] = True
    margins = logits[:, :1] - logits
    margins[0, 1] += 1e-3 * rng.integers(2)
    return Case(data, kept, asked=margins)


def asked(kind):
    """Margins of each row's own: as they come, or met by some weights."""

    def margins(rng, case):
        data, kept = case.data, np.concatenate(reference.selected_tokens(case.data, case.selected))
        m = len(kept)
        if kind == "mixed":
            flat = np.where(kept, 0.0, rng.uniform(-0.5, 2.0, m))
        elif kind == "lognormal":
            flat = np.where(kept, 0.0, np.exp(rng.standard_normal(m)))
        elif kind == "zeros":
            flat = np.where(kept, 0.0, rng.random(m) < 0.5)
        elif kind == "some without a row":
            flat = np.where(kept, 0.0, np.where(rng.random(m) < 0.4, -np.inf, rng.uniform(0.5, 1.5, m)))
        elif kind == "signs":
            flat = rng.standard_normal(m) * 10.0 ** rng.integers(-3, 4)
        else:
            W = rng.standard_normal((data.dk, data.dz))
            first = map(np.argmax, reference.selected_tokens(data, case.selected))
            logits = [X @ (W @ z) for X, z in zip(reference.windows(data), data.queries, strict=True)]
            flat = np.concatenate([logit[a] - logit for a, logit in zip(first, logits, strict=True)])
            room = 10.0 ** rng.uniform(-2, 2, m) if kind == "met with room" else rng.random(m) < 0.7
            if kind == "decades":  # over sixteen of them, as one W meets them
                flat = flat * 10.0 ** rng.uniform(-8, 8, m) if not kept.sum() > len(data) else flat
            else:
                flat = np.where(kept, flat, flat - np.abs(rng.standard_normal(m)) * room)
            flat = flat + (rng.random(m) < 0.1) * (kind == "contradicting")
        return data._layout.shape_entries(flat, 0.0)

    return margins


def tight(rng):
    """Many more rows than entries of W, feasible by construction or nearly so."""
    sizes = ((20, 60), (8, 20), (2, 6))
    change = (None, spread, steep)[rng.integers(3)]
    return cross(rng, change, change, sizes=sizes)


KINDS = {
    "random": cross,
    "more tokens than dimensions": cross_with(sizes=((2, 8), (8, 20), (2, 6))),
    "more queries than dimensions": cross_with(sizes=((10, 40), (2, 6), (2, 6))),
    "one query": cross_with(sizes=((1, 1), (2, 30), (1, 12))),
    "tight": tight,
    "barely feasible": barely(True),
    "barely infeasible": barely(False),
    "copies": cross_with(some_copied(lambda rng: 0.0)),
    "near copies": cross_with(some_copied(lambda rng: 10.0 ** rng.uniform(-14, -2))),
    "near copy along an axis": cross_with(first_copied),
    "doubled queries": cross_with(queries=lambda rng, Z: doubled(rng, Z, 0.0)),
    "nearly doubled queries": cross_with(queries=doubled),
    "shared query": cross_with(queries=same),
    "queries on a line": cross_with(queries=one_line),
    "queries of few directions": cross_with(queries=few_directions),
    "tokens of few directions": cross_with(few_directions),
    "collinear tokens": cross_with(collinear),
    "zero queries": zero_queries,
    "spread norms": cross_with(spread, spread),
    "steep": cross_with(steep, steep),
    "scales": cross_with(scaled(-300, 300), scaled(-1, 2)),
    "scales of each token": cross_with(scaled(-12, 12, each=True)),
    "offsets": cross_with(offset),
    "integers": cross_with(integers, integers),
    "float32": cross_with(lambda rng, X: X.astype(np.float32)),
    "identical windows": cross_with(same, same),
    "one-token windows": cross_with(sizes=((2, 6), (1, 1), (1, 6))),
    "ragged": ragged,
    "causal": causal,
    "several queries": several_queries,
    "self-attention": self_every,
    "prompt": prompt,
    "contradictory equalities": contradictory,
    **{
        f"margins: {kind}": cross_with(margins=asked(kind), sizes=((2, 8), (2, 8), (2, 8)), several=0.5)
        for kind in (
            *("mixed", "lognormal", "zeros", "signs", "met", "met with room", "contradicting", "decades"),
            "some without a row",
        )
    },
    "dependent equalities": dependent_equalities,
}


def draw(kind, number):
    """The problem of that kind and number."""
    return KINDS[kind](np.random.default_rng([20231122, list(KINDS).index(kind), number]))
