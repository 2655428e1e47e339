"""Two independent readers of proofs, check.py and one in C with integers of its own, take and refuse the same files."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess

import numpy as np
import pytest
from attsvm import check
from attsvm.svm.proof import proved
from falsify import falsified
from places import TESTS
from test_proof import drawn

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
SOURCE = TESTS / "support" / "proof_reader.c"


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    program = tmp_path_factory.mktemp("reader") / "proof_reader"
    subprocess.run([COMPILER, "-std=c11", "-O2", "-o", program, SOURCE, "-lm"], check=True)
    return program


def ours(proof):
    """What check.py prints of a proof."""
    try:
        return f"PROVED: {check.theorem(json.dumps(proof).encode())[0]}"
    except Exception:
        return "NOT PROVED"


def theirs(reader, proofs, folder):
    """What the reader in C prints of each, without its reasons."""
    files = [folder / f"{k}.json" for k in range(len(proofs))]
    for file, proof in zip(files, proofs, strict=True):
        file.write_text(json.dumps(proof))
    done = subprocess.run([reader, *files], capture_output=True, text=True, timeout=120)
    lines = [line.split(": ", 1)[1] for line in done.stdout.splitlines()]
    assert done.stderr == "" and len(lines) == len(proofs)
    return [line if line.startswith("PROVED") else "NOT PROVED" for line in lines]


@pytest.fixture(scope="module")
def proofs():
    """True proofs of every norm that the reader knows and of every kind of selection."""
    found = []
    for seed in range(60):
        sol = drawn(seed)
        if sol is not None and (isinstance(sol.norm, str) or sol.status == "infeasible"):
            proof, statement, _ = proved(sol)
            found += [proof, proof | {"statement": statement}]
    return found


def test_both_take_true_proofs(reader, proofs, tmp_path):
    """With the same digits: bounds and gap are printed from the integers of either."""
    assert {proof["norm"] for proof in proofs} >= set(check.DUAL)
    assert any(proof["C"] for proof in proofs) and any(proof["witness"].get("basis") for proof in proofs)
    lines = theirs(reader, proofs, tmp_path)
    assert lines == [ours(proof) for proof in proofs] and "NOT PROVED" not in lines


def test_both_refuse_falsified_proofs(reader, proofs, tmp_path):
    rng = np.random.default_rng(9)
    changed = [falsified(proofs[rng.integers(len(proofs))], rng)[1] for _ in range(600)]
    changed = [proof for proof in changed if proof["norm"] in check.DUAL]
    lines = theirs(reader, changed, tmp_path)
    assert lines == [ours(proof) for proof in changed]
    assert 50 < lines.count("NOT PROVED") < len(lines)


def test_both_refuse_what_is_no_inverse(reader, proofs, tmp_path):
    """Rows of I - R B that add up to 1 or more: the bound of a step would be negative, or none."""
    changed = []
    for proof in copy.deepcopy([proof for proof in proofs if proof["witness"].get("basis") and not proof["statement"]]):
        witness = proof["witness"]
        witness["inverse"] = [[(-float.fromhex(x)).hex() for x in row] for row in witness["inverse"]]
        changed.append(proof)
    assert len(changed) > 5
    assert theirs(reader, changed, tmp_path) == [ours(proof) for proof in changed] == ["NOT PROVED"] * len(changed)


def test_exit_codes(reader, proofs, tmp_path):
    true = next(proof for proof in proofs if proof["claim"] != "infeasible" and proof["statement"])
    negative = copy.deepcopy(true)
    negative["W"] = [[(-float.fromhex(x)).hex() for x in row] for row in true["W"]]
    text = json.dumps(true)
    files = {
        "true": (text, 0),
        "negative": (json.dumps(negative), 1),
        "torn": (text[:-9], 2),
        "other norm": (json.dumps(true | {"norm": (1.5).hex(), "C": None}), 2),
        "deep": ("[" * 10**5, 2),
        "twice": (text.replace('"claim"', '"claim": "optimal", "claim"', 1), 2),
        "nothing": ("", 2),
    }
    for name, (content, code) in files.items():
        (tmp_path / name).write_text(content)
        done = subprocess.run([reader, tmp_path / name], capture_output=True, text=True, timeout=60)
        assert done.returncode == code and "PROVED: " in done.stdout, name
    assert subprocess.run([reader, tmp_path / "none"], capture_output=True, timeout=60).returncode == 2
