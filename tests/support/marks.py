"""What some tests need, and which take long."""

import functools
import shutil
import sys

import pytest
from places import CSRC

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
needs_gcc = pytest.mark.skipif(
    not CSRC.is_dir() or shutil.which("gcc") is None, reason="needs gcc, and the sources next to the tests"
)
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and a linker as of Linux")
