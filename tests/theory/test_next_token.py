"""Token-priority graphs against networkx, their SVM against a conic solver, training against both."""

import sys

import attsvm
import numpy as np
import pytest
from attsvm.theory.next_tokens import strong_components
from limits import by_scores
from numpy.testing import assert_allclose, assert_array_equal, assert_equal


@pytest.fixture(scope="module")
def instances():
    """Draws (sequences, labels, embeddings) and what next_token makes of them; some have a cycle in a graph."""
    drawn = [attsvm.sample.next_token(n=6, T=4, K=6, d=8, rng=seed) for seed in range(40)]
    found = [(*one, attsvm.theory.next_token(*one)) for one in drawn]
    assert {made.acyclic for *_, made in found} == {True, False}
    return found


def test_graphs_are_the_edges_from_labels_to_the_other_tokens(instances):
    for sequences, labels, _, found in instances:
        by_hand = {}
        for tokens, y in zip(sequences, labels, strict=True):
            by_hand.setdefault(int(tokens[-1]), set()).update((int(y), int(t)) for t in tokens if t != y)
        assert {k: set(map(tuple, edges.tolist())) for k, edges in found.graphs.items()} == by_hand
        assert all(edges.shape == (len(by_hand[k]), 2) for k, edges in found.graphs.items())
        assert found.acyclic == all((c == np.arange(len(c))).all() for c in found.components.values())
        assert_equal(found.components, {k: strong_components(edges, 6) for k, edges in found.graphs.items()})
        for kept, tokens, y in zip(found.selected, sequences, labels, strict=True):
            component = found.components[int(tokens[-1])]
            assert_array_equal(kept, component[tokens] == component[y])


@pytest.mark.parametrize("seed", range(8))
def test_components_of_random_graphs(seed):
    networkx = pytest.importorskip("networkx")
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 200))
    edges = rng.integers(nodes, size=(int(rng.integers(0, 3 * nodes)), 2))  # self-loops and repeats among them
    graph = networkx.DiGraph(edges.tolist())
    graph.add_nodes_from(range(nodes))
    wanted = np.empty(nodes, int)
    for members in networkx.strongly_connected_components(graph):
        wanted[list(members)] = min(members)
    assert_array_equal(strong_components(edges, nodes), wanted)


def test_a_long_cycle_needs_no_recursion():
    nodes = 3 * sys.getrecursionlimit()
    ring = np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes], axis=1)
    assert (strong_components(ring, nodes) == 0).all()
    assert (strong_components(ring[:-1], nodes) == np.arange(nodes)).all()


def test_problem_is_the_log_loss_of_the_summed_probability_of_copies():
    E = np.random.default_rng(0).standard_normal((4, 3))
    found = attsvm.theory.next_token([[1, 0, 1, 2], [2, 3]], [1, 3], E)
    W = np.random.default_rng(1).standard_normal((3, 3))
    p, q = (np.exp(E[tokens] @ W @ E[tokens[-1]]) for tokens in ([1, 0, 1, 2], [2, 3]))
    by_hand = -(np.log((p[0] + p[2]) / p.sum()) + np.log(q[1] / q.sum())) / 2
    assert found.problem.loss(W) == pytest.approx(by_hand, rel=1e-14)
    label = np.concatenate([np.ravel(x) for x in found.data.attended(W)])
    assert_allclose(-np.log(label).mean(), by_hand, rtol=1e-14)
    assert [part.tolist() for part in found.selected] == [[True, False, True, False], [False, True]]


def test_scores_of_the_log_loss_that_round_below_zero_are_zero():
    assert by_scores([[[1.0], [0.0]]], [[1.0, -1e-12]], "log").scores.tolist() == [[1, 0]]
    with pytest.raises(ValueError, match="nowhere negative"):
        by_scores([[[1.0], [0.0]]], [[1.0, -1e-9]], "log")


def test_a_sequence_that_is_its_label_alone():
    found = attsvm.theory.next_token([[2], [2, 2]], [2, 2], np.eye(3))
    assert found.acyclic and found.graphs[2].shape == (0, 2)
    assert attsvm.solve_svm(found.data, [[True], [True, True]]).status == "no constraint"
    assert "acyclic" in repr(found)


def test_description_names_the_components():
    found = attsvm.theory.next_token([[0, 1, 3], [1, 0, 2, 3], [0, 2, 1, 3]], [0, 1, 0], np.eye(4))
    assert "after 3: 0, 1" in repr(found) and "1 last tokens" in repr(found)
    text = " ".join(repr(attsvm.diagnose(found.problem)).split())  # its best tokens are not separable
    assert "not excluded: enough would be one best token in each query, weights that rank these first" in text


@pytest.mark.parametrize(
    "sequences, labels, error, message",
    [
        ([[0, 1], [1, 2]], [2, 1], ValueError, "labels must occur in their sequence, got 2 for sequence 0"),
        ([[0, 3]], [0], ValueError, r"sequences must hold token numbers 0 .. 2, got 3"),
        ([[0, 1], [-1]], [0, 0], ValueError, r"sequences\[1\] must hold token numbers 0 .. 2, got -1"),
        ([[0.0, 1.0]], [0], TypeError, "sequences must hold token numbers, integers"),
        ([[0, 1]], [0, 1], ValueError, r"labels must have shape \(n,\) = \(1,\), got \(2,\)"),
        ([[0, 1]], [0.5], TypeError, "labels must hold token numbers"),
        ([[], [0]], [0, 0], (ValueError, TypeError), "sequences"),
    ],
)
def test_bad_input(sequences, labels, error, message):
    with pytest.raises(error, match=message):
        attsvm.theory.next_token(sequences, labels, np.eye(3))


def test_sample():
    sequences, labels, E = attsvm.sample.next_token(n=50, T=4, K=6, d=8, rng=3)
    assert sequences.shape == (50, 4) and labels.shape == (50,) and E.shape == (6, 8)
    assert all(len(set(tokens)) == 4 for tokens in sequences.tolist())
    assert all(y in tokens for y, tokens in zip(labels.tolist(), sequences.tolist(), strict=True))
    assert set(sequences.ravel().tolist()) == set(range(6))
    assert_allclose(np.linalg.norm(E, axis=1), 1)
    again = attsvm.sample.next_token(n=50, T=4, K=6, d=8, rng=np.random.default_rng(3))
    assert_equal(again, (sequences, labels, E))
    with pytest.raises(ValueError, match="T must be at most K = 3"):
        attsvm.sample.next_token(n=1, T=4, K=3, d=2)
