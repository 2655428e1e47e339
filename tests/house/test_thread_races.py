"""Kernels with two threads under the thread sanitizer: two calls at once on the same data, without Python."""

import shutil
import subprocess

import pytest
from marks import needs_gcc
from places import CSRC, TESTS

pytestmark = [pytest.mark.sanitizer, needs_gcc]
FOLDERS = ("base", "attention", "linalg", "svm", "svm/systems", "svm/frobenius", "training")
# OpenBLAS is not compiled here, and the sanitizer would not see into it; the others call methods of every norm.
LEFT_OUT = ("linalg/blas.c", "svm/frobenius/auto.c", "svm/coordinates.c")


def build(folder, csrc):
    out = folder / "driver"
    found = {path for name in FOLDERS for path in (csrc / name).glob("*.c")} - {csrc / name for name in LEFT_OUT}
    files = sorted(found) + [TESTS / "support" / name for name in ("plain_blas.c", "thread_driver.c")]
    flags = ["-std=gnu11", "-O1", "-g", "-fopenmp-simd", "-fsanitize=thread", "-DATTSVM_NO_SIMD_DISPATCH"]
    words = ["gcc", *flags, f"-I{csrc}", *files, "-pthread", "-lm", "-o", out]
    done = subprocess.run(words, capture_output=True, text=True)
    if "cannot find" in done.stderr and "tsan" in done.stderr:
        pytest.skip("gcc does not bring the thread sanitizer")
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def run(program, threads):
    return subprocess.run([program, str(threads)], capture_output=True, text=True, timeout=300)


def lines(text):
    """(name, status, number) of every solver and loss, of both calls."""
    return [(name, int(status), float(number)) for name, status, number in map(str.split, text.splitlines())]


def test_two_calls_with_two_threads_each_have_no_race(tmp_path):
    program = build(tmp_path, CSRC)
    one, two = run(program, 1), run(program, 2)
    assert "WARNING" not in two.stderr and two.returncode == 0, two.stderr[:6000]
    assert one.returncode == 0, one.stderr[:6000]
    alone, shared = lines(one.stdout), lines(two.stdout)
    assert len(shared) == 12 and shared[:6] == shared[6:]  # both calls, bit for bit
    for (name, status, number), (_, same, expected) in zip(shared, alone, strict=True):
        assert status == same == 0, name
        # Norms within the tolerance of 1e-6 of each other; losses after 50 steps to rounding.
        assert number == pytest.approx(expected, rel=1e-9 if name == "loss" else 2e-6)


def test_a_race_would_be_seen(tmp_path):
    """The same with all threads in the memory of the first: the sanitizer must object, or the test above is blind.

    On one busy core a thread may end before another begins, so that one run in three is free of races.
    """
    csrc = tmp_path / "csrc"
    shutil.copytree(CSRC, csrc)
    threads = csrc / "base" / "threads.c"
    text = threads.read_text()
    broken = text.replace("threads->parts, number);", "threads->parts, 0);")
    assert broken != text
    threads.write_text(broken)
    program = build(tmp_path, csrc)
    assert any("data race" in run(program, 2).stderr for _ in range(20))
