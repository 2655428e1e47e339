"""Spectral projected gradient, compiled by itself: nonnegative least squares beside scipy's NNLS."""

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

DOUBLES, SIZE = ctypes.POINTER(ctypes.c_double), ctypes.c_ssize_t
PROJECT = ctypes.CFUNCTYPE(ctypes.c_int, DOUBLES, ctypes.c_void_p)
VALUE = ctypes.CFUNCTYPE(ctypes.c_double, DOUBLES, ctypes.c_void_p)
GRADIENT = ctypes.CFUNCTYPE(ctypes.c_int, DOUBLES, DOUBLES, DOUBLES, DOUBLES, ctypes.c_double, ctypes.c_void_p)
INSPECT = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_int), DOUBLES, DOUBLES, ctypes.c_double, SIZE, ctypes.c_void_p
)


class Problem(ctypes.Structure):  # struct spectral_gradient_problem
    _fields_ = [("n", SIZE), ("context", ctypes.c_void_p), ("project", PROJECT), ("value", VALUE)]
    _fields_ += [("search", ctypes.c_void_p), ("gradient", GRADIENT), ("inspect", INSPECT)]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    out = tmp_path_factory.mktemp("spectral") / "spectral.so"
    sources = [CSRC / name for name in ("linalg/spectral_gradient.c", "linalg/vector.c", "base/arena.c")]
    flags = ["-std=gnu11", "-O1", "-fopenmp-simd", "-fPIC", "-shared", f"-I{CSRC}"]
    subprocess.run(["gcc", *flags, *sources, "-lm", "-o", out], check=True)
    return ctypes.CDLL(out)


def descend(library, A, b, most=2000):
    """status, x, value, iterations of min 1/2 ||A x - b||^2, x >= 0."""
    n = A.shape[1]

    def view(pointer):
        return np.ctypeslib.as_array(pointer, (n,))

    def project(x, _):
        np.maximum(view(x), 0, out=view(x))
        return 0

    def value(x, _):
        return 0.5 * ((A @ view(x) - b) ** 2).sum()

    def gradient(g, x, *_):
        view(g)[:] = A.T @ (A @ view(x) - b)
        return 0

    def inspect(done, x, g, *_):
        done[0] = int(np.abs(np.maximum(view(x) - view(g), 0) - view(x)).max() <= 1e-10)
        return 0

    problem = Problem(n, None, PROJECT(project), VALUE(value), None, GRADIENT(gradient), INSPECT(inspect))
    x = np.ones(n)
    at, iterations = ctypes.c_double(value(x.ctypes.data_as(DOUBLES), None)), SIZE(0)
    nothing = ctypes.create_string_buffer(256)  # a monitor without poll, an arena without blocks
    arena = ctypes.create_string_buffer(256)
    status = library.spectral_gradient(x.ctypes.data_as(DOUBLES), ctypes.byref(at), ctypes.c_double(1.0),
                                       ctypes.byref(iterations), SIZE(most), ctypes.byref(problem), nothing,
                                       arena)  # fmt: skip
    library.arena_free(arena)
    return status, x, at.value, iterations.value


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_nnls(library, seed):
    nnls = pytest.importorskip("scipy.optimize").nnls
    rng = np.random.default_rng(seed)
    A, b = rng.standard_normal((20, 8)), rng.standard_normal(20)
    status, x, value, iterations = descend(library, A, b)
    best, residual = nnls(A, b)
    assert status == 0 and 0 < iterations < 500
    np.testing.assert_allclose(x, best, atol=1e-8)  # gradient to 1e-10, eigenvalues of A^T A above 1
    assert value == pytest.approx(0.5 * residual**2, rel=1e-12) and (x >= 0).all()


def test_the_limit_is_kept(library):
    rng = np.random.default_rng(0)
    status, _, _, iterations = descend(library, rng.standard_normal((20, 8)), rng.standard_normal(20), most=3)
    assert status == 3 and iterations == 3  # STATUS_ITERATION_LIMIT
