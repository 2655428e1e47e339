"""The one walk of training: every rule on W and on K and Q, with the head and without, on every kind of data, step by
step beside its NumPy twin; side by side, in parts and with attention heads, the run alone."""

import attsvm
import numpy as np
import pytest
import reference_rules as twin
from attsvm import _core
from builders import BUILDERS, build_case, problem_of, starts
from numpy.testing import assert_allclose, assert_array_equal

# Options of a rule, and how far a step may be from the twin's: roots of |u| near zero magnify a rounding, and U V^T of
# nearly equal gradients differs by their difference over the least singular value.
RULES = {
    "normalized": (dict(rule="normalized"), 1e-12),
    "normalized, ridge": (dict(rule="normalized", ridge=1e-3), 1e-12),
    "jointly": (dict(rule="normalized jointly"), 1e-12),
    "jointly, ridge": (dict(rule="normalized jointly", ridge=1e-3), 1e-12),
    "constant": (dict(rule="constant"), 1e-12),
    "constant, ridge": (dict(rule="constant", ridge=1e-3), 1e-12),
    "polyak, capped": (dict(rule="polyak", lr=0.01), 1e-11),
    "polyak": (dict(rule="polyak", lr=1e6), 1e-11),
    "mirror 1.75": (dict(rule=attsvm.rules.mirror(p=1.75)), 1e-9),
    "mirror 2": (dict(rule=attsvm.rules.mirror(p=2.0)), 1e-9),
    "mirror 3": (dict(rule=attsvm.rules.mirror(p=3.0)), 1e-9),
    "sign": (dict(rule="sign"), 1e-12),
    "spectral": (dict(rule="spectral"), 1e-6),
    # What remembers is compared over a whole run; signs and U V^T pass on the roundings of its steps.
    "constant, momentum": (dict(rule="constant", momentum=0.8, weight_decay=0.3), 1e-9),
    "normalized, momentum": (dict(rule="normalized", momentum=0.8, weight_decay=0.3), 1e-9),
    "jointly, momentum": (dict(rule="normalized jointly", momentum=0.8, weight_decay=0.3), 1e-9),
    "sign, momentum": (dict(rule="sign", momentum=0.8, weight_decay=0.3), 1e-9),
    "spectral, momentum": (dict(rule="spectral", momentum=0.8, weight_decay=0.3), 1e-6),
    "adam": (dict(rule=attsvm.rules.adam(betas=(0.9, 0.999), eps=1e-3), weight_decay=0.1), 1e-8),
    "adam, short": (dict(rule=attsvm.rules.adam(betas=(0.5, 0.5), eps=0.0)), 1e-8),
    "adam without momentum": (dict(rule=attsvm.rules.adam(betas=(0.0, 0.9), eps=0.0)), 1e-8),
    "adam, shorter": (dict(rule=attsvm.rules.adam(betas=(0.9, 0.3), eps=0.0), weight_decay=0.1), 1e-8),
    "adagrad": (dict(rule="adagrad", lr=0.3), 1e-8),
    "adagrad, momentum": (dict(rule=attsvm.rules.adagrad(eps=1e-3), momentum=0.7, weight_decay=0.1), 1e-8),
    "shampoo": (dict(rule="shampoo", lr=0.3), 1e-5),
    "shampoo, momentum": (dict(rule=attsvm.rules.shampoo(eps=1e-2), momentum=0.7, weight_decay=0.1), 1e-8),
}
# Every rule walks on these kinds of data, and three rules on all others.
KINDS = ["cross", "causal_ragged", "self_all", "cross_float32", "cross_ragged_several", "cross_gemm"]
THREE = ["normalized", "jointly, ridge", "constant"]


def remembers(options):
    return bool(attsvm.rules.as_rule(options["rule"]).squares) or options.get("momentum", 0) > 0


def with_target(options):
    """The infimum is that of one linear head that stays."""
    return options | {"rule": attsvm.rules.polyak(target_loss=0.0)} if options["rule"] == "polyak" else options


def reached(run, head=False):
    return [*([run.W] if run.K is None else [run.K, run.Q]), *([run.v] if head else [])]


def walk(case, weights, options, rtol, steps=5, loss="logistic", head=False):
    """A rule without memory goes each step from where the last one ended: where a run ends at a finite minimiser,
    normalised steps go round it, and two runs that differ by a rounding part."""
    options = {"lr": 0.1} | (with_target(options) if head else options)
    together = remembers(options)
    v, point, memory = case.v, tuple(weights.values()), twin.Rule(**options, loss=loss)
    for _ in range(steps):
        after = memory.step(case, point, v if head else None)
        if not together:
            problem = attsvm.Problem(case.data, case.y, attsvm.LinearHead(v), loss)
            run = attsvm.train(
                problem, **dict(zip(weights, point, strict=True)), steps=1, record=0, train_head=head, **options
            )
            sure = None
            if options["rule"] == "sign":  # the others have the sign of a rounding
                found = twin.gradients(case, point, loss, v=v if head else None)[1]
                sure = [np.abs(g) > 1e-12 * np.abs(g).max() for g, _ in found]
            compare(reached(run, head), after, rtol, sure)
            after = reached(run, head)
        point, v = tuple(after[: len(weights)]), after[-1] if head else v
    if together:
        problem = problem_of(case, loss)
        run = attsvm.train(problem, **weights, steps=steps, record=0, train_head=head, **options)
        compare(reached(run, head), after, rtol)


