"""Messages that say what came, what was expected and what to do next."""

import importlib
import sys

import attsvm
import numpy as np
import pytest


def test_half_precision_of_torch():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"X must be an array of a type that NumPy knows, got bfloat16: give X.float"):
        attsvm.self_attention(torch.ones(1, 2, 3, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match=r"X must be something that NumPy can read .* requires grad"):
        attsvm.self_attention(torch.ones(1, 2, 3, requires_grad=True))


def test_one_token_a_sequence_has_nothing_to_separate():
    data = attsvm.cross_attention(np.ones((2, 1, 2)), [[1.0], [2.0]])
    text = repr(attsvm.diagnose(attsvm.Problem(data, None, attsvm.LinearHead([1.0, 0.0]))))
    assert "nothing to separate: every query sees one token" in text and "inf" not in text.split("step size")[0]
    assert "every W: all tokens that a query sees score the same" in text and "nothing to prove" in text


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({"C": 1.0}, "the slack of rows that no W changes"),
        ({"margins": [[1.0, -np.inf]]}, "zero weights reach every margin asked"),
        ({"metric": [[2.0]]}, "C=1.0) allows for exceptions"),
        ({"norm": "nuclear"}, "among the selected tokens"),
        ({"selected": [[True, True]], "margins": [[0.0, 1.0]]}, "as margins asks"),
    ],
)
def test_exceptions_are_offered_where_they_help(options, end):
    """A copy of the selected token."""
    data = attsvm.cross_attention([[[1.0], [1.0]]], [[1.0]])
    assert attsvm.solve_svm(data, **{"selected": [0]} | options).message.endswith(end)


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("pandas", lambda sol: sol.to_dataframe()),
        ("matplotlib", lambda sol: sol.plot()),
        ("joblib", lambda sol: attsvm.replicate(lambda rng: {"a": 1.0}, runs=1, n_jobs=2)),
    ],
)
def test_a_missing_package_is_named_with_its_command(sphere, monkeypatch, package, call):
    sol = attsvm.solve_svm(sphere().data, [0] * 6)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"needs {package}: pip install {package}"):
        call(sol)


@pytest.mark.parametrize("name", ["Gradient", "Plane", "Replicated", *attsvm.theory.__all__])
def test_a_name_that_moved_says_where_it_is(name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': it is attsvm") as caught:
        getattr(attsvm, name)
    module, _, last = str(caught.value).split("it is ")[1].removesuffix(" now").rpartition(".")
    assert hasattr(importlib.import_module(module), last)
