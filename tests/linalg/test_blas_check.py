"""A BLAS that is wrong somewhere is noticed and named; a fork waits until no thread is inside it."""

import ctypes
import subprocess

import numpy as np
import pytest
from marks import needs_gcc
from places import CSRC, TESTS
from processes import library, program

OPERATIONS = {  # as wrong_blas.c numbers them
    "A B": [0], "A B^T": [1], "A^T B": [2], "A^T B^T": [3], "A A^T": [4], "the Cholesky factor": [5],
    "triangular systems from the right": [6], "triangular systems of many right sides": [7, 8],
    "triangular systems": [9, 10], "the inverse by a Cholesky factor": [11], "eigenvalues": [12],
    "singular values": [13],
}  # fmt: skip
KINDS = ("one entry", "transposed", "above a block", "below a block")
pytestmark = needs_gcc
POINTER = ctypes.POINTER(ctypes.c_double)


def matrix(pointer, *shape):
    return np.ctypeslib.as_array(pointer, shape)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ssize_t, POINTER, POINTER)
def eigen(n, A, values):
    A = matrix(A, n, n)
    matrix(values, n)[:], A[:] = (found.T for found in np.linalg.eigh(A))
    return 0


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ssize_t, ctypes.c_ssize_t, POINTER, POINTER, POINTER, POINTER)
def svd(m, n, A, U, s, V):
    least = min(m, n)
    found = np.linalg.svd(matrix(A, m, n), full_matrices=False)
    matrix(U, m, least)[:], matrix(s, least)[:], matrix(V, least, n)[:] = found
    return 0


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    files = [CSRC / "linalg" / "blas_check.c", CSRC / "base" / "arena.c", TESTS / "support" / "wrong_blas.c"]
    made = library(tmp_path_factory.mktemp("blas") / "blas_check.so", *files, flags=["-O2"])
    made.blas_check.restype = ctypes.c_char_p
    for name, function in (("plain_eigen", eigen), ("plain_svd", svd)):
        ctypes.c_void_p.in_dll(made, name).value = ctypes.cast(function, ctypes.c_void_p).value

    def check(operation, kind):
        ctypes.c_int.in_dll(made, "wrong_operation").value = operation
        ctypes.c_int.in_dll(made, "wrong_kind").value = kind
        found = made.blas_check()
        return found and found.decode()

    return check


def test_a_right_one_passes(wrong):
    assert wrong(-1, 0) is None


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_wrong_one_is_named(wrong, name, kind):
    for operation in OPERATIONS[name]:
        assert wrong(operation, kind) == name


CBLAS = """
enum CBLAS_ORDER { CblasRowMajor = 101 };
enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans };
enum CBLAS_UPLO { CblasUpper = 121, CblasLower };
enum CBLAS_DIAG { CblasNonUnit = 131, CblasUnit };
enum CBLAS_SIDE { CblasLeft = 141, CblasRight };
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
void cblas_dsyrk(int, int, int, int, int, double, const double *, int, double, double *, int);
void cblas_dtrsm(int, int, int, int, int, int, int, double, const double *, int, double *, int);
void cblas_dtrsv(int, int, int, int, int, const double *, int, double *, int);
"""


def test_a_fork_waits_until_no_thread_is_inside_the_blas(tmp_path):
    (tmp_path / "cblas.h").write_text(CBLAS)
    files = [
        TESTS / "support" / "forks.c",
        *(CSRC / name for name in ("linalg/blas.c", "base/arena.c", "base/threads.c")),
    ]
    flags = ["-O1", f"-I{tmp_path}", "-Wl,--unresolved-symbols=ignore-all", "-no-pie"]
    forks = program(tmp_path / "forks", *files, flags=flags)
    ran = subprocess.run([forks], capture_output=True, text=True)
    assert ran.stdout == "0 of 20\n"
