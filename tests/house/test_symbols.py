"""What the compiled objects of csrc export, use and keep."""

import re
import shutil
import subprocess

import pytest
from places import CSRC

C_FILES = sorted(path.relative_to(CSRC).with_suffix("").as_posix() for path in CSRC.rglob("*.c"))


@pytest.fixture(scope="module")
def symbols(compiled):
    """(kind, name) of every symbol of each source file."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    objects = {}
    for name in C_FILES:
        said, made = compiled(CSRC / f"{name}.c")
        assert made.is_file(), said
        objects[str(made)] = name
    table = {name: [] for name in C_FILES}
    for line in subprocess.check_output(["nm", "-A", *objects], text=True).splitlines():
        made, _, symbol = line.partition(":")
        table[objects[made]].append(tuple(symbol.split()[-2:]))
    return table


def exported(symbols, name):
    return {s for kind, s in symbols[name] if kind in "TDBRCGSi" and not s.startswith("ATTSVM_ARRAY_API")}


def norms():
    """Of svm/norms.h, with the file of the ball."""
    return re.findall(r"NORM\((\w+), \w+, (\w+),", (CSRC / "svm" / "norms.h").read_text())


def prefixes(name):
    """What a file's symbols start with: its own name, after its folder's where that is a room of svm."""
    if name.startswith("binding/"):
        return ("bind_", "PyInit__core")
    parts = name.split("/")
    room = parts[0] == "svm" and len(parts) == 3 and parts[1] != "systems"
    return (parts[-1], *([f"{parts[1]}_{parts[2]}"] if room else []))


def test_every_exported_name_starts_with_its_file(symbols):
    for name in C_FILES:
        for symbol in exported(symbols, name):
            assert symbol.startswith(prefixes(name)), f"{name}.c exports {symbol}"


def test_files_do_not_call_each_other_in_circles(symbols):
    """A file may not use and be used by the same file."""
    of = {symbol: name for name in C_FILES for symbol in exported(symbols, name)}
    uses = {
        name: {of[symbol] for kind, symbol in symbols[name] if kind == "U" and symbol in of} - {name}
        for name in C_FILES
    }
    mutual = sorted((a, b) for a in C_FILES for b in uses[a] if a < b and a in uses[b] and not a.startswith("binding/"))
    assert not mutual


def declared(header):
    """Functions that a header declares."""
    text = re.sub(r"/\*.*?\*/", " ", header.read_text(), flags=re.DOTALL)
    text = re.sub(r"^\s*#(?:.*\\\n)*.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\{[^{}]*\}", ";", re.sub(r"\{[^{}]*\}", ";", text))
    text = re.sub(r"(?:static|INLINE|typedef)\b[^;]*;", "", text)
    return set(re.findall(r"\b(\w+)\(", text)) - {"__attribute__"}


def test_a_header_declares_only_its_own_sources_symbols(symbols):
    for name in C_FILES:
        header = CSRC / f"{name}.h"
        if header.is_file():
            assert declared(header) <= exported(symbols, name), header


# What would take memory behind the arena's back, print from a library, or end the user's process.
FORBIDDEN = """malloc calloc realloc free aligned_alloc posix_memalign printf puts putchar fprintf vfprintf exit abort
_exit __assert_fail perror system longjmp""".split()


def test_kernels_take_no_memory_print_nothing_and_never_exit(symbols):
    for name in C_FILES:
        used = {symbol.split("@")[0] for kind, symbol in symbols[name] if kind == "U"}
        assert not used & {*FORBIDDEN} - ({"malloc", "free"} if name == "base/arena" else set()), name


def test_no_state_outlives_a_call(symbols):
    """Variables that C files keep: only tables of the bindings (and NumPy's), one setting, the block of memory that
    waits for the next call, and who is inside the BLAS while the process forks.  (The tables of functions of
    svm/interior are constant, and relocated.)"""
    tables = [file for _, file in norms()]
    for name in C_FILES:
        kept = [s for kind, s in symbols[name] if kind in "bBdDC" and not s.startswith((".", "__"))]
        kept = [s for s in kept if s.removesuffix("_ball") not in tables]
        if name.startswith("binding/"):
            kept = [s for s in kept if not re.search("_table$|slots|definition|ARRAY_API|^PyArray_|^bind_threads$", s)]
        assert kept == {"base/arena": ["spares"], "linalg/blas": ["forks", "inside", "once"]}.get(name, []), name
