"""What a benchmark's numbers were measured on, and where they are written."""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import signal
import subprocess
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import attsvm
import numpy as np
from places import ROOT, TESTS
from threadpoolctl import threadpool_limits

MEMORY, SPENT, SEEN = 2**31, 0.2, 0.04  # bytes of a measured process; its seconds of processor, and those of a reading


def described():
    """Machine, versions and commit."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "cpu": cpu[0].partition(":")[2].strip() if cpu else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "blas": attsvm._core.config()["blas"],
        "numpy": np.__version__,
        "attsvm": attsvm.__version__,
    }


def write(name, rows, **more):
    """results/NAME.json beside the benchmarks."""
    path = TESTS / "benchmarks" / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**described(), **more, "rows": rows}, indent=1) + "\n")
    return path


def apart(measured, rows):
    """Each row is measured in a process of its own, whose memory is then that row's."""
    spawn = multiprocessing.get_context("spawn")
    found = []
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for row in pool.map(measured, rows):
            print(json.dumps(row), flush=True)
            found.append(row)
    return found


def seconds(call):
    """The least processor time of one call, of enough calls to be seen, and what the last returned."""
    least, spent, calls = float("inf"), 0.0, 1
    while spent < SPENT:
        begin = time.process_time()
        for _ in range(calls):
            found = call()
        took = time.process_time() - begin
        spent += took
        if took < SEEN:
            calls *= 2
        else:
            least = min(least, took / calls)
    return least, found


def forked(call, says, most):
    """Seconds of a call in a process of its own, gigabytes beyond what this process holds, and what it says of its
    answer, or what went wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            signal.setitimer(signal.ITIMER_PROF, most + SPENT)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            took, found = seconds(call)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            answer = took, grown / 1e6, says(found)
        except Exception as error:
            answer = most, float("nan"), repr(error)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else [most, float("nan"), "stopped"]


def problems(description, usual):
    """Numbers of the problems that are asked for; one thread, no warnings."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=usual)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    threadpool_limits(1)
    warnings.simplefilter("ignore")
    return range(args.first, args.first + args.problems)


def cholesky_seconds():
    """A factor of order 4,096 on one core: the unit of the large rows, since it follows the machine's speed."""
    A = np.random.default_rng(0).standard_normal((4096, 4096))
    A = A @ A.T + 4096 * np.eye(4096)
    return min(seconds(lambda: np.linalg.cholesky(A))[0] for _ in range(3))
