"""A training step beside the fastest peer: named shapes, other output heads, other rules, and shapes drawn at random.

    PYTHONPATH=tests/support python tests/benchmarks/bench_grid.py [SEED]

Needs ``pip install "attsvm[bench]" torch numba jax``.

Every contender (tests/support/grid_contenders.py) is one process on the same core.  They take turns, and the least
processor time of a step counts, so that other work on the machine costs little.  A contender that is not installed is
left out; OLD_JAX names a Python that has JAX 0.4.31.  The floor of a step is the larger of its reads (a dot product of
as many numbers as the keys have) and its flops (at the rate of a large DGEMM).  About fifteen minutes; prints the
tables, writes results/grid.json and puts the tables into notebooks/performance.md.
"""

import json
import os
import subprocess
import sys
import time

import machine
import numpy as np
import speed_pages
from grid_contenders import CONTENDERS, OTHER_HEADS, RUNS
from places import TESTS
from speed_pages import show
from speed_rows import drawn
from threadpoolctl import threadpool_limits

SHAPES = [(6, 8, 10), (128, 5, 5), (1024, 2, 16), (100, 20, 20), (64, 32, 64), (1, 3000, 60), (1024, 64, 128)]
HEAD_SHAPES = [(800, 8, 8), (64, 32, 64), (2500, 5, 14), (150, 20, 30), (300, 100, 24)]
RULES = ["sign", "spectral", "mirror", "adam"]
RULE_SHAPES = [(6, 8, 10), (64, 32, 64), (1024, 2, 16), (512, 64, 128)]
CAUSAL = (8, 256, 64)
KINDS = {"W": "W", "KQ": "(K, Q)", "runs": f"{RUNS} runs"}
NAMES = KINDS | {"heads": "four attention heads", "mlp": "MLP", "quadratic": "quadratic", "trained": "trained head"}
NAMES |= {"single": "float32"}
SEED, TOKENS = 20261126, 2**23  # of the shapes that are drawn; at most 64 MiB of tokens
DRAWN = ["W", "KQ", "single", *OTHER_HEADS]
ONCE, LEAST_STEPS = 0.01, 16  # seconds of one timing, and its steps where one is longer: a call evaluates once more
FEWEST, MOST, SECONDS = 2, 9, 2.0  # rounds of a row, and when to stop
SEEN = 2**14  # numbers that take longer to read than a call of NumPy
SLOW = 2e7  # multiplications of a step beyond which several runs are not compared


class Contender:
    """A process that answers rows; None where it cannot."""

    def __init__(self, name, core):
        python = os.environ.get("OLD_JAX", "") if name == "JAX 0.4.31" else sys.executable
        command = [python or "false", str(TESTS / "support" / "grid_contenders.py"), name]
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


def rate():
    """Flops a second of a DGEMM of 1,024 rows."""
    A = np.ones((1024, 1024))
    return 2 * 1024**3 / machine.seconds(lambda: A @ A)[0]


def floor(kind, n, T, d, flops):
    """Microseconds.  Few queries go in their span, which takes fewer products than W; a head that is trained or not
    linear attends twice."""
    queries, entries = (n * T, n * T * (T + 1) / 2) if kind == "causal" else (n, n * T)
    heads, passes = 4 if kind == "heads" else RUNS if kind == "runs" else 1, 2 if kind in OTHER_HEADS else 1
    products = min(4 * d, 2 * queries)
    keys = np.ones(max(n * T * d, SEEN), dtype=np.float32 if kind == "single" else np.float64)
    reads = machine.seconds(lambda: keys @ keys)[0] * n * T * d / len(keys)
    return 1e6 * max(reads, heads * (products * queries * d + passes * 4 * entries * d) / flops)


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


def table(rows):
    """A line for each named shape, for each head and each rule; then what the drawn ones are like."""
    lines, cells = [], {(row["kind"], row["row"]): row for row in rows if not row["drawn"]}

    def cell(kind, label):
        row = cells.get((kind, label))
        return "-" if row is None else f"{show(row['attsvm'])}, {row['ratio']:.2f} ({row['peer']})"

    for kinds, shapes in ((KINDS, SHAPES), (OTHER_HEADS, HEAD_SHAPES), (RULES, RULE_SHAPES)):
        lines += [f"| n,T,d | floor | {' | '.join(NAMES.get(kind, kind) for kind in kinds)} |"]
        lines += ["| --- " * (len(kinds) + 2) + "|"]
        for label in (",".join(map(str, size)) for size in shapes):
            floor = cells.get((next(iter(kinds)), label), {}).get("floor")
            lines += [f"| {label} | {show(floor) if floor else '-'} | {' | '.join(cell(k, label) for k in kinds)} |"]
        lines += [""]
    label = ",".join(map(str, CAUSAL))
    lines += [f"A causal step at {label}, where every token is a query, takes {cell('causal', label)}.", ""]
    return "\n".join([*lines, speed_pages.drawn([row for row in rows if row["drawn"]], NAMES)])


def main(seed=SEED):
    core, rows = {max(os.sched_getaffinity(0))}, []
    os.sched_setaffinity(0, core)
    threadpool_limits(1)
    flops, running = rate(), {name: Contender(name, core) for name in CONTENDERS}
    print(f"{flops / 1e9:.0f} Gflop/s")
    named = ((KINDS, SHAPES), (OTHER_HEADS, HEAD_SHAPES), (RULES, RULE_SHAPES), (["causal"], [CAUSAL]))
    wanted = [(kind, size, 0) for kinds, shapes in named for kind in kinds for size in shapes]
    for kind, (n, T, d), of in [*wanted, *((kind, size, seed) for kind, size in drawn(seed, DRAWN, TOKENS))]:
        if kind == "runs" and n * d * (T + d) > SLOW:
            continue
        label, us = f"{n},{T},{d}", compare([kind, n, T, d], running)
        ours = us.pop("attsvm")
        peer = min(us, key=us.get)
        row = {"kind": kind, "row": label, "attsvm": ours, **us, "peer": peer, "ratio": us[peer] / ours, "drawn": of}
        rows.append(row | {"floor": floor(kind, n, T, d, flops)})
        others = ", ".join(f"{name} {show(t)}" for name, t in sorted(us.items(), key=lambda item: item[1]))
        print(f"{kind:9} {label:14} {show(ours):>9}  {row['ratio']:5.2f}   {others}", flush=True)
    for one in running.values():
        one.end()
    print(f"\n{table(rows)}\n{machine.write('grid', rows)}")
    speed_pages.fill("grid", table(rows))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
