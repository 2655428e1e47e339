"""How the time of every public function grows: n, T and d doubled five times, one at a time.

    PYTHONPATH=tests/support python tests/benchmarks/bench_growth.py

Least processor time; the exponent is the slope of its logarithm over the last four doublings.  Selections
are planted, so that all have an answer.  Writes results/growth.json and the table of notebooks/performance.md.
"""

import tempfile
import warnings
from pathlib import Path

import attsvm
import numpy as np
import speed_pages
from machine import seconds, write
from threadpoolctl import threadpool_limits

BASE = {"n": 64, "T": 16, "d": 8}
PROOF = Path(tempfile.gettempdir()) / "growth.json"
DOUBLINGS, MOST = 5, 20.0


def functions(n, T, d):
    """Name -> what is timed, on the same data."""
    g = np.random.default_rng(7)
    X, Z, v, W = (g.standard_normal(s) for s in ((n, T, d), (n, d), d, (d, d)))
    data, y = attsvm.cross_attention(X, Z), np.where(g.random(n) < 0.5, -1.0, 1.0)
    problem = attsvm.Problem(data, y, attsvm.LinearHead(v))
    chosen = data.select(W)
    several = X.copy()  # a second token of the same logit
    U, i, b = Z @ W.T, np.arange(n), (chosen + 1) % T
    several[i, b] += (np.einsum("nd,nd->n", X[i, chosen] - X[i, b], U) / (U**2).sum(1))[:, None] * U
    kept = np.zeros((n, T), bool)
    kept[i, chosen] = kept[i, b] = True
    solve = attsvm.solve_svm
    found = solve(data, chosen)
    walk = {f"solve_svm, {name}": (lambda norm=norm: solve(data, chosen, norm))
            for name, norm in (("Frobenius", "frobenius"), ("nuclear", "nuclear"), ("spectral", "spectral"),
                               ("max", "max"), ("p = 3", 3.0), ("p = 1.1", 1.1))}  # fmt: skip
    return walk | {
        "solve_svm, C = 1": lambda: solve(data, g.integers(0, T, n), C=1.0),
        "solve_svm, two kept": lambda: solve(attsvm.cross_attention(several, Z), kept),
        "feasible": lambda: attsvm.feasible(data, chosen),
        "separable": lambda: attsvm.separable(X[:, 0], y),
        "Separation.prove": lambda: found.prove(PROOF),
        "train, 10 steps": lambda: attsvm.train(problem, steps=10),
        "train (K, Q), 10 steps": lambda: attsvm.train(problem, K=W, Q=W, steps=10),
        "Problem.loss_and_grad": lambda: problem.loss_and_grad(W),
        "diagnose": lambda: attsvm.diagnose(problem, chosen),
        "decompose": lambda: attsvm.theory.decompose(data, data.probabilities(1e9 * W), W),
        "margin_share": lambda: attsvm.theory.margin_share(data, chosen, W),
        "is_locally_optimal": lambda: attsvm.theory.is_locally_optimal(problem, found),
        "regularization_path, one radius": lambda: attsvm.regularization_path(problem, [1.0]),
    }


def main():
    threadpool_limits(1)
    warnings.simplefilter("ignore")
    rows = {}
    for size in BASE:
        for doubling in range(DOUBLINGS + 1):
            shape = BASE | {size: BASE[size] << doubling}
            for name, call in functions(**shape).items():
                row = rows.setdefault(name, {}).setdefault(size, [])
                if not row or row[-1] <= MOST:
                    row.append(seconds(call)[0])
        print(size, flush=True)
    lines = ["| function | at n, T, d = 64, 16, 8 | n x 32 | T x 32 | d x 32 |", "| --- " * 5 + "|"]
    for name, row in rows.items():
        shown = [f"{1e3 * row['n'][0]:.3g} ms"]
        for size in BASE:
            times = np.array(row[size], float)
            last = min(4, len(times) - 1)
            slope = np.polyfit(np.arange(last + 1), np.log2(times[-last - 1 :]), 1)[0]
            shown.append(f"{1e3 * times[-1]:.3g} ms, n^{slope:.2f}".replace("n^", f"{size}^"))
        lines.append(f"| {name} | {' | '.join(shown)} |")
    print("\n".join(lines))
    print("wrote", write("growth", rows))
    speed_pages.fill("growth", "\n".join(lines))


if __name__ == "__main__":
    main()
