"""The grid of training shapes: a step on W, (K, Q), 32 runs, of other rules and causal, beside the fastest peer.

    PYTHONPATH=tests/support python tests/benchmarks/bench_grid.py        (pip install "attsvm[bench]" torch numba jax)

Every contender (tests/support/grid_contenders.py) is one process on the same core; they take turns, and the least
processor time of a step counts, so that what else the machine does costs little.  Who is missing is left out.  The
floor of a step on W is the larger of its reads (a dot product of as many numbers as the keys have) and its flops (at
the rate of a large DGEMM).  About five minutes; prints the table, writes results/grid.json and puts the table into
notebooks/performance.md.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time

import machine
import numpy as np
import speed_pages
from grid_contenders import CONTENDERS, RUNS
from places import TESTS

SHAPES = [
    *[(6, 8, 10), (12, 8, 5), (37, 19, 7), (128, 5, 5), (1024, 2, 16), (4096, 4, 16), (300, 10, 33), (100, 20, 20)],
    *[(20, 16, 32), (64, 32, 64), (256, 16, 32), (256, 32, 256), (2048, 8, 64), (512, 64, 128), (64, 128, 64)],
    *[(1, 4096, 64), (4, 2048, 32), (8, 512, 128), (20, 16, 512), (16, 64, 768), (512, 16, 512), (1024, 64, 128)],
    *[(2048, 128, 32), (4096, 128, 256)],
]
RULES = ["sign", "spectral", "mirror", "adam"]
RULE_SHAPES = [(6, 8, 10), (64, 32, 64), (1024, 2, 16), (512, 64, 128)]
CAUSAL = (8, 256, 64)
KINDS = {"W": "W", "KQ": "(K, Q)", "runs": f"{RUNS} runs"}
ONCE, LEAST_STEPS = 0.01, 16  # seconds of one timing, and its steps where one is longer: a call evaluates once more
FEWEST, MOST, SECONDS = 2, 9, 2.0  # rounds of a row, and when to stop
SEEN = 2**14  # numbers that take longer to read than a call of NumPy
SLOW = 2e7  # multiplications of a step beyond which W alone is compared


class Contender:
    """A process that answers rows; None where it cannot."""

    def __init__(self, name, core):
        command = [sys.executable, str(TESTS / "support" / "grid_contenders.py"), name]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
        self.process = subprocess.Popen(command, preexec_fn=lambda: os.sched_setaffinity(0, core), **pipes)

    def ask(self, row, steps):
        try:
            self.process.stdin.write(json.dumps([*row, steps]) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline() or "null")
        except BrokenPipeError:
            return None

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def least(work, times=5):
    """The least processor time of one call, of enough calls to be seen."""
    calls, took = 1, []
    while len(took) < times:
        begin = time.process_time()
        for _ in range(calls):
            work()
        spent = time.process_time() - begin
        if spent < ONCE:
            calls = math.ceil(1.5 * calls * ONCE / max(spent, ONCE / 100))
        else:
            took.append(spent / calls)
    return min(took)


def rate():
    """Flops a second of a DGEMM of 1,024 rows."""
    A = np.ones((1024, 1024))
    return 2 * 1024**3 / least(lambda: A @ A)


def floor(n, T, d, flops, causal):
    """Microseconds: of few queries in their span, which takes fewer products than W."""
    queries, entries = (n * T, n * T * (T + 1) / 2) if causal else (n, n * T)
    keys = np.ones(max(n * T * d, SEEN))
    reads = least(lambda: keys @ keys) * n * T * d / len(keys)
    return 1e6 * max(reads, (min(4 * d, 2 * queries) * queries * d + 4 * entries * d) / flops)


def compare(row, running):
    """Least microseconds a step of every contender that takes part."""
    first = {name: one.ask(row, 0) for name, one in running.items()}
    reference = np.array(first["attsvm"])
    for name, found in first.items():
        if row[0] == "spectral" and row[1] < row[3]:
            break  # U V^T of a gradient that has no full rank is the library's choice
        if found is not None and np.abs(np.array(found) - reference).max() > 1e-6 * np.abs(reference).max():
            print(f"{name} does other work at {row}", file=sys.stderr)
            first[name] = None
    taking = {name: one for name, one in running.items() if first[name] is not None}
    steps, times, begin = {}, {name: [] for name in taking}, time.perf_counter()
    for name, one in taking.items():
        steps[name] = LEAST_STEPS
        while (once := one.ask(row, steps[name])) < ONCE:
            steps[name] = min(10 * steps[name], round(1.2 * ONCE / max(once, 1e-5) * steps[name]) + 1)
        times[name].append(once / steps[name])
    for round_ in range(1, MOST):
        if round_ >= FEWEST and time.perf_counter() - begin > SECONDS:
            break
        for name, one in taking.items():
            times[name].append(one.ask(row, steps[name]) / steps[name])
    return {name: 1e6 * min(t) for name, t in times.items()}


def show(us):
    return f"{us:.2f} us" if us < 10 else f"{us:.0f} us" if us < 1000 else f"{us / 1000:.3g} ms"


def table(rows):
    """A line for each shape, then for each rule; and the median."""
    lines = [f"| n,T,d | floor | {' | '.join(KINDS.values())} |", "| --- " * (len(KINDS) + 2) + "|"]
    cells = {(row["kind"], row["row"]): row for row in rows}

    def cell(kind, label):
        row = cells.get((kind, label))
        return "-" if row is None else f"{show(row['attsvm'])}, {row['ratio']:.2f} ({row['peer']})"

    for size in SHAPES:
        label = ",".join(map(str, size))
        least_us = show(cells["W", label]["floor"]) if ("W", label) in cells else "-"
        lines.append(f"| {label} | {least_us} | {' | '.join(cell(kind, label) for kind in KINDS)} |")
    lines += ["", f"| n,T,d | {' | '.join(RULES)} |", "| --- " * (len(RULES) + 1) + "|"]
    for size in RULE_SHAPES:
        label = ",".join(map(str, size))
        lines.append(f"| {label} | {' | '.join(cell(rule, label) for rule in RULES)} |")
    label = ",".join(map(str, CAUSAL))
    lines += ["", f"Causal, where every token is a query, {label}: {cell('causal', label)}."]
    ratios = sorted((row["ratio"], row["kind"], row["row"]) for row in rows)
    nearest = "; ".join(f"{KINDS.get(kind, kind)} at {label} {ratio:.2f}" for ratio, kind, label in ratios[:5])
    middle = statistics.median(ratio for ratio, *_ in ratios)
    return "\n".join([*lines, "", f"The median of the ratios is {middle:.2f}; the nearest: {nearest}."])


def main():
    core, rows = {max(os.sched_getaffinity(0))}, []
    os.sched_setaffinity(0, core)
    flops, running = rate(), {name: Contender(name, core) for name in CONTENDERS}
    print(f"{flops / 1e9:.0f} Gflop/s")
    wanted = [(kind, size) for kind in KINDS for size in SHAPES] + [(r, size) for r in RULES for size in RULE_SHAPES]
    for kind, (n, T, d) in [*wanted, ("causal", CAUSAL)]:
        if kind in ("KQ", "runs") and n * d * (T + d) > SLOW:
            continue
        label, us = f"{n},{T},{d}", compare([kind, n, T, d], running)
        ours = us.pop("attsvm")
        peer = min(us, key=us.get)
        rows.append({"kind": kind, "row": label, "attsvm": ours, **us, "peer": peer, "ratio": us[peer] / ours})
        if kind in ("W", "causal"):
            us["floor"] = rows[-1]["floor"] = floor(n, T, d, flops, kind == "causal")
        others = ", ".join(f"{name} {show(t)}" for name, t in sorted(us.items(), key=lambda item: item[1]))
        print(f"{kind:9} {label:14} {show(ours):>9}  {rows[-1]['ratio']:5.2f}   {others}", flush=True)
    for one in running.values():
        one.end()
    print(f"\n{table(rows)}\n{machine.write('grid', rows)}")
    speed_pages.fill("grid", table(rows))


if __name__ == "__main__":
    main()
