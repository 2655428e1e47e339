"""Selected sets, the decomposition W_fin + R W_svm, and the exact count of a quadratic head."""

import attsvm
import judge
import numpy as np
import pytest
import reference
from attsvm.theory import decompose
from builders import BUILDERS
from numpy.testing import assert_allclose, assert_array_equal
from problems import Case


def data_of(name, rng, more=0):
    """A kind of data of so many more dimensions."""
    normal = lambda *shape: rng.standard_normal((*shape[:-1], shape[-1] + more))  # noqa: E731
    return BUILDERS[name](normal, normal)


def planted(kind, rng, least=1):
    """Data, sets, and weights that are exactly W_fin + R W_svm, by plain linear algebra on the rows."""
    data = data_of(kind, rng, 12)
    kept = [np.zeros(T, dtype=bool) for T in data.lengths]
    for row in kept:
        most = max(1, len(row) - 1)
        row[rng.permutation(len(row))[: rng.integers(min(least, most), most + 1)]] = True
    sets = data._layout.shape_entries(np.concatenate(kept), False)
    rows = judge.rows_of(Case(data, sets))
    E = rows.products()[rows.equal]
    W_fin = (np.linalg.pinv(E) @ rng.uniform(-1, 1, len(E))).reshape(data.dk, data.dz)
    svm = attsvm.solve_svm(data, sets)
    assert svm.status in ("optimal", "no constraint")
    return data, sets, rows, W_fin, svm.W


# Random sets of the others are infeasible: three unknowns for fifteen rows, and a window twice.
@pytest.mark.parametrize("kind", sorted(set(BUILDERS) - {"prompt_key_ragged", "causal_part"}))
@pytest.mark.parametrize("seed", range(2))
def test_planted_decomposition_is_found(kind, seed):
    data, sets, rows, W_fin, W_svm = planted(kind, np.random.default_rng([seed, 7]))
    W = W_fin + 25.0 * W_svm
    parts = decompose(data, data.probabilities(W), W)
    for mine, given in ((parts.selected, sets), (parts.probabilities, data.probabilities(W))):
        flat = (np.concatenate(reference.per_entry(data, part)) for part in (mine, given))
        assert_allclose(*flat, atol=1e-11)
    # Ratios of probabilities are known to about 1e-16 times their logits' size.
    assert_allclose(parts.W_fin, W_fin, atol=1e-12)
    assert parts.R == pytest.approx(25.0 if W_svm.any() else 0.0, rel=1e-11)
    assert parts.correlation == pytest.approx(1, abs=1e-12) or not W.any()
    for R in (25.0, 1e-3, -25.0):  # at the second W_fin outweighs W_svm
        text = repr(decompose(data, data.probabilities(W), W_fin + R * W_svm))
        assert ("W does not separate these sets" in text) == ("not converged" in text) == (R < 0 and W_svm.any())
    margins = rows.apply(parts.W_svm)
    assert (np.abs(margins[rows.equal]) <= 1e-8).all() and (margins[~rows.equal] >= 1 - 1e-8).all()
    assert abs(np.vdot(parts.W_fin, parts.W_svm)) <= 1e-10 * (1 + np.linalg.norm(parts.W_svm))


@pytest.mark.parametrize("norm", ["nuclear", 3.0])
@pytest.mark.parametrize("kind", ["cross", "cross_ragged", "causal"])
def test_finite_part_has_the_least_norm_asked_for(kind, norm):
    data, _, rows, W_fin, W_svm = planted(kind, np.random.default_rng(11), least=2)
    W = W_fin + 25.0 * W_svm
    parts = decompose(data, data.probabilities(W), W, norm)
    E = rows.products()[rows.equal]
    assert_allclose(E @ parts.W_fin.ravel(), E @ W_fin.ravel(), atol=1e-11)
    size = lambda M: judge.norms_of(M, norm)[0]  # noqa: E731
    assert len(E) >= 2 and size(parts.W_fin) < (1 - 1e-3) * size(W_fin)  # the two norms differ on these data
    # No direction that keeps the ratios makes it smaller.
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1e-1, 10.0):
        for _ in range(50):
            D = rng.standard_normal(E.shape[1])
            D -= np.linalg.lstsq(E, E @ D, rcond=None)[0]
            assert size(parts.W_fin + scale * D.reshape(W.shape)) > size(parts.W_fin) * (1 - 1e-9)
    assert parts.solution.norm == norm and parts.status == "optimal"
    direction = parts.W_svm
    assert parts.R == pytest.approx(np.vdot(direction, W - parts.W_fin) / np.vdot(direction, direction))
    assert_array_equal(parts.W, parts.W_fin + parts.R * parts.W_svm)


def test_every_token_selected_leaves_the_finite_part_alone():
    rng = np.random.default_rng(0)
    data = data_of("cross", rng, 12)
    W = rng.standard_normal((data.dk, data.dz)) / data.dk
    parts = decompose(data, data.probabilities(W), W)
    assert parts.status == "no constraint" and parts.R == 0 and not parts.W_svm.any()
    assert_allclose(parts.probabilities, data.probabilities(W), atol=1e-14)
    assert "30 tokens selected" in repr(parts)


