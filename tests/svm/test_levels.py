"""The SVM of a large vocabulary, by Newton's method in the levels of its contexts."""

import attsvm
import judge
import numpy as np
import pytest
from attsvm.svm import methods, vocabulary
from compare import close
from marks import needs_linux
from problems import Case
from processes import python


def contexts(seed, m=40, V=150, d=24, labels=4, power=1.2, shift=0.0):
    """Contexts of various lengths, a few of whose tokens are popular (as 1 / rank^power)."""
    rng = np.random.default_rng(seed)
    popular = 1 / np.arange(1, V + 1) ** power
    counts = np.zeros((m, V))
    for row in counts:
        row[rng.choice(V, rng.integers(1, labels + 1), p=popular / popular.sum(), replace=False)] = 1
    return rng.standard_normal((m, d)) * rng.lognormal(0, 0.5, (m, 1)) + shift, counts


@pytest.fixture
def always(monkeypatch):
    """Also for vocabularies that the methods in C are faster on."""
    monkeypatch.setattr(methods, "LEVELS_ROWS", 0)


CASES = {
    "popular tokens": {},
    "each as popular": {"power": 0.0},
    "one direction": {"shift": 2.0},
    "more contexts than dimensions": {"m": 60, "d": 16, "labels": 2, "V": 400, "power": 0.5},
    "one context": {"m": 1, "V": 5, "d": 2},
    "few dimensions": {"m": 60, "d": 5},
    "no two tokens alike": {"V": 12, "m": 10, "power": 0.0},
}


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_answer_is_that_of_all_rows(case, several, always, monkeypatch):
    Z, counts = contexts(1, **CASES[case])
    found = attsvm.theory.soft_labels(Z, counts)
    selected = found.selected if several else counts.argmax(axis=1)
    mine = attsvm.solve_svm(found.data, selected)
    assert mine.status == ("infeasible" if case == "few dimensions" else "optimal") and mine.method == "newton"
    # The multipliers of a class are shared by its tokens.
    assert judge.wrong(Case(found.data, selected), mine) in (None, "the certificate is not of order one")
    if mine.W is not None:
        monkeypatch.setattr(methods, "LEVELS_ROWS", np.inf)
        theirs = attsvm.solve_svm(found.data, selected)
        assert theirs.method != "newton"
        close(mine.W, theirs.W, 1e-4)  # the root of both gaps


@pytest.fixture
def problem():
    """Contexts, what they select, its answer; and the steps after which there was first a margin."""
    Z, counts = contexts(2)
    found = attsvm.theory.soft_labels(Z, counts)
    problem = vocabulary._Problem
    seen, bounds = [], problem.bounds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(problem, "bounds", lambda self: (seen.append((self.steps, bounds(self))), seen[-1][1])[1])
        whole = attsvm.solve_svm(found.data, found.selected)
    return found, whole, next(steps for steps, (lower, *_) in seen if lower > 0)


def test_an_iteration_limit_leaves_bounds_that_hold(always, problem):
    found, whole, first = problem
    with pytest.warns(attsvm.ConvergenceWarning):
        some = attsvm.solve_svm(found.data, found.selected, max_iter=first)
    assert some.status == "iteration limit" and some.iterations == first < whole.iterations
    assert 0 < some.margin < whole.margin * (1 + 1e-9) and some.margin_bound > whole.margin * (1 - 1e-9)
    assert 1e-9 < some.gap < np.inf


@pytest.mark.parametrize("where", ["minimise", "_direction"])
def test_ctrl_c_leaves_what_is_known(always, problem, where, monkeypatch):
    found, whole, first = problem
    method = getattr(vocabulary._Problem, where)

    def until_ctrl_c(self, *arguments):
        if self.steps > first:
            raise KeyboardInterrupt
        return method(self, *arguments)

    monkeypatch.setattr(vocabulary._Problem, where, until_ctrl_c)
    with pytest.raises(KeyboardInterrupt) as caught:
        attsvm.solve_svm(found.data, found.selected)
    partial = caught.value.partial
    assert partial.status == "interrupted" and partial.W.shape == whole.W.shape
    assert 0 < partial.margin < whole.margin < partial.margin_bound


@pytest.mark.parametrize(("module", "name", "most"), [(methods, "LEVELS_MOST", 39), (vocabulary, "LARGEST", 1)])
def test_what_takes_much_others_solve(module, name, most, always, monkeypatch):
    monkeypatch.setattr(module, name, most)
    found = attsvm.theory.soft_labels(*contexts(3))
    sol = attsvm.solve_svm(found.data, found.selected)
    assert sol.status == "optimal" and sol.method != "newton"


def test_a_zero_context_and_numbers_far_from_one_are_for_others(always):
    Z, counts = contexts(3)
    sol, far = (
        attsvm.solve_svm(attsvm.theory.soft_labels(scale * Z, counts).data, counts > 0) for scale in (1, 2.0**400)
    )
    assert far.status == "optimal" and far.margin == pytest.approx(2.0**400 * sol.margin, rel=1e-8)
    Z[7] = 0
    zero = attsvm.solve_svm(attsvm.theory.soft_labels(Z, counts).data, counts > 0)
    assert zero.status == "infeasible" and "query 7 is zero" in zero.message


TARGET = """
import attsvm, numpy as np
from pathlib import Path
rng = np.random.default_rng(0)
counts = np.zeros((1000, 50_000))
for row in counts:
    row[rng.choice(50_000, 10, replace=False)] = 1
found = attsvm.theory.soft_labels(rng.standard_normal((1000, 64)) / 8, counts)
sol = attsvm.solve_svm(found.data, found.selected)
assert sol.status == "optimal" and sol.gap <= 1e-9 and sol.method == "newton", sol
# The peak in kilobytes.  (ru_maxrss would count the parent's memory, too.)
assert int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) < 4_000_000
"""


@pytest.mark.slow
@needs_linux
def test_fifty_thousand_tokens_and_a_thousand_contexts():
    assert python("-c", TARGET).returncode == 0
