"""Proofs: every answer has one, and no false one is taken.  The checker is tested as what it is, one file alone."""

import ast
import collections
import gzip
import json
import math
import re
import shutil
import sys
from fractions import Fraction
from pathlib import Path

import attsvm
import judge
import kinds
import numpy as np
import problems
import pytest
from attsvm import check
from attsvm.svm.proof import proved
from falsify import falsified
from marks import slow
from processes import python

CHECKER = Path(check.__file__)
NORMS = ["frobenius", "nuclear", "max", "spectral", 1.5, 3.0]
# A W or multipliers near the solver's may be better within its gap, truly; the statement shows two digits of it.
BETTER, ROUNDING = Fraction(95, 100), Fraction(1, 10**14)
PROBLEM = ("keys", "queries", "start", "stop", "selected", "kept", "rhs", "norm", "C")
FLOATS = re.compile(r"\d+\.?\d*(?:e[+-]?\d+)?", re.IGNORECASE)


def text_of(proof):
    return json.dumps(proof).encode()


def interval(statement):
    if statement == "no W exists":
        return math.inf, math.inf
    return tuple(float(x) for x in FLOATS.findall(statement.partition("above")[2])[:2])


def stated(sol):
    """The proof of an answer, with its statement."""
    proof, statement, _ = proved(sol)
    return proof | {"statement": statement}


def drawn(seed):
    """A random answer: any norm, any kind of selection; None where nothing is asked or nothing was found."""
    rng = np.random.default_rng([27, seed])
    C = float(10 ** rng.uniform(-2, 2)) if rng.random() < 0.3 else None
    norm = "frobenius" if C else [*NORMS, 1.1][rng.integers(7)]
    if rng.random() < 0.2:
        case = kinds.causal(rng)
    else:
        tokens = kinds.integers if rng.random() < 0.2 else None
        asked = [None, None, kinds.asked("lognormal"), kinds.asked("signs")][rng.integers(4)]
        case = kinds.cross(rng, tokens, sizes=((1, 9), (2, 6), (1, 6)), several=0.4, margins=asked)
    sol = attsvm.solve_svm(case.data, case.selected, norm, C=C, margins=case.asked)
    proves = sol.status == "infeasible" or sol.status == "optimal" and sol.W.any()
    return sol if proves and sol.flat_dual.any() else None


@pytest.fixture(scope="module")
def proofs():
    """True proofs of many kinds, small ones."""
    return [stated(sol) for sol in map(drawn, range(80)) if sol is not None]


def verdict(proof):
    """(statement, gap), or None where the checker does not take it."""
    try:
        return check.theorem(text_of(proof))
    except Exception:
        return None


# ------------------------------------------------------------------------------------- what is proved


@pytest.mark.parametrize("norm", NORMS)
def test_bounds_enclose_what_the_solver_says(norm, sphere):
    sol = attsvm.solve_svm(sphere().data, [0, 1, 2, 3, 4, 5], norm)
    gap = sol.proved_gap()
    assert isinstance(gap, Fraction) and 0 <= gap
    assert abs(float(gap) - sol.gap) < 1e-12  # rounding of products of 10 numbers, times the gap's condition
    _, statement, _ = proved(sol)
    low, high = interval(statement)
    assert low < 1 / sol.margin < high * (1 + 1e-15) and high / low - 1 < 1e-7


@pytest.mark.parametrize(("seeds", "most"), [(range(80, 160), 0), slow(range(160, 1260), 5)])
def test_random_answers_are_proved(seeds, most):
    missing = {}
    for seed in seeds:
        if (sol := drawn(seed)) is not None:
            try:
                *_, gap = proved(sol)
                assert (gap is None) == (sol.status == "infeasible"), seed
            except ValueError as error:
                missing[seed] = str(error)
    assert len(missing) <= most, missing


@pytest.mark.parametrize("p", [1 + 2.0**-52, 1.0001, 2.0000001, 1e15])
def test_any_power_is_bounded_from_above(p):
    """Against sums of 400 digits."""
    import decimal

    rng = np.random.default_rng(3)
    A = [[int(x) for x in row] for row in rng.integers(-(10**6), 10**6, (3, 4))]
    ours = check.bound(A, 7, Fraction(p), None)
    with decimal.localcontext(decimal.Context(prec=400, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)):
        exponent = decimal.Decimal(p)
        total = sum((abs(decimal.Decimal(x)).ln() * exponent).exp() for row in A for x in row if x)
        true = (total.ln() / exponent).exp() / 7
        assert decimal.Decimal(ours.numerator) / ours.denominator >= true * (1 - decimal.Decimal(10) ** -300)
    assert float(ours) <= float(true) * (1 + 1e-14)


def one_hot():
    """Differences of one-hot tokens add up to zero: an equation follows from the others."""
    rng = np.random.default_rng(0)
    data = attsvm.cross_attention(np.eye(6)[rng.integers(0, 6, (40, 5))], rng.standard_normal((40, 3)))
    return problems.Case(data, rng.integers(0, 5, 40))


