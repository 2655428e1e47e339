"""The shapes of real models: many queries over long windows, planted selections; in units of a Cholesky factor.

    PYTHONPATH=tests/support python tests/benchmarks/bench_large.py [--only 3]        (pip install ".[bench]")

Head-space problems: float32 Gaussian keys, 20 queries to a window.  Each row runs in a process of its own, for its
memory; a Cholesky factor of order 4,096 is timed in the same process.  Writes results/large.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

ROWS = [
    dict(n=2000, T=200, d=64),
    dict(n=2000, T=200, d=64, steep=True),
    dict(n=1500, T=500, d=128, steep=True, hard=True),
    dict(n=3000, T=1000, d=64, hard=True),
]


def one(row):
    import attsvm
    from machine import cholesky_seconds
    from planted import planted
    from threadpoolctl import threadpool_limits

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    threadpool_limits(1)
    data, selected = planted(**row, per_window=20, single=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    sol = attsvm.solve_svm(data, selected)
    seconds = time.perf_counter() - begin
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
    unit = cholesky_seconds()
    return row | {
        "rows": data._rows,
        "status": sol.status,
        "method": sol.method,
        "gap": sol.gap,
        "support": int(sum(part.sum() for part in sol.support)),
        "seconds": seconds,
        "cholesky": unit,
        "ratio": seconds / unit,
        "gigabytes": memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, help="row 0 to 3")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(one(json.loads(args.here))))
        return
    from machine import write

    found = []
    for row in ROWS if args.only is None else [ROWS[args.only]]:
        command = [sys.executable, __file__, "--here", json.dumps(row)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(found[-1]), flush=True)
    if args.only is None:
        print("wrote", write("large", found))


if __name__ == "__main__":
    main()
