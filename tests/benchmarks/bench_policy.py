"""What falls off: method="auto" in every norm and with every option, on problems that no threshold was chosen on.

    PYTHONPATH=tests/support python tests/benchmarks/bench_policy.py [--problems 300] [--first 0]

after `pip install ".[bench]"`.

Shapes are log-uniform; norms, options and kinds of data are drawn; the seed is the number of the problem.  Each shape is
drawn three times.  A problem falls off where auto takes more than ten times its shape's quickest draw, LATE times the
Frobenius norm on the same rows, or WORTH times the best single method, and longer than NOTICED seconds.  Each solve has
a process of its own: its processor time (the best of three where that is short), what its memory peaked at beyond the
process before it, its status.  A solve that takes MOST seconds is stopped.  Writes results/policy.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
import warnings

import attsvm
import numpy as np
from machine import write
from threadpoolctl import threadpool_limits

NORMS = ("frobenius", "nuclear", "spectral", "max", 1.1, 1.5, 3.0, 10.0)
OPTIONS = ("hard", "soft", "several", "margins", "metric", "infeasible", "rank")
KINDS = ("gaussian", "lattice", "nearly parallel", "outlier", "few queries", "one long window")
METHODS = {"frobenius": ("active", "block", "interior"), "soft": ("block", "interior"), "nuclear": ("interior", "factored")}
DRAWS, ROUNDS, QUICK = 3, 3, 0.2
MOST, NOTICED, WORTH, LATE = 30.0, 0.05, 3.0, 100.0


def log_uniform(g, least, most):
    return round(float(np.exp(g.uniform(np.log(least), np.log(most)))))


def shape(seed):
    """Norm, option, kind; lengths of the windows, dk, dz; C."""
    g = np.random.default_rng([38, seed])
    option, kind = OPTIONS[g.integers(len(OPTIONS))], KINDS[g.integers(len(KINDS))]
    norm = NORMS[g.integers(len(NORMS))]
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


def problem(seed, draw):
    """Data, selection, options of solve_svm."""
    norm, option, kind, lengths, dk, dz, C = shape(seed)
    g = np.random.default_rng([39, seed, draw])
    X, Z = g.standard_normal((sum(lengths), dk)), g.standard_normal((len(lengths), dz))
    if kind == "lattice":
        X, Z = np.rint(2 * X), np.where((np.rint(2 * Z) == 0).all(1, keepdims=True), 1.0, np.rint(2 * Z))
    if kind == "nearly parallel":
        X = g.standard_normal(dk) + 1e-2 * X
    if kind == "outlier":
        X[0] *= 1e3
    if kind == "few queries":
        Z = Z[g.integers(0, max(1, len(Z) // 20), len(Z))]
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
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (int(MOST) + 1, int(MOST) + 1))
        before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, np.inf
        for _ in range(ROUNDS):
            begin = time.process_time()
            try:
                status = attsvm.solve_svm(data, chosen, **options).status
            except MemoryError:
                status = "MemoryError"
            seconds = min(seconds, time.process_time() - begin)
            if seconds > QUICK:
                break
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        os.write(writer, json.dumps([seconds, grown / 1e6, status]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else [MOST, float("nan"), "stopped"]


def measured(seed):
    norm, option, kind, lengths, dk, dz, C = shape(seed)
    row = {"seed": seed, "norm": norm, "option": option, "kind": kind, "C": C if option == "soft" else None,
           "n,T,dk,dz": (len(lengths), max(lengths), dk, dz), "rows": sum(lengths) - len(lengths)}  # fmt: skip
    drawn = [problem(seed, draw) for draw in range(DRAWS)]
    row["auto"] = [solved(*one) for one in drawn]
    slowest = max(range(DRAWS), key=lambda i: row["auto"][i][0])
    took, row["off"] = row["auto"][slowest][0], []
    if took < NOTICED:
        return row
    data, chosen, options = drawn[slowest]
    for method in METHODS.get("soft" if option == "soft" else norm, ()) if option != "rank" else ():
        row[method] = solved(data, chosen, options | {"method": method})
    alone = [row[m][0] for m in ("active", "block", "interior", "factored")
             if m in row and row[m][2] in ("optimal", "infeasible")]  # fmt: skip
    if norm != "frobenius" and option != "rank":
        row["frobenius"] = solved(data, chosen, options | {"norm": "frobenius"})
    if took > 10 * min(one[0] for one in row["auto"]):
        row["off"].append("its draws")
    if alone and took > WORTH * min(alone):
        row["off"].append("a method alone")
    if "frobenius" in row and took > LATE * row["frobenius"][0]:
        row["off"].append("Frobenius")
    if any(one[2] not in ("optimal", "infeasible", "stationary") for one in row["auto"]):
        row["off"].append("open")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    threadpool_limits(1)
    warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
    rows = []
    for seed in range(args.first, args.first + args.problems):
        rows.append(row := measured(seed))
        if row["off"]:
            print(json.dumps(row), flush=True)
    autos = [one for row in rows for one in row["auto"]]
    print(f"{len(rows)} shapes, {len(autos)} solves: {sum(one[2] in ('optimal', 'infeasible', 'stationary') for one in autos)} "
          f"decided; off: {sum(bool(row['off']) for row in rows)}; peak {max(one[1] for one in autos):.2f} GB")  # fmt: skip
    print("wrote", write("policy", rows))


if __name__ == "__main__":
    main()
