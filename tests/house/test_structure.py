"""The shape of the code: floors, who may name what, one spelling of every fact that is written in two places."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import attsvm
import pytest
from attsvm import _core
from attsvm.training.session import Descent
from places import CSRC
from processes import python
from test_bad_input import arguments

SOURCES = sorted(CSRC.rglob("*.[ch]"))
C_FILES = [path for path in SOURCES if path.suffix == ".c"]


def code(path):
    """C source without comments and strings; includes stay."""
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.DOTALL)
    return re.sub(r'(?<!include )"(\\.|[^"\\\n])*"', '""', text)


# What only the files of a folder or file may name.
OWN = {
    "linalg/blas": r"(?i)cblas|openblas|lapack|\bd(?:potr|syev|gesd|gemm|syrk|trs)\w*_\b",
    "linalg": r"\bblas_(?:gemm|syrk|cholesky|solve_rows)\b",  # matrix.h and cholesky.h choose how
    "binding": r"#\s*include\s*<(?:Python|numpy/|structmember)|\b(?:Py[A-Z_]|npy_|NPY_)\w+",
}


@pytest.mark.parametrize("place", OWN)
def test_only_its_own_files_name_a_library(place):
    for path in SOURCES:
        if not path.relative_to(CSRC).with_suffix("").is_relative_to(place):
            assert not re.findall(OWN[place], code(path)), path


def test_only_the_certificate_gate_says_infeasible():
    """Methods propose multipliers; solver_conclude decides whether they prove anything."""
    for path in C_FILES:
        said = re.findall(r"(?:return|\w =)\s*STATUS_INFEASIBLE\b", code(path))
        assert len(said) == (path.relative_to(CSRC).as_posix() == "svm/solver.c"), path


# ------------------------------------------------------------------------------------- facts in two places


def test_status_words_are_those_of_the_header():
    listed = re.findall(r'STATUS\(\w+, (-?\d+), "([^"]+)"\)', (CSRC / "base" / "status.h").read_text())
    assert {int(number): word for number, word in listed} == _core.STATUS
    assert len(listed) == len(_core.STATUS)  # no number twice
    documented = inspect.getdoc(attsvm.Separation)
    for word in ("infeasible", "no constraint", "iteration limit", "undecided"):
        assert word in _core.STATUS.values() and f'"{word}"' in documented


def test_stub_lists_the_functions_of_the_module():
    stub = ast.parse(Path(attsvm.__file__).with_name("_core.pyi").read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    built = {name for name in dir(_core) if callable(getattr(_core, name)) and not name.startswith("__")}
    (solver,) = (node for node in stub.body if isinstance(node, ast.ClassDef))  # the one signature of every solver
    (call,) = solver.body[1:]  # after its docstring
    del call.args.posonlyargs[0]  # self
    functions |= dict.fromkeys([*_core.METHOD, "check"], call)
    assert set(functions) == built
    for name, node in functions.items():
        assert not node.args.args and not node.args.kwonlyargs  # positional only, as C reads them
        read = [*arguments(name)]
        if name == "train":  # of which all but four are the fields of a run
            assert read[:-4] == [*Descent._fields]
            read[:-4] = ["run"]
        assert [argument.arg for argument in node.args.posonlyargs] == read, name


# ------------------------------------------------------------------------------------- the package


def test_import_needs_numpy_only():
    probe = "import sys, numpy; known = set(sys.modules); import attsvm; print(*sorted(set(sys.modules) - known))"
    run = python("-c", probe)
    modules = set(run.stdout.split())
    loaded = {name.split(".")[0] for name in modules}
    assert "attsvm" in loaded
    assert not loaded & {"scipy", "matplotlib", "joblib", "tqdm", "torch", "sklearn", "pandas", "jax"}
    late = {
        "attsvm.heads",
        "attsvm.reproduce",
        "attsvm.torch",
        "attsvm.check",
        "attsvm.svm.proof",
    }  # loaded when they are asked for
    assert not modules & {*late, "numpy.random", "zipfile", "secrets"}
    assert run.stderr == ""


def test_all_lists_what_the_package_offers():
    importlib.import_module("attsvm.heads")  # loaded on demand
    assert sorted(attsvm.__all__) == attsvm.__all__
    offered = {name for name in vars(attsvm) if not name.startswith("_")}
    package = Path(attsvm.__file__).parent
    submodules = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/*.py")}
    assert offered - submodules <= set(attsvm.__all__)
    assert set(attsvm.__all__) <= offered
