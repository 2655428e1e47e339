"""Attention SVM problems with readable names: ordinary, extreme, degenerate and planted ones.

``CASES[name]()`` builds one.  What is known of its answer by construction goes with it; the rest is settled by the
certificate, which proves "optimal" and "infeasible" by itself.
"""

import functools
from dataclasses import dataclass
from typing import Any

import attsvm
import numpy as np
from builders import BUILDERS, build_case


@dataclass
class Case:
    data: attsvm.Data
    selected: Any
    status: str | None = None  # known by construction or by a theorem; None: to be proved by the certificate
    margin: float | None = None  # largest margin of a unit Frobenius-norm W, where known in closed form
    hard: bool = False  # plain gradients may stop before the tolerance
    asked: Any = None  # what each row asks for (margins=), where it is not 1


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def sphere(rng, *shape):
    return unit(rng.standard_normal(shape))


def pick(rng, n, T):
    return rng.integers(0, T, n)


def ball(seed, n, T, d, **known):
    """Tokens and queries uniform on the sphere, any token selected."""
    rng = np.random.default_rng(seed)
    data = attsvm.cross_attention(sphere(rng, n, T, d), sphere(rng, n, d))
    return Case(data, pick(rng, n, T), **known)


def gaussian(seed, n, T, d, dz=None):
    """Gaussian tokens and queries, and what Gaussian weights select."""
    rng, dz = np.random.default_rng(seed), dz or d
    data = attsvm.cross_attention(rng.standard_normal((n, T, d)), rng.standard_normal((n, dz)))
    return Case(data, data.select(rng.standard_normal((d, dz))), "optimal")


def planted_margin(seed, n, T, d, margin, feasible=True):
    """Every row has the product ``margin`` with one unit matrix.  With many more rows than dimensions their other
    parts hold zero in their hull, so ``margin`` is the largest margin.  Infeasible: half of the rows have
    ``-margin``, so that (with as many rows) zero is inside their hull, but only just."""
    rng = np.random.default_rng(seed)
    W, Z = unit(rng.standard_normal(d * d)).reshape(d, d), sphere(rng, n, d)
    X = np.zeros((n, T, d))
    selected = pick(rng, n, T)
    for i, u in enumerate(Z @ W.T):
        away = sphere(rng, T, d)
        products = margin * (1 if feasible else rng.choice([-1, 1], T))
        away += ((products - away @ u) / (u @ u))[:, None] * u
        away[selected[i]] = 0
        X[i] = rng.standard_normal(d) * 0.5 - away
    known = {"status": "optimal", "margin": margin} if feasible else {"status": "infeasible"}
    return Case(attsvm.cross_attention(X, Z), selected, hard=True, **known)


def contradiction():
    """Two sequences alike in everything but the selected token."""
    rng = np.random.default_rng(3)
    x, z = sphere(rng, 4, 5), sphere(rng, 5)
    return Case(attsvm.cross_attention([x, x], [z, 2 * z]), [0, 1], "infeasible")


def inside_hull():
    """The selected token is the mean of the others."""
    rng = np.random.default_rng(4)
    x = sphere(rng, 5, 8)
    x[2] = x[[0, 1, 3, 4]].mean(axis=0)
    return Case(attsvm.cross_attention([x], sphere(rng, 1, 8)), [2], "infeasible")


def copy_of_selected(keep):
    """Token 5 of sequence 2 equals the selected token 1; with both kept the question has an answer."""
    rng = np.random.default_rng(5)
    X, Z = sphere(rng, 4, 6, 8), sphere(rng, 4, 8)
    X[2, 5] = X[2, 1]
    selected = np.array([0, 3, 1, 5])
    if not keep:
        return Case(attsvm.cross_attention(X, Z), selected, "infeasible")
    kept = np.zeros((4, 6), dtype=bool)
    kept[range(4), selected] = kept[2, 5] = True
    return Case(attsvm.cross_attention(X, Z), kept, "optimal")


def near_copy(distance):
    """A token at a tiny distance from the selected one, in a direction of its own."""
    rng = np.random.default_rng(6)
    X, Z = sphere(rng, 3, 4, 8), sphere(rng, 3, 8)
    X[1, 2] = X[1, 0] + distance * sphere(rng, 8)
    return Case(attsvm.cross_attention(X, Z), [1, 0, 2], "optimal", hard=True)


