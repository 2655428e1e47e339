"""Attention SVMs of every norm and option, at random: shapes log-uniform, up to 100,000 rows and 4,096 entries of W."""

from functools import partial

import attsvm
import numpy as np
from machine import forked

__all__ = ["DRAWS", "MOST", "log_uniform", "problem", "shape", "solved", "tokens"]

NORMS = ("frobenius", "nuclear", "spectral", "max", 1.1, 1.5, 3.0, 10.0)
OPTIONS = ("hard", "soft", "several", "margins", "metric", "infeasible", "rank")
KINDS = ("gaussian", "lattice", "nearly parallel", "outlier", "few queries", "one long window")
DRAWS = 3  # of each shape
MOST = 30.0  # seconds of processor after which a solve is stopped


def log_uniform(g, least, most):
    return round(float(np.exp(g.uniform(np.log(least), np.log(most)))))


def shape(seed):
    """Norm, option, kind; lengths of the windows, dk, dz; C."""
    g = np.random.default_rng([38, seed])
    option, kind, norm = (words[g.integers(len(words))] for words in (OPTIONS, KINDS, NORMS))
    if option in ("soft", "metric"):
        norm = "frobenius"
    if option == "rank":
        norm = "nuclear"
    rows, dk, dz = log_uniform(g, 30, 1e5), log_uniform(g, 2, 64), log_uniform(g, 1, 64)
    T = log_uniform(g, 3, max(3, rows // 2))
    lengths = [T] * max(1, rows // (T - 1))
    if kind == "one long window":
        lengths = [max(3, rows // 2)] + [3] * min(25, rows // 4)
    return norm, option, kind, lengths, dk, dz, float(10 ** g.uniform(-3, 3))


def tokens(g, kind, lengths, dk, dz):
    """Of all windows, and the queries."""
    X, Z = g.standard_normal((sum(lengths), dk)), g.standard_normal((len(lengths), dz))
    if kind == "lattice":
        X, Z = np.rint(2 * X), np.where((np.rint(2 * Z) == 0).all(1, keepdims=True), 1.0, np.rint(2 * Z))
    if kind == "nearly parallel":
        X = g.standard_normal(dk) + 1e-2 * X
    if kind == "outlier":
        X[0] *= 1e3
    if kind == "few queries":
        Z = Z[g.integers(0, max(1, len(Z) // 20), len(Z))]
    return X, Z


def problem(seed, draw):
    """Data, selection, options of solve_svm."""
    norm, option, kind, lengths, dk, dz, C = shape(seed)
    g = np.random.default_rng([39, seed, draw])
    X, Z = tokens(g, kind, lengths, dk, dz)
    r = min(2, dk, dz) if option == "rank" else min(dk, dz)
    U = Z @ g.standard_normal((dz, r)) @ g.standard_normal((r, dk))
    X = np.split(X, np.cumsum(lengths)[:-1])
    chosen = [int((x @ u).argmax()) for x, u in zip(X, U, strict=True)]
    if option in ("soft", "infeasible"):
        chosen = [int(g.integers(len(x))) for x in X]
    if option == "infeasible":  # the second query repeats the first, and asks for another token
        X, Z, chosen = [X[0], *X], np.vstack([Z[:1], Z]), [(chosen[0] + 1) % len(X[0]), *chosen]
    options = {"norm": norm}
    if option == "several":
        kept = [np.arange(len(x)) == a for x, a in zip(X, chosen, strict=True)]
        for x, u, a, k in zip(X, U, chosen, kept, strict=True):
            b = (a + 1) % len(x)
            x[b] += (x[a] - x[b]) @ u * u / (u @ u)
            k[b] = True
        chosen = kept
    if option == "soft":
        options["C"] = C
    if option == "margins":
        options["margins"] = [g.uniform(0.5, 2, len(x)) for x in X]
    if option == "metric":
        options["metric"] = np.exp(g.standard_normal((dk, dz)))
    if option == "rank":
        options["rank"] = r
    return attsvm.cross_attention(X, Z), chosen, options


def solved(data, chosen, options):
    """Seconds of processor, gigabytes beyond what this process holds, and how it ended."""
    return forked(partial(attsvm.solve_svm, data, chosen, **options), lambda sol: sol.status, MOST)
