"""Theorem B of notebooks/limit.md: its inequality against a twin, what each part of it excludes, and its numbers."""

import math

import attsvm
import numpy as np
import pytest
from attsvm.theory.limit_proofs import LOSSES, BestTokens, LocalTokens, State, stays
from builders import build_case, problem_of
from limits import by_scores
from numpy.testing import assert_array_equal


def state(drift=1e-4, threats=1e-5, pull=0.3003, size=1.0):
    return State(drift, threats, pull, size)


def twin(step, at, rho, threat, R, apart):
    """The inequality, tried on a fine grid of bounds P."""
    tau = at.threats
    if rho <= tau * R or (c := (rho - tau * R) / step - apart**2 / 8) <= 0:
        return False
    for room in np.geomspace(1e-10, 1.0, 4000):
        P = math.sqrt(at.pull**2 + room)
        d, lost = P + tau * R, R * (math.sqrt(P**2 - rho**2) + tau * R)
        x, y = (rho**2 - lost) / d, (threat * rho - lost) / d - P - at.drift
        if x <= 0 or y <= 0:
            return False
        grown = (d * at.drift) ** 2 / (1 - math.exp(-2 * step * x)) + (R * R * tau) ** 2 / (1 - math.exp(-2 * step * y))
        if grown <= c * room:
            return True
    return False


def test_stays_is_the_inequality_of_the_page():
    rng, seen = np.random.default_rng(3), set()
    for _ in range(300):
        rho = 0.3
        at = state(10.0 ** rng.uniform(-5, -1), 10.0 ** rng.uniform(-6, -1), rho * (1 + 10.0 ** rng.uniform(-6, -1.5)))
        asked = rng.uniform(0.02, 0.6), at, rho, rho * rng.uniform(1, 3), rng.uniform(0.4, 1.5), rng.uniform(0.5, 2)
        expected = twin(*asked)
        if expected != twin(asked[0] * 1.02, *asked[1:]):  # at the edge, where the grids of P differ
            continue
        assert stays(*asked) == expected
        seen.add(expected)
    assert seen == {True, False}


GOOD = {"step": 0.1, "at": state(), "rho": 0.3, "threat": 0.6, "longest": 1.0, "apart": 1.4}
WORSE = {
    "the leads of some row may fall (x)": {"at": state(pull=0.35), "threat": math.inf},
    "threats may win (y)": {"threat": 0.31},
    "threats may win though they underflow today": {"threat": 0.29, "at": state(threats=0.0)},
    "threats may win while the multipliers drift": {"threat": 0.336, "at": state(0.01, 1e-9, 0.30003)},
    "the steps are longer than 8 rho / Delta^2 (c)": {"step": 1.3},
    "drift would raise ||M||": {"at": state(drift=0.3)},
    "the threats' pull would raise ||M||": {"at": state(threats=0.02)},
    "the threats outweigh the rest": {"at": state(threats=0.4)},
    "something is not a number": {"at": state(drift=math.nan)},
    "no margin": {"rho": 0.0},
}


def test_a_good_state_stays():
    assert stays(*GOOD.values())
    assert stays(*(GOOD | {"at": state(0.01, 1e-9, 0.30003), "threat": 0.37}).values())


@pytest.mark.parametrize("what", WORSE)
def test_each_part_is_asked(what):
    assert not stays(*(GOOD | WORSE[what]).values())


@pytest.mark.parametrize("lead, holds", [(0.5, False), (1.0, True)])
def test_the_state_of_one_query_by_hand(lead, holds):
    """Chosen token with score 1, one of P (0) and a threat (1.5), both this far behind; p > 1/2 from lead log 2 on."""
    local = LocalTokens(BestTokens(by_scores(np.eye(3)[None], [[1.0, 0.0, 1.5]], "exponential")), np.array([0]))
    at = local.at(np.array([[lead], [0.0], [0.0]]), 0)
    assert (at is not None) == holds
    if holds:
        w = math.exp(-lead)
        sigma, A, V, R = 2 * w, 1.5 * w, w, math.sqrt(2)
        assert at.drift == pytest.approx(R * (sigma + A * (1 + sigma) * (1 + 1 / (1 - V))), rel=1e-6)
        u = 1 - (w - 0.5 * w) / (1 + 2 * w)
        S = math.exp(-u) * w / (1 + 2 * w) * u
        assert at.threats == pytest.approx(math.exp(-(1 - V)) * w * (0.5 + A) / S, rel=1e-6)
        assert at.size == pytest.approx(math.exp(-(1 - V)) * w * (1.5 + 2 * A), rel=1e-6)
        assert at.pull == pytest.approx(R, rel=1e-6)


