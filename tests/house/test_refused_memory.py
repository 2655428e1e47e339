"""Address space that runs out, as in a container or a batch job: MemoryError or an answer, but the process goes on."""

import pytest
from marks import needs_linux
from processes import python

SCRIPT = """
import sys, resource, numpy as np, attsvm
what, extra = sys.argv[1], int(sys.argv[2])
g = np.random.default_rng(0)
n, T, d = 64, 32, 64
X, Z = g.standard_normal((n, T, d)), g.standard_normal((n, d))
data = attsvm.cross_attention(X, Z)
problem = attsvm.Problem(data, None, attsvm.LinearHead(g.standard_normal(d)))
W = g.standard_normal((d, d))
used = int([line for line in open("/proc/self/status") if line.startswith("VmSize")][0].split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + (extra << 20),) * 2)
calls = {
    "logits": lambda: data.logits(W),
    "frobenius": lambda: attsvm.solve_svm(data, [0] * n),
    "interior": lambda: attsvm.solve_svm(data, [0] * n, method="interior", max_iter=3),
    "soft": lambda: attsvm.solve_svm(data, [0] * n, C=1.0, method="interior", max_iter=3),
    "nuclear": lambda: attsvm.solve_svm(data, [0] * n, norm="nuclear", max_iter=3),
    "entrywise": lambda: attsvm.solve_svm(data, [0] * n, norm=3.0, max_iter=2),
    "train": lambda: attsvm.train(problem, K=W, Q=W, steps=20),
    "threads": lambda: attsvm.set_num_threads(4),
}
for _ in range(2):
    try:
        calls[what]()
        print("done")
    except MemoryError:
        print("refused")
"""
WHAT = "logits frobenius interior soft nuclear entrywise train threads".split()


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize("what", WHAT)
def test_little_address_space_is_a_memory_error(what):
    for extra in (1, 3, 8, 20, 40, 80):
        run = python("-W", "ignore", "-c", SCRIPT, what, extra)
        assert run.returncode == 0 and set(run.stdout.split()) <= {"done", "refused"}, (extra, run.stderr[-500:])
