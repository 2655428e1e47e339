"""Regret of method="auto": its time over that of the best single method, on problems that no threshold was chosen on.

    PYTHONPATH=tests/support python tests/benchmarks/bench_policy.py [--problems 100] [--first 0]

after `pip install ".[bench]"`.

Sizes are log-uniform, kinds and norms in turn, the seed is the number of the problem.  Processor time, best of five
each; the best method is timed a second time, apart from the run that chose it.  A method that takes three times as long
as auto is stopped, and is not the best; where auto itself is, its time is that until then.  The other norms have one
method: their times are set beside those of the same problem without its copies.  Writes results/policy.json.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
import warnings

import attsvm
import numpy as np
from machine import write
from planted import planted
from threadpoolctl import threadpool_limits

KINDS = ("random", "planted", "nearly infeasible", "near copies", "steep", "doubled or shared queries")
HARD, SOFT, NUCLEAR = ("active", "block", "interior"), ("block", "interior"), ("interior", "factored")
WAYS = (("frobenius", HARD), ("soft", SOFT), ("nuclear", NUCLEAR), ("frobenius", HARD))
OTHERS = ("spectral", "max", 3.0)
ROUNDS, WORTH, LEAST, MOST = 5, 3.0, 0.02, 5.0  # timings; see above; seconds a method has at least, and auto at most


def log_uniform(g, least, most):
    return round(float(np.exp(g.uniform(np.log(least), np.log(most)))))


def problem(seed):
    """Data, selection, and the same without copies where the kind has any; norm and methods; C of the soft margin."""
    g = np.random.default_rng([25, seed])
    kind, (norm, methods) = KINDS[seed % len(KINDS)], WAYS[seed // len(KINDS) % len(WAYS)]
    small = 0.5 if norm == "nuclear" else 1.0
    n, T, d = log_uniform(g, 6, 300 * small), log_uniform(g, 3, 120 * small), log_uniform(g, 4, 50 * small)
    C = float(10 ** g.uniform(-2, 2)) if norm == "soft" else None
    steep = 1 / np.sqrt(1 + np.arange(d)) ** g.uniform(1, 3) if kind == "steep" else np.ones(d)
    if kind == "planted":
        data, selected = planted(n, T, d, hard=g.random() < 0.5, seed=seed)
        return kind, norm, methods, C, (n, T, d), data, selected, None
    if kind == "nearly infeasible":  # a selection at random can be met up to two bits per entry of W
        n = max(6, min(800, round(g.uniform(1.6, 2.1) * d * d / np.log2(T))))
    X, Z = g.standard_normal((n, T, d)) * steep, g.standard_normal((n, d)) * steep
    selected = g.integers(0, T, n)
    if kind == "steep" and g.random() < 0.5:
        selected = np.einsum("ntd,nd->nt", X, Z).argmax(axis=1)
    plain = None
    if kind == "near copies":
        near, half = 10 ** g.uniform(-12, -3), (n + 1) // 2
        plain = attsvm.cross_attention(X[:half], Z[:half]), selected[:half]
        again = g.integers(0, half, n - half)
        Z[half:] = Z[again] * (1 + near * g.standard_normal((n - half, d)))
        if g.random() < 0.5:  # their windows too, in part
            X[half:, : T // 2 + 1] = X[again, : T // 2 + 1] + near * g.standard_normal((n - half, T // 2 + 1, d))
        else:
            selected[half:] = selected[again]
            X[half:] = X[again] + near * g.standard_normal((n - half, T, d))
    if kind.startswith("doubled"):
        plain = attsvm.cross_attention(X, Z), selected
        kinds = log_uniform(g, 1, n)
        Z = Z[g.integers(0, kinds, n)]
    return kind, norm, methods, C, (n, T, d), attsvm.cross_attention(X, Z), selected, plain


def timed(most, data, selected, **options):
    """Processor time and status; "stopped" after `most` seconds of it."""
    signal.setitimer(signal.ITIMER_PROF, most)
    begin = time.thread_time()
    try:
        status = attsvm.solve_svm(data, selected, **options).status
    except TimeoutError:
        status = "stopped"
    signal.setitimer(signal.ITIMER_PROF, 0)
    return time.thread_time() - begin, status


def best_of(rounds, names, most, data, selected, **options):
    """Least time of each method, of interleaved rounds; and its status."""
    seconds, status = dict.fromkeys(names, np.inf), {}
    for _ in range(rounds):
        for name in names:
            if status.get(name) != "stopped":
                took, status[name] = timed(most, data, selected, method=name, **options)
                seconds[name] = took if status[name] == "stopped" else min(seconds[name], took)
    return seconds, status


def regret(methods, norm, C, data, selected):
    options = {"C": C} if norm == "soft" else {"norm": norm}
    first, said = timed(MOST, data, selected, **options)
    seconds, status = best_of(ROUNDS, ["auto", *methods], max(LEAST, WORTH * first), data, selected, **options)
    if said == "stopped":
        seconds["auto"], status["auto"] = first, said
    known = {name: seconds[name] for name in methods if status[name] in ("optimal", "infeasible")}
    best = min(known, key=known.get) if known else None
    again = best_of(ROUNDS, [best], MOST, data, selected, **options)[0][best] if best else None
    over = seconds["auto"] / again if best else None
    return {"status": status, "seconds": seconds, "best": best, "again": again, "regret": over}


def stop(signum, frame):
    raise TimeoutError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    threadpool_limits(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
    signal.signal(signal.SIGPROF, stop)
    rows = []
    for seed in range(args.first, args.first + args.problems):
        kind, norm, methods, C, shape, data, selected, plain = problem(seed)
        row = {"seed": seed, "kind": kind, "norm": norm, "C": C, "n,T,d": shape}
        row |= regret(methods, norm, C, data, selected)
        if plain is not None:
            other = OTHERS[seed // len(KINDS) % len(OTHERS)]
            row["other norm"] = other
            row["with copies"] = timed(MOST, data, selected, norm=other)
            row["without"] = timed(MOST, *plain, norm=other)
        rows.append(row)
        shown = "  ".join(f"{name} {1e3 * t:.2f}" for name, t in row["seconds"].items())
        rest = f", {other}: {1e3 * row['with copies'][0]:.0f} ms beside {1e3 * row['without'][0]:.0f}" if plain else ""
        print(f"{seed:4} {kind:25} {norm:9} {shape} {row['status']['auto']}: {shown} ms, "
              f"regret {row['regret'] or np.nan:.2f}{rest}", flush=True)  # fmt: skip
    over = np.array([row["regret"] for row in rows if row["regret"]])
    dear = [row["regret"] for row in rows if row["regret"] and row["seconds"]["auto"] > 1e-3]
    print(f"{len(over)} of {len(rows)} decided: median {np.median(over):.2f}, {(over > 1.5).sum()} above 1.5, "
          f"largest {over.max():.2f}, above a millisecond {max(dear, default=np.nan):.2f}")  # fmt: skip
    print("wrote", write("policy", rows))


if __name__ == "__main__":
    main()
