"""Products with a packed factor, compiled by themselves, beside NumPy: both ways to pack, ragged tiles, strides."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from places import CSRC

pytestmark = [
    pytest.mark.skipif(not CSRC.is_dir(), reason="the sources are not next to the tests"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
]


@pytest.fixture(scope="module", params=["clones", "plain"])
def library(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("product") / "product.so"
    flags = ["-std=gnu11", "-O1", "-fopenmp-simd", "-fPIC", "-shared", f"-I{CSRC}"]
    flags += ["-DATTSVM_NO_SIMD_DISPATCH"] if request.param == "plain" else []
    subprocess.run(["gcc", *flags, CSRC / "linalg" / "gemm.c", "-o", out], check=True)
    loaded = ctypes.CDLL(out)
    loaded.gemm_packed.restype = ctypes.c_ssize_t
    return loaded


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


def matrix(M):
    return pointer(M), ctypes.c_ssize_t(M.strides[0] // 8)


def sizes(*numbers):
    return [ctypes.c_ssize_t(number) for number in numbers]


def pack(library, B, transposed):
    """B [k,n] or, transposed, B [n,k]; room that would show what is not written."""
    n, k = B.shape if transposed else B.shape[::-1]
    packed = np.full(library.gemm_packed(*sizes(n, k)), np.nan)
    name = library.gemm_pack_transposed if transposed else library.gemm_pack
    name(pointer(packed), *matrix(B), *sizes(n, k))
    assert np.isfinite(packed).all()
    return packed


def wide(rng, rows, columns, pad):
    """A view whose rows lie further apart than they are long."""
    return rng.normal(size=(rows, columns + pad))[:, :columns]


# Tiles are 8 (4, 2, 1) by 16.
SIZES = [(1, 1, 1), (8, 16, 4), (9, 17, 5), (31, 33, 129), (200, 40, 300), (39, 31, 130), (40, 512, 40)]


class Ahead(ctypes.Structure):
    """What a product reads meanwhile."""

    _fields_ = (("at", ctypes.c_size_t), ("end", ctypes.c_size_t))


def reading_ahead(array):
    return Ahead(array.ctypes.data, array.ctypes.data + array.nbytes)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_rows(library, m, n, k, transposed, add, ahead):
    rng = np.random.default_rng([m, n, k])
    deep = k + 2  # two rows more are packed than are used
    A, B = wide(rng, m, k, 3), wide(rng, n, deep, 2) if transposed else wide(rng, deep, n, 2)
    room = rng.normal(size=(m, n + 5))
    before = room.copy()
    packed = pack(library, B, transposed)
    at = ctypes.byref(reading_ahead(A)) if ahead else None
    library.gemm_rows_ahead(*matrix(room[:, :n]), *matrix(A), pointer(packed), *sizes(deep, m, n, k), int(add), at)
    # products of numbers of order one: sqrt(k) terms of order one each rounded k times at most
    expected = A @ (B.T if transposed else B)[:k] + add * before[:, :n]
    np.testing.assert_allclose(room[:, :n], expected, rtol=0, atol=1e-13 * k)
    np.testing.assert_array_equal(room[:, n:], before[:, n:])


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_columns(library, m, n, k, add, ahead):
    rng = np.random.default_rng([m, n, k])
    A, B = wide(rng, k, m, 3), wide(rng, k + 2, n, 2)  # two rows more are packed than are used
    room = rng.normal(size=(m, n + 5))
    before = room.copy()
    packed = pack(library, B, False)
    at = ctypes.byref(reading_ahead(A)) if ahead else None
    library.gemm_columns_ahead(*matrix(room[:, :n]), *matrix(A), pointer(packed), *sizes(k + 2, m, n, k), int(add), at)
    np.testing.assert_allclose(room[:, :n], A.T @ B[:k] + add * before[:, :n], rtol=0, atol=1e-13 * k)
    np.testing.assert_array_equal(room[:, n:], before[:, n:])


@pytest.mark.parametrize("m, n, k, lines", [(8, 16, 4, 8), (7, 16, 4, 0), (16, 40, 5, 60)])
def test_whole_tiles_read_ahead(library, m, n, k, lines):
    """Two cache lines for each number of the inner size, and nothing once the end is reached."""
    A, C, packed = np.ones((m, k)), np.empty((m, n)), pack(library, np.ones((k, n)), False)
    for name, left in ((library.gemm_rows_ahead, A), (library.gemm_columns_ahead, np.ascontiguousarray(A.T))):
        for size, read in ((64 * 100, lines), (64, min(lines, 2 * k)), (0, 0)):
            at = Ahead(2**40, 2**40 + size)  # what is read need not be there
            name(*matrix(C), *matrix(left), pointer(packed), *sizes(k, m, n, k), 0, ctypes.byref(at))
            assert at.at - 2**40 == 64 * read
            np.testing.assert_array_equal(C, k)
