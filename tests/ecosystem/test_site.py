"""The documentation site: its code runs, its reference is complete, it builds without warnings."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import attsvm
import pytest
import speed_pages
from places import ROOT

PAGES = sorted((ROOT / "notebooks").glob("*.md"))
pytestmark = pytest.mark.skipif(not PAGES, reason="the notebooks are not next to the tests")


def blocks(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


# A block that begins with "# needs:" asks for one of these packages, or for a cluster or a model that is not here.
PACKAGES = ("jax", "scipy", "torch")
CODE = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in PAGES
    for number, block in enumerate(blocks(path))
    if not block.startswith("# needs:") or block.split()[2] in PACKAGES
]


@pytest.mark.parametrize("code", CODE)
def test_code_on_the_pages_runs(code, tmp_path, monkeypatch):
    if code.startswith("# needs:"):
        pytest.importorskip(code.split()[2])
    if "replicate" in code:
        pytest.importorskip("joblib")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "page", "exec"), {"__name__": "page"})


def test_reference_lists_every_public_name(monkeypatch):
    pytest.importorskip("sphinx")
    pytest.importorskip("latex2mathml")
    monkeypatch.syspath_prepend(str(ROOT / "notebooks"))
    site_parts = importlib.import_module("site_parts")
    listed = [name for _, words in site_parts.TOPICS.values() for name in site_parts.members(words)]
    modules = {"heads", "plot", "sample"}
    public = {f"attsvm.{name}" for name in attsvm.__all__ if name not in modules}
    public |= {f"attsvm.{module}.{name}" for module in modules for name in getattr(attsvm, module).__all__}
    assert public <= set(listed) and len(listed) == len(set(listed))


# What a reader searches for, and the page with a heading, a cell or a paragraph on it.
SEARCHES = {
    "own loss": "beyond.md",
    "gradient flow": "beyond.md",
    "minibatch": "beyond.md",
    "temperature": "beyond.md",
    "mask": "beyond.md",
    "Llama": "models.md",
    "LaTeX": "13_phase_diagram.ipynb",
    "citation": "about.md",
    "deprecation": "about.md",
    "2602.22271": "glossary.md",
    "2508.17821": "paper.md",
}


@pytest.mark.parametrize("words", SEARCHES)
def test_a_search_finds_a_page_that_answers(words):
    """The answer is on a page that the site's menus reach."""
    page = ROOT / "notebooks" / SEARCHES[words]
    assert words.lower() in page.read_text().lower()
    menus = [(ROOT / "notebooks" / f"{name}.md").read_text().split() for name in ("use", "understand")]
    assert any(page.stem in menu for menu in menus) or page.suffix == ".ipynb"  # of these a pattern lists all


def test_the_table_of_faults_is_as_the_page_says():
    table = (ROOT / "tests" / "house" / "mutations.md").read_text().splitlines()
    rows = [line.split(" | ") for line in table if re.match(r"\| (?!fault |---)", line)]
    page = (ROOT / "notebooks" / "verified.md").read_text()
    said = [int(number) for number in re.findall(r"^\| (?:recorded|noticed|reach).* (\d+) \|$", page, re.MULTILINE)]
    nowhere = sum("reaches no figure" in row[3] for row in rows)
    assert said == [len(rows), sum("::test_" in row[2] for row in rows), len(rows) - nowhere, nowhere]


def test_the_speed_on_the_pages_is_that_of_the_stored_measurement():
    assert [str(path) for path, text in speed_pages.pages().items() if path.read_text() != text] == []


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path):
    for package in ("sphinx", "myst_nb", "numpydoc", "pydata_sphinx_theme", "sphinx_design", "latex2mathml"):
        pytest.importorskip(package)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", tmp_path / "doctrees"]
    done = subprocess.run([*command, ROOT / "notebooks", tmp_path / "site"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "gallery.html").exists()
