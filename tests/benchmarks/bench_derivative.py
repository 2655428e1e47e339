"""Value and gradient of the attention SVM beside differentiable solvers of quadratic programs, on one core.

    PYTHONPATH=tests/support python tests/benchmarks/bench_derivative.py          after `pip install cvxpylayers qpth`

The value is W, the gradient that of <G, W> in tokens and queries, for a fixed random G; every peer is called from
PyTorch and builds its rows from the tokens, its layer beforehand, not timed.  The digits are relative errors, against
the equations of the support written out in complex numbers: of a step of 1e-30 along the imaginary axis the derivative
has all digits.  Medians of interleaved rounds.  Writes results/derivative.json.
"""

import statistics
import time
import warnings

import attsvm
import attsvm.torch
import numpy as np
import torch
from machine import write
from peers import Rows
from speed_rows import random_selection
from threadpoolctl import threadpool_limits

SHAPES = ((6, 8, 10), (20, 16, 32))
ROUNDS, DIRECTIONS, STEP = 7, 4, 1e-30


def ours(X, Z, selected):
    return lambda X, Z: attsvm.torch.solve_svm(X, Z, selected)[0]


def rows_of(X, Z, selected):
    """(m, dk dz) products delta z^T, differentiable."""
    others = torch.as_tensor(np.arange(X.shape[1]) != selected[:, None])
    deltas = X[torch.arange(len(X)), torch.as_tensor(selected)][:, None] - X
    return (deltas[:, :, :, None] * Z[:, None, None, :])[others].flatten(1)


def by_qpth(X, Z, selected):
    from qpth.qp import QPFunction

    size, none = X.shape[2] * Z.shape[1], torch.empty(0, dtype=X.dtype)
    solve, Q, p = QPFunction(verbose=-1, maxIter=50), torch.eye(size, dtype=X.dtype), torch.zeros(size, dtype=X.dtype)

    def weights(X, Z):
        A = rows_of(X, Z, selected)
        return solve(Q, p, -A, -torch.ones(len(A), dtype=X.dtype), none, none).reshape(X.shape[2], -1)

    return weights


def by_cvxpylayers(X, Z, selected, **options):
    import cvxpy
    from cvxpylayers.torch import CvxpyLayer

    shape = rows_of(X, Z, selected).shape
    w, A = cvxpy.Variable(shape[1]), cvxpy.Parameter(shape)
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(w) / 2), [A @ w >= 1])
    layer = CvxpyLayer(problem, parameters=[A], variables=[w], solver_args=options)
    return lambda X, Z: layer(rows_of(X, Z, selected))[0].reshape(X.shape[2], -1)


def tight(X, Z, selected):
    return by_cvxpylayers(X, Z, selected, eps=1e-10)


CALLS = {"attsvm": ours, "qpth": by_qpth, "cvxpylayers": by_cvxpylayers, "cvxpylayers, eps=1e-10": tight}


def exact(X, Z, selected, support):
    """W = sum y_k r_k with <r_k, W> = 1 on these rows, of real or complex tokens."""
    A = Rows(X, Z, selected).products()[support]
    return (np.linalg.solve(A @ A.T, np.ones(len(A))) @ A).reshape(X.shape[2], -1)


def measured(shape):
    rng = np.random.default_rng(0)
    X, Z, data, selected = random_selection(*shape)
    sol = attsvm.solve_svm(data, selected)
    support = sol.support[np.arange(X.shape[1]) != selected[:, None]]
    W, G = exact(X, Z, selected, support), rng.standard_normal(sol.W.shape)
    moves = [(rng.standard_normal(X.shape), rng.standard_normal(Z.shape)) for _ in range(DIRECTIONS)]
    ends = [exact(X + 1j * STEP * dX, Z + 1j * STEP * dZ, selected, support) for dX, dZ in moves]
    true = [np.vdot(G, end.imag) / STEP for end in ends]
    tokens = [torch.tensor(array, requires_grad=True) for array in (X, Z)]
    calls = {name: make(*tokens, selected) for name, make in CALLS.items()}
    times = {name: ([], []) for name in calls}
    rows = {}
    for _ in range(1 + ROUNDS):  # the first is not timed
        for name, call in calls.items():
            begin = time.perf_counter()
            found = call(*tokens)
            middle = time.perf_counter()
            gX, gZ = (g.numpy() for g in torch.autograd.grad((found * torch.as_tensor(G)).sum(), tokens))
            times[name][0].append(middle - begin)
            times[name][1].append(time.perf_counter() - middle)
            along = [np.vdot(gX, dX) + np.vdot(gZ, dZ) for dX, dZ in moves]
            rows[name] = {
                "value off": np.linalg.norm(found.detach().numpy() - W) / np.linalg.norm(W),
                "gradient off": np.linalg.norm(np.subtract(along, true)) / np.linalg.norm(true),
            }
            del found  # whose graph takes as long to free as a solve
    for name, row in rows.items():
        row["seconds"], row["seconds of the gradient"] = (statistics.median(each[1:]) for each in times[name])
    return [{"shape": shape, "by": name} | row for name, row in rows.items()]


if __name__ == "__main__":
    threadpool_limits(1)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = [row for shape in SHAPES for row in measured(shape)]
    for row in results:
        print({name: f"{x:.2g}" if isinstance(x, float) else x for name, x in row.items()})
    write("derivative", results)
