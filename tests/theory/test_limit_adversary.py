"""Adversaries who may choose tokens, scores and weights: what is certified never goes wrong, a planted fault does.

Each maximises a number that a theorem of notebooks/limit.md keeps negative, by a random walk that keeps what is better,
from many starts.
"""

import attsvm
import numpy as np
import pytest
from attsvm.theory import limit_proofs
from attsvm.theory.limit_proofs import BestTokens, LocalTokens, Rows, descends
from limits import by_scores

ROUNDED = 1e-12  # of the logarithm of an excess, after steps so short that they change it by less
pytestmark = pytest.mark.slow


def climb(objective, size, starts, moves):
    """The largest value found over all starts."""
    rng, highest = np.random.default_rng(0), -np.inf
    for _ in range(starts):
        x, width = rng.standard_normal(size), 1.0
        value = objective(x)
        for _ in range(moves):
            other = x + width * rng.standard_normal(size) * (rng.random(size) < 0.5)
            new = objective(other)
            if new >= value:
                x, value, width = other, new, min(width * 1.5, 3.0)
            else:
                width = max(width * 0.9, 1e-3)
        highest = max(highest, value)
    return highest


def attention_elsewhere(x):
    """How far the attention of a certified query is from its best token, less 1/2; 2 queries, 3 tokens, free logits."""
    scores, logits = x[:6].reshape(2, 3), x[6:].reshape(2, 3) * 3
    problem = by_scores(np.eye(6).reshape(2, 3, 6), scores)
    best = BestTokens(problem)
    W = logits.reshape(6, 1)
    found = best.at(W)
    away = 0.5 - problem.data.probabilities(W)[range(2), best.best]
    if found.final.any():
        return away[found.final].max()
    short = (found.total - best.halves).min()
    return -10 - min(short, 1e3)  # nearer to a certificate is better


def test_a_final_token_keeps_half_of_the_attention(monkeypatch):
    assert climb(attention_elsewhere, 12, 30, 150) < 0
    real = BestTokens._barriers
    monkeypatch.setattr(BestTokens, "_barriers", lambda self, share: real(self, 0.8 if share < 1 else 1.0))
    assert climb(attention_elsewhere, 12, 30, 150) > 0


def split(x, loss):
    """2 queries, 3 tokens, 2 dimensions: a problem, and weights."""
    X, scores, W = x[:12].reshape(2, 3, 2), x[12:18].reshape(2, 3), x[18:].reshape(2, 2)
    return by_scores(X, scores, loss, np.array([[1.0, 0.0], [0.6, 0.8]])), W


def rise(x):
    """By how much one normalised step of the longest certified length raises the excess, as a part of it."""
    problem, W = split(x, "exponential")
    best = BestTokens(problem)
    found, rows = best.at(W), Rows(problem.data, best.best)
    if not (found.in_cone and rows.margin > 0):
        return -1e3
    drift, _ = best.region(found.total, rows.lengths)
    bounds = rows.margin, float(rows.lengths.max()), rows.apart, drift
    steps = np.geomspace(1e-4, 200 * bounds[0] / bounds[2] ** 2, 400)
    step = max((step for step in steps if descends(step, *bounds)), default=0.0)
    _, gradient = problem.loss_and_grad(W, scaled=True)
    after = W - step * gradient.W / np.linalg.norm(gradient.W)
    return best.at(after).total - found.total if step else -10.0


def test_certified_steps_never_raise_the_loss(monkeypatch):
    assert climb(rise, 22, 20, 120) < ROUNDED
    real = descends
    fault = lambda step, rho, longest, apart, drift: real(step, rho, longest, apart / 5, drift / 20)  # noqa: E731
    monkeypatch.setitem(globals(), "descends", fault)
    assert climb(rise, 22, 20, 120) > 1e-3


def threats_gain(x):
    """The largest later growth of log tau, of a selection that is certified."""
    problem, W = split(x, "linear")
    W = 8 * W
    chosen = np.array(problem.data.select(W), dtype=np.intp)
    if (chosen == problem.optimal).all():
        return -1e3
    local = LocalTokens(BestTokens(problem), chosen)
    now = local.at(W, 0)
    if now is None or not now.threats > 0:
        return -1e2
    if not local.keeps(now, 0.1):
        return -10.0 - now.drift
    run = attsvm.train(problem, W, lr=0.1, steps=300, record=50)
    later = [local.at(weights, 0) for weights in run.weights[1:]]
    if None in later:
        return 1.0
    return float(np.log(max(state.threats for state in later) / now.threats)) if later[0].threats > 0 else -5.0


def test_threats_never_gain_on_a_certified_selection(monkeypatch):
    assert climb(threats_gain, 22, 20, 100) < 0
    real = limit_proofs.stays
    fault = lambda step, at, rho, threat, longest, apart: real(step, at, rho, np.inf, longest / 2, apart)  # noqa: E731
    monkeypatch.setattr(limit_proofs, "stays", fault)
    assert climb(threats_gain, 22, 20, 100) > 0