def test_selections_of_the_user_replace_the_thresholds():
    rng = np.random.default_rng(0)
    data = attsvm.cross_attention(rng.standard_normal((2, 3, 8)), rng.standard_normal((2, 8)))
    sets = np.array([[True, False, False], [False, True, True]])
    W = 4 * attsvm.solve_svm(data, sets).W  # the others still have e^-4 and more
    probabilities = data.probabilities(W)
    parts = decompose(data, probabilities, W, selected=sets)
    assert parts.R == pytest.approx(4) and (parts.selected == sets).all()


def test_what_no_weights_explain_is_refused():
    X = np.array([[[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]])  # the last token is the mean of the others
    data = attsvm.cross_attention(X, [[1.0, 2.0]])
    with pytest.raises(ValueError, match="no W separates the selected sets"):
        decompose(data, [[0.5, 0.5, 0.0]], np.eye(2))
    with pytest.raises(ValueError, match="no W has these probabilities"):
        decompose(data, [[0.4, 0.4, 0.2]], np.eye(2))
    with pytest.raises(ValueError, match="probabilities must be positive at the selected tokens"):
        decompose(data, [[1.0, 0.0, 0.0]], np.eye(2), selected=[[True, True, False]])
    with pytest.raises(TypeError, match="selected must be bools"):
        decompose(data, [[1.0, 0.0, 0.0]], np.eye(2), selected=[0])


def test_sets_have_the_shape_of_the_data(case_name):
    rng = np.random.default_rng(1)
    data = data_of(case_name, rng)
    W = rng.standard_normal((data.dk, data.dz))
    probabilities = data.probabilities(W)
    selected, undecided = attsvm.theory.selected_sets(probabilities, 1e-2, 0.2)
    flat = reference.per_entry(data, probabilities)
    for row, p in zip(reference.per_entry(data, selected), flat, strict=True):
        assert_array_equal(row, p >= 0.2)
    expected = [bool(((p > 1e-2) & (p < 0.2)).any()) for p in flat]
    assert_array_equal(reference.per_query(data, undecided).astype(bool), expected)
    assert any(expected) or len(data) < 3
    assert attsvm.solve_svm(data, selected).status != "undecided"


def test_thresholds_belong_to_the_decided():
    selected, undecided = attsvm.theory.selected_sets([0.999, 1e-3, 1e-6, 0.0])
    assert selected.tolist() == [True, True, False, False] and not undecided
    assert attsvm.theory.selected_sets([1 - 2e-6, 2e-6])[1]


def test_tokens_kept_is_the_support_of_the_projection(rng):
    scores = rng.standard_normal((40, 7))
    lams = np.geomspace(1e-3, 1e2, 12)
    found = np.array([attsvm.theory.tokens_kept(scores, lam) for lam in lams])
    for lam, counts in zip(lams, found, strict=True):
        expected = [(reference.projection_simplex(row / (2 * lam), 1.0) > 1e-12).sum() for row in scores]
        assert_array_equal(counts, expected)
    assert (np.diff(found, axis=0) >= 0).all() and found[0].max() <= 2 and (found[-1] == 7).all()
    assert set(np.unique(found)) == set(range(1, 8))


def test_tokens_kept_at_the_edges():
    assert attsvm.theory.tokens_kept([3.0], 10.0) == 1
    assert attsvm.theory.tokens_kept([1.0, 1.0, 0.0], 0.0) == 1
    assert attsvm.theory.tokens_kept([1.0, 1.0, 0.0], 1e-9) == 2  # a tie is shared at once
    assert attsvm.theory.tokens_kept([1.0, 0.5], 0.25) == 1  # 2 lam = gap: the second token's share is exactly zero
    assert attsvm.theory.tokens_kept([1.0, 0.5], 0.25 + 1e-12) == 2


def test_positional_encoding_is_a_wave_of_the_position():
    P = attsvm.sample.positional_encoding(50, 7, base=100.0)
    assert P.shape == (50, 7)
    t = 13
    expected = [np.sin(t), np.cos(t)]
    for j in (1, 2, 3):
        expected += [np.sin(t / 100 ** (2 * j / 7)), np.cos(t / 100 ** (2 * j / 7))]
    assert_allclose(P[t], expected[:7], atol=1e-15)
    assert np.linalg.norm(P[:, None] - P, axis=2)[~np.eye(50, dtype=bool)].min() > 0.1


def test_a_query_that_does_not_follow_the_others_is_named(sphere):
    """Queries behind a dead ReLU rest at two to four times their first logits while R grows to 241."""
    s = sphere()
    head = attsvm.MLPHead(np.random.default_rng(0).standard_normal((10, 4)))
    run = attsvm.train(attsvm.Problem(s.data, s.y, head), steps=20000)
    parts = decompose(s.data, run.probabilities, run.W)
    dead = ~(s.data.attended(run.W) @ head.v > 0).any(axis=1)
    assert dead.any() and not dead.all() and parts.correlation < 0.7
    # 20,000 steps behind ReLUs end elsewhere when a compiler rounds otherwise: one that is slow may be named as well.
    named = ", ".join(map(str, np.flatnonzero(parts.unconverged)))
    assert parts.unconverged[dead].all() and not parts.unconverged.all()
    assert f"not converged  queries {named}: less than half" in repr(parts)
