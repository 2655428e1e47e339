"""The shape of the code: floors, who may name what, one spelling of every fact that is written in two places."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import attsvm
import numpy as np
import pytest
from attsvm import _core

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
pytestmark = pytest.mark.skipif(not CSRC.is_dir(), reason="the sources are not next to the tests")

# An include of csrc only goes down, or stays on its floor.
FLOORS = {
    0: ["status", "arena", "stop", "clones", "exponential"],
    1: ["blas", "crew", "product", "vector", "lbfgs"],
    2: ["windows", "sweep", "softmax", "attend", "lanes", "loss", "project", "head"],
    3: ["erm", "objective", "rule", "share", "span", "output", "rows", "bound", "equalities"],
    4: [
        "descend",
        "path",
        "factor",
        "gram",
        "ascent",
        "start",
        "active",
        "blocks",
        "exchange",
        "rounded",
        "support",
        "svm*",
    ],
    5: ["bind", "module", "bind_*"],
}
LONGEST = 450  # lines: a longer file is two files

SOURCES = sorted([*CSRC.glob("*.c"), *CSRC.glob("*.h")])


def ids(paths):
    return [path.name for path in paths]


def floor(stem):
    found = [k for k, stems in FLOORS.items() if any(Path(stem).match(pattern) for pattern in stems)]
    assert found, f"{stem} has no floor in FLOORS"
    return found[0]


def code(path):
    """C source without comments and strings."""
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.DOTALL)
    return re.sub(r'"(\\.|[^"\\])*"', '""', re.sub(r'#include "[^"]*"', "", text))


def included(path):
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_includes_only_go_down(path):
    for name in included(path):
        assert (CSRC / name).is_file()
        assert floor(Path(name).stem) <= floor(path.stem), f"{path.name} includes {name} from a floor above"


def test_files_do_not_include_each_other_in_circles():
    below = {path.stem: set() for path in SOURCES}
    for path in SOURCES:
        below[path.stem] |= {Path(name).stem for name in included(path)} - {path.stem}
    done = set()
    while len(done) < len(below):
        free = {stem for stem, needs in below.items() if stem not in done and needs <= done}
        assert free, f"a circle among {sorted(set(below) - done)}"
        done |= free


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_only_blas_names_openblas(path):
    if path.stem != "blas":
        named = re.findall(
            r"cblas|openblas|lapack|\bd(?:potr|syev|gesd|gemm|syrk|trs)\w*_\b", code(path), re.IGNORECASE
        )
        assert not named
        assert "cblas.h" not in path.read_text()


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_only_bindings_know_python(path):
    text = path.read_text()
    if path.name != "bind.h":
        assert not re.search(r"#\s*include\s*<(Python|numpy/|structmember)", text)
    if "bind.h" in included(path):
        assert path.stem == "module" or path.stem.startswith("bind_")
    elif path.name != "bind.h":
        assert not re.search(r"\b(?:Py[A-Z_]|npy_|NPY_)\w+", code(path))


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_no_file_is_too_long(path):
    assert len(path.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("path", [p for p in SOURCES if p.suffix == ".h"], ids=lambda p: p.name)
def test_headers_are_guarded(path):
    guard = path.stem.upper() + "_H"
    assert re.search(rf"#ifndef {guard}\n#define {guard}\n.*#endif\s*$", path.read_text(), re.DOTALL)


# ------------------------------------------------------------------------------------- compiled objects


def include_words():
    """Compiler words for the headers the sources need; skips where they are not installed."""
    words = [f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}", f"-I{CSRC}"]
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        pytest.skip("Python.h is not installed")
    try:
        import scipy_openblas32
    except ImportError:
        try:
            return words + subprocess.check_output(["pkg-config", "--cflags", "openblas"], text=True).split()
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("cblas.h is missing: pip install scipy-openblas32, or a system OpenBLAS with its headers")
    return [*words, f"-I{scipy_openblas32.get_include_dir()}", "-DBLAS_SYMBOL_PREFIX=scipy_"]


@pytest.fixture(scope="module")
def symbols(tmp_path_factory):
    """(kind, name) of every symbol of each source file."""
    if shutil.which("gcc") is None or shutil.which("nm") is None:
        pytest.skip("gcc or nm is not installed")
    words = [
        "gcc",
        "-std=gnu11",
        "-O0",
        "-fPIC",
        "-fopenmp-simd",
        "-DATTSVM_NO_CLONES",
        "-DPy_LIMITED_API=0x030b0000",
        *include_words(),
    ]
    words += ["-DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION", "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION"]
    build = tmp_path_factory.mktemp("objects")
    sources = sorted(CSRC.glob("*.c"))
    subprocess.run([*words, "-c", *map(str, sources)], cwd=build, check=True)
    table = {}
    for path in sources:
        lines = subprocess.check_output(["nm", build / f"{path.stem}.o"], text=True).splitlines()
        table[path.stem] = [tuple(line.split()[-2:]) for line in lines]
    return table


C_FILES = [path.stem for path in SOURCES if path.suffix == ".c"]


@pytest.mark.parametrize("stem", C_FILES)
def test_every_exported_name_starts_with_its_file(symbols, stem):
    prefixes = ("bind_", "PyInit__core") if stem == "module" else (stem + "_",)
    if stem.startswith("bind_"):
        prefixes = ("bind_",)
    for kind, name in symbols[stem]:
        if kind in "TDBRCGSi" and not name.startswith("ATTSVM_ARRAY_API"):
            assert name == stem or name.startswith(prefixes), f"{stem}.c exports {name}"


# What would take memory behind the arena's back, print from a library, or end the user's process.
FORBIDDEN = {"malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign", "printf", "puts", "putchar"}
FORBIDDEN |= {"fprintf", "vfprintf", "exit", "abort", "_exit", "__assert_fail", "perror", "system", "longjmp"}


@pytest.mark.parametrize("stem", C_FILES)
def test_kernels_take_no_memory_print_nothing_and_never_exit(symbols, stem):
    used = {name.split("@")[0] for kind, name in symbols[stem] if kind == "U"}
    assert not used & (FORBIDDEN - ({"malloc", "free"} if stem == "arena" else set()))


@pytest.mark.parametrize("stem", C_FILES)
def test_no_state_outlives_a_call(symbols, stem):
    """Variables that C files keep: only tables of the bindings (and NumPy's), one setting, and the block of
    memory that waits for the next call."""
    kept = [name for kind, name in symbols[stem] if kind in "bBdDC" and not name.startswith((".", "__"))]
    if stem == "module" or stem.startswith("bind_"):
        kept = [
            name
            for name in kept
            if not re.search("methods|slots|definition|ARRAY_API|^PyArray_|^bind_threads$", name)
        ]
    assert kept == (["spare"] if stem == "arena" else [])


# ------------------------------------------------------------------------------------- facts in two places


def test_status_words_are_those_of_the_header():
    listed = re.findall(r'STATUS\((\w+), (-?\d+), "([^"]+)", "([^"]+)"\)', (CSRC / "status.h").read_text())
    assert {int(number): word for _, number, word, _ in listed} == _core.STATUS
    assert len(listed) == len(_core.STATUS)  # no number twice
    documented = inspect.getdoc(attsvm.Separation)
    for word in ("infeasible", "no constraint", "iteration limit", "undecided"):
        assert word in _core.STATUS.values() and f'"{word}"' in documented


def test_stub_lists_the_functions_of_the_module():
    stub = ast.parse(Path(attsvm.__file__).with_name("_core.pyi").read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    built = {name for name in dir(_core) if callable(getattr(_core, name)) and not name.startswith("__")}
    assert set(functions) == built
    for name, node in functions.items():
        assert not node.args.args and not node.args.kwonlyargs  # positional only, as C reads them
        documented = re.match(rf"{name}\((.*?)\)", getattr(_core, name).__doc__, re.DOTALL)
        listed = [argument.split("|")[0].strip() for argument in documented[1].split(",") if argument.strip()]
        if "[" not in documented[1] and "/" not in documented[1]:
            assert len(listed) == len(node.args.posonlyargs), name


def test_version_is_said_once():
    with open(ROOT / "pyproject.toml", "rb") as file:
        assert tomllib.load(file)["project"]["version"] == attsvm.__version__


def test_readme_test_command_is_what_ci_runs():
    readme, ci = ROOT / "README.md", ROOT / ".ci" / "run"
    if not readme.is_file() or not ci.is_file():
        pytest.skip("README.md or .ci/run is not here")
    commands = [line for line in readme.read_text().splitlines() if line.startswith("python3 -m venv ")]
    tests = [line for line in commands if line.endswith("pytest")]
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
    probe = "import sys, attsvm; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert {"attsvm", "numpy"} <= loaded
    assert not loaded & {"scipy", "matplotlib", "joblib", "tqdm", "torch", "sklearn", "pandas", "jax"}
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
    submodules = {path.stem for path in Path(attsvm.__file__).parent.glob("*.py")} | {"figures"}
    assert offered - submodules <= set(attsvm.__all__)
    assert set(attsvm.__all__) <= offered


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="not a git checkout")
def test_the_top_level_holds_nothing_else():
    allowed = "csrc python tests notebooks setup.py pyproject.toml README.md LICENSE MANIFEST.in".split()
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    top = {path.split("/")[0] for path in listed if not path.startswith(".")}
    assert top <= set(allowed), "pictures of the README live in .pictures"
