"""Soft margins beside scikit-learn's LinearSVC and a primal Newton method in NumPy, on random problems.

    PYTHONPATH=tests/support python tests/benchmarks/bench_soft.py [--problems 60] [--first 0]

after `pip install ".[bench]"`.

Up to 100,000 rows, dk dz up to 400, C from 1e-3 to 1e3, long windows and few queries among them; the seed is the number
of the problem.  A peer's time includes the rows that it needs; LinearSVC is given the loosest tolerance of a list that
reaches the smallest objective within CLOSE.  Medians of ROUNDS interleaved rounds.  Writes results/soft.json.
"""

import statistics
import time
from functools import partial

import attsvm
import numpy as np
from machine import problems, write
from peers import RaggedRows
from sklearn.svm import LinearSVC

ROUNDS = 3
CLOSE = 1e-6  # of the objective: what LinearSVC's own tolerance reaches on most problems
KINDS = ("gaussian", "nearly parallel", "one long window", "few queries")


def problem(seed):
    g = np.random.default_rng([61, seed])
    rows = round(float(np.exp(g.uniform(np.log(30), np.log(1e5)))))
    dk = round(float(np.exp(g.uniform(0, np.log(40)))))
    dz = round(float(np.exp(g.uniform(0, np.log(400 / dk)))))
    kind, C = KINDS[g.integers(len(KINDS))], float(10 ** g.uniform(-3, 3))
    T = round(float(np.exp(g.uniform(np.log(2), np.log(min(rows, 20000))))))
    lengths = [rows] + [2] * 25 if kind == "one long window" else [T] * max(1, rows // (T - 1))
    X, Z = g.standard_normal((sum(lengths), dk)), g.standard_normal((len(lengths), dz))
    if kind == "nearly parallel":
        X = g.standard_normal(dk) + 1e-2 * X
    if kind == "few queries":
        Z = Z[g.integers(0, max(1, len(Z) // 20), len(Z))]
    X = np.split(X, np.cumsum(lengths)[:-1])
    noise, U = g.uniform(0, 2), Z @ g.standard_normal((dz, dk))  # from planted to nearly random selections
    chosen = [
        int((x @ u / (1e-9 + (x @ u).std()) + noise * g.standard_normal(len(x))).argmax())
        for x, u in zip(X, U, strict=True)
    ]
    return (len(lengths), max(lengths), dk, dz), kind, C, X, Z, chosen


def objective(A, w, C):
    return w @ w / 2 + C * np.square(np.maximum(1 - A @ w, 0)).sum()


def newton(data, chosen, C):
    A = RaggedRows(data, chosen).products()
    w, value = np.zeros(A.shape[1]), C * len(A)
    for _ in range(200):
        slack = 1 - A @ w
        B = A[slack > 0]
        gradient = w - 2 * C * (B.T @ slack[slack > 0])
        if np.linalg.norm(gradient) <= 1e-10 * (np.linalg.norm(w) + C * np.linalg.norm(B.sum(0))):
            break
        if len(B) < A.shape[1]:  # by the smaller of the two systems
            step = gradient - B.T @ np.linalg.solve(B @ B.T + np.eye(len(B)) / (2 * C), B @ gradient)
        else:
            step = np.linalg.solve(np.eye(len(w)) + 2 * C * B.T @ B, gradient)
        size = 1.0
        while (now := objective(A, w - size * step, C)) > value - 1e-4 * size * (gradient @ step) and size > 1e-10:
            size /= 2
        w, value = w - size * step, now
    return w


def linear_svc(data, chosen, C, tol, dual):
    A = RaggedRows(data, chosen).products()
    sign = np.where(np.arange(len(A)) % 2, -1.0, 1.0)  # it wants two classes
    return LinearSVC(C=C, fit_intercept=False, tol=tol, dual=dual, max_iter=2000).fit(A * sign[:, None], sign).coef_[0]


def clocked(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measured(seed):
    shape, kind, C, X, Z, chosen = problem(seed)
    data = attsvm.cross_attention(X, Z)
    sol = attsvm.solve_svm(data, chosen, C=C)
    A = RaggedRows(data, chosen).products()
    best = objective(A, sol.W.ravel(), C)
    peers = {"newton": partial(newton, data, chosen, C)}
    if clocked(peers["newton"]) >= 60:
        peers = {}
    for tol in (1e-2, 1e-4, 1e-6):
        for dual in (False, True):
            if dual and len(A) > 20000:
                continue
            peer = partial(linear_svc, data, chosen, C, tol, dual)
            if objective(A, peer(), C) <= best * (1 + CLOSE):
                peers[f"LinearSVC {tol} {dual}"] = peer
        if len(peers) > 1:
            break
    calls = {"attsvm": partial(attsvm.solve_svm, data, chosen, C=C)} | peers
    rounds = [{name: clocked(call) for name, call in calls.items()} for _ in range(ROUNDS)]
    theirs = {name: statistics.median(took[name] for took in rounds) for name in calls}
    ours = theirs.pop("attsvm")
    peer = min(theirs, key=theirs.get)
    row = {"seed": seed, "shape": shape, "kind": kind, "C": C, "status": sol.status, "seconds": ours, "peer": peer}
    return row | {"its seconds": theirs[peer], "ratio": theirs[peer] / ours}


if __name__ == "__main__":
    results = []
    for seed in problems(__doc__, 60):
        results.append(measured(seed))
        print({k: f"{v:.3g}" if isinstance(v, float) else v for k, v in results[-1].items()}, flush=True)
    ratios = np.array([row["ratio"] for row in results])
    print(f"median {np.median(ratios):.2f}, {(ratios < 1).sum()} below 1, worst {ratios.min():.2f}")
    write("soft", results)
