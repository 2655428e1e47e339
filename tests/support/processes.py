"""Programs that tests run beside them: Python's, and those made of C sources."""

import ctypes
import subprocess
import sys

from places import CSRC


def python(*words, timeout=600, **how):
    """This Python with these words, and what it prints."""
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=timeout, **how)


def program(out, *files, flags=()):
    """Of C sources; or the object, where the flags say so."""
    subprocess.run(["gcc", "-std=gnu11", f"-I{CSRC}", *flags, *files, "-o", out, "-lm", "-lpthread"], check=True)
    return out


def library(out, *files, flags=()):
    return ctypes.CDLL(program(out, *files, flags=["-fopenmp-simd", "-fPIC", "-shared", *flags]))
