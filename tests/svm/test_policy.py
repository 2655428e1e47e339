"""method="auto" spends little more than the best single method: counted in multiplications, not timed.

Nuclear norms are left out: their methods need eigenvalues, which the library of plain loops has not.
"""

import re

import numpy as np
import pytest
from marks import needs_gcc, needs_linux
from parts import Problem, build, call
from places import CSRC, TESTS

pytestmark = [needs_gcc, needs_linux]
FOLDERS = ("base", "linalg", "svm", "svm/frobenius", "svm/interior", "svm/nuclear", "svm/polish", "svm/systems")
MOST = 2.5  # times the work of the best method; 1.6 is the largest
ACTIVE, BLOCK, INTERIOR = "frobenius_active", "frobenius_block", "frobenius_interior"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    files = [path for folder in FOLDERS for path in sorted((CSRC / folder).glob("*.c")) if path.name != "blas.c"]
    sources = [path.relative_to(CSRC).with_suffix("") for path in files] + ["attention/windows"]
    wrapped = re.findall(r"WORK\((\w+), of_\w+\)", (TESTS / "support" / "solver_work.c").read_text())
    flags = [f"-Wl,--wrap={method}" for method in wrapped]
    return build(tmp_path_factory.mktemp("policy") / "policy.so", sources, ["solver_work"], flags)


def draw(kind, n, T, d):
    g = np.random.default_rng(5)
    steep = 1 / (1 + np.arange(d)) if kind == "steep" else 1.0
    X, Z, chosen = g.standard_normal((n, T, d)) * steep, g.standard_normal((n, d)) * steep, g.integers(0, T, n)
    if kind in ("planted", "steep"):
        chosen = np.einsum("ntd,nd->nt", X, Z).argmax(axis=1)
    if kind == "copies":
        again = g.integers(0, n // 2, n - n // 2)
        Z[n // 2 :] = Z[again] * (1 + 1e-6 * g.standard_normal((n - n // 2, d)))
        X[n // 2 :, : T // 2] = X[again, : T // 2] + 1e-6 * g.standard_normal((n - n // 2, T // 2, d))
    kept = X, Z, chosen.astype(np.intp)
    p = Problem(n, T, d, d, *(array.ctypes.data for array in kept))
    p.kept = kept  # C reads them as long as the struct lives
    return p


def work(library, method, p, C):
    """Multiplications, when the method decides."""
    spent = np.zeros(1)
    assert call(getattr(library, f"work_{method}"), spent, p, C) in (0, 1)  # done or infeasible
    return spent[0]


@pytest.mark.parametrize(
    ("kind", "n", "T", "d", "C", "best"),
    [
        ("random", 30, 10, 8, 0.0, ACTIVE),
        ("random", 50, 12, 20, 0.0, ACTIVE),
        ("random", 40, 30, 24, 0.0, BLOCK),
        ("planted", 60, 20, 12, 0.0, BLOCK),
        ("steep", 40, 30, 12, 0.0, BLOCK),
        ("random", 60, 15, 11, 0.0, INTERIOR),
        ("copies", 24, 30, 18, 0.0, ACTIVE),
        ("copies", 40, 30, 24, 0.0, ACTIVE),
        ("copies", 70, 14, 11, 0.0, INTERIOR),
        ("random", 20, 30, 12, 1.0, BLOCK),
        ("planted", 60, 20, 12, 1.0, BLOCK),
        ("planted", 90, 24, 9, 100.0, BLOCK),
        ("planted", 60, 20, 8, 1e3, BLOCK),
        ("copies", 24, 30, 18, 100.0, BLOCK),
        ("steep", 40, 30, 12, 0.02, INTERIOR),
        ("random", 30, 10, 8, 0.02, INTERIOR),
        ("random", 60, 15, 11, 1.0, INTERIOR),
        ("copies", 70, 14, 11, 100.0, INTERIOR),
    ],
)
def test_auto_spends_little_more_than_the_best_method(library, kind, n, T, d, C, best):
    p = draw(kind, n, T, d)
    assert work(library, "frobenius_auto", p, C) <= MOST * work(library, best, p, C)
