"""Products with a packed factor, compiled by themselves, beside NumPy: both ways to pack, ragged tiles, strides."""

import ctypes

import numpy as np
import pytest
from marks import needs_gcc
from numpy.testing import assert_allclose, assert_array_equal
from parts import call
from places import CSRC
from processes import library

pytestmark = needs_gcc


@pytest.fixture(scope="module", params=["clones", "plain"])
def products(request, tmp_path_factory):
    flags = ["-O1", *(["-DATTSVM_NO_SIMD_DISPATCH"] if request.param == "plain" else [])]
    loaded = library(tmp_path_factory.mktemp("product") / "product.so", CSRC / "linalg" / "gemm.c", flags=flags)
    loaded.gemm_packed.restype = ctypes.c_ssize_t
    return loaded


def matrix(M):
    return M, M.strides[0] // 8


def pack(products, B, transposed):
    """B [k,n] or, transposed, B [n,k]; room that would show what is not written."""
    n, k = B.shape if transposed else B.shape[::-1]
    packed = np.full(call(products.gemm_packed, n, k), np.nan)
    call(products.gemm_pack_transposed if transposed else products.gemm_pack, packed, *matrix(B), n, k)
    assert np.isfinite(packed).all()
    return packed


def wide(rng, rows, columns, pad):
    """A view whose rows lie further apart than they are long."""
    return rng.normal(size=(rows, columns + pad))[:, :columns]


# Tiles are 8 (4, 2, 1) by 16.
SIZES = [(1, 1, 1), (8, 16, 4), (9, 17, 5), (31, 33, 129), (200, 40, 300), (39, 31, 130), (40, 512, 40)]


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("left", ["rows", "columns"])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_products(products, m, n, k, left, add):
    rng = np.random.default_rng([m, n, k])
    deep = k + 2  # two rows more are packed than are used
    A, multiply = (
        (wide(rng, m, k, 3), products.gemm_rows) if left == "rows" else (wide(rng, k, m, 3), products.gemm_columns)
    )
    for transposed in (False, True):
        B = wide(rng, n, deep, 2) if transposed else wide(rng, deep, n, 2)
        room = rng.normal(size=(m, n + 5))
        before = room.copy()
        packed = pack(products, B, transposed)
        call(multiply, *matrix(room[:, :n]), *matrix(A), packed, deep, m, n, k, int(add))
        # products of numbers of order one: sqrt(k) terms of order one each rounded k times at most
        expected = (A if left == "rows" else A.T) @ (B.T if transposed else B)[:k] + add * before[:, :n]
        assert_allclose(room[:, :n], expected, rtol=0, atol=1e-13 * k)
        assert_array_equal(room[:, n:], before[:, n:])
