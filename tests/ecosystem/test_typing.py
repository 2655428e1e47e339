"""What a type checker says of a user's script, and that the listed words are those the package knows."""

from pathlib import Path
from typing import get_args

import attsvm
import pytest
from attsvm import _core
from attsvm.common import types
from attsvm.common.check import NORMS
from attsvm.rules import BY_WORD, Word
from processes import python
from test_site import PAGES, blocks

GOOD = """
import attsvm
import numpy as np

X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10, rng=np.random.default_rng(0))
data: attsvm.Data = attsvm.cross_attention(X.tolist(), Z)
ragged = attsvm.self_attention([np.ones((2, 3)), np.ones((4, 3))], query=None)
problem = attsvm.Problem(data, y, attsvm.LinearHead(v), loss="exponential")
run: attsvm.Run = attsvm.train(problem, rule=attsvm.rules.mirror(p=3.0), lr=[0.1] * 20, steps=20, record=5)
sol: attsvm.Separation = attsvm.solve_svm(data, run.selected, norm="nuclear", method="interior")
again = attsvm.solve_svm(data, [0] * 6, 3.0, warm_start=sol, tol=1e-6)
margin: float = again.margin
W = sol.W
assert W is not None
chosen = sol.select(data)
path: attsvm.theory.Path = attsvm.regularization_path(problem, np.geomspace(1, 10, 3), norm="nuclear")
found: attsvm.theory.Diagnosis = attsvm.diagnose(problem, norm="frobenius")
values: dict[str, object] = found.to_dict()
sol.save("sol.npz")
threads: int = attsvm.get_num_threads()
equal: bool = sol == again
"""

# Each line alone must be refused.
BAD = [
    'attsvm.solve_svm(data, [0], norm="nuc")',
    'attsvm.solve_svm(data, [0], method="fast")',
    'attsvm.diagnose(problem, norm="l2")',
    'attsvm.train(problem, rule="no rule")',
    'attsvm.train(problem, ball="nuclear")',
    'attsvm.train(problem, ball=("l1", 1.0))',
    "attsvm.train(problem, rule=attsvm.rules.adam)",
    'attsvm.Problem(data, None, attsvm.LinearHead([1.0]), loss="no loss")',
    'attsvm.Problem(data, None, attsvm.LinearHead([1.0]), combine="mean")',
    "attsvm.regularization_path(problem, [1.0], norm=3.0)",
    "attsvm.solve_svm(problem, [0])",
    "attsvm.train(data)",
    "attsvm.train(problem, steps='many')",
    "attsvm.set_num_threads('all')",
    "attsvm.solve_svm(data, [0]).weights",
]


def run_mypy(*paths):
    return python(
        "-m",
        "mypy",
        "--config-file=",  # a user's script knows nothing of the repository's settings
        "--strict",
        "--no-error-summary",
        "--follow-imports=silent",
        "--disable-error-code=no-untyped-def",  # examples say nothing of the types of their own functions
        "--disable-error-code=no-untyped-call",
        *paths,
    ).stdout.splitlines()


@pytest.mark.slow
def test_a_users_script_under_mypy_strict(tmp_path, monkeypatch):
    pytest.importorskip("mypy")
    package = Path(attsvm.__file__).parent.parent
    if package.name != "site-packages":  # where mypy looks by itself, and refuses to be told
        monkeypatch.setenv("MYPYPATH", str(package))
    shown = [code for page in PAGES for code in blocks(page) if not code.startswith("# needs:")]
    good = [tmp_path / f"good_{number}.py" for number in range(len(shown) + 1)]
    for path, code in zip(good, [GOOD, *shown], strict=True):
        path.write_text(code)
    assert run_mypy(*good) == []
    bad = tmp_path / "bad.py"
    head = ["import attsvm", "", "def check(data: attsvm.Data, problem: attsvm.Problem) -> None:"]
    bad.write_text("\n".join([*head, *(f"    {line}" for line in BAD)]) + "\n")
    refused = {int(line.split(":")[1]) for line in run_mypy(bad) if ": error:" in line}
    assert not [line for number, line in enumerate(BAD, len(head) + 1) if number not in refused]


def test_the_words_are_those_the_package_knows():
    assert set(get_args(types.Loss)) == set(_core.LOSS)
    assert set(get_args(types.Ball)) == set(_core.BALL)
    assert set(_core.UPDATE_RULE) == set(get_args(Word)) == set(BY_WORD)
    words = {word for part in get_args(types.Norm) for word in get_args(part)}
    assert words == set(NORMS)