def compare(found, expected, rtol, sure=None):
    for mine, theirs, these in zip(found, expected, sure or [slice(None)] * len(found), strict=True):
        assert_allclose(mine[these], theirs[these], rtol=0, atol=rtol * np.abs(theirs).max())


@pytest.mark.parametrize("trained", ["W", "KQ"])
@pytest.mark.parametrize(
    "kind, rule", [(kind, rule) for kind in BUILDERS for rule in (RULES if kind in KINDS else THREE)]
)
def test_each_step_is_the_twins(kind, trained, rule):
    case = build_case(kind)
    walk(case, starts(case, trained), *RULES[rule])


@pytest.mark.parametrize("rule", [rule for rule in RULES if "shampoo" not in rule])
@pytest.mark.parametrize("trained", ["W", "KQ"])
@pytest.mark.parametrize("kind", ["cross", "causal_ragged", "cross_values", "cross_float32"])
def test_each_step_with_the_head_is_the_twins(kind, trained, rule):
    case = build_case(kind)
    walk(case, starts(case, trained), *RULES[rule], steps=4, head=True)


@pytest.mark.parametrize("rule", [rule for rule in RULES if "constant" not in rule and "polyak" not in rule])
@pytest.mark.parametrize("trained", ["W", "KQ"])
def test_steps_where_gradients_are_far_below_double_precision(trained, rule):
    """A start sixty times as large: e^-1000, and the plain gradient no longer a number that moves anything."""
    case, (options, rtol) = build_case("cross"), RULES[rule]
    # A polar factor multiplies the rounding of logits near 1000 by the gradient's condition: 5e-6 in some builds.
    walk(case, starts(case, trained, size=60.0), options, 1e-4 if options["rule"] == "spectral" else rtol, steps=10)


@pytest.mark.parametrize("loss", _core.LOSS)
@pytest.mark.parametrize("trained", ["W", "KQ"])
def test_each_step_of_other_losses_and_with_one_v_per_query(loss, trained):
    case = build_case("cross", positive=loss == "log")
    walk(case, starts(case, trained, size=0.0 if trained == "W" else 0.5), *RULES["normalized"], steps=30, loss=loss)
    case = build_case("causal_ragged", "per query")
    walk(case, starts(case, trained), *RULES["normalized"], steps=30)


@pytest.mark.parametrize("rule", ["normalized", "jointly", "constant", "sign", "adam"])
def test_a_schedule_is_read_step_by_step(rule):
    case = build_case("cross")
    weights, lr, options = starts(case, "W"), case.rng.uniform(0, 0.2, 30), RULES[rule][0]
    problem = problem_of(case)
    run = attsvm.train(problem, **weights, lr=lr, steps=30, record=1, **options)
    found = np.array([w for (w,) in twin.train(case, tuple(weights.values()), 30, lr=lr, **options)])
    assert_allclose(run.weights, found, rtol=0, atol=1e-10)
    assert_allclose(run.norm, np.linalg.norm(found, axis=(1, 2)), rtol=1e-10)
    assert_array_equal(run.steps, np.arange(31))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("trained", ["W", "KQ"])
@pytest.mark.parametrize("combine", ["sum", "concatenate"])
def test_each_attention_head_takes_its_own_step(rule, trained, combine):
    """One step of a problem with two heads is the step of each head's gradient, and of each of its factors."""
    (options, rtol), rng = RULES[rule], np.random.default_rng(3)
    options = with_target(options)
    X, Z, y, _ = attsvm.sample.unit_sphere(4, 5, 6, 3)
    head = attsvm.MLPHead(rng.standard_normal((6 if combine == "sum" else 12, 7)), rng.standard_normal(7))
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, head, heads=2, combine=combine)
    at = {name: rng.standard_normal((2, 6, 6 if name == "W" else 2)) for name in trained}
    run = attsvm.train(problem, **at, **{"lr": 0.1} | options, steps=1)
    value, *gradients = problem.loss_and_grad(**at)
    points = [w for name in at for w in at[name]]
    found = [
        (G + 2 * options.get("ridge", 0.0) * w, 0.0) for G, w in zip(np.concatenate(gradients), points, strict=True)
    ]
    expected = twin.Rule(**{"lr": 0.1} | options).move(points, value, found, [range(len(points))])
    assert_allclose(np.concatenate([getattr(run, name) for name in at]), expected, rtol=0, atol=max(1e-9, rtol))