def test_every_number_pays_for_the_rounding_of_a_large_W():
    """A shift of all logits changes no number but what rounding may have done to it."""
    best = BestTokens(by_scores(np.eye(3)[None], [[1.0, 0.0, 1.5]], "exponential"))
    local, W = LocalTokens(best, np.array([0])), np.array([[1.0], [0.0], [0.0]])
    near, far = local.at(W, 0), local.at(W + 2.0**30, 0)
    off = float(best.rounding(W + 2.0**30, 0).max())
    assert near is not None and far is not None and off > 1e-7
    for name in ("drift", "threats", "pull", "size"):
        assert getattr(far, name) >= getattr(near, name) * (1 + off), name


@pytest.mark.parametrize("seed", [6, 14, 20, 24])
def test_other_tokens_than_the_best(sphere, seed):
    """Draws that end on locally optimal tokens: proved, and 20 times the steps change nothing."""
    run = attsvm.train(sphere(seed=seed).problem, steps=3000)
    assert (run.selected != run.problem.optimal).any()
    limit = run.limit()
    assert limit.status == "proved" and limit.final.all()
    assert_array_equal(limit.solution.selected, run.selected)
    first = run.weights[list(run.steps).index(limit.step)]
    more = attsvm.train(run.problem, first, steps=20 * limit.step, record=0)
    assert_array_equal(more.selected, run.selected)
    assert attsvm.correlation(more.W, limit.solution.W) > attsvm.correlation(first, limit.solution.W)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_numbers_of_a_record(loss):
    """E, tau and ||M|| against attention and gradient at the record."""
    checked = 0
    for seed in range(8):
        case = build_case("cross", positive=loss == "log", seed=seed)
        data = case.data
        problem = problem_of(case, loss)
        chosen = case.rng.integers(0, 6, 5)
        solution = attsvm.solve_svm(data, chosen)
        if solution.W is None:
            continue
        local = LocalTokens(BestTokens(problem), chosen.astype(np.intp))
        scale = 1.0
        while (at := local.at(scale * solution.W, 0)) is None and scale < 100:
            scale *= 1.3
        if at is None:  # only threats
            continue
        W = scale * solution.W
        p, scores, keys = data.probabilities(W), problem.scores, data.keys.reshape(5, 6, -1)
        u = (p * scores).sum(axis=1, keepdims=True)
        mu = np.exp(LOSSES[loss].log_slope(u)) * p * (u - scores)
        rows = (keys[range(5), chosen][:, None] - keys)[..., None] * data.queries[:, None, None]
        plain = scores < scores[range(5), chosen][:, None]
        threat = ~plain
        threat[range(5), chosen] = False
        assert (p.max(axis=1) > 0.5).all() and (mu[plain] >= 0).all()
        S = mu[plain].sum()
        pull = np.linalg.norm(((mu * plain / S)[..., None, None] * rows).sum(axis=(0, 1)))
        assert pull <= at.pull < pull * (1 + 1e-6)
        tau = np.abs(mu[threat]).sum() / S
        assert tau <= at.threats and (tau == 0 or at.threats < 60 * tau)
        step = 1e-6
        for D in case.rng.standard_normal((10, *W.shape)):
            D /= np.linalg.norm(D)
            after = []
            with np.errstate(divide="ignore", invalid="ignore"):
                for side in (step, -step):
                    p2 = data.probabilities(W + side * D)
                    u2 = (p2 * scores).sum(axis=1, keepdims=True)
                    after.append(LOSSES[loss].log_slope(u2) + np.log(p2) + np.log(u2 - scores))
                rate = (after[0] - after[1])[plain] / (2 * step) + np.tensordot(rows, D, 2)[plain]
            assert np.abs(rate[mu[plain] > 1e-200]).max() <= at.drift + 1e-5
        assert np.linalg.norm(problem.loss_and_grad(W)[1]) <= local.longest * at.size
        checked += 1
    assert checked >= 2


def test_a_tied_token_that_is_tight_is_never_proved():
    """The selected token and a tight one score the same: their shares stay in proportion, and nothing is final."""
    problem = by_scores([[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]], [[1.0, 1.0, 0.0]])
    run = attsvm.train(problem, np.array([[5.0], [0.0]]), steps=3000)
    assert run.limit().status == "open" and "several tokens of the best score" in run.limit().message


def test_threats_whose_multipliers_underflow_still_count():
    """Weights so large that a threat's share is below the range of doubles; its lead grows more slowly than others."""
    problem = by_scores([[[0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]]], [[1.0, 0.0, 2.0]], "linear")
    local = LocalTokens(BestTokens(problem), np.array([0]))
    W = np.array([[1000.0], [4000.0]])  # leads 1000 and 4000; the gradient raises the first alone
    at = local.at(W, 0)
    assert at.threats < 1e-290 and not local.keeps(at, 0.1)
    assert attsvm.train(problem, W, steps=20).limit().status == "open"
