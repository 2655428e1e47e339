"""Influence of a sequence, and proofs without it, against the problem of the other sequences solved by itself."""

import attsvm
import attsvm.check
import numpy as np
import pytest
from processes import python

WAYS = [{}, {"C": 1.0}, {"norm": "nuclear"}, {"norm": "max"}, {"norm": 3.0}, {"metric": np.full((3, 3), 2.0)}]


def draw(seed, n=12, T=4, S=None, d=3):
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((n, T, d)), rng.standard_normal((n, d) if S is None else (n, S, d))
    data = attsvm.cross_attention(X, Z)
    return data, data.select(rng.standard_normal((d, d)))


def check(sol, selected, way, rel=1e-8):
    """Each removal beside the other sequences solved by themselves."""
    data, found = sol.data, sol.influence()
    n = len(found.solved)
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        other = attsvm.solve_svm(data[rest], selected[rest], **way)
        assert found.objective[i] == pytest.approx(other.objective, rel=rel)
        assert found.margin[i] == pytest.approx(other.margin, rel=rel, nan_ok=True)
        # a relative gap e leaves the directions within sqrt(2 e) of their limits
        turn = abs(1 - attsvm.correlation(sol.W, other.W))
        assert abs(np.sqrt(2 * found.turn[i]) - np.sqrt(2 * turn)) < 2e-4
    np.testing.assert_allclose(found.multiplier, sol.flat_dual.reshape(n, -1).sum(axis=1))
    assert (found.turn[~found.solved] == 0).all() and found.share == found.solved.mean()
    return found


@pytest.mark.parametrize("several", [None, 2])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_influence_is_that_of_solving_again(way, several):
    data, selected = draw(3, S=several)
    found = check(attsvm.solve_svm(data, selected, **way), selected, way)
    assert 0 < found.solved.sum() < len(found.solved)  # both kinds of sequences are here
    assert np.isnan(found.margin).all() == ("C" in way)


@pytest.mark.parametrize("margin_row", [True, False])  # beside the equality rows of sequence 0
def test_equality_rows_take_a_solve(margin_row):
    data, selected = draw(5, n=3, T=3, d=4)
    kept = np.arange(3) == selected[:, None]
    kept[0] = [True, True, not margin_row]
    assert check(attsvm.solve_svm(data, kept), kept, {}).solved[0]


def test_the_only_sequence_leaves_nothing():
    found = attsvm.solve_svm(attsvm.cross_attention([[[1.0, 0.0], [0.0, 0.0]]], [[1.0]]), [0]).influence()
    assert np.isnan(found.turn[0]) and found.margin[0] == np.inf and found.objective[0] == 0 and found.solved[0]
    assert "1 of 1; without any other sequence the answer is the same" in repr(found)


def test_slack_that_no_weights_change_takes_a_solve():
    X, selected = np.random.default_rng(3).standard_normal((3, 2, 3)), np.zeros(3, dtype=np.intp)
    X[0, 1] = X[0, 0]
    sol = attsvm.solve_svm(attsvm.cross_attention(X, np.eye(3)), selected, C=1.0)
    assert check(sol, selected, {"C": 1.0}).solved.all()


def test_what_has_no_influence_is_refused():
    copies = attsvm.cross_attention([[[1.0], [1.0]]], [[1.0]])
    with pytest.raises(ValueError, match="influence is that on an optimal answer, got one that is 'infeasible'"):
        attsvm.solve_svm(copies, [0]).influence()
    data, selected = draw(3)
    shard = attsvm.solve_svm(data, selected, reduce=lambda part: None)
    with pytest.raises(ValueError, match="one process"):
        shard.influence()


@pytest.mark.parametrize("way", WAYS[:4], ids=str)
def test_proofs_without_a_sequence(way, tmp_path):
    data, selected = draw(3)
    sol = attsvm.solve_svm(data, selected, **way)
    found, path = sol.influence(), tmp_path / "proof.json"
    part, none = (int(np.flatnonzero(flags)[0]) for flags in (found.solved, ~found.solved))
    same = sol.prove(path, without=none)
    assert same.endswith(f"; so it is without queries [{none}]")
    assert same.startswith(sol.prove(tmp_path / "whole.json").split(" (gap")[0])
    command = "-S", "-I", attsvm.check.__file__, path
    assert python(*command).stdout == f"PROVED: {same}\n"
    text = path.read_text()
    assert text.count(f'"without":[{none}]') == 1
    path.write_text(
        text.replace(f'"without":[{none}]', f'"without":[{part}]').replace(f"queries [{none}]", f"queries [{part}]")
    )
    assert "a query without part has one" in python(*command).stdout
    rest = np.delete(np.arange(12), part)
    other = attsvm.solve_svm(data[rest], selected[rest], **way).prove(tmp_path / "rest.json")
    assert sol.prove(path, without=part).split(" (gap")[0][:-2] == other.split(" (gap")[0][:-2]
    with pytest.raises(ValueError, match=r"without must be a sequence, 0 \.\. 11, got 12"):
        sol.prove(path, without=12)


def test_without_is_refused_of_other_claims(tmp_path):
    """Which W are excluded is proved by the rows of some queries; that of others it is silent is no claim."""
    data = attsvm.cross_attention([[[1.0], [1.0]], [[1.0], [0.0]]], [[1.0], [1.0]])
    path = tmp_path / "proof.json"
    attsvm.solve_svm(data, [0, 0]).prove(path)
    path.write_text(path.read_text().replace("{", '{"without":[1],', 1))
    assert python("-S", "-I", attsvm.check.__file__, path).stdout.strip() == "NOT PROVED: a query without part has one"


@pytest.mark.slow
def test_many_removals():
    """10,000 removals of six kinds of problems."""
    removed = 0
    for seed in range(10_000):
        if removed >= 10_000:
            break
        rng = np.random.default_rng(seed)
        n, T, d = (int(rng.integers(2, most)) for most in (16, 7, 8))
        data, selected = draw(rng, n, T, [None, 2][seed % 2], d)
        way = WAYS[seed % 3]
        sol = attsvm.solve_svm(data, selected, **way)
        if sol.status != "optimal":
            continue
        check(sol, selected, way, 1e-7)
        removed += n
    assert removed >= 10_000
