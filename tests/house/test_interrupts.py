"""Ctrl-C within a second, in long factorisations too, with an answer as far as it came.

Delays are CPU time between the signal and its handler: nothing else that the machine does counts.
"""

import attsvm
import judge
import numpy as np
import pytest
from interrupt import interrupt_after
from long_solves import LONG
from marks import slow
from problems import gaussian

# Interrupted early: in a Cholesky factor of 5,000 rows, in panels that ask; in that of the equality rows, before the
# method begins; in the Frobenius problem, which every norm begins with, and whose solution proves a margin in any norm.
EARLY = {
    "a factorisation": (lambda: gaussian(0, 210, 25, 80), {"norm": 1.5}),
    **{
        f"equality rows, {name}": (LONG["equality rows"][0], {"method": name})
        for name in ("interior", "gradient", "block")
    },
    **{f"{norm} norm": (lambda: gaussian(0, 700, 60, 50), {"norm": norm}) for norm in ("max", "spectral", "nuclear")},
}
SOON = {**dict.fromkeys(EARLY, 0.05), "a factorisation": 0.2, "block ascent": 0.25, "projected gradient": 0.25}
pytestmark = pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
SLOW = [slow(name, after) for name in LONG for after in (0.3, 1.1)]


@pytest.mark.parametrize(("name", "after"), [*SOON.items(), *SLOW])
def test_every_long_call_answers_within_a_second(name, after):
    """With the best pair so far, whose bounds are true in the norm; where nothing is known yet, neither bound is."""
    make, how = (LONG | EARLY)[name]
    case = make()
    with interrupt_after(after) as late:
        try:
            attsvm.solve_svm(case.data, case.selected, **{"tol": 1e-15} | how)
        except KeyboardInterrupt as interrupt:
            partial = interrupt.partial
        else:
            pytest.skip("this machine had finished by then")
    assert late[0] < 1
    assert isinstance(partial, attsvm.Separation) and "nothing" not in repr(partial)
    assert partial.status == "undecided" or partial.status == "interrupted" and "stopped" in partial.message
    if name in EARLY and name.startswith("equality rows"):
        assert partial.W is None and partial.margin == 0 and partial.margin_bound == np.inf
    assert 0 <= partial.margin <= partial.margin_bound or "C" in how
    if case.data.indptr[-1] < 50_000:
        assert judge.wrong(case, partial) is None


def test_a_start_of_many_rows_is_interrupted():
    """2,500 rows join the active set one by one, which takes seconds; 576 unknowns, so most of them leave again."""
    case = gaussian(0, 1500, 20, 24)
    start = attsvm.solve_svm(case.data, case.selected, method="block", max_iter=6).dual
    assert (start > 0).sum() > 2000
    for after in (0.1, 0.4):
        with interrupt_after(after) as late, pytest.raises(KeyboardInterrupt) as stopped:
            attsvm.solve_svm(case.data, case.selected, method="active", warm_start=start)
        assert late[0] < 0.5 and stopped.value.partial.status == "interrupted"


@pytest.mark.parametrize("place", ["cycle", "_call", "Separation"])
def test_python_between_the_calls_has_a_partial_too(place, monkeypatch):
    case = gaussian(0, 300, 4, 3)
    whole = attsvm.solve_svm(case.data, case.selected)
    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if place == "Separation" and len(calls) > 1:
            return kept(*arguments)
        raise KeyboardInterrupt

    kept = getattr(attsvm.svm.methods, place)
    monkeypatch.setattr(attsvm.svm.methods, place, interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        attsvm.solve_svm(case.data, case.selected)
    partial = stopped.value.partial
    assert partial.status == "undecided" and partial.W is None
    assert partial.margin == 0 and partial.margin_bound >= whole.margin
