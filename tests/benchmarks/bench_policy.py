"""Regret of method="auto": its time over that of the best single method, on a grid of random and planted problems.

    PYTHONPATH=tests/support python tests/benchmarks/bench_policy.py [--norm nuclear]        (pip install ".[bench]")

Least processor time of interleaved rounds: other programs on the machine hardly show in it.  A method that takes twenty
times as long as auto is stopped, and not tried again.  Writes results/policy_NORM.json.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
import warnings

import attsvm
import numpy as np
from machine import write
from planted import planted
from threadpoolctl import threadpool_limits

SIZES = [(8, 6, 6), (8, 100, 12), (30, 20, 12), (30, 100, 24), (100, 6, 48), (100, 20, 24), (100, 100, 16)]
SIZES += [(20, 50, 8), (60, 10, 16), (200, 6, 12), (150, 30, 32), (200, 100, 32), (300, 6, 24), (300, 20, 48)]
SIZES += [(300, 100, 48), (250, 50, 20), (177, 73, 6), (163, 56, 7), (213, 78, 20), (600, 40, 16)]
METHODS = {"frobenius": ("active", "block", "interior"), "nuclear": ("interior", "factored")}
ROUNDS, PATIENCE = 5, 20.0  # timings a method; seconds of auto after which there is one only
WORTH = 20  # times auto's time after which a method is stopped


def problem(kind, steep, n, T, d):
    if kind == "planted":
        return planted(n, T, d, steep=steep, seed=n + T + d)
    g = np.random.default_rng(n + T + d)
    scale = 1 / np.sqrt(1 + np.arange(d)) if steep else np.ones(d)
    X, Z = g.standard_normal((n, T, d)) * scale, g.standard_normal((n, d)) * scale
    return attsvm.cross_attention(X, Z), g.integers(0, T, n)


def measure(data, selected, norm):
    """Least processor time and status of every method that is worth waiting for."""
    methods, times, status = ["auto", *METHODS[norm]], {}, {}
    for name in list(methods):
        begin = time.thread_time()
        if name != "auto":
            signal.setitimer(signal.ITIMER_REAL, max(3.0, WORTH * times["auto"][0]))
        try:
            status[name] = attsvm.solve_svm(data, selected, norm, method=name).status
        except TimeoutError:
            status[name] = "stopped"
            methods.remove(name)
        signal.setitimer(signal.ITIMER_REAL, 0)
        times[name] = [time.thread_time() - begin]
    order = random.Random(0)
    for _ in range(ROUNDS - 1 if times["auto"][0] < PATIENCE else 0):
        order.shuffle(methods)
        for name in methods:
            begin = time.thread_time()
            attsvm.solve_svm(data, selected, norm, method=name)
            times[name].append(time.thread_time() - begin)
    return {name: min(t) for name, t in times.items()}, status


def stop(signum, frame):
    raise TimeoutError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--norm", choices=list(METHODS), default="frobenius")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    threadpool_limits(1)
    warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
    signal.signal(signal.SIGALRM, stop)
    rows = []
    for kind in ("planted", "random"):
        for steep in (False, True):
            for n, T, d in SIZES if args.norm == "frobenius" else [size for size in SIZES if size[2] <= 24]:
                seconds, status = measure(*problem(kind, steep, n, T, d), args.norm)
                decided = {k: t for k, t in seconds.items() if k != "auto" and status[k] in ("optimal", "infeasible")}
                best = min(decided, key=decided.get) if decided else None
                regret = seconds["auto"] / decided[best] if best else None
                spectrum = "steep" if steep else "flat"
                rows.append(
                    {"kind": kind, "spectrum": spectrum, "n,T,d": [n, T, d], "status": status["auto"], "best": best}
                    | {"regret": regret, "seconds": seconds}
                )
                shown = "  ".join(f"{k} {1e3 * t:.2f}" for k, t in seconds.items())
                print(f"{kind:8} {spectrum:6} {n},{T},{d}: {shown} ms, regret {regret or np.nan:.2f}", flush=True)
    regrets = np.array([row["regret"] for row in rows if row["regret"]])
    print(
        f"{len(regrets)} problems: median {np.median(regrets):.2f}, largest {regrets.max():.2f}, "
        f"{(regrets > 1.5).sum()} above 1.5, {(regrets > 2).sum()} above 2"
    )
    print("wrote", write(f"policy_{args.norm}", rows))


if __name__ == "__main__":
    main()
