"""Workers that no sequence is left for: they change no answer, and learn it."""

import attsvm
import numpy as np
import pytest
from compare import reloaded, same_run
from network import Network

RNG = np.random.default_rng(8)
X, Z, V = RNG.standard_normal((6, 6, 5)), RNG.standard_normal((6, 4)), RNG.uniform(0.5, 1, (6, 5))
Y, CLASSES, STARTS = RNG.choice([-1, 1], 6), RNG.integers(0, 3, 6), RNG.standard_normal((3, 5, 4))
FIRST, REST, NONE = slice(0, 4), slice(4, 6), slice(6, 6)
PLACES = [0, 2]  # of the empty shard among the workers


def problem(rows, head=None, **more):
    return attsvm.Problem(attsvm.cross_attention(X[rows], Z[rows]), Y[rows], head or attsvm.LinearHead(V[0]), **more)


def only_its_own(o):
    """A head written for the queries of its worker: it takes no others."""
    assert len(o) in (2, 4, 6)
    return np.sin(o).sum(axis=1), np.cos(o)


def minus_log(u):
    assert (u > 0).all()
    return -np.log(u)


def positive(rows, loss):
    return attsvm.Problem(attsvm.cross_attention(np.abs(X[rows]), Z[rows]), None, attsvm.LinearHead(V[0]), loss)


# How the shard of some rows is trained, each: the problem of these rows, and the other arguments.
TRAINED = {
    "attention heads": (lambda r: problem(r, attsvm.MLPHead(np.eye(5)), heads=2), dict(W=STARTS[:2], train_head=True)),
    "quadratic": (lambda r: problem(r, attsvm.QuadraticHead(V[0], 0.2)), dict(train_head=True)),
    "v of each": (lambda r: problem(r, attsvm.LinearHead(V[r])), {}),
    "classes": (lambda r: problem(r, attsvm.SoftmaxHead(V[:3].T, CLASSES[r])), {}),
    "callable": (lambda r: problem(r, attsvm.CallableHead(only_its_own)), {}),
    "own loss": (lambda r: positive(r, (minus_log, lambda u: -1 / u)), {}),
    "log": (lambda r: positive(r, "log"), {}),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", list(TRAINED))
def test_training_is_that_of_the_others(kind, place, monkeypatch):
    make, options = TRAINED[kind]
    parts, options = [make(FIRST), make(REST)], options | dict(steps=30, record=10)
    parts.insert(place, make(NONE))
    network = Network(3)
    network.in_order(monkeypatch)
    runs = network.apart(attsvm.train, [{"problem": part} for part in parts], **options)
    expected = attsvm.train(make(slice(0, 6)), **options)
    for run in runs:
        same_run(run, expected)
    assert np.size(runs[place].selected) == 0 and "completed" in repr(runs[place])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "max", "spectral", 1.5, 3.0, "several tokens"])
def test_the_svm_is_that_of_the_others(norm, place, monkeypatch):
    """To the last digit: the working set is the same."""
    found, parts = [], [FIRST, REST]
    kept, norm = (np.arange(6) < 2, "frobenius") if norm == "several tokens" else (None, norm)

    def solve(rows, reduce):
        data, best = problem(rows).data, problem(rows).optimal
        return attsvm.solve_svm(data, best if kept is None else np.tile(kept, (len(best), 1)), norm, reduce=reduce)

    for rows in (parts, [*parts[:place], NONE, *parts[place:]]):
        network = Network(len(rows))
        network.in_order(monkeypatch)
        found.append(network.apart(solve, [{"rows": some} for some in rows]))
    (expected, _), answers = found
    for sol in answers:
        np.testing.assert_array_equal(sol.W, expected.W)
        assert (sol.status, sol.margin, sol.margin_bound) == ("optimal", expected.margin, expected.margin_bound)
    assert answers[place].dual.shape == answers[place].support.shape == (0, 6)


@pytest.mark.parametrize("float_type", [np.float64, np.float32])
def test_results_are_empty_in_the_shape_of_the_data(float_type):
    empty = X[NONE].astype(float_type)
    several = attsvm.cross_attention(empty, np.empty((0, 3, 4)), np.empty((0, 6, 2)))
    for data, shape, dv in (
        (several, (0, 3, 6), 2),
        (attsvm.self_attention(empty), (0, 6), 5),
        (attsvm.self_attention(empty, query=None), (0, 6, 6), 5),
        (attsvm.causal_attention(empty, window=2), (0, 6, 6), 5),
        (attsvm.prompt_attention(empty, key=np.ones((4, 5))), (0, 6), 5),
    ):
        W = np.ones((data.dk, data.dz))
        assert len(data) == 0 and "no queries" in repr(data)
        assert data.probabilities(W).shape == data.margins(W, data.select(W)).shape == shape
        assert data.select(W).shape == shape[:-1]
        assert data.attended(W, hard=True).shape == data.attended(W).shape == (*shape[:-1], dv)
        sol = attsvm.solve_svm(data, data.select(W), reduce=lambda a: None)
        assert sol.status == "no constraint" and reloaded(sol) == sol
    assert (data.dk, data.dz) == (4, 1)


ALONE = {
    "train": attsvm.train,
    "solve_svm": lambda p: attsvm.solve_svm(p.data, p.optimal),
    "feasible": lambda p: attsvm.feasible(p.data, p.optimal),
    "diagnose": attsvm.diagnose,
    "label_svm": attsvm.theory.label_svm,
    "regularization_path": lambda p: attsvm.regularization_path(p, [1.0]),
    "infimum": attsvm.Problem.infimum,
} | {name: lambda p, name=name: getattr(p, name)(STARTS[0]) for name in ("loss", "loss_and_grad", "multipliers")}


@pytest.mark.parametrize("name", ALONE)
def test_one_process_has_nothing_to_train_on(name):
    with pytest.raises(ValueError, match="must have sequences: without any they go with reduce alone"):
        ALONE[name](problem(NONE))


def test_nobody_has_anything_to_train_on():
    with pytest.raises(ValueError, match="reduce needs queries on one worker at least"):
        attsvm.train(problem(NONE), reduce=lambda a: None)
