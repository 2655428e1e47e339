"""The shape of the code: floors, who may name what, one spelling of every fact that is written in two places."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import attsvm
import pytest
from attsvm import _core
from attsvm.training.session import Descent
from places import ROOT

CSRC = ROOT / "csrc"
pytestmark = pytest.mark.skipif(not CSRC.is_dir(), reason="the sources are not next to the tests")

SOURCES = sorted(CSRC.rglob("*.[ch]"))
C_FILES = [path for path in SOURCES if path.suffix == ".c"]


def code(path):
    """C source without comments and strings."""
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.DOTALL)
    return re.sub(r'"(\\.|[^"\\])*"', '""', re.sub(r'#include "[^"]*"', "", text))


def test_only_blas_names_openblas():
    for path in SOURCES:
        if path.relative_to(CSRC).with_suffix("").as_posix() != "linalg/blas":
            named = re.findall(
                r"cblas|openblas|lapack|\bd(?:potr|syev|gesd|gemm|syrk|trs)\w*_\b", code(path), re.IGNORECASE
            )
            assert not named, path
            assert "cblas.h" not in path.read_text(), path


def test_products_go_through_one_header():
    """linalg/matrix.h chooses how a product is formed, and linalg/cholesky.h a factor; blas.h is below them."""
    for path in SOURCES:
        if path.parent.name != "linalg":
            assert not re.findall(r"\b(?:blas_(?:gemm|syrk|cholesky|solve_rows))\b", code(path)), path


def test_only_bindings_know_python():
    for path in SOURCES:
        if path.parent.name != "binding":
            assert not re.search(r"#\s*include\s*<(Python|numpy/|structmember)", path.read_text()), path
            assert not re.search(r"\b(?:Py[A-Z_]|npy_|NPY_)\w+", code(path)), path


def test_headers_are_guarded():
    for path in sorted(CSRC.rglob("*.h")):
        guard = "_".join(path.relative_to(CSRC).with_suffix("").parts).upper() + "_H"
        assert re.search(rf"#ifndef {guard}\n#define {guard}\n.*#endif\s*$", path.read_text(), re.DOTALL), path


def test_only_the_certificate_gate_says_infeasible():
    """Methods propose multipliers; solver_conclude decides whether they prove anything."""
    for path in C_FILES:
        said = re.findall(r"(?:return|\w =)\s*STATUS_INFEASIBLE\b", code(path))
        assert len(said) == (path.relative_to(CSRC).as_posix() == "svm/solver.c"), path


# ------------------------------------------------------------------------------------- facts in two places


def test_status_words_are_those_of_the_header():
    listed = re.findall(r'STATUS\((\w+), (-?\d+), "([^"]+)", "([^"]+)"\)', (CSRC / "base" / "status.h").read_text())
    assert {int(number): word for _, number, word, _ in listed} == _core.STATUS
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
        signature = re.sub(r"\[.*?\]|{.*?} ", "", getattr(_core, name).__doc__.partition("->")[0])
        read = [item.split()[-1].rstrip("?") for item in signature.split(",") if item.strip()]
        listed = [argument.arg for argument in node.args.posonlyargs]
        assert listed == read, name


def test_c_reads_every_field_of_a_run():
    fields = re.search(r"{(.*), }", re.sub(r"\[.*?\]", "", _core.train.__doc__))[1].split(", ")
    assert [item.split()[-1].rstrip("?") for item in fields] == list(Descent._fields)


def test_version_is_said_once():
    with open(ROOT / "pyproject.toml", "rb") as file:
        assert tomllib.load(file)["project"]["version"] == attsvm.__version__


def test_readme_test_command_is_what_ci_runs():
    readme, ci = ROOT / "README.md", ROOT / ".ci" / "run"
    if not readme.is_file() or not ci.is_file():
        pytest.skip("README.md or .ci/run is not here")
    commands = [line for line in readme.read_text().splitlines() if line.startswith("python3 -m venv ")]
    tests = [line for line in commands if line.endswith("pytest -n auto")]
    assert len(tests) == 1 and len(commands) == 2
    script = ci.read_text()
    taken = re.search(r"grep -m1 -E '([^']+)' README\.md", script)
    if taken is None:
        assert tests[0] in script.splitlines()
    else:  # .ci/run reads the line out of the README and runs it
        found = [line for line in readme.read_text().splitlines() if re.search(taken[1], line)]
        assert found[0] == tests[0] and re.search(r'bash -c "[^"]*\$command"', script)
        assert not re.search(r"^\s*#.*bash -c", script, re.MULTILINE)


# ------------------------------------------------------------------------------------- the package


def test_import_needs_numpy_only():
    probe = "import sys, numpy; known = set(sys.modules); import attsvm; print(*sorted(set(sys.modules) - known))"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    modules = set(run.stdout.split())
    loaded = {name.split(".")[0] for name in modules}
    assert "attsvm" in loaded
    assert not loaded & {"scipy", "matplotlib", "joblib", "tqdm", "torch", "sklearn", "pandas", "jax"}
    late = {"attsvm.heads", "attsvm.reproduce", "attsvm.torch"}  # loaded when they are asked for
    assert not modules & {*late, "numpy.random", "zipfile", "secrets"}
    assert run.stderr == ""


def public():
    names = [(name, getattr(attsvm, name)) for name in attsvm.__all__]
    modules = [
        (f"{name}.{inner}", getattr(module, inner))
        for name, module in names
        if inspect.ismodule(module)
        for inner in module.__all__
    ]
    return [*names, *modules]


@pytest.mark.parametrize(("name", "thing"), public(), ids=[name for name, _ in public()])
def test_public_names_are_documented(name, thing):
    text = inspect.getdoc(thing)
    assert text and text.strip().splitlines()[0].endswith((".", ":", "?")) or inspect.ismodule(thing)
    if inspect.isfunction(thing):
        assert "Examples\n--------\n>>> import attsvm\n" in text, f"{name} has no Examples section"
        for argument in inspect.signature(thing).parameters:
            assert re.search(rf"\b{argument}\b", text), f"{name} does not say what {argument} is"


def test_all_lists_what_the_package_offers():
    assert sorted(attsvm.__all__) == attsvm.__all__
    offered = {name for name in vars(attsvm) if not name.startswith("_")}
    package = Path(attsvm.__file__).parent
    submodules = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/*.py")}
    assert offered - submodules <= set(attsvm.__all__)
    assert set(attsvm.__all__) <= offered


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="not a git checkout")
def test_the_top_level_holds_nothing_else():
    allowed = "csrc python tests notebooks setup.py pyproject.toml README.md LICENSE MANIFEST.in".split()
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    top = {path.split("/")[0] for path in listed if not path.startswith(".")}
    assert top <= set(allowed), "pictures of the README live in .pictures"
