"""Statements of the linear-head theory that no figure shows."""

import attsvm
import numpy as np
import pytest


@pytest.mark.parametrize(("n", "T"), [(3, 4), (4, 3), (5, 6), (6, 4), (1, 5), (5, 2)])
def test_wide_enough_every_selection_is_separable(rng, n, T):
    """d >= max(T - 1, n), any selection, cross- and self-attention."""
    d = max(T - 1, n)
    for _ in range(25):
        X, Z, _, _ = attsvm.sample.unit_sphere(n, T, d, rng)
        for data in (attsvm.cross_attention(X, Z), attsvm.self_attention(X)):
            assert attsvm.feasible(data, rng.integers(T, size=n)).status == "feasible"


@pytest.mark.parametrize("start", [1.0, 0.5, 0.0, -0.5, -1.0, -1.5])
def test_one_input_with_a_local_optimum(start):
    """Prompt attention to three tokens whose third coordinate is the score: where the prompt starts decides."""
    X = np.array([[[-0.1, 1.0, 1.0], [1.0, 0.0, 0.9], [0.0, 0.0, 0.0]]])
    data = attsvm.prompt_attention(X, key=np.diag([1.0, 1.0, 0.0]))
    problem = attsvm.Problem(data, head=attsvm.LinearHead([0.0, 0.0, 1.0]))
    run = attsvm.train(problem, [[0.0], [start], [0.0]], lr=0.1, steps=1000, record=0)
    direction = run.W[:2, 0] / np.linalg.norm(run.W)
    token = 0 if start >= -0.5 else 1
    assert run.selected[0] == token
    solution = attsvm.solve_svm(data, [token])
    assert 0.5 * np.linalg.norm(solution.W) ** 2 == pytest.approx(0.5 / 1.01 if token == 0 else 0.5, rel=1e-9)
    assert attsvm.diagnose(problem, [token]).locally_optimal
    np.testing.assert_allclose(direction, [-0.0995, 0.995] if token == 0 else [1.0, 0.0], atol=0.03)


def test_attention_ends_on_one_token_per_query(rng):
    for _ in range(20):
        X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10, rng)
        problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
        run = attsvm.train(problem, steps=8000, record=0)
        assert run.probabilities.max(axis=1).min() > 1 - 1e-6


@pytest.mark.parametrize("lead, locally_optimal", [(0.0, False), (1e-3, True), (-1e-3, False), (-0.5, False)])
def test_a_selected_token_must_score_more_than_its_support_tokens_by_any_amount(lead, locally_optimal):
    """Two tokens of one query, so that the other is its support token, and ties with or beats it by little."""
    data = attsvm.cross_attention([[[1.0, 0.5], [0.0, 0.5 - lead]]], [[1.0, 0.0]])
    problem = attsvm.Problem(data, [1.0], attsvm.LinearHead([0.0, 1.0]))
    solution = attsvm.solve_svm(data, [0])
    assert attsvm.theory.is_locally_optimal(problem, solution) == locally_optimal
    assert attsvm.diagnose(problem, [0]).locally_optimal == locally_optimal
