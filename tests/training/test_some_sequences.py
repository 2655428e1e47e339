"""Parts of data and problems: as if made of those sequences alone, of keys that are not copied."""

import attsvm
import numpy as np
import pytest
from attsvm.common.storage import same
from compare import reloaded

LENGTHS = np.array([3, 1, 5, 2, 5, 4])
INDICES = {
    "list": [4, 0, 2],
    "twice": np.array([3, 3, -1]),
    "slice": slice(None, None, -2),
    "bool": np.array([True, False, False, True, True, False]),
}
rng = np.random.default_rng(0)
X = [rng.standard_normal((T, 3)) for T in LENGTHS]
Z, FEW, MANY = (rng.standard_normal((6, *shape)) for shape in ((2,), (4, 2), (5, 2)))
EQUAL = rng.standard_normal((6, 5, 3))
VALUES = [rng.standard_normal((T, 3)) for T in LENGTHS]
KINDS = {
    "cross": lambda at: attsvm.cross_attention(EQUAL[at], Z[at]),
    "several queries": lambda at: attsvm.cross_attention([X[i] for i in at], FEW[at], [VALUES[i] for i in at]),
    "uneven queries": lambda at: attsvm.cross_attention(EQUAL[at], [MANY[i, : LENGTHS[i]] for i in at]),
    "float32": lambda at: attsvm.self_attention(EQUAL[at].astype(np.float32)),
    "every token": lambda at: attsvm.self_attention([X[i] for i in at], query=None),
    "causal": lambda at: attsvm.causal_attention([X[i] for i in at]),
    "window": lambda at: attsvm.causal_attention([X[i] for i in at], window=2),
    "prompt": lambda at: attsvm.prompt_attention(EQUAL[at], np.eye(3)[::-1]),
}
OWN = {
    "shared": lambda v: attsvm.LinearHead([1.0, -2.0, 0.5]),
    "linear": attsvm.LinearHead,
    "quadratic": lambda v: attsvm.QuadraticHead(v, 0.3),
    "classes": lambda v: attsvm.SoftmaxHead(np.eye(3), classes_of(v)),
    "callable": lambda v: attsvm.CallableHead(lambda o: ((o**2).sum(axis=1), 2 * o)),
}


def classes_of(v):
    return [classes_of(part) for part in v] if isinstance(v, list) else np.abs(v).argmax(axis=-1)


def taken(per_query, at):
    """Per-query arrays in the shape of the data, of some sequences."""
    parts = [per_query[i] for i in at]
    return np.array(parts) if len({np.shape(part) for part in parts}) == 1 else parts


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_part_is_what_is_made_of_those_sequences(kind, index):
    at = np.arange(6)[INDICES[index]]
    whole, expected = KINDS[kind](np.arange(6)), KINDS[kind](at)
    part = whole[INDICES[index]]
    assert np.shares_memory(part.keys, whole.keys) and np.shares_memory(part.values, whole.values)
    assert len(part) == len(expected) and part.lengths.tolist() == expected.lengths.tolist()
    W = rng.standard_normal((whole.dk, whole.dz))
    for result in ("logits", "probabilities", "attended", "select"):
        assert same(getattr(part, result)(W), getattr(expected, result)(W))
    solution, of_part = (attsvm.solve_svm(data, expected.select(W)) for data in (expected, part))
    for sol in (of_part, reloaded(of_part)):
        assert same((sol.W, sol.dual), (solution.W, solution.dual))


@pytest.mark.parametrize("head", OWN)
@pytest.mark.parametrize("kind", ["cross", "uneven queries", "causal"])
def test_labels_and_heads_go_along(kind, head):
    whole, at = KINDS[kind](np.arange(6)), [4, 0, 2]
    y, v = np.sign(rng.standard_normal(len(whole))), rng.standard_normal((len(whole), 3))
    y, v = map(whole._layout.shape_queries, (y, v))
    problem = attsvm.Problem(whole, y, OWN[head](v), "linear" if head == "classes" else "exponential")
    own = attsvm.Problem(KINDS[kind](np.array(at)), taken(y, at), OWN[head](taken(v, at)), problem._state()["loss"])
    W = rng.standard_normal((whole.dk, whole.dz))
    (loss, gradient), expected = problem[at].loss_and_grad(W), own.loss_and_grad(W)
    assert loss == pytest.approx(expected[0], rel=1e-14)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-12, atol=1e-15)
    each = [problem[[i]] for i in range(6)]  # the mean of the whole, from its sequences one by one
    assert problem.loss(W) == pytest.approx(sum(len(p.data) * p.loss(W) for p in each) / len(whole), rel=1e-13)


def test_heads_and_losses_of_ones_own_go_along():
    own = (lambda u: np.exp(-2 * u)), (lambda u: -2 * np.exp(-2 * u))
    whole, part = (
        attsvm.Problem(KINDS["cross"](np.array(at)), None, attsvm.MLPHead(np.eye(3)), own, heads=2)
        for at in (range(6), [5, 1])
    )
    W = rng.standard_normal((2, 3, 2))
    assert whole[[5, 1]].loss(W) == pytest.approx(part.loss(W), rel=1e-14)


def test_a_part_costs_its_own_tokens_alone():
    """Of many tokens in memory, a few sequences: nothing of the length of all is made or read."""
    import tracemalloc

    tokens = np.zeros((50_000, 4, 8))
    data = attsvm.cross_attention(tokens, np.ones((50_000, 2)), copy=False)
    problem = attsvm.Problem(data, None, attsvm.LinearHead(np.ones(8)))
    problem[[0]]
    tracemalloc.start()
    problem[[7, 40_000]].loss_and_grad(np.zeros((8, 2)))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3 * 50_000 * 8  # the layout's own numbers: bytes of a few integers per sequence


@pytest.mark.parametrize(
    ("index", "error", "match"),
    [
        ("two", TypeError, "index must be an integer, a slice, a list of integers or an array of bool, got str"),
        ([0.5], TypeError, "index must be .* got list"),
        ([[1]], TypeError, r"got an array of shape \(1, 1\)"),
        ([6], IndexError, "index must be below 6, the number of sequences, got 6"),
        ([0, -7], IndexError, "got -7"),
        ([True], IndexError, "index must hold 6 bool, got 1"),
        (slice(0), ValueError, "index must choose at least one sequence"),
    ],
    ids=str,
)
def test_an_index_that_is_none(index, error, match):
    with pytest.raises(error, match=match):
        KINDS["cross"](np.arange(6))[index]


def test_data_are_no_list():
    with pytest.raises(TypeError, match="not iterable"):
        list(KINDS["cross"](np.arange(6)))
