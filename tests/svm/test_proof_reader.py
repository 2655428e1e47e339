"""Two independent readers of proofs, check.py and one in C with integers of its own, take and refuse the same files."""

import copy
import json
import shutil
import subprocess

import attsvm
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


JSON = [
    None,
    True,
    0,
    -1,
    10**18,
    1.5,
    "",
    "x",
    "0x1p+0",
    *("nan", "inf", "-inf", "0x1p5000", "1.5", "0x1.8p+0 ", "0X1.8P+0"),
    [],
    [0],
    [None],
    [""],
    ["0x1p+0"],
    [[]],
    [[0]],
    [[0, 0]],
    {},
    {"a": 0},
]


def replaced(proof, path, value):
    """With the value at this path, or None where there is none."""
    changed = place = copy.deepcopy(proof)
    for key, after in zip(path, [*path[1:], None], strict=True):
        if not isinstance(place, list if key == 0 else dict) or not place:
            return None
        if after is None:
            place[key] = value
        place = place[key]
    return changed


def test_both_refuse_values_of_another_type(reader, proofs, tmp_path):
    """Each field, and each first element inside it, replaced by every kind of value: an error in words, and soon."""
    small = [
        min((p for p in proofs if p["claim"] == claim and p["witness"].get("inverse") and p["statement"]),
            key=lambda p: (p["rhs"] is not None, len(str(p))))
        for claim in ("optimal", "infeasible")
    ]  # fmt: skip
    paths = [
        (proof, name) for proof in small for name in [(x,) for x in proof] + [("witness", x) for x in proof["witness"]]
    ]
    changed = [
        replaced(proof, (*name, *[0] * depth), value) for proof, name in paths for depth in range(4) for value in JSON
    ]
    changed = [proof for proof in changed if proof is not None]
    for proof in changed:
        try:
            check.theorem(json.dumps(proof).encode())
        except (AssertionError, ValueError, OverflowError) as error:
            assert len(str(error)) > 9
    assert theirs(reader, changed, tmp_path) == [ours(proof) for proof in changed] and len(changed) > 1000


def test_only_one_line_refuses_it(reader, tmp_path):
    """A norm that is above 1.5 by 2^-222 alone, and a multiplier that a step makes negative."""
    zero, one, lists = (0.0).hex(), (1.0).hex(), {"start": [0], "stop": [2], "selected": [0], "kept": None, "rhs": None}
    plain = {"format": "attsvm-proof-1", "norm": "frobenius", "C": None, "queries": [[one]], "dual": [[0, 1, one]]}
    plain |= lists | {"witness": {}, "statement": None}
    W = [[(1.5).hex()], [(2.0**-110).hex()]]
    longer = plain | {"claim": "optimal", "keys": [[one, zero], [zero, zero]], "W": W}
    said = check.theorem(json.dumps(longer).encode())[0]
    assert "one has 1.00000001 " in said
    step = {"lift": False, "basis": [[0, 2]], "dependent": [], "inverse": [[(0.5).hex()]]}
    steep = plain | {"claim": "infeasible", "W": None, "stop": [3], "keys": [[one], [zero], [(-1.0).hex()]]}
    steep |= {"dual": [[0, 1, one], [0, 2, zero]], "witness": step}
    false = [longer | {"statement": said.replace("1.00000001", "1")}, steep]
    assert theirs(reader, [longer, *false], tmp_path) == [f"PROVED: {said}", "NOT PROVED", "NOT PROVED"]
    with pytest.raises(AssertionError, match="the statement is another"):
        check.theorem(json.dumps(false[0]).encode())
    with pytest.raises(AssertionError, match="the multipliers do not exclude every W"):
        check.theorem(json.dumps(steep).encode())


def test_both_read_tokens_without_a_row_and_queries_without_a_part(reader, tmp_path):
    rng = np.random.default_rng(3)
    data = attsvm.cross_attention(rng.standard_normal((8, 4, 3)), rng.standard_normal((8, 3)))
    margins = np.where(rng.random((8, 4)) < 0.3, -np.inf, 1.0)
    sol = attsvm.solve_svm(data, data.select(rng.standard_normal((3, 3))), margins=margins)
    solved = sol.influence().solved
    proofs = []
    for i in range(8):
        sol.prove(tmp_path / "proof.json", without=i)
        proofs.append(json.loads((tmp_path / "proof.json").read_text()))
    none = int(np.flatnonzero(~solved)[0])
    wrong = [[int(i)] for i in np.flatnonzero(solved)] + [[8], [-1], ["0"], 0]
    changed = [proofs[none] | {"statement": None, "without": gone} for gone in wrong]
    lines = theirs(reader, proofs + changed, tmp_path)
    assert lines == [ours(proof) for proof in proofs + changed]
    assert all(line.startswith("PROVED") for line in lines[:8]) and set(lines[8:]) == {"NOT PROVED"}
    assert sum("; so it is without queries" in line for line in lines) == (~solved).sum() > 0
