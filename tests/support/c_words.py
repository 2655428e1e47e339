"""How the tests compile the C sources by themselves."""

import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from places import CSRC


def include_words():
    """Definitions and include folders of a compilation; skips where a header is not installed."""
    words = ["-DPy_LIMITED_API=0x030b0000", "-DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION"]
    words += ["-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION"]
    words += [f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}", f"-I{CSRC}"]
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
