"""What a wheel and the repository around it must hold."""

import fnmatch
import importlib.metadata
import re
import tomllib
import zipfile

import attsvm
import pytest
from places import ROOT
from processes import python

pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="not a checkout")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text()) if (ROOT / "pyproject.toml").is_file() else {}
OPENBLAS = "csrc/linalg/openblas.LICENSE.txt"


def test_licences_are_there_and_named():
    files = PROJECT["project"]["license-files"]
    assert OPENBLAS in files and all(list(ROOT.glob(pattern)) for pattern in files)
    text = (ROOT / OPENBLAS).read_text()
    for name in ("OpenBLAS", "LAPACK", "GCC runtime library"):
        assert f"Name: {name}\n" in text
    for word in ("BSD-3-Clause", "GPL-3.0-or-later WITH GCC-exception-3.1"):
        assert word in PROJECT["project"]["license"]


def test_licence_is_that_of_the_pinned_openblas():
    try:
        there = importlib.metadata.distribution("scipy-openblas32")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("scipy-openblas32 is not installed")
    (pin,) = (line for line in PROJECT["build-system"]["requires"] if line.startswith("scipy-openblas32"))
    if pin != f"scipy-openblas32=={there.version}":
        pytest.skip(f"scipy-openblas32 {there.version} is not the pinned one")
    text = (ROOT / OPENBLAS).read_text()
    (licence,) = (file for file in there.files if file.name == "LICENSE.txt")
    assert there.version in text and text.endswith(licence.read_text())


def test_all_parts_of_the_package_are_listed():
    python = ROOT / "python"
    found = {".".join(p.parent.relative_to(python).parts) for p in python.rglob("__init__.py")}
    assert found == set(PROJECT["tool"]["setuptools"]["packages"])


def test_versions_and_workflows():
    yaml = pytest.importorskip("yaml")
    github = ROOT / ".github"
    if not github.is_dir():
        pytest.skip("a source distribution")
    citation = yaml.safe_load((github / "CITATION.cff").read_text())
    assert citation["version"] == attsvm.__version__ == PROJECT["project"]["version"] and citation["cff-version"]
    about = (ROOT / "notebooks" / "about.md").read_text()
    assert f"Version {attsvm.__version__}," in about and f"{{{attsvm.__version__}}}" in about
    names = {path.stem for path in (github / "workflows").glob("*.yml")}
    assert {"tests", "sanitizers", "wheels", "docs"} <= names
    for path in github.rglob("*.yml"):
        content = yaml.safe_load(path.read_text())
        for job in content.get("jobs", {}).values():
            assert job["steps"] and job["runs-on"]
    wheels = yaml.safe_load((github / "workflows" / "wheels.yml").read_text())
    publish = wheels["jobs"]["publish"]
    assert publish["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}


def test_actions_are_pinned_to_a_commit_and_say_its_version():
    lines = [line.strip(" -") for path in (ROOT / ".github").rglob("*.yml") for line in path.read_text().splitlines()]
    uses = {line for line in lines if line.startswith("uses:")}
    if not uses:
        pytest.skip("a source distribution")
    assert [one for one in uses if not re.match(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)] == []
    actions = [one.partition("@")[0] for one in uses]
    assert len(actions) == len(set(actions))  # one version of each


@pytest.mark.slow
def test_a_wheel_holds_what_it_should(tmp_path):
    for package in ("build.util", "setuptools", "scipy_openblas32"):  # a folder build/ is no package
        pytest.importorskip(package)
    done = python("-m", "build", "--outdir", tmp_path, ROOT)  # the wheel from the source distribution
    if done.returncode and "Could not find a version" in done.stdout + done.stderr:
        pytest.skip("an isolated build needs an index")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    assert "cp311-abi3" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    for pattern in ("attsvm/libscipy_openblas_attsvm.*", "attsvm/_core.abi3.so", "attsvm/py.typed", "attsvm/_core.pyi"):
        assert fnmatch.filter(names, pattern), pattern
    assert fnmatch.filter(names, "attsvm-*.dist-info/licenses/*openblas*")
    assert not fnmatch.filter(names, "*tests*") and not fnmatch.filter(names, "*.c")