@pytest.mark.parametrize("make", [problems.contradiction, problems.zero_query, one_hot])
def test_awkward_contradictions(make):
    made = make()
    sol = attsvm.solve_svm(made.data, made.selected)
    assert sol.status == "infeasible" and proved(sol)[1] == "no W exists"


def test_a_contradiction_only_within_rounding():
    """A mean, rounded, is no longer the mean: some W exists, of norm 1e16 or so."""
    made = problems.inside_hull()
    sol = attsvm.solve_svm(made.data, made.selected)
    proof, statement, gap = proved(sol)
    assert sol.status == "infeasible" and proof["claim"] == "excluded" and gap is None
    assert float(statement.rpartition(" above ")[2]) > 1e14


def test_equations_that_every_W_meets():
    """A copy of the selected token, kept beside it, makes a row of zeros: nothing has to be said of it."""
    X, Z, _, _ = attsvm.sample.unit_sphere(6, 8, 10, rng=1)
    X = np.concatenate([X, X[:, :1]], axis=1)
    kept = np.arange(9) == np.array([0, 1, 2, 3, 4, 5])[:, None]
    kept[0, 8] = True
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), kept)
    assert sol.status == "optimal" and 0 <= sol.proved_gap() <= 1e-12


def test_dependent_equations():
    """More tokens kept than their differences have dimensions, and a query twice."""
    rng = np.random.default_rng(1)
    X, Z = rng.standard_normal((3, 6, 2)), rng.standard_normal((3, 4))
    X[2], Z[2] = X[1], Z[1]
    kept = np.array([[True] * 4 + [False] * 2, [True, True] + [False] * 4, [True, True] + [False] * 4])
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), kept, C=1.0)
    proof, _, gap = proved(sol)
    assert proof["witness"]["dependent"] and abs(float(gap) - sol.gap) < 1e-12


def test_status_that_proves_nothing(tmp_path, sphere):
    case = sphere()
    sol = attsvm.solve_svm(case.data, np.ones((6, 8), dtype=bool))
    with pytest.raises(ValueError, match="not proved: .*'no constraint'"):
        sol.prove(tmp_path / "answer.json")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------- the file alone


def run(*files, checker=CHECKER):
    return python("-S", "-I", checker, *files)


def test_the_checker_is_one_short_file_of_the_standard_library():
    source = CHECKER.read_text()
    assert len(source.splitlines()) <= 260
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names and not any(getattr(node, "level", 0) for node in imports)


def test_the_file_copied_alone(tmp_path, sphere):
    sol = attsvm.solve_svm(sphere().data, [0, 1, 2, 3, 4, 5])
    alone = shutil.copy(CHECKER, tmp_path / "check.py")
    plain, packed = tmp_path / "answer.json", tmp_path / "answer.json.gz"
    statement = sol.prove(plain)
    assert sol.prove(packed) == statement
    done = run(plain, checker=alone)
    assert (done.returncode, done.stdout) == (0, f"PROVED: {statement}\n") and done.stderr == ""
    assert re.fullmatch(r"every W with these margins has Frobenius norm above \S+; one has \S+ \(gap \S+\)", statement)
    proof = json.loads(plain.read_text())
    proof["W"][0][0] = (float.fromhex(proof["W"][0][0]) + 1).hex()
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(proof))
    damaged = tmp_path / "damaged.json"
    damaged.write_bytes(plain.read_bytes()[:-100])
    done = run(packed, forged, checker=alone)
    assert done.returncode == 1 and len(done.stdout.splitlines()) == 2
    assert "NOT PROVED" in done.stdout.splitlines()[1] and done.stderr == ""
    done = run(plain, damaged, checker=alone)
    assert done.returncode == 2 and done.stderr == ""


