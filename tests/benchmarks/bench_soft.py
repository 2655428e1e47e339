"""Soft margins beside scikit-learn's LinearSVC and a primal Newton method in NumPy, on random problems.

    PYTHONPATH=tests/support python tests/benchmarks/bench_soft.py [--problems 60] [--first 0]

after `pip install ".[bench]"`.

Up to 100,000 rows, dk dz up to 400, C from 1e-3 to 1e3, long windows and few queries among them; the seed is the number
of the problem.  A peer's time includes the rows that it needs; the fastest one counts that reaches the smallest
objective within CLOSE, LinearSVC with each tolerance of a list.  Processor time.  Writes results/soft.json.
"""

from functools import partial

import attsvm
import numpy as np
from campaign import log_uniform, tokens
from machine import problems, write
from peers import RaggedRows, beside

CLOSE = 1e-6  # of the objective: what LinearSVC's own tolerance reaches on most problems
KINDS = ("gaussian", "nearly parallel", "one long window", "few queries")


def problem(seed):
    g = np.random.default_rng([61, seed])
    rows, dk = log_uniform(g, 30, 1e5), log_uniform(g, 1, 40)
    dz = log_uniform(g, 1, 400 / dk)
    kind, C = KINDS[g.integers(len(KINDS))], float(10 ** g.uniform(-3, 3))
    T = log_uniform(g, 2, min(rows, 20000))
    lengths = [rows] + [2] * 25 if kind == "one long window" else [T] * max(1, rows // (T - 1))
    X, Z = tokens(g, kind, lengths, dk, dz)
    X = np.split(X, np.cumsum(lengths)[:-1])
    noise, U = g.uniform(0, 2), Z @ g.standard_normal((dz, dk))  # from planted to nearly random selections
    chosen = [
        int((x @ u / (1e-9 + (x @ u).std()) + noise * g.standard_normal(len(x))).argmax())
        for x, u in zip(X, U, strict=True)
    ]
    return (len(lengths), max(lengths), dk, dz), kind, C, X, Z, chosen


def measured(seed):
    shape, kind, C, X, Z, chosen = problem(seed)
    data = attsvm.cross_attention(X, Z)
    rows = partial(RaggedRows, data, chosen, C)
    row = beside(partial(attsvm.solve_svm, data, chosen, C=C), rows, ("newton", "LinearSVC"), CLOSE)
    return {"seed": seed, "shape": shape, "kind": kind, "C": C} | row


if __name__ == "__main__":
    results = []
    for seed in problems(__doc__, 60):
        results.append(measured(seed))
        print({k: f"{v:.3g}" if isinstance(v, float) else v for k, v in results[-1].items()}, flush=True)
    ratios = np.array([row["ratio"] for row in results])
    print(f"median {np.median(ratios):.2f}, {(ratios < 1).sum()} below 1, worst {ratios.min():.2f}")
    write("soft", results)
