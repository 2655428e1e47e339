"""Products by hand-tiled blocks, compiled by themselves, beside NumPy: every transpose, ragged tile and stride."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

CSRC = Path(__file__).resolve().parent.parent / "csrc"
pytestmark = [
    pytest.mark.skipif(not CSRC.is_dir(), reason="the sources are not next to the tests"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
]


@pytest.fixture(scope="module", params=["clones", "plain"])
def library(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("product") / "product.so"
    flags = ["-std=gnu11", "-O1", "-fopenmp-simd", "-fPIC", "-shared", f"-I{CSRC}"]
    flags += ["-DATTSVM_NO_CLONES"] if request.param == "plain" else []
    subprocess.run(["gcc", *flags, CSRC / "product.c", "-o", out], check=True)
    return ctypes.CDLL(out)


def general(library, A, B, C, transposed_A, transposed_B, alpha, add, lower):
    m, n, k = C.shape[0], C.shape[1], A.shape[0] if transposed_A else A.shape[1]
    arrays = [a for M in (A, B) for a in (ctypes.c_void_p(M.ctypes.data), ctypes.c_ssize_t(M.strides[0] // 8))]
    sizes = [ctypes.c_ssize_t(size) for size in (m, n, k)]
    C_and_stride = ctypes.c_void_p(C.ctypes.data), ctypes.c_ssize_t(C.strides[0] // 8)
    library.product_general(transposed_A, transposed_B, *sizes, ctypes.c_double(alpha), *arrays, add, *C_and_stride,
                            lower)  # fmt: skip


def wide(rng, rows, columns, pad):
    """A view whose rows lie further apart than they are long."""
    return rng.normal(size=(rows, columns + pad))[:, :columns]


# Blocks hold 192 or 384 rows of C and 256 or 128 of the inner size: beyond, and on both sides of, their edges.
SIZES = [(1, 1, 1), (8, 16, 4), (9, 17, 5), (31, 33, 129), (200, 40, 300), (385, 31, 130), (40, 512, 40)]


@pytest.mark.parametrize("transposed_B", [False, True])
@pytest.mark.parametrize("transposed_A", [False, True])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_general_product(library, m, n, k, transposed_A, transposed_B):
    rng = np.random.default_rng([m, n, k])
    A = wide(rng, k, m, 3) if transposed_A else wide(rng, m, k, 3)
    if transposed_A and m == 8:
        A = wide(rng, k, m, 512 - m)  # rows 4 KiB apart are copied
    B = wide(rng, n, k, 2) if transposed_B else wide(rng, k, n, 2)
    expected = (A.T if transposed_A else A) @ (B.T if transposed_B else B)
    for alpha, add in [(1.0, False), (-0.7, True)]:
        room = rng.normal(size=(m, n + 5))
        before = room.copy()
        general(library, A, B, room[:, :n], transposed_A, transposed_B, alpha, add, False)
        # products of numbers of order one: sqrt(k) terms of order one each rounded k times at most
        np.testing.assert_allclose(room[:, :n], alpha * expected + add * before[:, :n], rtol=0, atol=1e-13 * k)
        np.testing.assert_array_equal(room[:, n:], before[:, n:])


@pytest.mark.parametrize("n, k", [(1, 3), (16, 5), (63, 128), (300, 20), (200, 300)])
def test_lower_triangle(library, n, k):
    rng = np.random.default_rng([n, k])
    A = wide(rng, n, k, 1)
    C = rng.normal(size=(n, n))
    expected = C + 0.5 * A @ A.T
    general(library, A, A, C, False, True, 0.5, True, True)
    below = np.tril_indices(n)
    np.testing.assert_allclose(C[below], expected[below], rtol=0, atol=1e-13 * k)
