"""Deliberate faults are noticed: by the fast tests, and by the claims of the quick report.

Run by hand, ``pytest -m mutation``; about 15 minutes on two cores.  What is known of a fault is kept in
``build/mutations/results.json`` as long as package and tests stay the same, so that an interrupted run goes on where
it was; ``table.md`` beside it is the table, kept as ``tests/house/mutations.md``.  Only the file with the fault is
compiled again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys

import pytest
from mutations import MUTATIONS
from patched import PARTS, Tree
from places import ROOT

pytestmark = pytest.mark.mutation

HOME = ROOT / "build" / "mutations"
NOTICED_BY_CLAIMS = 0.9
ABOUT = """# Deliberate faults, and what notices them

The faults are the rows of `tests/support/mutations.py`, one at a time; tests are the fast ones, claims those of the
quick report.  `pytest -m mutation tests/house/test_mutations.py` writes this table to `build/mutations/table.md`.
"""


def table(found: dict[str, dict[str, str]]) -> str:
    """In the order of MUTATIONS: fault, the test and the claim that notice it first."""
    rows = [
        ABOUT,
        "| fault | in | the first test that fails | the first claim that fails |",
        "| --- | --- | --- | --- |",
    ]
    for fault in MUTATIONS:
        if fault.name in found:
            row = found[fault.name]
            cells = fault.name, f"`{fault.file}`", f"`{row['tests']}`" if row["tests"] else "none", row["claims"]
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def digest() -> str:
    """Of all that decides what is noticed."""
    found = hashlib.sha256()
    for part in PARTS[:3]:
        for path in sorted((ROOT / part).rglob("*.[chp]*")):
            if path.suffix in (".c", ".h", ".py"):
                found.update(path.read_bytes())
    return found.hexdigest()


@pytest.fixture(scope="module")
def tree():
    return Tree(HOME / "tree")


@pytest.fixture(scope="module")
def results():
    """What is known so far, of the package and tests as they are."""
    path, key = HOME / "results.json", digest()
    HOME.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    found = known["found"] if known.get("digest") == key else {}

    def keep() -> None:
        path.write_text(json.dumps({"digest": key, "found": found}, indent=1))
        (HOME / "table.md").write_text(table(found), encoding="utf-8")

    return found, keep


def noticed_by_tests(tree: Tree, words: str) -> str:
    """The first test that fails: of those named, else of all fast ones."""
    named = [str(path) for word in words.split() for path in (tree.home / "tests").glob(f"*/test_{word}.py")]
    for files in (named, ["--ignore=tests/ecosystem"]):  # whose checks of the package need the whole repository
        done = tree.command(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files)
        if done.returncode:
            failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, flags=re.MULTILINE)
            return failed[1] if failed else f"exit code {done.returncode}"
    return ""


def noticed_by_claims(tree: Tree, figures: str) -> str:
    """Claims that fail in the quick report of the first figure that has one; "none", or how it ended."""
    for figure in figures.split():
        out = HOME / "report"
        shutil.rmtree(out, ignore_errors=True)
        done = tree.command(sys.executable, "-m", "attsvm", "reproduce", figure, "--quick", "--out", str(out))
        if done.returncode not in (0, 1) or not (out / "claims.json").exists():
            return f"{figure}: no report, exit code {done.returncode}"
        entries = json.loads((out / "claims.json").read_text())
        failed = [entry for entry in entries if entry["verdict"] == "fails"]
        if failed:
            return f"{figure}, {len(failed)} of {len(entries)}: {failed[0]['claim']}"
    return "none"


@pytest.mark.parametrize("fault", MUTATIONS, ids=[fault.name for fault in MUTATIONS])
def test_a_fault_is_noticed(fault, tree, results):
    found, keep = results
    if fault.name not in found:
        try:
            tree.change([(fault.file, fault.old, fault.new)])
            row = {"kind": fault.kind, "tests": noticed_by_tests(tree, fault.tests), "figures": fault.figures}
            claims = noticed_by_claims(tree, fault.figures) if fault.figures else "reaches no figure"
            found[fault.name] = row | {"claims": claims}
        finally:
            tree.restore()
        keep()
    assert found[fault.name]["tests"], "no fast test notices it"


def test_claims_notice_nearly_all_that_reach_a_figure(results):
    found, _ = results
    reach = {name: row["claims"] for name, row in found.items() if row["figures"]}
    missed = [name for name, claims in reach.items() if not re.match(r"[a-z-]+, \d+ of", claims)]
    assert len(missed) <= (1 - NOTICED_BY_CLAIMS) * len(reach), missed


def test_the_table_is_large_enough():
    assert len(MUTATIONS) >= 50 and len({fault.name for fault in MUTATIONS}) == len(MUTATIONS)
