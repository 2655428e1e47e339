"""The shapes of real models: many queries over long windows, planted selections; in units of a Cholesky factor.

    PYTHONPATH=tests/support python tests/benchmarks/bench_large.py        (pip install ".[bench]")

Head-space problems: float32 Gaussian keys, 20 queries to a window.  Each row runs in a process of its own, for its
memory; a Cholesky factor of order 4,096 is timed in the same process.  Writes results/large.json.
"""

import os
import resource
import time

import attsvm
from machine import apart, cholesky_seconds, write
from planted import planted
from threadpoolctl import threadpool_limits

ROWS = [
    dict(n=2000, T=200, d=64),
    dict(n=2000, T=200, d=64, steep=True),
    dict(n=1500, T=500, d=128, steep=True, hard=True),
    dict(n=3000, T=1000, d=64, hard=True),
]


def measured(row):
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


if __name__ == "__main__":
    print("wrote", write("large", apart(measured, ROWS)))
