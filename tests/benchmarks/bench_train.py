"""Cost of a training step beside JAX, PyTorch and numba: same data, interleaved, on one core and on two, medians.

    PYTHONPATH=tests/support python tests/benchmarks/bench_train.py        (pip install "attsvm[bench]" torch numba)

Every contender (tests/support/train_contenders.py) is a process of its own; one runs at a time, in turn.  JAX comes
twice: the newest, and 0.4.31 from an environment that this script makes under build/, because the newest CPU runtime is
slower on small float64 scans.  Who is missing is left out.  The floor of a step is the larger of its reads (the keys
once, at the measured bandwidth) and its flops (at the measured rate of a large DGEMM).  Prints the table of the
documentation's page on performance and writes results/train.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import venv

import attsvm
import machine
import numpy as np
from places import ROOT, TESTS
from speed_rows import CAUSAL, CAUSAL_STEPS, RUNS, RUNS_SIZE, RUNS_STEPS, STEPS, stacked_runs
from train_contenders import CONTENDERS

NOT_CAUSAL = {"jax by hand", "torch by hand", "torch.compile", "numba"}
SLOW = {"torch autograd"}  # never the fastest, and a third copy of the largest tokens
OLD_JAX = "0.4.31"


def old_jax():
    """The Python of an environment with the old JAX, made where it is missing; None where it cannot be had."""
    folder = ROOT / "build" / f"jax-{OLD_JAX}"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        wanted = [f"jax=={OLD_JAX}", f"jaxlib=={OLD_JAX}"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=False)
    found = subprocess.run([python, "-c", "import jax"], capture_output=True).returncode == 0
    return str(python) if found else None


class Contender:
    """A process that runs once when told to; None in `first` where it could not start."""

    def __init__(self, python, name, size, causal, steps, cores):
        command = [python, str(TESTS / "support" / "train_contenders.py"), name, *map(str, size)]
        command += [str(int(causal)), str(steps), str(len(cores))]
        threads = {"OMP_NUM_THREADS": str(len(cores)), "OPENBLAS_NUM_THREADS": str(len(cores))}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **threads},
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        line = self.process.stdout.readline()
        self.first = np.array(json.loads(line)) if line else None
        self.seconds = []

    def run(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.seconds.append(float(self.process.stdout.readline()))

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def rates():
    """Bytes a second read (a sum of 1 GiB) and flops a second of a DGEMM of 1024 rows, best of five."""
    x, A = np.ones(2**27), np.ones((1024, 1024))
    best = [0.0, 0.0]
    for _ in range(5):
        for i, (work, amount) in enumerate(((lambda: x @ x, x.nbytes), (lambda: A @ A, 2 * 1024**3))):
            begin = time.perf_counter()
            work()
            best[i] = max(best[i], amount / (time.perf_counter() - begin))
    return best


def floor(n, T, d, best, runs=1, causal=False):
    queries, entries = (n * T, n * T * (T + 1) / 2) if causal else (n, n * T)
    return 1e6 * max(n * T * d * 8 / best[0], runs * 4 * (queries * d * d + entries * d) / best[1])


def show(us):
    return f"{us:.2f} us" if us < 10 else f"{us:.0f} us" if us < 1000 else f"{us / 1000:.3g} ms"


def compare(size, steps, causal, cores, repeats, python_of_old):
    """Median microseconds a step of every contender that starts, interleaved."""
    names = [n for n in CONTENDERS if not (causal and n in NOT_CAUSAL) and not (size[0] >= 4096 and n in SLOW)]
    wanted = [(sys.executable, name, name) for name in names]
    if python_of_old is not None:
        wanted += [(python_of_old, n, n.replace("jax", f"JAX {OLD_JAX}")) for n in names if n.startswith("jax")]
    started = {label: Contender(python, name, size, causal, steps, cores) for python, name, label in wanted}
    running = {label: one for label, one in started.items() if one.first is not None}
    reference = running["attsvm"].first
    for label, one in running.items():
        assert np.abs(one.first - reference).max() < 1e-9 * np.abs(reference).max(), label
    for _ in range(repeats):
        for one in running.values():
            one.run()
    for one in started.values():
        one.end()
    return {label: statistics.median(one.seconds) / steps * 1e6 for label, one in running.items()}


def bench(cores, repeats, sizes, python_of_old):
    os.sched_setaffinity(0, cores)
    attsvm.set_num_threads(len(cores))
    best, rows = rates(), []
    print(f"\n{len(cores)} core(s): {best[0] / 1e9:.1f} GB/s, {best[1] / 1e9:.0f} Gflop/s\n")
    print("| n,T,d | attsvm | fastest peer | its time | ratio | floor | times its floor | all |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    wanted = [(size, STEPS[size], False) for size in STEPS if len(sizes) == 0 or str(size[0]) in sizes]
    wanted += [(CAUSAL, CAUSAL_STEPS, True)] if len(sizes) == 0 or "causal" in sizes else []
    for size, steps, causal in wanted:
        us = compare(size, steps, causal, cores, repeats if size[0] < 4096 else max(3, repeats // 3), python_of_old)
        ours = us.pop("attsvm")
        peer = min(us, key=us.get)
        least = floor(*size, best, causal=causal)
        label = f"{'causal ' * causal}{','.join(map(str, size))}"
        rows.append({"row": label, "cores": len(cores), "attsvm": ours, **us, "floor": least})
        others = ", ".join(f"{name} {show(t)}" for name, t in sorted(us.items(), key=lambda item: item[1]))
        cells = [show(ours), peer, show(us[peer]), f"{us[peer] / ours:.2f}", show(least), f"{ours / least:.1f}", others]
        print(f"| {label} | {' | '.join(cells)} |", flush=True)
    return rows


def bench_runs(cores, repeats):
    """Many runs in one call beside as many calls."""
    problem, starts = stacked_runs()
    options = dict(steps=RUNS_STEPS, record=0)
    seconds = {"stacked": [], "separate": []}
    for _ in range(min(repeats, 3)):
        begin = time.perf_counter()
        attsvm.train(problem, starts, runs=RUNS, **options)
        between = time.perf_counter()
        for W in starts:
            attsvm.train(problem, W, **options)
        seconds["stacked"].append(between - begin)
        seconds["separate"].append(time.perf_counter() - between)
    stacked, separate = (statistics.median(s) / RUNS_STEPS * 1e6 for s in seconds.values())
    print(
        f"\n{RUNS} runs at {RUNS_SIZE}, a step of all: stacked {show(stacked)}, separate {show(separate)}, "
        f"{separate / stacked:.2f} times; floor {show(floor(*RUNS_SIZE, rates(), runs=RUNS))}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2], help="how many to use, one table for each")
    parser.add_argument("--sizes", nargs="*", default=[], help="n of the rows wanted, causal, runs; all by default")
    args = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))[::-1]
    python_of_old, rows = old_jax(), []
    print("one normalised step on W inside a run, float64, medians of interleaved runs, a process each")
    for count in args.cores:
        rows += bench(set(available[:count]), args.repeats, args.sizes, python_of_old)
        if len(args.sizes) == 0 or "runs" in args.sizes:
            bench_runs(set(available[:count]), args.repeats)
    if len(args.sizes) == 0:
        print(f"\n{machine.write('train', rows)}")


if __name__ == "__main__":
    main()
