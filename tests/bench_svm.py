"""Cost of a certified solve beside peers: same data, same process, interleaved, one core, medians.

    python tests/bench_svm.py [--large]        (pip install "attsvm[bench]")

Peers, on the same random tokens and the selection of the highest scores (a random one where the problem is tight):
DAQP on the Gram matrix of the rows; scikit-learn's OneClassSVM on it (nu = 1/m is the hard-margin dual); SciPy's
L-BFGS-B on the dual with the structured gradient; for the nuclear norm a primal-dual hybrid gradient in NumPy.  Gram
matrices are part of a peer's time; attsvm's is the whole call, rows and certificate included.  "off by" is how far the
peer's least margin times its norm is from the certified one: the accuracy it stopped at.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import attsvm
import daqp
import numpy as np
from scipy.optimize import minimize
from sklearn.svm import OneClassSVM

FROBENIUS = [
    ((6, 8, 10), "daqp"),
    ((15, 5, 20), "daqp"),
    ((20, 16, 32), "one class"),
    ((64, 32, 64), "l-bfgs-b"),
    ((128, 64, 128), "l-bfgs-b"),
    ((40, 8, 10), "daqp"),
    ((64, 32, 16), "daqp"),
]
NUCLEAR = [(6, 8, 10), (15, 5, 20), (20, 16, 32), (64, 16, 64)]
LARGE = [((512, 64, 256), "l-bfgs-b"), ((1024, 128, 384), "l-bfgs-b")]


class Rows:
    """delta_nt = x_selected - x_t and z_n, as the peers want them."""

    def __init__(self, X, Z, selected):
        self.X, self.Z, self.selected = X, Z, selected
        self.others = np.arange(X.shape[1]) != selected[:, None]

    def gram(self):
        rows = self.X[np.arange(len(self.X)), self.selected][:, None] - self.X
        D, Zr = rows[self.others], np.repeat(self.Z, self.X.shape[1] - 1, axis=0)
        return (D @ D.T) * (Zr @ Zr.T)

    def adjoint(self, dual):
        c = np.zeros(self.X.shape[:2])
        c[self.others] = -dual
        c[np.arange(len(c)), self.selected] = -c.sum(axis=1)
        return np.matmul(c[:, None], self.X)[:, 0].T @ self.Z

    def margins(self, W):
        logits = np.matmul(self.X, (self.Z @ W.T)[:, :, None])[:, :, 0]
        return (logits[np.arange(len(logits)), self.selected][:, None] - logits)[self.others]


def by_daqp(rows):
    gram = rows.gram()
    m = len(gram)
    none = np.full(m, 1e30)
    return rows.adjoint(
        daqp.solve(gram, -np.ones(m), np.eye(0, m), none, np.zeros(m), np.zeros(m, dtype=np.int32))[0]
    )


def by_one_class(rows):
    gram = rows.gram()
    machine = OneClassSVM(kernel="precomputed", nu=1.0001 / len(gram), tol=1e-10).fit(gram)
    dual = np.zeros(len(gram))
    dual[machine.support_] = machine.dual_coef_[0]
    return rows.adjoint(dual)


def by_lbfgs(rows):
    def dual_value(dual):
        W = rows.adjoint(dual)
        return 0.5 * (W**2).sum() - dual.sum(), rows.margins(W) - 1

    m = int(rows.others.sum())
    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 20}
    start = np.full(m, 0.1)
    return rows.adjoint(minimize(dual_value, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * m,
                                 options=options).x)  # fmt: skip


def by_pdhg(rows, target=3e-7):
    """min ||W||_* s.t. A(W) >= 1, until the two values agree to the target."""
    m, shape = int(rows.others.sum()), (rows.X.shape[2], rows.Z.shape[1])
    W, dual = np.zeros(shape), np.zeros(m)
    v = np.ones(m)
    for _ in range(20):
        v = rows.margins(rows.adjoint(v))
        v /= np.linalg.norm(v)
    size = np.sqrt(np.linalg.norm(rows.margins(rows.adjoint(v))))
    ratio = 2.0
    tau, sigma = ratio / size, 1 / ratio / size
    for k in range(20000):
        U, s, V = np.linalg.svd(W + tau * rows.adjoint(dual), full_matrices=False)
        new = (U * np.maximum(s - tau, 0)) @ V
        dual = np.maximum(dual + sigma * (1 - rows.margins(2 * new - W)), 0)
        W = new
        if k % 20 == 19:
            least = rows.margins(W).min()
            upper = np.maximum(s - tau, 0).sum() / least if least > 0 else np.inf
            if upper / (dual.sum() / np.linalg.norm(rows.adjoint(dual), 2)) - 1 <= target:
                break
    return W


PEERS = {"daqp": by_daqp, "one class": by_one_class, "l-bfgs-b": by_lbfgs, "pdhg": by_pdhg}


def compare(norm, size, peer, most_seconds):
    X, Z, y, v = attsvm.sample.unit_sphere(*size)
    data = attsvm.cross_attention(X, Z)
    selected = attsvm.Problem(data, y, attsvm.LinearHead(v)).optimal
    rows = Rows(X, Z, selected)
    sol = attsvm.solve_svm(data, selected, norm)
    times = {"attsvm": [], peer: []}
    begun = time.perf_counter()
    while len(times[peer]) < 3 or time.perf_counter() - begun < most_seconds:
        for name in times:
            begin = time.perf_counter()
            W = attsvm.solve_svm(data, selected, norm).W if name == "attsvm" else PEERS[peer](rows)
            times[name].append((time.perf_counter() - begin) * 1e3)
    size_of_w = np.linalg.norm(W) if norm == "frobenius" else np.linalg.norm(W, "nuc")
    off = abs(sol.margin * size_of_w / rows.margins(W).min() - 1)
    ours, theirs = (statistics.median(times[name]) for name in times)
    print(
        f"{norm:>9} {','.join(map(str, size)):>13} {sol.method:>9} {ours:10.3f} {sol.gap:8.1e} {peer:>10} "
        f"{theirs:10.3f} {off:8.1e} {theirs / ours:7.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also the sizes that take minutes")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before any library starts its threads for good
    print(f"milliseconds per solve, medians; one core; {attsvm.svm._core.config()['blas']}")
    print(
        f"{'norm':>9} {'n,T,d':>13} {'method':>9} {'attsvm':>10} {'gap':>8} {'peer':>10} {'ms':>10} "
        f"{'off by':>8} {'ratio':>7}"
    )
    for size, peer in FROBENIUS + (LARGE if args.large else []):
        compare("frobenius", size, peer, args.seconds)
    for size in NUCLEAR:
        compare("nuclear", size, "pdhg", args.seconds)


if __name__ == "__main__":
    main()
