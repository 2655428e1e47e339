"""Linear decoders with several next tokens a context, and Markov chains within prompts."""

import pickle

import attsvm
import judge
import numpy as np
import pytest
from attsvm import _core
from attsvm.attention.data import Data
from attsvm.theory import soft_labels
from marks import needs_linux, slow
from numpy.testing import assert_allclose, assert_array_equal
from problems import Case
from processes import python


def decoder(seed, m=8, K=6, d=12):
    """Contexts on the sphere, each followed by one to three tokens."""
    rng = np.random.default_rng(seed)
    H = rng.standard_normal((m, d))
    counts = np.zeros((m, K))
    for row in counts:
        support = rng.choice(K, rng.integers(1, 4), replace=False)
        row[support] = rng.integers(1, 5, len(support))
    return H / np.linalg.norm(H, axis=1, keepdims=True), counts


def cross_entropy(W, H, counts):
    logits = H @ W.T
    return -(counts * (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))).sum() / counts.sum()


def test_problem_is_the_cross_entropy_of_the_counts():
    H, counts = decoder(0)
    found = soft_labels(H, counts)
    W = np.random.default_rng(1).standard_normal((6, 12))
    assert found.problem.loss(W) == pytest.approx(cross_entropy(W, H, counts), rel=1e-13)
    softmax = np.exp(H @ W.T)
    assert_allclose(found.data.probabilities(W), softmax / softmax.sum(axis=1, keepdims=True), rtol=1e-13)
    _, G = found.problem.loss_and_grad(W)
    share = counts.sum(axis=1, keepdims=True) / counts.sum()
    by_hand = (found.data.probabilities(W) * share - counts / counts.sum()).T @ H
    assert_allclose(G, by_hand, atol=1e-15)
    assert found.selected.dtype == bool and (found.selected == (counts > 0)).all()
    assert "6 tokens from 8 contexts of dimension 12" in repr(found)


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1e305])
def test_counts_have_no_units_and_are_those_given(scale):
    H, counts = decoder(0)
    W, scaled = np.random.default_rng(1).standard_normal((6, 12)), scale * counts
    found = soft_labels(H, scaled)
    scaled += 1
    assert_array_equal(found.counts, scale * counts)
    loss = pickle.loads(pickle.dumps(found.problem)).loss(W)  # in another process
    assert loss == found.problem.loss(W) == pytest.approx(cross_entropy(W, H, counts), rel=1e-13)


def test_a_probability_that_leaves_double_precision_keeps_the_loss_finite():
    found = soft_labels([[1.0]], [[1, 1]])
    loss, G = found.problem.loss_and_grad(np.array([[1000.0], [-1000.0]]))
    assert np.isfinite(loss) and np.isfinite(G).all()


def dense(found):
    """The same problem with the identity as an array of keys and of values."""
    eye = np.eye(found.data.dk)
    data = Data("linear decoder", eye, found.data.queries, eye.copy(), found.data._layout)
    return attsvm.Problem(data, None, found.problem.head, "linear")


@pytest.mark.parametrize("size", [0.0, 1.0, 300.0])  # the last saturates: shifts and probabilities of 1e-300
def test_identity_is_as_the_array_of_it(size):
    H, counts = decoder(3, K=9)
    found = soft_labels(H, counts)
    beside, rng = dense(found), np.random.default_rng(4)
    W, two = size * rng.standard_normal((9, 12)), rng.standard_normal((2, 9, 12))
    K, Q = np.sqrt(size) * rng.standard_normal((9, 2)), rng.standard_normal((12, 2))
    own, linear = found.problem.head, attsvm.LinearHead(rng.standard_normal(9))
    for weights, head, heads in (
        ({"W": W}, own, None), ({"K": K, "Q": Q}, own, None), ({"W": W}, linear, None), ({"W": two}, own, 2)
    ):  # fmt: skip
        both = (attsvm.Problem(p.data, None, head, "linear", heads=heads) for p in (found.problem, beside))
        (loss, G), (other, D) = (problem.loss_and_grad(**weights, scaled=True) for problem in both)
        assert loss == pytest.approx(other, rel=1e-12) and G.log_scale == pytest.approx(D.log_scale, rel=1e-12)
        for mine, theirs in zip(G[:3], D[:3], strict=True):
            if mine is not None:
                assert_allclose(mine, theirs, atol=1e-12)
    data, first = found.data, counts.argmax(axis=1)
    assert_allclose(data.keys, np.eye(9), atol=0)
    for ask in (
        lambda d: d.logits(W), lambda d: d.probabilities(W), lambda d: d.margins(W, first), lambda d: d.attended(W),
        lambda d: d.attended(W, hard=True), lambda d: d.select(W), lambda d: d[[5, 2]].probabilities(W),
    ):  # fmt: skip
        assert_allclose(ask(data), ask(beside.data), rtol=1e-12, atol=1e-12)
    assert_allclose(found.problem.multipliers(W)[0], beside.multipliers(W)[0], atol=1e-12)
    part = found.problem[[5, 2]]
    assert part.loss(W) == pytest.approx(beside[[5, 2]].loss(W), rel=1e-12)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "spectral", "max", 3.0])
@pytest.mark.parametrize("several", [True, False])
def test_svm_over_kinds_of_tokens_is_certified_by_all(norm, several):
    H, counts = decoder(3, m=6, K=30, d=8)  # most tokens follow no context
    found = soft_labels(H, counts)
    selected = found.selected if several else counts.argmax(axis=1)
    svm = attsvm.solve_svm(found.data, selected, norm)
    lower, upper = judge.interval(Case(found.data, selected), svm.W, svm.dual, norm)
    assert svm.status == "optimal" and upper * (1 - 1e-6) <= lower <= upper * (1 + 1e-12)


