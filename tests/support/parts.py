"""Parts of the solvers compiled by themselves, without optimisation, for tests that call them from Python."""

import ctypes
from types import SimpleNamespace

import numpy as np
from places import CSRC, TESTS
from problems import sphere
from processes import library

SOURCES = """base/arena base/threads linalg/cholesky linalg/gemm linalg/matrix linalg/vector attention/windows
svm/certificate svm/rows svm/rows_build svm/active_set svm/solver svm/presolve svm/span svm/copies
svm/row_generation
svm/systems/cholesky_update svm/systems/schur_update svm/systems/gram
svm/systems/compact_rows svm/systems/newton_system svm/frobenius/coordinate_ascent svm/frobenius/block_ascent
svm/frobenius/initial_support""".split()


class Problem(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ssize_t) for name in ("n", "T", "dk", "dz")]
    _fields_ += [(name, ctypes.c_void_p) for name in ("X", "Z", "reference")]


def build(out, sources=SOURCES, support=("solver_parts", "solver_tries"), more=()):
    """The library of these sources, of the support's C and of plain loops for the BLAS."""
    own = [TESTS / "support" / f"{name}.c" for name in (*support, "plain_blas")]
    files = [*(CSRC / f"{name}.c" for name in sources), *own]
    return library(out, *files, flags=["-O0", "-DATTSVM_NO_SIMD_DISPATCH", *more])


def make(seed, n, T, dk, dz, copies=False):
    """Tokens, queries and a selection; the Gram matrix of the unit rows, and what the solvers call beta.  With copies
    two tokens of each sequence are the same, neither of them selected."""
    rng = np.random.default_rng(seed)
    X, Z = sphere(rng, n, T, dk), sphere(rng, n, dz) * np.exp(rng.standard_normal((n, 1)))
    chosen = rng.integers(0, T, n)
    if copies:
        X[np.arange(n), (chosen + 1) % T] = X[np.arange(n), (chosen + 2) % T]
    delta = X[np.arange(n), chosen][:, None] - X
    other = np.arange(T) != chosen[:, None]
    rows = np.einsum("nti,nj->ntij", delta, Z)[other].reshape(n * (T - 1), -1)
    length = np.linalg.norm(rows, axis=1)
    unit = rows / length[:, None]
    made = SimpleNamespace(rng=rng, n=n, m=len(rows), rows=rows, G=unit @ unit.T, beta=1 / length, length=length)
    made.kept = X, Z, chosen.astype(np.intp, copy=False)
    made.struct = Problem(n, T, dk, dz, *(array.ctypes.data for array in made.kept))
    made.struct.kept = made.kept  # C reads them as long as the struct lives
    made.query = np.repeat(np.arange(n), T - 1)
    return made


def call(function, *arguments):
    """Arrays as pointers, integers as sizes, floats as doubles."""
    passed = []
    for x in arguments:
        if isinstance(x, np.ndarray):
            passed.append(ctypes.c_void_p(x.ctypes.data))
        elif isinstance(x, Problem) or x is None:
            passed.append(None if x is None else ctypes.byref(x))
        else:
            passed.append(ctypes.c_double(x) if isinstance(x, float) else ctypes.c_ssize_t(x))
    return function(*passed)
