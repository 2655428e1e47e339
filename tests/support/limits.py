"""Draws for the claims of ``run.limit()``, and the check that a claim survives training that goes on."""

from types import SimpleNamespace

import attsvm
import numpy as np
from attsvm import _core
from problems import sphere as unit
from reference import per_query

LOSSES = tuple(_core.LOSS)
RATES = (0.1, 0.3, 1.0, 1.0, 1.0, 3.0)  # of the default learning rate
SPECIAL = ("plain", "plain", "plain", "near ties", "infeasible", "nearly infeasible", "values", "copies")
LAYOUTS = ("cross", "cross", "several queries", "ragged", "self", "self all", "causal", "window", "prompt", "T = 2")
BELOW = 1e-8  # 1 - correlation that rounding of W and of the solution can leave


def cut(array, lengths):
    return [part[:k] for part, k in zip(array, lengths, strict=True)]


def by_scores(X, scores, loss="logistic", Z=None):
    """A problem whose tokens X (n, T, d) have these scores, of one query for all unless given."""
    scores = np.asarray(scores, float)
    data = attsvm.cross_attention(
        np.asarray(X, float), np.ones((len(scores), 1)) if Z is None else Z, scores[..., None]
    )
    return attsvm.Problem(data, None, attsvm.LinearHead([1.0]), loss)


def draw(seed):
    """A small problem, a start and the arguments of ``train``; what is special of it is drawn too."""
    rng = np.random.default_rng(seed)
    special, layout, loss = map(rng.choice, (SPECIAL, LAYOUTS, LOSSES))
    n, T, d = (int(rng.integers(*ends)) for ends in ((1, 6), (2, 7), (2, 9)))
    T = 2 if layout == "T = 2" else T
    scale = 10.0 ** rng.choice([-8, 0, 0, 0, 0, 8])
    X = unit(rng, n, T, d)
    if special in ("infeasible", "nearly infeasible") and T > 2:
        X[0, 0] = (X[0, 1] + X[0, 2]) / 2 + (special == "nearly infeasible") * 10.0 ** -rng.integers(2, 8) * X[0, 0]
    if special == "copies" and T > 2:
        X[0, 1] = X[0, 0]
    values = X + 10.0 ** -rng.uniform(1, 15) * unit(rng, n, T, d) if special == "values" else X
    v = unit(rng, d)
    if loss == "log":
        values, v = np.abs(values), np.abs(v)
    if special == "near ties":  # the second best token scores as much as the best, but for a part of it
        values = values.copy()
        for one in values:
            *_, second, best = np.argsort(one @ v)
            one[second] = one[best] * (1 - 10.0 ** -rng.uniform(1, 15.5))
    X, v = X * scale, v * rng.choice([1.0, 1.0, 10.0])
    v = v / scale if special not in ("values", "near ties") and loss != "log" else v
    lengths, Z = rng.integers(1, T + 1, n), unit(rng, n, d)
    data = {
        "several queries": lambda: attsvm.cross_attention(X, unit(rng, n, 2, d), values),
        "ragged": lambda: attsvm.cross_attention(cut(X, lengths), Z, cut(values, lengths)),
        "self": lambda: attsvm.self_attention(X, query=0),
        "self all": lambda: attsvm.self_attention(X[:2], query=None),
        "causal": lambda: attsvm.causal_attention(X[:2]),
        "window": lambda: attsvm.causal_attention(X[:2], window=3),
        "prompt": lambda: attsvm.prompt_attention(X),
    }.get(layout, lambda: attsvm.cross_attention(X, Z, values))()
    if data._given_values is None and loss == "log":
        loss = "logistic"
    y = None if loss == "log" else data._layout.shape_queries(rng.choice([-1.0, 1.0], len(data.queries)))
    problem = attsvm.Problem(data, y, attsvm.LinearHead(v), loss)
    rule = str(rng.choice(["normalized"] * 6 + ["constant"] * 2 + ["polyak", "sign"]))
    start = rng.choice([0.0, 0.0, 1.0, 5.0]) * rng.standard_normal((data.dk, data.dz))
    start /= scale**2 if layout in ("self", "self all", "causal", "window") else scale
    asked = {"W": start, "rule": rule, "steps": 1200, "record": 40}
    if rng.random() < 0.1:  # ends of the range: nothing is proved of a scale
        asked["W"] = start * 1e3
    rate = attsvm.train(problem, start, rule=rule, steps=0).lr * rng.choice(RATES)
    return SimpleNamespace(problem=problem, asked=asked | {"lr": rate}, kind=(special, layout, loss, rule))


def judged(case):
    """The limit of a draw, and what is wrong with its claims after training 20 times as long."""
    problem, asked = case.problem, case.asked
    run = attsvm.train(problem, **asked)
    limit, wrong = run.limit(), []

    def turned(run):
        off = (1 - attsvm.correlation(W, limit.solution.W) for W in (run.W, first))
        return np.abs(first).max() > 0 and next(off) > max(next(off), BELOW)

    final = per_query(problem.data, limit.final)
    if limit.status == "open" and not final.any():
        return limit, wrong
    first = run.W if limit.step is None else run.weights[list(run.steps).index(limit.step)]
    more = attsvm.train(problem, **asked | {"W": first, "steps": 20 * max(limit.step or 200, 200), "record": 100})
    rose = more.loss.max() > more.loss[0] + 1e-12 * abs(more.loss[0]) + 1e-300
    after, before, wanted = (per_query(problem.data, one.selected) for one in (more, run, limit.solution or run))
    changed, others = after != before, after != wanted
    if limit.status == "proved" and rose:
        wrong.append("the loss rose")
    if limit.status == "proved" and asked["rule"] == "normalized":
        if others.any():
            wrong.append("ends on other tokens")
        # Slopes of queries whose outputs differ by c differ by e^c, which takes c / (lr rho) steps: not waited for.
        slow = problem._loss_name != "linear" and np.ptp(problem._flat_scores) > 50
        if not slow and turned(more):
            if turned(attsvm.train(problem, **asked | {"W": more.W, "steps": 300_000, "record": 0})):
                wrong.append("turns away from the solution")
    if not rose and changed[final].any():
        wrong.append("a final token changed")
    if not rose and limit.status == "conditional" and others[final].any():
        wrong.append("a final token is another")
    return limit, wrong