def nearly_twins(seed, n, T, d):
    """Random weights select; in each window one token nearly repeats another.  A pair that holds the selected token
    makes a row as short, and the rest of W of no matter beside it."""
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((n, T, d)), rng.standard_normal((n, d))
    X[:, T // 2] = X[:, 0] + 1e-6 * rng.standard_normal((n, d))
    data = attsvm.cross_attention(X, Z)
    return Case(data, data.select(rng.standard_normal((d, d))))


def zero_query():
    rng = np.random.default_rng(8)
    Z = sphere(rng, 3, 4)
    Z[1] = 0
    return Case(attsvm.cross_attention(sphere(rng, 3, 3, 4), Z), [2, 1, 0], "infeasible")


def correlated(n=8, T=8, d=10, power=1):
    """Covariance with the spectrum i^-power, in token space and in query space."""
    rng = np.random.default_rng(11)
    scale = np.arange(1, d + 1) ** -float(power)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = (rng.standard_normal((n, T, d)) * scale) @ turn
    Z = (rng.standard_normal((n, d)) * scale) @ turn
    return Case(attsvm.cross_attention(X, Z), pick(rng, n, T), hard=True)


def several_kept(redundant=False, seed=12):
    """Two tokens kept per query; redundant: four of them on a line, so one equality implies the others."""
    rng = np.random.default_rng(seed)
    X, Z = sphere(rng, 5, 6, 9), sphere(rng, 5, 9)
    kept = np.zeros((5, 6), dtype=bool)
    kept[:, [1, 4]] = True
    if redundant:
        direction = sphere(rng, 5, 9)
        for i, t in enumerate([1, 4, 0, 3]):
            X[:, t] = X[:, 1] + 0.5 * i * direction
            kept[:, t] = True
    return Case(attsvm.cross_attention(X, Z), kept, "optimal")


def one_token():
    rng = np.random.default_rng(15)
    return Case(attsvm.cross_attention(sphere(rng, 3, 1, 5), sphere(rng, 3, 5)), [0, 0, 0], "no constraint")


def by_weights(name):
    """Of that kind of data, the tokens that random weights select: feasible by construction."""
    case = build_case(name)
    return Case(case.data, case.data.select(case.rng.standard_normal((case.data.dk, case.data.dz))), "optimal")


CASES = {
    "paper_size": lambda: ball(0, 6, 8, 10, status="optimal"),
    "tight_as_many_rows_as_unknowns": lambda: ball(2, 5, 6, 5, status="optimal"),
    "more_tokens_than_dimensions": lambda: ball(3, 2, 9, 5),
    "overloaded": lambda: ball(5, 14, 8, 5),
    "one_token": one_token,
    "barely_feasible_1e-3": lambda: planted_margin(8, 4, 8, 3, 1e-3),
    "barely_feasible_1e-5": lambda: planted_margin(10, 4, 8, 3, 1e-5),
    "barely_feasible_1e-7": lambda: planted_margin(10, 4, 8, 3, 1e-7),
    "barely_infeasible_1e-3": lambda: planted_margin(8, 6, 10, 3, 1e-3, feasible=False),
    "barely_infeasible_1e-7": lambda: planted_margin(9, 6, 10, 3, 1e-7, feasible=False),
    "infeasible_random": lambda: ball(11, 15, 15, 3, status="infeasible", hard=True),
    "infeasible_contradiction": contradiction,
    "infeasible_inside_hull": inside_hull,
    "duplicate_token": lambda: copy_of_selected(keep=False),
    "duplicate_token_kept": lambda: copy_of_selected(keep=True),
    "near_duplicate_1e-8": lambda: near_copy(1e-8),
    "zero_query": zero_query,
    "correlated": correlated,
    "equalities": several_kept,
    "redundant_equalities": lambda: several_kept(redundant=True),
    **{
        kind.removeprefix("cross_").replace("float32", "float32_keys"): functools.partial(by_weights, kind)
        for kind in BUILDERS
    },
}
