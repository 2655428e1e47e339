"""Every C file, compiled once for all who look at it."""

import shutil
import subprocess

import pytest
from c_words import include_words
from places import CSRC

# These read the sources; the others pass on an installed package.
SOURCES = "edges sanitizer structure symbols tables thread_pool thread_races warnings".split()
collect_ignore = [] if CSRC.is_dir() else [f"test_{name}.py" for name in SOURCES]
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion"]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Of a C file: what the compiler says of it, and the object."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    words = ["gcc", "-std=gnu11", "-O0", "-fPIC", "-fopenmp-simd", "-DATTSVM_NO_SIMD_DISPATCH", *WARNINGS]
    words += include_words()
    build, made = tmp_path_factory.mktemp("objects"), {}

    def of(path):
        if path not in made:
            made[path] = build / (path.relative_to(CSRC).as_posix().replace("/", "__") + ".o")
            done = subprocess.run([*words, "-c", path, "-o", made[path]], capture_output=True, text=True)
            made[path] = done.stderr, made[path]
        return made[path]

    return of
