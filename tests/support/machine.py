"""What a benchmark's numbers were measured on, and where they are written."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path

import attsvm
import numpy as np
from places import ROOT, TESTS


def described() -> dict:
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


def write(name: str, rows: list[dict], **more: float) -> Path:
    """results/NAME.json beside the benchmarks."""
    path = TESTS / "benchmarks" / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**described(), **more, "rows": rows}, indent=1) + "\n")
    return path


def cholesky_seconds(order: int = 4096) -> float:
    """A factor of that order on one core: the unit of the large rows, since it follows the machine's speed."""
    A = np.random.default_rng(0).standard_normal((order, order))
    A = A @ A.T + order * np.eye(order)
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        np.linalg.cholesky(A)
        times.append(time.perf_counter() - begin)
    return min(times)
