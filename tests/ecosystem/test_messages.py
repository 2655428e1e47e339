"""Messages that say what to do next."""

from __future__ import annotations

import sys

import attsvm
import numpy as np
import pytest


@pytest.fixture
def problem(sphere):
    return sphere().problem


def test_undecided_probabilities_are_counted(sphere):
    data = sphere().data
    half = np.full((6, 8), 1e-4)
    half[:, 0] = 1 - 7e-4
    with pytest.raises(ValueError, match=r"got 6 queries with one in between \(the first is query 0\): train longer"):
        attsvm.decompose(data, half, np.eye(10))
    half[1:, 1:], half[1:, 0] = 0, 1
    with pytest.raises(ValueError, match=r"got 1 query with one in between \(the first is query 0\)"):
        attsvm.decompose(data, half, np.eye(10))


def test_a_selection_that_is_none(sphere):
    with pytest.raises(TypeError, match=r"\(one token per query\) or bools \(per entry\), got NoneType"):
        attsvm.solve_svm(sphere().data, None)


def test_a_tuple_of_another_length(sphere):
    head = attsvm.CallableHead(lambda o: (o[:, 0], o, o))
    with pytest.raises(TypeError, match=r"must return a tuple \(value, gradient\), got a tuple of 3"):
        attsvm.train(attsvm.Problem(sphere().data, None, head), steps=1)


def test_half_precision_of_torch():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"X must be an array of a type that NumPy knows, got bfloat16: give X.float"):
        attsvm.self_attention(torch.ones(1, 2, 3, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match=r"X must be something that NumPy can read .* requires grad"):
        attsvm.self_attention(torch.ones(1, 2, 3, requires_grad=True))


def test_an_array_of_arrays():
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.ones((2, 3)), np.ones((1, 3))]
    with pytest.raises(TypeError, match="got an array of objects: give arrays of different lengths as a list"):
        attsvm.self_attention(ragged)


def test_labels_0_and_1(sphere):
    data = sphere().data
    with pytest.raises(ValueError, match=r"y must hold labels -1 and \+1 only, got 0: from labels 0 and 1 make 2 \* y"):
        attsvm.Problem(data, [0, 1, 1, 0, 1, 0], attsvm.LinearHead(np.ones(10)))
    with pytest.raises(ValueError, match=r"only, got 3$"):
        attsvm.Problem(data, [3, 1, 1, 0, 1, 0], attsvm.LinearHead(np.ones(10)))


def test_what_cannot_be_separated_names_the_way_out():
    data = attsvm.cross_attention(np.ones((1, 2, 2)), [[1.0]])
    assert attsvm.solve_svm(data, [0]).message.endswith("solve_svm(..., C=1.0) allows for exceptions")


def test_a_file_with_other_columns(tmp_path):
    pytest.importorskip("joblib")
    file = tmp_path / "runs.csv"
    attsvm.replicate(lambda rng: {"a": rng.random()}, runs=2, file=file, progress=False)
    with pytest.raises(ValueError, match=r"runs.csv holds the same numbers as a, but the experiment returns b: give"):
        attsvm.replicate(lambda rng: {"b": rng.random()}, runs=2, file=file, progress=False)


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
    sol = attsvm.solve_svm(sphere().data, [0] * 6)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"needs {package}: pip install {package}"):
        call(sol)


def test_what_goes_on_is_logged_for_those_who_ask(problem, caplog):
    with caplog.at_level("DEBUG", logger="attsvm"):
        run = attsvm.train(problem, steps=30)
        attsvm.solve_svm(problem.data, run.selected)
    assert [record.name for record in caplog.records] == ["attsvm.training.train", "attsvm.svm.methods"]
    assert caplog.messages[0] == "normalized rule, 30 of 30 steps: done"
    assert caplog.messages[1].startswith("frobenius norm, active on 42 rows: optimal after ")


@pytest.mark.parametrize("given, shown", [("1", "'1'"), (None, "None")])
def test_a_number_is_asked_for_as_one(sphere, given, shown):
    with pytest.raises(TypeError, match=f"^tol must be a number, got {shown}$"):
        attsvm.solve_svm(sphere().data, [0] * 6, tol=given)


def test_what_was_meant_is_said(sphere):
    s = sphere()
    for call, words in (
        (lambda: attsvm.solve_svm(s.problem, [0] * 6), "got Problem: pass its .data"),
        (lambda: attsvm.Problem(s.data, s.y > 0, s.problem.head), r"bool: give numbers, np.where\(condition"),
        (lambda: attsvm.solve_svm(s.data, [0] * 6, "fro"), "got 'fro': say 'frobenius'"),
        (lambda: attsvm.solve_svm(s.data, [0] * 6, "nuc"), "got 'nuc': say 'nuclear'"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            call()


def test_heads_show_their_public_names():
    assert dir(attsvm.heads) == sorted(attsvm.heads.__all__)


def test_a_run_a_w_and_a_loss_in_the_wrong_place_are_told_what_is_right():
    X, Z, y, v = attsvm.sample.unit_sphere(4, 3, 5)
    data = attsvm.cross_attention(X, Z)
    problem = attsvm.Problem(data, y, attsvm.LinearHead(v))
    run = attsvm.train(problem, steps=2)
    with pytest.raises(TypeError, match="W must be an array of numbers, got Run: give its W"):
        attsvm.train(problem, run)
    with pytest.raises(TypeError, match=r"got float64: weights W select data.select\(W\)"):
        attsvm.diagnose(problem, run.W)
    with pytest.raises(TypeError, match=r"or \(value, derivative\), got a function alone"):
        attsvm.Problem(data, y, attsvm.LinearHead(v), np.exp)
