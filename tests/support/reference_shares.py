"""The references of the figures, 1,000 draws each (nuclear, local, several: 400), by NumPy, SciPy and Clarabel.

Run by hand, ``python tests/support/reference_shares.py [global basin equal rank nuclear local several]``, some minutes;
the printed numbers stand in the figures.  Training is normalised gradient descent with the softmax of the tokens that
are not selected in the logarithm, so that saturated attention keeps its direction; the Frobenius SVM is a problem of
least squares with nonnegative unknowns (Lawson and Hanson 1974, chapter 23), the nuclear one a semidefinite program.
"""

from __future__ import annotations

import sys

import clarabel
import numpy as np
import scipy.sparse as sparse
from scipy.optimize import nnls

DRAWS, SEED = 1000, 20_000  # no seed of the figures: they draw from children of theirs
TIGHT = 1e-4


def draw(rng, n, T, d):
    X, Z, v = (rng.standard_normal(shape) for shape in ((DRAWS, n, T, d), (DRAWS, n, d), (DRAWS, d)))
    X, Z, v = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in (X, Z, v))
    y = rng.choice([-1.0, 1.0], (DRAWS, n))
    return X, Z, y[..., None] * np.einsum("rntd,rd->rnt", X, v)


def logits_after(X, Z, scores, start, lr, steps):
    """Logits (draws, n, T) after normalised descent of the mean logistic loss; start has W(0) Z, lr one rate a draw.

    W(k) - W(0) = sum_i a_i z_i^T, so that only the a_i and the Gram matrix of queries are needed.
    """
    gram, move = Z @ Z.swapaxes(1, 2), np.zeros_like(Z)
    for _ in range(steps):
        ascent = ascent_of(X, scores, np.einsum("rntd,rnd->rnt", X, start + gram @ move))
        size = np.sqrt((gram * (ascent @ ascent.swapaxes(1, 2))).sum(axis=(1, 2)))[:, None, None]
        move += lr * ascent / np.where(size > 0, size, 1)
    return np.einsum("rntd,rnd->rnt", X, start + gram @ move)


def ascent_of(X, scores, logits):
    """(draws, n, d): rows a_i with - gradient proportional to sum_i a_i z_i^T, one factor for each draw."""
    top = logits.argmax(axis=2)[..., None]
    log_s = logits - np.take_along_axis(logits, top, 2)
    log_s -= np.log(np.exp(log_s).sum(axis=2, keepdims=True))
    u = (np.exp(log_s) * scores).sum(axis=2, keepdims=True)
    log_s = log_s - np.logaddexp(0, u)  # the slope of the loss
    others = np.arange(scores.shape[2]) != top
    log_s = np.where(others, log_s, -np.inf)
    c = np.exp(log_s - log_s.max(axis=(1, 2), keepdims=True)) * (scores - u)
    c = np.where(others, c, -c.sum(axis=2, keepdims=True))
    return np.einsum("rnt,rntd->rnd", c, X)


def rows(X, Z, chosen):
    """(X[i, chosen] - X[i, t]) z_i^T, flat, for every other token."""
    n, T, d = X.shape
    apart = (X[np.arange(n), chosen][:, None] - X)[np.arange(T) != chosen[:, None]].reshape(n, T - 1, d)
    return np.einsum("ntd,ne->ntde", apart, Z).reshape(n * (T - 1), d * d)


def frobenius(A):
    """The shortest W with A W >= 1, or None."""
    E = np.vstack([A.T, np.ones(len(A))])
    solution, residual = nnls(E, np.append(np.zeros(A.shape[1]), 1.0), maxiter=100 * len(A))
    if residual < 1e-6:
        return None
    r = E @ solution
    return -r[:-1] / (r[-1] - 1)


