"""Ctrl-C within a second, in long factorisations too, with an answer as far as it came.

Delays are CPU time between the signal and its handler: nothing else that the machine does counts.
"""

from __future__ import annotations

import warnings

import attsvm
import numpy as np
import pytest
from interrupt import interrupt_after


def random_data(n, T, dk, dz=None, seed=0):
    rng = np.random.default_rng(seed)
    return attsvm.cross_attention(rng.standard_normal((n, T, dk)), rng.standard_normal((n, dz or dk))), rng


def planted(n, T, d):
    data, rng = random_data(n, T, d)
    return data, data.select(rng.standard_normal((d, d)))


def pairs(n, T, d):
    """Two selected tokens in every window, of equal logits under some W or not."""
    data, rng = random_data(n, T, d)
    return data, np.argsort(rng.random((n, T)), axis=1) < 2


# Each takes several seconds when nobody interrupts it, nearly all of them in what the name says.
LONG = {
    "rows of the entrywise norm": (lambda: planted(300, 24, 90), {"norm": 3.0}),
    "weights of the entrywise norm": (lambda: planted(700, 10, 50), {"norm": 1.3}),
    "interior point on rows": (lambda: planted(200, 32, 90), {"method": "interior"}),
    "interior point on weights": (lambda: planted(700, 12, 56), {"method": "interior"}),
    "equality rows": (lambda: pairs(2500, 3, 80), {}),
    "active set": (lambda: planted(250, 30, 120), {"method": "active"}),
    "block ascent": (lambda: planted(400, 64, 24), {"method": "block", "tol": 1e-15, "max_iter": 10**9}),
    "soft margin": (lambda: planted(128, 40, 64), {"C": 1e4, "method": "interior"}),
    "nuclear norm": (lambda: planted(60, 40, 90), {"norm": "nuclear"}),
    "row generation": (lambda: planted(2000, 300, 24), {}),
    "rank cap": (lambda: planted(100, 20, 60), {"norm": "nuclear", "rank": 2}),
}


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.3, 1.1])
@pytest.mark.parametrize("name", LONG)
def test_every_long_call_answers_within_a_second(name, after):
    make, how = LONG[name]
    data, selected = make()
    with warnings.catch_warnings(), interrupt_after(after) as late:
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
        try:
            attsvm.solve_svm(data, selected, **how)
        except KeyboardInterrupt as interrupt:
            partial = interrupt.partial
        else:
            pytest.skip("this machine had finished by then")
    assert late[0] < 1
    assert isinstance(partial, attsvm.Separation) and partial.status in repr(partial)
    assert partial.W is None or np.isfinite(partial.W).all()
    assert 0 <= partial.margin <= partial.margin_bound or "C" in how


def test_a_factorisation_is_interrupted_and_leaves_what_was_known():
    """A system of 5,000 rows: seconds of Cholesky, in panels that ask."""
    data, selected = planted(210, 25, 80)
    with interrupt_after(0.2) as late:
        with pytest.raises(KeyboardInterrupt) as stopped:
            attsvm.solve_svm(data, selected, norm=1.5)
    assert late[0] < 1
    partial = stopped.value.partial
    assert partial.status in ("interrupted", "undecided") and "nothing" not in repr(partial)


def test_a_start_of_many_rows_is_interrupted():
    """2,500 rows join the active set one by one, which takes seconds; 576 unknowns, so most of them leave again."""
    data, rng = random_data(1500, 20, 24)
    selected = data.select(rng.standard_normal((24, 24)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
        start = attsvm.solve_svm(data, selected, method="block", max_iter=6).dual
    assert (start > 0).sum() > 2000
    for after in (0.1, 0.4):
        with interrupt_after(after) as late, pytest.raises(KeyboardInterrupt) as stopped:
            attsvm.solve_svm(data, selected, method="active", warm_start=start)
        assert late[0] < 0.5 and stopped.value.partial.status == "interrupted"


@pytest.mark.parametrize("method", ["interior", "gradient", "block"])
def test_equality_rows_are_interrupted_before_any_bound_is_known(method):
    """Their factor comes before the method begins: nothing is known of the margin yet, neither bound."""
    data, selected = pairs(2500, 3, 80)
    with interrupt_after(0.1) as late, pytest.raises(KeyboardInterrupt) as stopped:
        attsvm.solve_svm(data, selected, method=method)
    assert late[0] < 1
    partial = stopped.value.partial
    assert partial.status == "interrupted" and partial.W is None
    assert partial.margin == 0 and partial.margin_bound == np.inf


@pytest.mark.parametrize("norm", ["max", "spectral", "nuclear"])
def test_bounds_are_those_of_the_norm_wherever_a_solve_is_interrupted(norm):
    """Early it is in the Frobenius problem, which every norm begins with: its solution proves a margin in any norm."""
    data, selected = planted(700, 60, 50)
    W = attsvm.solve_svm(data, selected).W
    proven = 1 / (np.abs(W).max() if norm == "max" else np.linalg.norm(W, 2 if norm == "spectral" else "nuc"))
    with interrupt_after(0.05) as late, pytest.raises(KeyboardInterrupt) as stopped:
        attsvm.solve_svm(data, selected, norm)
    assert late[0] < 1
    assert stopped.value.partial.margin_bound >= proven * (1 - 1e-8)  # the rows of W hold to 1e-9


@pytest.mark.parametrize("place", ["cycle", "_call", "Separation"])
def test_python_between_the_calls_has_a_partial_too(place, monkeypatch):
    data, selected = planted(300, 4, 3)
    whole = attsvm.solve_svm(data, selected)
    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if place == "Separation" and len(calls) > 1:
            return kept(*arguments)
        raise KeyboardInterrupt

    kept = getattr(attsvm.svm.methods, place)
    monkeypatch.setattr(attsvm.svm.methods, place, interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        attsvm.solve_svm(data, selected)
    partial = stopped.value.partial
    assert partial.status == "undecided" and partial.W is None
    assert partial.margin == 0 and partial.margin_bound >= whole.margin
