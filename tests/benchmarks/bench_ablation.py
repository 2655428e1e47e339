"""What each fast path earns: the rows of the speed tables and real attention heads, with it and without it.

    PYTHONPATH=tests/support python tests/benchmarks/bench_ablation.py [--only no-span] [--coretype Haswell]

Every ablation of tests/support/ablations.py is built from a copy of the sources in build/ablation.  Two processes, one
with and one without, take turns (one core each, CPU time of the process, so that what else the machine does costs
little); the ratio is the median over pairs, with the interval of that median.  A path earns its room where no
arrangement without it stays below 1.5 on some row.  Writes results/ablation.json; rows of other ablations and kernels
stay as they were.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from ablations import ABLATIONS
from places import ROOT, TESTS

HOME = ROOT / "build" / "ablation"
HEADS_FILE = HOME / "heads.pickle"
COMMIT = HOME / "commit"  # that was built
SPAN_SIZE, SPAN_STEPS = (20, 16, 512), 200
MORE_HEADS = [((4, 9), 200), ((2, 11), 300)]  # besides those of the speed table
LEAST = 0.004  # seconds of one measurement
PAIRS, FEWEST = 41, 5
PATIENCE = 10.0  # seconds of one pair, beyond which there is one
ENOUGH = 1.5


def rows_of(kind):
    """Names of the rows, from the quickest to the slowest of each kind."""
    from speed_rows import HEADS, LARGE_SOLVES, RUNS_SIZE, SOLVES, STEPS

    small = [("train", list(size)) for size in [*list(STEPS)[:2], SPAN_SIZE]]
    train = [*small, ("train", list(RUNS_SIZE)), ("causal", []), ("runs", []), ("train", list(max(STEPS)))]
    norms = ("frobenius", "nuclear")
    solve = [(norm, list(size)) for norm in norms for size in SOLVES[norm]]
    solve += [("head", [layer, head, queries]) for (layer, head), queries in [*HEADS, *MORE_HEADS]]
    solve += [(norm, list(size)) for norm in norms for size in LARGE_SOLVES[norm]]
    return {"few queries": small, "train": train, "solve": solve, "both": train + solve}[kind]


def call_of(kind, size):
    """The call of a row, and how many units (steps, solves) it is."""
    import attsvm
    import speed_rows as given

    runs = {"train": ("W", size), "causal": ("causal", given.CAUSAL), "runs": ("runs", given.RUNS_SIZE)}
    if kind in runs:
        alone = {"causal": given.CAUSAL_STEPS, "runs": given.RUNS_STEPS}
        steps = alone.get(kind, given.STEPS.get(tuple(size), SPAN_STEPS))
        return given.training_run(*runs[kind], steps), steps
    if kind == "head":
        if not HEADS_FILE.exists():  # reading the model takes longer than all the rest
            HEADS_FILE.write_bytes(pickle.dumps(given.head_selections([*given.HEADS, *MORE_HEADS])))
        data, selected = pickle.loads(HEADS_FILE.read_bytes())[(size[0], size[1]), size[2]]
        return lambda: attsvm.solve_svm(data, selected), 1
    _, _, data, selected = given.random_selection(*size)
    return lambda: attsvm.solve_svm(data, selected, kind), 1


def serve():
    """One side of the pairs: rows and numbers of calls come in, seconds a unit go out."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    calls, units = None, 1
    for line in sys.stdin:
        kind, size, count = json.loads(line)
        if count == 0:
            calls, units = call_of(kind, size)
            begin = time.process_time()
            answer = calls()
            seconds = time.process_time() - begin
            word = f"{answer.method} {answer.status}" if hasattr(answer, "gap") else ""
            print(json.dumps([seconds, word]), flush=True)
            continue
        begin = time.process_time()
        for _ in range(count):
            calls()
        print(json.dumps([(time.process_time() - begin) / (count * units), ""]), flush=True)


class Side:
    """A process with its own package."""

    def __init__(self, name, coretype):
        path = os.pathsep.join([str(HOME / name), str(TESTS / "support")])
        env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        env.update({"OPENBLAS_CORETYPE": coretype} if coretype else {})
        command = [sys.executable, __file__, "--serve"]
        self.process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, row, count):
        self.process.stdin.write(json.dumps([*row, count]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def build(names):
    """build/ablation/NAME/attsvm for each, and "with"."""
    from machine import described
    from patched import Tree

    tree = Tree(HOME / "tree")
    COMMIT.write_text(described()["commit"])
    for name in ["with", *names]:
        tree.change(ABLATIONS[name].changes if name != "with" else ())
        shutil.rmtree(HOME / name, ignore_errors=True)
        shutil.copytree(tree.package, HOME / name / "attsvm")
        tree.restore()


def interval(ratios):
    """Of the median, 95 %, by order statistics."""
    n = len(ratios)
    low = max(0, int(n / 2 - 0.98 * n**0.5))
    return sorted(ratios)[low], sorted(ratios)[n - 1 - low]


def measure(name, coretype, seconds):
    found, sides = [], [Side("with", coretype), Side(name, coretype)]
    for row in rows_of(ABLATIONS[name].kind):
        (first, having), (second, lacking) = (side.ask(row, 0) for side in sides)
        count = max(1, round(LEAST / max(first, 1e-7)))
        times, begin = [], time.perf_counter()
        fewest = FEWEST if first + second < PATIENCE else 1
        while len(times) < PAIRS and (len(times) < fewest or time.perf_counter() - begin < seconds):
            order = sides if len(times) % 2 else sides[::-1]
            pair = {side: side.ask(row, count)[0] for side in order}
            times.append([pair[side] for side in sides])
        ratios = [b / a for a, b in times]
        with_it, without = (statistics.median(column) for column in zip(*times, strict=True))
        low, high = interval(ratios)
        label = f"{row[0]} {','.join(map(str, row[1]))}".strip()
        found.append({"ablation": name, "kernels": coretype or "native", "row": label, "pairs": len(ratios)})
        found[-1] |= {"with": with_it, "without": without, "ratio": statistics.median(ratios)}
        found[-1] |= {"interval": [low, high], "answers": [having, lacking]}
        changed = "" if having == lacking else f"   {having} -> {lacking}"
        print(
            f"{name:15} {label:22} {1e6 * with_it:12.2f} us {1e6 * without:12.2f} us   {found[-1]['ratio']:5.2f}"
            f" [{low:.2f}, {high:.2f}]{changed}",
            flush=True,
        )
    for side in sides:
        side.end()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(ABLATIONS), default=list(ABLATIONS))
    parser.add_argument("--coretype", default="", help="OpenBLAS's kernels, where not its own choice")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each row, about")
    parser.add_argument("--built", action="store_true", help="what build/ablation holds is recent")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
        return
    if not args.built:
        build(args.only)
    from machine import write

    path = Path(__file__).parent / "results" / "ablation.json"
    kernels = args.coretype or "native"
    for name in args.only:
        found = measure(name, args.coretype, args.seconds)
        before = json.loads(path.read_text())["rows"] if path.exists() else []
        kept = [row for row in before if (row["ablation"], row["kernels"]) != (name, kernels)]
        write("ablation", kept + [row | {"commit": COMMIT.read_text()} for row in found])
        best = max(row["ratio"] for row in found)
        print(f"{name}: at most {best:.2f}, {'earns' if best >= ENOUGH else 'does not earn'} {ENOUGH}\n")


if __name__ == "__main__":
    main()
