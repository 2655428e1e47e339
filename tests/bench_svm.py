"""Cost of a certified Frobenius solve beside DAQP on the dual: same data, same process, interleaved, one core, medians.

    python tests/bench_svm.py              (pip install "attsvm[bench]")

DAQP solves  min 1/2 l'Gl - 1'l, l >= 0  on the Gram matrix of the rows, which has to be built first; attsvm's time
is the whole call from Python, rows and certificate included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import attsvm
import daqp
import numpy as np

SIZES = [(6, 8, 10), (15, 5, 20), (20, 16, 32)]


def daqp_solve(X, Z, selected):
    n, T, _ = X.shape
    others = np.arange(T) != selected[:, None]

    def solve():
        rows = X[np.arange(n), selected][:, None] - X
        D, Zr = rows[others], np.repeat(Z, T - 1, axis=0)
        gram = (D @ D.T) * (Zr @ Zr.T)
        m = len(gram)
        dual, *_ = daqp.solve(
            gram, -np.ones(m), np.eye(0, m), np.full(m, 1e30), np.zeros(m), np.zeros(m, dtype=np.int32)
        )
        return (D * dual[:, None]).T @ Zr

    return solve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    repeats = parser.parse_args().repeats
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before any library starts its threads for good
    print("microseconds per solve (Frobenius), medians of", repeats, "interleaved solves, one core")
    print(f"{'n,T,d':>12}  {'attsvm':>8}  {'DAQP':>8}  {'ratio':>6}  {'gap':>8}  {'DAQP norm off by':>16}")
    for size in SIZES:
        X, Z, y, v = attsvm.sample.unit_sphere(*size)
        data = attsvm.cross_attention(X, Z)
        selected = attsvm.Problem(data, y, attsvm.LinearHead(v)).optimal
        sol = attsvm.solve_svm(data, selected)
        peers = {"attsvm": lambda d=data, s=selected: attsvm.solve_svm(d, s).W, "daqp": daqp_solve(X, Z, selected)}
        times: dict[str, list[float]] = {name: [] for name in peers}
        for _ in range(repeats):
            for name, solve in peers.items():
                begin = time.perf_counter()
                W = solve()
                times[name].append((time.perf_counter() - begin) * 1e6)
                if name == "daqp":
                    off = abs(np.linalg.norm(W) * sol.margin_bound - 1)
        median = {name: statistics.median(t) for name, t in times.items()}
        print(
            f"{','.join(map(str, size)):>12}  {median['attsvm']:8.1f}  {median['daqp']:8.1f}  "
            f"{median['daqp'] / median['attsvm']:6.2f}  {sol.gap:8.1e}  {off:16.1e}"
        )


if __name__ == "__main__":
    main()