def test_malicious_files_get_a_line(tmp_path):
    files = {
        "deep.json": b"[" * 10**6,
        "bomb.json.gz": gzip.compress(b" " * (check.MOST_BYTES + 10)),
        "torn.json.gz": gzip.compress(b"{}")[:-6],
        "lists.json": b"[" + b"[]," * 3 * 10**6 + b"[]]",
        "digits.json": b'{"format": ' + b"9" * 10**5 + b"}",
        "utf.json": b"\xff\xfe\x00",
        "nothing.json": b"",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    done = run(*(tmp_path / name for name in files), tmp_path, tmp_path / "none.json")
    assert done.returncode == 2 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == len(files) + 2 and all(": NOT PROVED: " in line and len(line) < 400 for line in lines)
    assert run().returncode == 2


# ------------------------------------------------------------------------------------- soundness


@pytest.fixture
def optimal(sphere):
    return stated(attsvm.solve_svm(sphere().data, [0, 1, 2, 3, 4, 5]))


@pytest.fixture
def infeasible():
    rng = np.random.default_rng(4)
    data = attsvm.cross_attention(rng.standard_normal((30, 6, 3)), rng.standard_normal((30, 3)))
    proof = stated(attsvm.solve_svm(data, np.zeros(30, dtype=int)))
    assert len(proof["witness"]["basis"]) == 9
    return proof


def test_a_name_twice(optimal):
    text = text_of(optimal)
    assert check.theorem(text)
    for name in (b'"claim": "optimal", ', b'"W": [["0x0.0p+0"]], '):
        with pytest.raises(ValueError, match="twice"):
            check.theorem(text.replace(b'"claim"', name + b'"claim"', 1))


def test_a_statement_that_is_another(optimal, infeasible):
    other = optimal["statement"].replace("gap", "Gap")
    for proof, text in ((optimal, other), (optimal, "no W exists"), (infeasible, optimal["statement"])):
        with pytest.raises(AssertionError, match="statement"):
            check.theorem(text_of(proof | {"statement": text}))


def test_fewer_unknowns_than_equations(infeasible):
    """A left inverse of fewer columns exists for any basis; it says nothing about the other equations."""
    witness = infeasible["witness"]
    basis = witness["basis"]
    for fewer in (*(basis[:cut] for cut in range(len(basis))), [basis[1], *basis[1:]]):
        assert verdict(infeasible | {"witness": witness | {"basis": fewer}}) is None


def test_a_feasible_problem_is_never_called_infeasible():
    """Multipliers of the optimum combine the rows to W, not to zero; every basis and its true inverse are tried."""
    rng = np.random.default_rng(5)
    data = attsvm.cross_attention(rng.standard_normal((30, 2, 3)), rng.standard_normal((30, 3)))
    sol = attsvm.solve_svm(data, data.select(rng.standard_normal((3, 3))))
    assert sol.status == "optimal"
    proof, *_ = proved(sol)
    A = judge.rows_of(problems.Case(data, sol.selected)).products()
    for trial in range(50):
        order = rng.permutation(30)
        names = [[int(k), 1 - proof["selected"][k]] for k in order]
        weights = rng.random(30) * 10.0 ** rng.integers(-3, 4) if trial % 2 else np.ones(30)
        inverse = [[x.hex() for x in row] for row in np.linalg.inv(A[order[:9]]).tolist()]
        dual = [[*name, float(w).hex()] for name, w in zip(names, weights, strict=True)]
        witness = {"lift": False, "basis": names[:9], "dependent": [], "inverse": inverse}
        assert verdict(proof | {"claim": "infeasible", "dual": dual, "witness": witness}) is None


def test_dependence_that_is_none(infeasible):
    """An equation said to follow from others is one that need not hold."""
    witness = infeasible["witness"]
    fewer = {"basis": witness["basis"][:-1], "inverse": [row[:-1] for row in witness["inverse"][:-1]]}
    for q, t in witness["basis"]:
        for terms in ([[0, 0, 1]], [[0, 0, 1], [0, 1, -1]], [[0, 0, 0]], [[q, t, 1]]):
            assert verdict(infeasible | {"witness": witness | fewer | {"dependent": [terms]}}) is None


def campaign(proofs, count, seed):
    """How many falsified proofs there were of each kind, and which were taken though they say more than the truth."""
    rng = np.random.default_rng(seed)
    counts, taken = collections.Counter(), []
    for k in range(count):
        proof = proofs[rng.integers(len(proofs))]
        kind, made = falsified(proof, rng)
        counts[kind] += 1
        statement, gap = verdict(proof)
        found = verdict(made)  # its statement is the old one: what proves another is refused
        false = found is not None and (found[0] != statement or gap is not None and found[1] < BETTER * gap - ROUNDING)
        if all(made[name] == proof[name] for name in PROBLEM):
            found = verdict(made | {"statement": None})  # the same problem: what it proves must be true
            if found is not None:
                (low, high), (least, most) = interval(found[0]), interval(statement)
                false |= not (low <= most and high >= least)
        if false:
            taken.append((k, kind, found, statement, gap))
    return counts, taken


@pytest.mark.parametrize(("count", "seed"), [(500, 0), slow(10_000, 1)])
def test_falsified_proofs_are_not_taken(proofs, count, seed):
    counts, taken = campaign(proofs, count, seed)
    assert not taken and len(counts) == 5 and min(counts.values()) > count / 10


def test_rounding_may_hide_weights_of_a_large_norm():
    """The selected token is the mean of the others but for 1e-10: W of norm 1.6e10 ranks it first, none shorter."""
    a, b, c = np.array([0, 0.5, 0.5, 1e-10]), np.eye(4)[1], np.eye(4)[2]
    data = attsvm.cross_attention([[a, b, c]], [[1.0]])
    sol = attsvm.solve_svm(data, [0])
    assert sol.status == "infeasible" and "none of Frobenius norm below 1.0e+10" in sol.message
    proof, statement, gap = proved(sol)
    assert gap is None and statement == "every W with these margins has Frobenius norm above 9.99999999e+9"
    assert proof["claim"] == "excluded"
    assert (data.margins(1.6e10 * np.eye(4)[:, 3:], [0])[0, 1:] >= 1).all()
    with pytest.raises(AssertionError, match="the statement is another"):
        check.theorem(json.dumps(proof | {"statement": statement.replace("9e+9", "9e+10")}).encode())
