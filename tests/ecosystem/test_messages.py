"""Messages that say what came, what was expected and what to do next."""

from __future__ import annotations

import importlib
import sys

import attsvm
import numpy as np
import pytest

HALF = np.full((6, 8), 1e-4)
HALF[:, 0] = 1 - 7e-4
ONE_HALF = np.where(np.arange(6)[:, None] > 0, np.eye(8)[0], HALF)
RAGGED = np.empty(2, dtype=object)
RAGGED[:] = [np.ones((2, 3)), np.ones((1, 3))]


def labelled(s, y):
    return attsvm.Problem(s.data, y, s.problem.head)


def solved(s, selected=(0,) * 6, *args, data=None, **options):
    return attsvm.solve_svm(data or s.data, selected, *args, **options)


MESSAGES = {
    "Z must have shape (n, dz) = (6, dz), got (5, 10)": lambda s: attsvm.cross_attention(s.X, np.ones((5, 10))),
    "W must have shape (dk, dz) = (10, 10), got (2, 3)": lambda s: s.data.logits(np.ones((2, 3))),
    "X must be finite, got nan at (0, 0, 0)": lambda s: attsvm.causal_attention([[[np.nan]]]),
    "lr must have shape (steps,) = (3,), got (1,)": lambda s: attsvm.train(s.problem, lr=[1.0], steps=3),
    "got 6 queries with one in between (the first is query 0): train longer": lambda s: attsvm.theory.decompose(
        s.data, HALF, np.eye(10)
    ),
    "got 1 query with one in between (the first is query 0)": lambda s: attsvm.theory.decompose(
        s.data, ONE_HALF, np.eye(10)
    ),
    "(one token per query) or bools (per entry), got NoneType": lambda s: solved(s, None),
    "must return a tuple (value, gradient), got a tuple of 3": lambda s: attsvm.Problem(
        s.data, None, attsvm.CallableHead(lambda o: (o[:, 0], o, o))
    ).loss(np.eye(10)),
    "got an array of objects: give arrays of different lengths as a list": lambda s: attsvm.self_attention(RAGGED),
    "y must hold labels -1 and +1 only, got 0: from labels 0 and 1 make 2 * y": lambda s: labelled(s, [0, 1] * 3),
    "y must hold labels -1 and +1 only, got 3": lambda s: labelled(s, [3, 1] * 3),
    "bool: give numbers, np.where(condition": lambda s: labelled(s, s.y > 0),
    "tol must be a number, got '1'": lambda s: solved(s, tol="1"),
    "tol must be a number, got None": lambda s: solved(s, tol=None),
    "got Problem: pass its .data": lambda s: solved(s, data=s.problem),
    "got 'fro': say 'frobenius'": lambda s: solved(s, (0,) * 6, "fro"),
    "got 'nuc': say 'nuclear'": lambda s: solved(s, (0,) * 6, "nuc"),
    "W must be an array of numbers, got Run: give its W": lambda s: attsvm.train(
        s.problem, attsvm.train(s.problem, steps=2)
    ),
    "got float64: weights W select data.select(W)": lambda s: attsvm.diagnose(s.problem, np.eye(10)),
    "or (value, derivative), got a function alone": lambda s: attsvm.Problem(s.data, s.y, s.problem.head, np.exp),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_what_came_what_was_expected_and_what_to_do(message, sphere):
    with pytest.raises((TypeError, ValueError)) as caught:
        MESSAGES[message](sphere())
    assert message in str(caught.value)


def test_half_precision_of_torch():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"X must be an array of a type that NumPy knows, got bfloat16: give X.float"):
        attsvm.self_attention(torch.ones(1, 2, 3, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match=r"X must be something that NumPy can read .* requires grad"):
        attsvm.self_attention(torch.ones(1, 2, 3, requires_grad=True))


def test_what_cannot_be_separated_names_the_way_out():
    data = attsvm.cross_attention(np.ones((1, 2, 2)), [[1.0]])
    assert attsvm.solve_svm(data, [0]).message.endswith("solve_svm(..., C=1.0) allows for exceptions")


def test_one_token_a_sequence_has_nothing_to_separate():
    data = attsvm.cross_attention(np.ones((2, 1, 2)), [[1.0], [2.0]])
    text = repr(attsvm.diagnose(attsvm.Problem(data, None, attsvm.LinearHead([1.0, 0.0]))))
    assert "nothing to separate: every query sees one token" in text and "inf" not in text.split("step size")[0]
    assert "every W: all tokens that a query sees score the same" in text


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("pandas", lambda sol: sol.to_dataframe()),
        ("matplotlib", lambda sol: sol.plot()),
        ("joblib", lambda sol: attsvm.replicate(lambda rng: {"a": 1.0}, runs=1, n_jobs=2)),
    ],
)
def test_a_missing_package_is_named_with_its_command(sphere, monkeypatch, package, call):
    sol = solved(sphere())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"needs {package}: pip install {package}"):
        call(sol)


@pytest.mark.parametrize("name", ["Gradient", "Plane", "Replicated", *attsvm.theory.__all__])
def test_a_name_that_moved_says_where_it_is(name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': it is attsvm") as caught:
        getattr(attsvm, name)
    module, _, last = str(caught.value).split("it is ")[1].removesuffix(" now").rpartition(".")
    assert hasattr(importlib.import_module(module), last)