def test_a_decoder_that_cannot_be_separated_has_a_certificate():
    H = np.array([[1.0, 0.0], [1.0, 1e-10], [0.0, 1.0]])  # but for weights of norm 1.6e10
    found = soft_labels(H, np.eye(3, 9))
    answer = attsvm.solve_svm(found.data, found.selected)
    assert answer.status == "infeasible" and "none of Frobenius norm below 1.6e+10" in answer.message
    assert judge.farkas(Case(found.data, found.selected), answer.certificate) < 1e-9
    assert attsvm.feasible(found.data, found.selected).status == "infeasible"


def test_what_reads_keys_in_memory_refuses_the_identity():
    data = soft_labels(*decoder(0)).data
    with pytest.raises(ValueError, match="the keys are the identity"):
        _core.objective(data._handle, 0, np.zeros(48), None, None, None, None, None, 0.0, 1, False)
    with pytest.raises(ValueError, match="the windows do not lie within"):
        _core.windows(None, data.queries, data.start, data.stop - np.arange(len(data.stop)))


LARGE = """
import attsvm, numpy as np
from pathlib import Path
rng = np.random.default_rng(0)
counts = np.zeros((50, 20_000))
for row in counts:
    row[rng.choice(20_000, 10, replace=False)] = 1
found = attsvm.theory.soft_labels(rng.standard_normal((50, 64)) / 8, counts)
before = np.log(20_000)
assert attsvm.train(found.problem, steps=3).loss[-1] < before
assert found.data.keys.shape == (20_000, 20_000)
# The peak in kilobytes; the identity alone would be 3.2 GB.  (ru_maxrss would count the parent's memory, too.)
assert 10_000 < int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) < 1_000_000
"""


@pytest.mark.slow
@needs_linux
def test_memory_is_contexts_times_vocabulary():
    assert python("-c", LARGE).returncode == 0


@pytest.mark.parametrize("seed", [0, *(slow(seed) for seed in (1, 2, 3))])
def test_training_gives_log_odds_and_turns_to_the_svm(seed):
    H, counts = decoder(seed)
    found = soft_labels(H, counts)
    run = attsvm.train(found.problem, lr=0.01, steps=30_000, record=0)
    svm = attsvm.solve_svm(found.data, found.selected)
    assert attsvm.correlation(run.W, svm.W) >= 0.98  # .985 to .995 at this step
    p = counts / counts.sum(axis=1, keepdims=True)
    assert_allclose(run.probabilities, p, atol=1e-2)  # the step is 1e-2
    parts = attsvm.theory.decompose(found.data, run.probabilities, run.W, selected=found.selected)
    logits = found.data.logits(parts.W_fin)
    for row, target, kept in zip(logits, p, found.selected, strict=True):
        odds, wanted = (x - x.mean() for x in (row[kept], np.log(target[kept])))
        assert_allclose(odds, wanted, atol=2e-2)


@pytest.mark.parametrize(
    "contexts, counts, message",
    [
        ([[1.0], [2.0]], [[1, 0]], r"counts must have shape \(m, K\) = \(2, K\), got \(1, 2\)"),
        ([[1.0]], [[1, -1]], "counts must not be negative, got -1"),
        ([[1.0], [2.0]], [[1, 0], [0, 0]], "counts must have a positive number in every row, got none in row 1"),
        ([[np.nan]], [[1]], "contexts must be finite"),
    ],
)
def test_bad_input(contexts, counts, message):
    with pytest.raises(ValueError, match=message):
        soft_labels(contexts, counts)


# ------------------------------------------------------------------------------------ Markov chains


def chain(K):
    return np.random.default_rng(0).dirichlet(np.ones(K), K)


def test_prompts_follow_the_chain_within_the_prompt():
    P = chain(3)
    sequences, labels = attsvm.sample.markov(P, n=40_000, T=3, rng=1)
    assert (labels[:, None] == sequences).any(axis=1).all()
    for prompt in ([0, 0, 2], [1, 0, 1], [2, 1, 0]):
        here = (sequences == prompt).all(axis=1)
        m = np.bincount(prompt, minlength=3)
        expected = m * P[prompt[-1]] / (m * P[prompt[-1]]).sum()
        found = np.bincount(labels[here], minlength=3) / here.sum()
        assert_allclose(found, expected, atol=4 * 0.5 / np.sqrt(here.sum()))  # four standard errors


def test_identifiable_when_every_token_follows_every_other():
    sequences, _ = attsvm.sample.markov(chain(4), n=200, T=3)
    found = attsvm.theory.identifiable(sequences, 4)
    assert found and found.identifiable is True and (found.components == 0).all()
    answer, components = attsvm.theory.identifiable([[0, 1, 2], [0, 2, 1], [2, 0]], 3)
    assert answer is False  # no prompt that ends in 0 holds 1
    assert_array_equal(components, [[0, 1, 0], [0, 0, 0], [0, 0, 0]])
    assert not attsvm.theory.identifiable([[0, 1], [1, 0]], 3)


@pytest.mark.parametrize(
    "P, message",
    [
        ([[0.5, 0.5], [1.0, 0.0]], "P must be positive"),
        ([[0.5, 0.6], [0.5, 0.5]], "P must have rows that sum to 1, got 1.1"),
    ],
)
def test_bad_chains(P, message):
    with pytest.raises(ValueError, match=message):
        attsvm.sample.markov(P, n=3, T=2)
