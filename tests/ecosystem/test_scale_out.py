"""Scale-out tried for real: MPI ranks, torch.distributed, dask workers, tokens larger than the memory allowed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import attsvm
import numpy as np
import pytest
from builders import paper
from marks import needs_linux
from numpy.testing import assert_allclose, assert_array_equal
from processes import python

pytestmark = pytest.mark.slow

# Each process takes every second sequence and leaves what it found in a file.
WORK = """
X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
problem = attsvm.Problem(attsvm.cross_attention(X[rank::2], Z[rank::2]), y[rank::2], attsvm.LinearHead(v))
run = attsvm.train(problem, steps=300, reduce=reduce)
sol = attsvm.solve_svm(problem.data, problem.optimal, reduce=reduce)
with open(f"{sys.argv[2]}.{rank}", "w") as file:
    json.dump([rank, run.loss[-1], run.norm[-1], sol.status, sol.margin, sol.margin_bound], file)
"""
HEAD = "import json, sys\nimport attsvm\nimport numpy as np\n"
MPI = "from mpi4py import MPI\ncomm = MPI.COMM_WORLD\nrank = comm.rank\nassert comm.size == 2\n"
MPI += "reduce = lambda a: comm.Allreduce(MPI.IN_PLACE, a)\n"
GLOO = """
import torch
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
reduce = lambda a: dist.all_reduce(torch.from_numpy(a))
"""


def environment():
    path = str(Path(attsvm.__file__).parent.parent)
    return os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}


def check(meeting):
    """Both processes found the same, and what one process finds on all tokens."""
    found = [json.loads(Path(f"{meeting}.{rank}").read_text()) for rank in range(2)]
    assert [row[0] for row in found] == [0, 1] and found[0][1:] == found[1][1:]
    problem = paper().problem
    run = attsvm.train(problem, steps=300)
    sol = attsvm.solve_svm(problem.data, problem.optimal)
    _, loss, norm, status, margin, bound = found[0]
    # Sums over shards round differently, and 300 steps of length 0.1 carry that on.
    assert_allclose([loss, norm], [run.loss[-1], run.norm[-1]], rtol=1e-9)
    assert status == sol.status == "optimal"
    assert_allclose([margin, bound], [sol.margin, sol.margin_bound], rtol=1e-8)  # tol is 1e-9


def test_two_mpi_ranks(tmp_path):
    pytest.importorskip("mpi4py")
    mpiexec = Path(sys.executable).with_name("mpiexec")  # of PyPI's mpich, beside the interpreter
    if not mpiexec.exists():
        pytest.skip("needs mpiexec: pip install mpich")
    script = tmp_path / "work.py"
    script.write_text(HEAD + MPI + WORK)
    command = [mpiexec, "-n", "2", sys.executable, script, "-", tmp_path / "meeting"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment())
    assert done.returncode == 0, done.stderr
    check(tmp_path / "meeting")


def test_two_processes_of_torch_distributed(tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    script = tmp_path / "work.py"
    script.write_text(HEAD + GLOO + WORK + "dist.destroy_process_group()\n")
    command = [sys.executable, script]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert all(process.returncode == 0 for process in processes), outputs
    check(tmp_path / "meeting")


def one_margin(rng):
    return {"margin": attsvm.solve_svm(paper(4, 5, 6, rng).data, [0] * 4).margin}


def test_two_dask_workers():
    distributed = pytest.importorskip("distributed")
    joblib = pytest.importorskip("joblib")
    expected = attsvm.replicate(one_margin, 20, n_jobs=1, progress=False)["margin"]
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        found = attsvm.replicate(one_margin, 20, progress=False)["margin"]
    assert_array_equal(found, expected)


LIMITED = """
import resource, sys
import attsvm
import numpy as np

n, T, d = 4000, 64, 256                                        # float32: 262 MB
X = np.load(sys.argv[1], mmap_mode="r")
attsvm.cross_attention(X[:4], np.ones((4, d)))                 # everything is loaded by now
size = sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData:")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (size + 128_000_000,) * 2)
data = attsvm.cross_attention(X, np.random.default_rng(0).standard_normal((n, d)))
run = attsvm.train(attsvm.Problem(data, None, attsvm.LinearHead(np.ones(d))), steps=2)
print("FOUND", run.loss[-1] < run.loss[0], X.nbytes)
"""


@needs_linux
def test_tokens_larger_than_the_memory_allowed(tmp_path):
    """Data memory is limited to 128 MB more than what is loaded; the tokens in the file are 262 MB."""
    path = tmp_path / "tokens.npy"
    tokens = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(4000, 64, 256))
    for i in range(0, 4000, 500):
        tokens[i : i + 500] = np.random.default_rng(i).standard_normal((500, 64, 256), dtype=np.float32)
    tokens.flush()
    done = python("-c", LIMITED, path, env=environment())
    assert done.stdout.split()[:2] == ["FOUND", "True"], done.stderr