def nuclear(A, d):
    """W of least nuclear norm with A W >= 1: the trace of [[P, W], [W^T, Q]] >= 0, halved."""
    m = 2 * d
    lower = [(i, j) for j in range(m) for i in range(j + 1)]  # Clarabel's triangle, off the diagonal times sqrt 2
    at = {pair: k for k, pair in enumerate(lower)}
    scale = np.array([1.0 if i == j else np.sqrt(2) for i, j in lower])
    q = np.array([0.5 if i == j else 0.0 for i, j in lower])
    into = np.array([at[i, d + j] for i in range(d) for j in range(d)])
    G = sparse.lil_matrix((len(A), len(lower)))
    G[:, into] = -A
    G = sparse.vstack([G, -sparse.diags(scale)]).tocsc()
    cones = [clarabel.NonnegativeConeT(len(A)), clarabel.PSDTriangleConeT(m)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    h = np.concatenate([-np.ones(len(A)), np.zeros(len(lower))])
    x = np.array(clarabel.DefaultSolver(sparse.csc_matrix((len(lower),) * 2), q, G, h, cones, settings).solve().x)
    return x[into].reshape(d, d)


def selected_best(X, Z, scores, start, lr, steps, least):
    logits = logits_after(X, Z, scores, start, lr, steps)
    p = np.exp(logits - logits.max(axis=2, keepdims=True))
    sharp = (p.max(axis=2) > least * p.sum(axis=2)).all(axis=1)
    return sharp & (logits.argmax(axis=2) == scores.argmax(axis=2)).all(axis=1)


def global_shares(rng):
    """global-local and overparameterization: ends on the optimal tokens, and all tokens are their support."""
    for n, T in ((5, 5), (10, 5), (20, 5), (5, 10), (5, 20)):
        for d in (4, 8, 16, 32, 64):
            X, Z, scores = draw(rng, n, T, d)
            found = selected_best(X, Z, scores, 0, 0.1, 1500, 0.99).mean()
            held = np.nan
            if T == 5 and n <= 10 and d >= 16:
                W = [(A, frobenius(A)) for A in (rows(*one) for one in zip(X, Z, scores.argmax(axis=2), strict=True))]
                held = np.mean([w is not None and (A @ w <= 1 + TIGHT).all() for A, w in W])
            print(f"n = {n}, T = {T}, d = {d}: global {found:.4f}, all support {held:.4f}", flush=True)


def basin_shares(rng):
    """basin: still on the tokens of a locally optimal SVM solution, after a start at c times it."""
    n, T, d = 5, 5, 8
    kept = []
    while len(kept) < DRAWS:
        for X, Z, scores in zip(*draw(rng, n, T, d), strict=True):
            order, found = np.argsort(-scores, axis=1), None
            for _ in range(100):
                chosen = order[np.arange(n), rng.integers(0, 2, n)]
                if (chosen == order[:, 0]).all():
                    continue
                A = rows(X, Z, chosen)
                W = frobenius(A)
                if W is None:
                    continue
                support = np.zeros((n, T), dtype=bool)
                support[np.arange(T) != chosen[:, None]] = A @ W <= 1 + TIGHT
                if (scores[np.arange(n), chosen][:, None] > scores)[support].all():
                    found = X, Z, scores, W.reshape(d, d), chosen
                    break
            if found is not None:
                kept.append(found)
    X, Z, scores, W, chosen = (np.stack(arrays) for arrays in zip(*kept[:DRAWS], strict=True))
    for c in (15, 60, 300, 3000):
        rate = c / 300 * np.linalg.norm(W, axis=(1, 2))[:, None, None]
        end = logits_after(X, Z, scores, c * Z @ W.swapaxes(1, 2), rate, 4000)
        print(f"basin, c = {c}: stays {(end.argmax(axis=2) == chosen).all(axis=1).mean():.4f}", flush=True)


def equal_shares(rng):
    """equal-scores: the optimal tokens are selected, with tied scores and with random ones."""
    for n, T, d in ((5, 5, 8), (10, 5, 12), (5, 10, 12)):
        X, Z, scores = draw(rng, n, T, d)
        start = 3 * Z @ rng.standard_normal((DRAWS, d, d))
        free = selected_best(X, Z, scores, start, 0.1, 6000, 0)
        tied = np.where(np.arange(T) == 0, 0.5, -0.125) + np.zeros((DRAWS, n, T))
        signs = rng.choice([-1.0, 1.0], (DRAWS, n, 1))  # tokens carry y times their score in the first coordinate
        X[..., 0] = signs * tied
        equal = selected_best(X, Z, tied, start, 0.1, 6000, 0)
        gained = (equal.mean() - free.mean(), np.mean(equal & ~free), np.mean(free & ~equal))
        print(f"n = {n}, T = {T}, d = {d}: equal {equal.mean():.4f}, random {free.mean():.4f}, gained {gained}")


def ranks(rng):
    """rank: feasible draws, and the mean rank of their Frobenius solution."""
    for n, T in ((5, 5), (10, 5), (15, 5), (5, 10), (5, 15)):
        for d in (1, 2, 3, 4, 5, 10, 15):
            X, Z, scores = draw(rng, n, T, d)
            W = [frobenius(rows(*one)) for one in zip(X, Z, scores.argmax(axis=2), strict=True)]
            found = [np.linalg.matrix_rank(w.reshape(d, d), rtol=TIGHT) for w in W if w is not None]
            print(f"n = {n}, T = {T}, d = {d}: feasible {len(found) / DRAWS:.4f}, rank {np.mean(found or np.nan):.4f}",
                  flush=True)  # fmt: skip


def nuclear_ranks(rng):
    """rank: the mean rank of the nuclear solution of feasible draws."""
    for n, T, d in (*((5, 5, d) for d in (3, 4, 5, 10, 15)), *((10, 5, d) for d in (3, 4, 5, 10, 15)),
                    *((15, 5, d) for d in (4, 5, 10, 15))):  # fmt: skip
        X, Z, scores = (part[:400] for part in draw(rng, n, T, d))
        found = []
        for A in (rows(*one) for one in zip(X, Z, scores.argmax(axis=2), strict=True)):
            if frobenius(A) is not None:
                found.append(np.linalg.matrix_rank(nuclear(A, d), rtol=TIGHT))
        print(f"n = {n}, T = {T}, d = {d}: nuclear rank {np.mean(found):.4f} of {len(found)}", flush=True)


def local(rng):
    """local-convergence: factors after 1,000 steps, their SVMs' correlations; rank of W's nuclear solution."""
    n, T, d = 6, 8, 10
    X, Z, scores = (part[:400] for part in draw(rng, n, T, d))
    K, Q, start = rng.uniform(-1, 1, (3, 400, d, d)) / np.sqrt(d)
    for step in range(2000):
        if step == 1000:
            early = K @ Q.swapaxes(1, 2)
        G = ascent_of(X, scores, np.einsum("rntd,rnd->rnt", X, Z @ Q @ K.swapaxes(1, 2))).swapaxes(1, 2) @ Z
        moves = G @ Q, G.swapaxes(1, 2) @ K
        K, Q = (A + 0.1 * D / np.linalg.norm(D, axis=(1, 2), keepdims=True) for A, D in zip((K, Q), moves, strict=True))
    ends = np.einsum("rntd,rnd->rnt", X, Z @ Q @ K.swapaxes(1, 2)).argmax(axis=2)
    found = {"(K, Q), nuclear": [], "(K, Q), Frobenius": []}
    for x, z, chosen, W in zip(X, Z, ends, early, strict=True):
        A = rows(x, z, chosen)
        for name, V in zip(found, (nuclear(A, d), frobenius(A).reshape(d, d)), strict=True):
            found[name].append(np.vdot(V, W) / np.linalg.norm(V) / np.linalg.norm(W))
    ends = logits_after(X, Z, scores, Z @ start.swapaxes(1, 2), 0.1, 2000).argmax(axis=2)
    found["rank"] = [np.linalg.matrix_rank(nuclear(rows(*one), d), rtol=TIGHT) for one in zip(X, Z, ends, strict=True)]
    for name, numbers in found.items():
        print(f"{name}: median {np.median(numbers):.4f}, mean {np.mean(numbers):.4f}", flush=True)


def several(rng):
    """several-tokens: how many of the runs that are trained are accepted, until 400 are."""
    n, T, most = 3, 4, np.finfo(float).eps / 10
    for d in (4, 6, 8, 10):
        trained = accepted = 0
        while accepted < 400:
            X, Z, _ = draw(rng, n, T, d)
            y, V = rng.choice([-1.0, 1.0], (DRAWS, n)), rng.standard_normal((DRAWS, d, d))
            W = rng.uniform(-1, 1, (DRAWS, d, d)) / np.sqrt(d)
            some = (y < 0).any(axis=1)
            X, Z, y, V, W = (part[some] for part in (X, Z, y, V / np.linalg.norm(V, axis=(1, 2), keepdims=True), W))
            ends = relu_ends(X, Z, y, V, W, 0.1, 2000, most)
            for x, z, logits in zip(X, Z, ends, strict=True):
                s = np.exp(logits - logits.max(axis=1, keepdims=True))
                s /= s.sum(axis=1, keepdims=True)
                trained += 1
                if not ((s > 1e-6) & (s < 1e-3)).any() and (s <= 1e-6).any():
                    accepted += separates(x, z, s >= 1e-3)
                if accepted == 400:
                    break
        print(f"several, d = {d}: {accepted} of {trained} trained are accepted, {accepted / trained:.4f}", flush=True)


def relu_ends(X, Z, y, V, W, lr, steps, least):
    """Logits (draws, n, T) with the head 1 . relu(V^T o), where the gradient, looked at every ten steps, is below
    ``least``, or after the last step."""
    gram, start, move = Z @ Z.swapaxes(1, 2), Z @ W.swapaxes(1, 2), np.zeros_like(Z)
    going = np.ones(len(X), dtype=bool)
    for step in range(steps):
        logits = np.einsum("rntd,rnd->rnt", X, start + gram @ move)
        s = np.exp(logits - logits.max(axis=2, keepdims=True))
        s /= s.sum(axis=2, keepdims=True)
        hidden = np.einsum("rnt,rntd->rnd", s, X) @ V
        slope = 1 / (1 + np.exp(y * np.maximum(hidden, 0).sum(axis=2))) / y.shape[1]
        g = (y * slope)[..., None] * np.einsum("rntd,rnd->rnt", X, (hidden > 0) @ V.swapaxes(1, 2))
        top = logits.argmax(axis=2)[..., None]
        g -= np.take_along_axis(g, top, 2)  # so that what is left of saturated attention does not cancel
        c = s * (g - (s * g).sum(axis=2, keepdims=True))
        np.put_along_axis(c, top, 0.0, 2)
        np.put_along_axis(c, top, -c.sum(axis=2, keepdims=True), 2)
        ascent = np.einsum("rnt,rntd->rnd", c, X)
        size = np.sqrt((gram * (ascent @ ascent.swapaxes(1, 2))).sum(axis=(1, 2)))
        going &= (size >= least) if step % 10 == 0 else (size > 0)
        move += (lr * going / np.where(size > 0, size, 1))[:, None, None] * ascent
    return np.einsum("rntd,rnd->rnt", X, start + gram @ move)


def separates(x, z, kept):
    """Whether some W gives the kept tokens of each query one logit, above those of all others."""
    equal, apart = [], []
    for tokens, query, chosen in zip(x, z, kept, strict=True):
        first, *others = np.flatnonzero(chosen)
        equal += [np.outer(tokens[first] - tokens[t], query).ravel() for t in others]
        apart += [np.outer(tokens[first] - tokens[t], query).ravel() for t in np.flatnonzero(~chosen)]
    free = np.eye(x.shape[2] ** 2)
    if equal:
        _, sigma, right = np.linalg.svd(np.array(equal))
        free = right[np.count_nonzero(sigma > 1e-10 * sigma[0]) :].T
    return frobenius(np.array(apart) @ free) is not None


if __name__ == "__main__":
    parts = {"global": global_shares, "basin": basin_shares, "equal": equal_shares, "rank": ranks}
    parts |= {"nuclear": nuclear_ranks, "local": local, "several": several}
    for name in sys.argv[1:] or parts:
        parts[name](np.random.default_rng([SEED, list(parts).index(name)]))
