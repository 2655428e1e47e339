"""Runs side by side are each alone, and a run cut at its records is the whole one, in every field and part."""

import dataclasses
import re

import attsvm
import numpy as np
import pytest
from builders import build_case
from compare import close
from numpy.testing import assert_allclose, assert_array_equal

SHARED = {"besides", "problem", "rule", "p", "status", "start", "stacked", "steps"}
FIELDS = [field.name for field in dataclasses.fields(attsvm.Run) if field.name not in SHARED]
DERIVED = "v balance selected undecided probabilities direction".split()
STEPS, RECORD, R = 13, [3, 8, 2], 3
D = np.random.default_rng(5).uniform(0.5, 2, (4, 4))
SIDES = D @ D.T + np.eye(4), D.T @ D + np.eye(4)

# Options of train; of the problem: its head and attention heads; and whether factors are trained.
PARTS = {word: dict(rule=word) for word in attsvm.rules.BY_WORD} | {
    "plain": {},
    "momentum": dict(momentum=0.5),
    "mirror": dict(rule=attsvm.rules.mirror(p=3.0)),
    "normalized jointly": dict(rule="normalized jointly", ridge=1e-3),
    "constant": dict(rule="constant", ridge=1e-3),
    "sign": dict(rule="sign", momentum=0.8, weight_decay=0.3),
    "ball": dict(ball=("nuclear", 1.0), ridge=0.1, weight_decay=0.1),
    "metric": dict(rule=attsvm.rules.normalized(D)),
    "metric of sides": dict(rule=attsvm.rules.normalized(SIDES)),
    "head": dict(train_head=True),
    "head, momentum": dict(train_head=True, momentum=0.5),
    "head, adam": dict(train_head=True, rule="adam"),
}
OF_W = ("mirror", "metric", "metric of sides")
HEADS = {"linear": (None, 4), "mlp": (None, 4), "quadratic": (None, 4), "two": (2, 4), "beside": (2, 8)}
GRID = [(part, "linear", trained) for part in PARTS for trained in ("W", "KQ")]
GRID += [(part, kind, trained) for kind in HEADS for part in ("head, adam", "plain") for trained in ("W", "KQ")]
GRID = [(part, kind, trained) for part, kind, trained in dict.fromkeys(GRID) if trained == "W" or part not in OF_W]
each_part = pytest.mark.parametrize(("part", "kind", "trained"), GRID)


def setting(kind, trained):
    """A problem on ragged windows, and R starts."""
    H, width = HEADS[kind]
    case = build_case("causal_ragged")
    v = case.rng.standard_normal(width)
    head = attsvm.LinearHead(v)
    if kind == "mlp":
        head = attsvm.MLPHead(case.rng.standard_normal((width, 3)), case.rng.standard_normal(3))
    if kind == "quadratic":
        head = attsvm.QuadraticHead(v, 0.1)
    combine = "concatenate" if kind == "beside" else "sum"
    problem = attsvm.Problem(case.data, case.y, head, heads=H, combine=combine)
    shape = (R, *((H,) if H else ()), 4, 4 if trained == "W" else 2)
    return problem, {name: case.rng.standard_normal(shape) for name in trained}


def numbers(value):
    if value is None:
        return np.empty(0)
    if isinstance(value, (list, tuple)):
        return np.concatenate([numbers(part) for part in value])
    return np.asarray(value.row() if hasattr(value, "row") else value, dtype=float).ravel()


def everything(run, r=None):
    """All that a run holds; of one of several, taken from what all of them give."""
    found = {name: getattr(run, name) for name in (FIELDS if r is None else []) + DERIVED}
    found |= dict(zip(("low", "high"), run.margins(), strict=True), head=run.head)
    return {name: numbers(value if r is None or value is None else value[r]) for name, value in found.items()}


def assert_same(found, expected, rounding=0.0):
    for name, value in found.items():
        most = rounding * np.abs(expected[name]).max(initial=0, where=np.isfinite(expected[name]))
        assert_allclose(value, expected[name], rtol=0, atol=most, err_msg=name)


@each_part
def test_runs_side_by_side_are_each_alone(part, kind, trained):
    """The products of many runs sum in another order; roots of shampoo and signs of adam make more of it."""
    problem, starts = setting(kind, trained)
    lr = np.array([0.1, 0.05, 0.02])
    options = {**PARTS[part], "steps": STEPS, "record": RECORD}
    several = attsvm.train(problem, **starts, runs=R, lr=lr[:, None], **options)
    for r in range(R):
        alone = attsvm.train(problem, **{name: start[r] for name, start in starts.items()}, lr=lr[r], **options)
        expected = everything(alone)
        assert_same(everything(several[r]), expected, 1e-6)
        assert_same(everything(several, r), expected, 1e-6)
        assert_array_equal(several.columns()["loss"].reshape(R, -1)[r], several.loss[r])
        # Of heads and records, too: each margin is that of its weights, and of the output head as it was then.
        metric = alone.metric if problem.heads is None and alone.K is None else None
        norm = {"metric": metric} if metric is not None else {"norm": alone.own_norm}
        for k, W in enumerate(alone.weights):
            trained = alone.start is not None
            at = problem._with(head=alone.start.from_row(alone.head_records[k])) if trained else problem
            ends = at.margin_interval(W, alone.selected, **norm)
            assert_allclose([end[k] for end in alone.margins()], ends, rtol=1e-9)
        printed = re.search(r"margin +(\S+) \.\. (\S+) \(proved\)", repr(alone))
        assert (printed is None) == (problem.heads is not None)
        if printed is not None:
            assert_allclose([float(printed[1]), float(printed[2])], ends, rtol=0.01)


@each_part
def test_a_run_cut_at_its_records_is_the_whole_run(part, kind, trained, capsys):
    """By a callback, by a progress bar, by its end, and by another call, which has all but the memory of a rule."""
    problem, starts = setting(kind, trained)
    start = {name: starts[name][0] for name in starts}
    seen, options = [], {**PARTS[part], "record": RECORD}
    whole = attsvm.train(problem, **start, steps=STEPS, **options)
    expected = everything(whole)
    assert_same(everything(attsvm.train(problem, **start, steps=STEPS, callback=seen.append, **options)), expected)
    assert_same(everything(attsvm.train(problem, **start, steps=STEPS, progress=True, **options)), expected)
    assert [run.steps[-1] for run in seen] == list(whole.steps) == [0, 2, 3, 8, 13]
    for run in seen:
        k = int(run.steps[-1])
        shorter = attsvm.train(problem, **start, steps=k, **options | {"record": [step for step in RECORD if step < k]})
        assert_same(everything(run), everything(shorter))
        if not PARTS[part].keys() & {"momentum", "rule"} or part in OF_W:
            at = {name: getattr(run, name) for name in trained} if trained == "KQ" else {"W": run.W}
            rest = attsvm.train(run.trained, **at, steps=STEPS - k, **options | {"record": 0})
            close(rest.W, whole.W)
            assert_allclose(numbers(rest.parameters), numbers(whole.parameters), rtol=1e-9)
