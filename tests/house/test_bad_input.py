"""Bad input: every public function refuses it with a ValueError or TypeError that names the argument.

``ROWS`` is a table of (id, argument, call); a call gets fresh good arguments and spoils one of them.  In the place of
an argument may stand words of the message, where they say what came, what was expected or what to do.
"""

import contextlib
import copy
import gc
import inspect
import itertools
import re
import sys
import tracemalloc
from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
from attsvm.training.session import Descent

nan, inf = float("nan"), float("inf")


class Unreadable:
    """An object whose conversion to an array fails."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("cannot be read")


class BadIndex:
    def __index__(self):
        raise TypeError("no index today")


def good():
    """Arguments that fit together: n=2 sequences of T=3 tokens of d=2; ragged and causal siblings."""
    rng = np.random.default_rng(0)
    g = SimpleNamespace(X=rng.standard_normal((2, 3, 2)), Z=rng.standard_normal((2, 2)), y=np.array([1.0, -1.0]))
    g.v, g.W, g.K, g.Q = np.array([1.0, 0.5]), np.zeros((2, 2)), np.ones((2, 3)), np.ones((2, 3))
    g.values, g.key, g.A, g.B = g.X + 1, np.ones((4, 2)), np.eye(2), np.ones((2, 2))
    g.ragged_X = [rng.standard_normal((T, 2)) for T in (3, 1, 2)]
    g.data = attsvm.cross_attention(g.X, g.Z)
    g.several = attsvm.cross_attention(g.X, rng.standard_normal((2, 4, 2)))
    g.ragged = attsvm.cross_attention(g.ragged_X, rng.standard_normal((3, 2)))
    g.all_ragged = attsvm.self_attention(g.ragged_X, query=None)
    g.causal = attsvm.causal_attention(g.X)
    g.causal_ragged = attsvm.causal_attention(g.ragged_X)
    g.head = attsvm.LinearHead(g.v)
    g.problem = attsvm.Problem(g.data, g.y, g.head)
    g.sol = attsvm.solve_svm(attsvm.cross_attention([[[1.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]]), [0])
    return g


def spoiled(array, index, value):
    array = np.array(array, dtype=object if isinstance(value, str) else None)
    array[index] = value
    return array


ROWS = []


def row(argument, call, name=None):
    ROWS.append((name or f"{argument}-{len(ROWS)}", argument, call))


def refuse(argument, call, *values):
    """A row for each wrong value ``x`` of ``call(g, x)``."""
    for value in values:
        row(argument, lambda g, x=value: call(g, x))


def options(call):
    """Of keyword arguments: wrong values of one beside others, or others that do not fit together."""

    def wrong(argument, *values, **others):
        for how in [others | {argument: value} for value in values] or [others]:
            row(argument, lambda g, how=how: call(g, **how))

    return wrong


# What is no array of numbers of the right shape, whichever argument it stands for.  `shape` is the right one.
def wrong_arrays(shape):
    ones = np.ones(shape)
    return {
        "none": None,
        "string": "abc",
        "number": 1.0,
        "dict": {"a": 1},
        "set": {1.0, 2.0},
        "object": object(),
        "unreadable": Unreadable(),
        "generator": (x for x in (1.0, 2.0)),
        "empty_list": [],
        "empty_array": np.empty((*shape[:-1], 0)),
        "no_rows": np.empty((0, *shape[1:])),
        "too_few_dimensions": ones[0] if len(shape) > 1 else np.float64(1),
        "too_many_dimensions": ones[None, None],
        "nan": spoiled(ones, (-1,) * len(shape), nan),
        "inf": spoiled(ones, (0,) * len(shape), inf),
        "minus_inf": spoiled(ones, (0,) * len(shape), -inf),
        "float32_inf": spoiled(ones.astype(np.float32), (0,) * len(shape), np.float32(inf)),
        "long_double_out_of_range": ones * np.longdouble("1e400"),
        "complex": ones * 1j,
        "bools": ones > 0,
        "strings": ones.astype(str),
        "bytes": ones.astype(bytes),
        "objects": ones.astype(object),
        "string_inside": spoiled(ones, (0,) * len(shape), "x"),
        "none_inside": np.where(ones > 0, None, 1.0),
        "dates": ones.astype("datetime64[s]"),
        "structured": np.ones(shape, dtype=[("a", float), ("b", float)]),
        "masked": np.ma.masked_array(ones, mask=ones > 0),
        "list_of_masked": [
            np.ma.masked_array(part, mask=part > 0) for part in (ones if len(shape) > 1 else ones[None])
        ],
        "huge_integers": np.full(shape, 10**400, dtype=object),
        "jagged": [[1.0], [2.0, 3.0], [[4.0]]],
    }


# ------------------------------------------------------------------------------------ arrays everywhere

ARRAYS = {
    "LinearHead": ("v", (2,), lambda g, a: attsvm.Problem(g.data, g.y, attsvm.LinearHead(a))),
    "LinearHead_per_query": ("v", (2, 2), lambda g, a: attsvm.Problem(g.data, g.y, attsvm.LinearHead(a))),
    "Problem_y": ("y", (2,), lambda g, a: attsvm.Problem(g.data, a, g.head)),
    "train_lr": ("lr", (3,), lambda g, a: attsvm.train(g.problem, lr=a, steps=3)),
    "decompose_W": ("W", (2, 2), lambda g, a: attsvm.theory.decompose(g.data, g.data.probabilities(g.W), a)),
    "decompose_probabilities": ("probabilities", (2, 3), lambda g, a: attsvm.theory.decompose(g.data, a, g.W)),
}


def of_arrays(function, names, name):
    """A function of arrays alone, with one of them to come."""
    return name, np.shape(vars(good())[name]), lambda g, a: function(**{one: vars(g)[one] for one in names} | {name: a})


for function, names in {
    attsvm.cross_attention: ["X", "Z", "values"],
    attsvm.self_attention: ["X", "values"],
    attsvm.causal_attention: ["X", "values"],
    attsvm.prompt_attention: ["X", "key"],
    attsvm.correlation: ["A", "B"],
}.items():
    ARRAYS |= {f"{function.__name__}_{name}": of_arrays(function, names, name) for name in names}
for name in ("logits", "probabilities", "attended", "select"):
    ARRAYS[name] = "W", (2, 2), lambda g, a, name=name: getattr(g.data, name)(a)
for name, function in {
    "loss": lambda g, **weights: g.problem.loss(**weights),
    "loss_and_grad": lambda g, **weights: g.problem.loss_and_grad(**weights),
    "train": lambda g, **weights: attsvm.train(g.problem, steps=3, **weights),
}.items():
    ARRAYS[f"{name}_W"] = "W", (2, 2), lambda g, a, of=function: of(g, W=a)
    for one, other in ("KQ", "QK"):
        ARRAYS[f"{name}_{one}"] = one, (2, 3), lambda g, a, of=function, k=one, q=other: of(g, **{k: a, q: g.K})
# None is the default of these, or they take this number or shape; no rows go with reduce.
FINE = """cross_attention_values-none self_attention_values-none causal_attention_values-none
self_attention_X-no_rows causal_attention_X-no_rows prompt_attention_X-no_rows prompt_attention_key-none
Problem_y-none train_W-none train_lr-none train_lr-number train_lr-too_few_dimensions
LinearHead_per_query-too_few_dimensions""".split()

for where, (argument, shape, call) in ARRAYS.items():
    for what in wrong_arrays(shape):
        if f"{where}-{what}" not in FINE:
            row(argument, lambda g, c=call, s=shape, w=what: c(g, wrong_arrays(s)[w]), f"{where}-{what}")

# ------------------------------------------------------------------------------------ the others

ones, W, K, MASKED = np.ones, np.zeros((2, 2)), np.ones((2, 3)), np.ma.masked_array([0, 1], [True, False])
# What is no whole number of things, and no number of a size.
WHOLE = (-9, 2.0, nan, True, np.True_, "2", [0, 1], np.array([2, 3]), 2**70, -(2**70), BadIndex())
REAL = (-1.0, nan, inf, True, "1", 1j, [0.1, 0.2], lambda k: None)
RULES, LinearHead, MLPHead, HUGE, UNSIGNED = (
    attsvm.rules,
    attsvm.LinearHead,
    attsvm.MLPHead,
    2**70,
    np.array([0, 2**64 - 1], np.uint64),
)


def ragged(*shape, of=(3, 2, 1)):
    """Of other lengths than the ragged tokens, or of these."""
    return [ones((T, *shape)) for T in of]


def changed(g, **how):
    return attsvm.Problem(**{"data": g.data, "y": g.y, "head": g.head} | how)


cross = options(lambda g, **how: attsvm.cross_attention(**{"X": g.X, "Z": g.Z} | how))
problem = options(changed)
several = options(lambda g, **how: changed(g, data=g.several, **{"y": None} | how))
all_ragged = options(lambda g, **how: changed(g, data=g.all_ragged, **{"y": None} | how))
loss = options(lambda g, **how: g.problem.loss(**how))
train = options(lambda g, **how: attsvm.train(g.problem, **how))
solve = options(lambda g, **how: attsvm.solve_svm(**{"data": g.data, "selected": [0, 0]} | how))
two_heads = options(lambda g, head=None, **how: changed(g, head=head or g.head, heads=2, combine="sum").loss(**how))

# fmt: off
cross("X", [ones((3, 2)), K], [None, None], [K, None], ["ab", "cd"], [[[1.0, 2.0], [3.0]], [[1.0, 2.0]]])
cross("Z", ones((3, 2)), ones((3, 4, 2)), ragged(2), [[1.0], [1.0, 2.0]], ones((2, 0, 2)))
cross("Z[1]", Z=[ones((2, 2)), ones((3, 3))])
cross("values", ones((2, 4, 2)), ones((3, 3, 2)))
refuse("X", lambda g, x: attsvm.self_attention([ones((3, 2)), x]), ones((0, 2)), ones(2), np.full((1, 2), nan),
       np.ma.masked_array(ones((1, 2)), True), ones((1, 2)) * 1j)
refuse("values", lambda g, x: attsvm.causal_attention(g.ragged_X, x), ragged(2), ones((3, 2, 2)))
refuse("query", lambda g, x: attsvm.self_attention(g.X, query=x), 3, -4, *WHOLE)
refuse("query", lambda g, x: attsvm.self_attention(g.ragged_X, query=x), 1)
refuse("key", lambda g, x: attsvm.prompt_attention(1e300 * g.X, x), ones((4, 3)), np.full((2, 2), 1e300))
refuse("W", lambda g, x: attsvm.cross_attention(g.X, K).logits(x), ones((3, 2)))
refuse("W", lambda g, x: attsvm.prompt_attention(g.X).logits(x), [1.0, 2.0])
row("W must be an array of numbers, got Run: give its W", lambda g: g.data.logits(attsvm.train(g.problem, steps=1)))
row("W is a run", lambda g: attsvm.train(g.problem, attsvm.train(g.problem, steps=1), K=K))
cross("Z must have shape (n, dz) = (2, dz), got (5, 10)", Z=ones((5, 10)))
refuse("W must have shape (dk, dz) = (2, 2), got (2, 3)", lambda g, x: g.data.logits(x), K)
refuse("X must be finite, got nan at (0, 0, 0)", lambda g, x: attsvm.causal_attention(x), [[[nan]]])
OBJECTS = np.array([ones((2, 3)), ones((1, 3)), None], dtype=object)[:2]
refuse("got an array of objects: give arrays of different lengths as a list",
       lambda g, x: attsvm.self_attention(x), OBJECTS)

problem("data", ones((2, 3, 2)), None)
row("data", lambda g: changed(g, data=g.problem))
row("head", lambda g: attsvm.Problem(g.data, g.y))
problem("head", ones(2), LinearHead)
problem("y must hold labels -1 and +1 only, got 0: from labels 0 and 1 make 2 * y", y=[0, 1])
problem("y must hold labels -1 and +1 only, got 3", y=[3, 1])
problem("bool: give numbers, np.where(condition", y=ones(2) > 0)
for outputs, classes, words in (
    (ones((2, 5)), [0, 5], "classes must hold class numbers 0 .. 4, got 5"),
    (ones((2, 5)), [0.0, 1.0], "classes must hold class numbers, integers"),
    (ones((2, 5)), [0], "classes must have shape (n,) = (2,), got (1,)"),
    (ones((3, 5)), [0, 0], "V must have shape (dv, C) = (2, C), got (3, 5)"),
):
    row(words, lambda g, V=outputs, c=classes: changed(g, y=None, head=attsvm.SoftmaxHead(V, c), loss="linear"))
problem("y", [1.0, 0.0], [1.0, 1.0 + 1e-15], [1.0, 1.0, 1.0], [[1.0], [1.0]])
problem("loss", "hinge", "Logistic", None, ["logistic"], "log")
problem("or (value, derivative), got a function alone", loss=np.exp)
problem("loss", y=None, head=LinearHead([0.0, 0.0]), loss="log")
problem("loss", head=MLPHead(np.eye(2)), loss="log")
problem("heads", 0, *WHOLE)
problem("combine", "mean", heads=2)
refuse("v", lambda g, x: changed(g, head=x), LinearHead(ones(3)), LinearHead(K), LinearHead(ones((3, 2))),
       attsvm.QuadraticHead(ones(3), 1.0))
problem("v", heads=2, combine="concatenate")
problem("V", head=MLPHead(ones((3, 4))))
refuse("combine", lambda g, x: changed(g, head=x, heads=2, combine="concatenate").scores, LinearHead(ones(4)))
refuse("y v.x", lambda g, x: changed(g, data=attsvm.cross_attention(g.X * x, g.Z), head=LinearHead([x, x])), 1e300)
several("y", [1.0, -1.0])
for shape in ((2, 2), (2, 3, 2)):
    several("v", head=LinearHead(ones(shape)))
for v in (ones((3, 2, 2)), ragged(2), ragged(2, of=(3, 1)), [*ragged(2, of=(3, 1)), ones((2, 3))]):
    all_ragged("v", head=LinearHead(v))
all_ragged("y", ones(6), ragged(), ragged(of=(3, 1)), [*ragged(of=(3, 1)), None], [[[1.0], [1.0, 1.0]], [1.0], [1.0]])
refuse("v", lambda g, x: LinearHead(x), [[[1.0, 2.0], [3.0]], [[1.0, 2.0]]], [ones((3, 2)), None])
refuse("V", lambda g, x: MLPHead(x), ones(3))
refuse("a", lambda g, x: MLPHead(ones((2, 4)), x), ones(3))
refuse("lam", lambda g, x: attsvm.QuadraticHead([1.0, 2.0], x), *REAL[1:])
refuse("value_and_grad", lambda g, x: attsvm.CallableHead(x), 1.0)
refuse("value_and_grad", lambda g, x: changed(g, head=attsvm.CallableHead(x)).loss(W), lambda o: o.sum(axis=1),
       lambda o: None, lambda o: (o.sum(axis=1), ones(2)), lambda o: (o, o), lambda o: (o.sum(axis=1), nan * o))
refuse("must return a tuple (value, gradient), got a tuple of 3",
       lambda g, x: changed(g, head=attsvm.CallableHead(x)).loss(W), lambda o: (o[:, 0], o, o))
refuse("o", lambda g, x: g.head.value_and_grad(x), [1.0, 2.0, 3.0], [1.0, nan])
refuse("o", lambda g, x: LinearHead(ones((2, 2))).value_and_grad(x), ones((3, 2)))
loss("W")
for how in ({}, {"Q": K}):
    loss("W", W=W, K=K, **how)
loss("Q", K=K)
loss("K", Q=K)
loss("Q", ones((2, 4)), K=K)
loss("K", ones((2, 0)), Q=ones((2, 0)))
two_heads("W", W)
two_heads("Q", K=ones((2, 2, 3)), Q=ones((2, 2, 4)))

refuse("problem", lambda g, x: attsvm.train(x), None, attsvm.self_attention(ones((1, 2, 2))))
train("rule", "no rule", "Normalized", None, 0)
train("momentum does not go with rule='polyak'", rule="polyak", momentum=0.5)
train("weight_decay does not go with rule='mirror'", rule=RULES.mirror(p=3.0), weight_decay=0.5)
train("momentum of rule='adam' is the first of betas", rule="adam", momentum=0.5)
train("momentum must be below 1", momentum=1.0)
train("rule must be one of", rule=RULES.adam)
train("train_head does not go with rule='shampoo'", rule="shampoo", train_head=True)
train("metric must have shape", rule=RULES.normalized(K))
train("ball does not go with metric", rule=RULES.normalized(W + 1), ball=1.0)
train("metric must be None for K and Q", rule=RULES.normalized(W + 1), K=K, Q=K)
refuse("betas must be a pair", lambda g, x: RULES.adam(betas=x), 0.9)
refuse("betas[1] must be below 1, got 1", lambda g, x: RULES.adam(betas=x), (0.9, 1.0))
for made in (RULES.adagrad, RULES.shampoo):
    refuse("eps must be", lambda g, x, made=made: made(eps=x), -1.0)
refuse("p", lambda g, x: RULES.mirror(p=x), 1.0, *REAL)
refuse("target_loss", lambda g, x: RULES.polyak(target_loss=x), *REAL[1:])
train("ball", 1.0, rule="mirror")
train("ball", "spectral", ball=1.0)
train("ball", K=K, Q=K, ball=1.0)
train("lr must have shape (steps,) = (3,), got (1,)", lr=[1.0], steps=3)
train("lr", ones((1, 3)), [0.1, 0.1], [0.1] * 4, [0.1, -0.1, 0.1], steps=3)
train("lr", ones((3, 1)), ones((2, 4)), runs=2, steps=3)
train("steps", None, 2**63, *WHOLE)
train("record", -1, 10.0, [1.0, 2.0], True, None, "all", HUGE, UNSIGNED, [HUGE], [1, [2, 3]], MASKED)
train("record", [11], [-1, 3], [[1, 2]], steps=10)
train("record", 1, steps=2**62)
for argument in ("ridge", "lr", "ball", "weight_decay", "momentum"):
    train(argument, *REAL)
train("ridge", None)
train("reduce", "sum", lambda a: 2 * a)
train("callback", 1)
train("train_head", 1)
for head in (LinearHead(ones((2, 2))), attsvm.CallableHead(lambda o: (o[:, 0], o))):
    refuse("train_head", lambda g, x: attsvm.train(changed(g, head=x), train_head=True), head)
row("train_head", lambda g: attsvm.train(
    changed(g, data=attsvm.cross_attention(abs(g.X), g.Z), y=None, loss="log"), train_head=True))
train("W", W=W, K=K, Q=K)
train("Q", K=K)
train("K", Q=K)
train("target_loss", rule="polyak", train_head=True)
train("runs", 0, *WHOLE)
train("W", W, np.zeros((3, 2, 2)), runs=2)
train("K", K, Q=K, runs=2)
train("Q", ones((2, 2, 4)), K=ones((2, 2, 3)), runs=2)
row("W", lambda g: attsvm.train(changed(g, heads=2), steps=3))

solve("data", ones((2, 3, 2)))
row("got Problem: pass its .data", lambda g: attsvm.solve_svm(g.problem, [0, 0]))
solve("selected", [0.0, 1.0], "01", 0, [0], [0, 3], [0, -1], UNSIGNED, [0, HUGE], [0, [1]], [True, False], MASKED,
      [], np.eye(2, 3, 2, dtype=bool), ones((2, 4), dtype=bool))
refuse("selected", lambda g, x: attsvm.solve_svm(g.ragged, x), [2, 1, 0], [a > 0 for a in ragged()])
refuse("selected", lambda g, x: attsvm.solve_svm(g.causal, x), [[0, 2, 0], [0, 0, 0]], ones((2, 3, 3), dtype=bool))
refuse("selected", lambda g, x: attsvm.solve_svm(g.causal_ragged, x), [ones((T, T)) > 0 for T in (3, 1, 2)])
refuse("selected", lambda g, x: attsvm.solve_svm(g.all_ragged, x), [[0, 0, 0]], [[[0], [1, 2]], [0], [0, 0]])
solve("norm", "operator", None, ["frobenius"], True, nan, -inf, 1, 1.0, 0.5, -3, "3", "entrywise", [3.0], 2j)
solve("method", "simplex", None, ["active"])
solve("method", "active", norm="nuclear")
solve("max_iter", 0, *WHOLE)
for argument in ("tol", "C"):
    solve(argument, 0.0, *REAL)
solve("C", 1.0, norm="nuclear")
solve("rank", 0, -1, 1.5, "2", True, nan, norm="nuclear")
solve("rank", 2)
solve("rank", 2, norm=3.0)
solve("method", "interior", norm="nuclear", rank=2)
solve("metric", -ones((2, 2)), ones((2, 3)))
solve("metric", W + 1, norm="max")
solve("metric", W + 1, progress=True)
solve("warm_start", "cold", 3.0, ones((2, 4)), ones(6), nan * K, 1j * K, object(), {"dual": 1}, [[1.0], [1.0, 2.0]])
row("warm_start", lambda g: attsvm.solve_svm(g.data, [0, 0], warm_start=g.sol))
for how in ({"C": 1.0}, {"margins": K}, {"warm_start": K}, {"progress": True}, {"rank": 2, "norm": "nuclear"}):
    solve(next(iter(how)), reduce=lambda a: None, **how)
solve("reduce", "sum")
solve("margins", 1.0, [1.0, 1.0], ones((2, 4)), nan * K, inf * K, "1", np.ma.masked_array(K, np.eye(2, 3)), 1e200 * K,
      1e-200 * K)
refuse("margins", lambda g, x: attsvm.solve_svm(g.ragged, [0, 0, 0], margins=x), [ones(2)])
refuse("selected", lambda g, x: attsvm.feasible(g.data, x), [0, 3], [0.0, 1.0])
refuse("data", lambda g, x: attsvm.feasible(x, [0, 0]), ones((2, 3, 2)))

solve("(one token per query) or bools (per entry), got NoneType", selected=None)
solve("tol must be a number, got None", tol=None)
solve("got 'fro': say 'frobenius'", norm="fro")
solve("got 'nuc': say 'nuclear'", norm="nuc")
margins = options(lambda g, **how: g.data.margins(W, **how))
margins("selected must have shape (n,) = (2,), got (1,)", selected=[0])
margins("selected must be token indices of each window, 0 .. 2 for query 1, got 3", selected=[0, 3])
margins("selected must hold token indices, got float64", selected=[0.0, 1.0])
margins("selected must be an array of numbers", selected=[True, False])

none = attsvm.cross_attention(np.empty((0, 6, 5)), np.empty((0, 4)))
cross("no sequences, so Z must have shape", X=np.empty((0, 6, 5)), Z=ones((6, 4)))
cross("values must have shape (0, T, d)", X=np.empty((0, 6, 5)), Z=np.empty((0, 4)), values=ones((6, 6, 5)))
refuse("X must have shape (0, T, d)", lambda g, x: attsvm.causal_attention(x), np.empty((0, 6, 0)))
problem("y must have shape (n,) = (0,)", data=none, y=ones(6), head=LinearHead(ones(5)))
solve("selected must have shape (n,) = (0,)", data=none, selected=np.array([0]), reduce=lambda a: None)
row("index must choose at least one sequence", lambda g: none[:])

sphere = options(lambda g, **how: attsvm.sample.unit_sphere(**{"n": 6, "T": 8, "d": 10} | how))
for argument in ("n", "T", "d"):
    sphere(argument, 0, *WHOLE)
sphere("rng", "seed", -1, 0.5)
refuse("n", lambda g, x: attsvm.sample.unit_sphere(x, x, x), 2**22)
refuse("P", lambda g, x: attsvm.sample.markov(x, 2, 2), [[1.0], [0.5, 0.5]], [[0.5, 0.5]])
refuse("T", lambda g, x: attsvm.sample.positional_encoding(x, 4), 0)
refuse("T", lambda g, x: attsvm.sample.signal_noise(3, x, 4, 1.0), 2)
refuse("wrong", lambda g, x: attsvm.sample.signal_noise(3, 3, 4, 1.0, wrong=x), 1.5, -0.1)
refuse("base", lambda g, x: attsvm.sample.positional_encoding(3, 4, x), 1.0)
refuse("probabilities", lambda g, x: attsvm.theory.selected_sets(x), [0.5, 1.5], [[1.0], [1.5, -0.5]], 1.0)
refuse("low", lambda g, x: attsvm.theory.selected_sets([0.5, 0.5], x, 1e-6), 1e-3)
refuse("scores", lambda g, x: attsvm.theory.tokens_kept(x, 1.0), [1.0, nan], 1.0)
refuse("lam", lambda g, x: attsvm.theory.tokens_kept([1.0, 0.0], x), -1.0)
refuse("k", lambda g, x: attsvm.set_num_threads(x), 0, *WHOLE)
refuse("B", lambda g, x: attsvm.correlation(ones((2, 2)), x), K)
refuse("problem", lambda g, x: attsvm.theory.is_locally_optimal(x, g.sol), attsvm.self_attention(ones((1, 2, 2))))
row("problem", lambda g: attsvm.theory.is_locally_optimal(changed(g, heads=1), g.sol))
row("problem", lambda g: attsvm.diagnose(changed(g, head=MLPHead(np.eye(2)))))
row("selected must hold one token per query", lambda g: attsvm.diagnose(g.problem, ones((2, 3), bool)))
refuse("problem", lambda g, x: attsvm.diagnose(x), W)
refuse("solution", lambda g, x: attsvm.theory.is_locally_optimal(g.problem, x), W)
row("solution", lambda g: attsvm.theory.is_locally_optimal(g.problem, g.sol))  # of other data
decompose = options(lambda g, **how: attsvm.theory.decompose(**{"data": g.data, "probabilities": K / 3, "W": W} | how))
HALF = np.array([[1 - 2e-4, 1e-4, 1e-4]] * 2)
decompose("got 2 queries with one in between (the first is query 0): train longer", probabilities=HALF)
decompose("got 1 query with one in between (the first is query 0)", probabilities=[HALF[0], [1.0, 0.0, 0.0]])
refuse("got float64: weights W select data.select(W)", lambda g, x: attsvm.diagnose(g.problem, x), W)
decompose("data", ones((2, 3, 2)))
decompose("norm", "operator")
decompose("selected", ones((2, 2), bool))
refuse("experiment", lambda g, x: attsvm.replicate(x, 2), {})
refuse("n_jobs", lambda g, x: attsvm.replicate(dict, 2, n_jobs=x), *WHOLE[1:])
replicate = options(
    lambda g, experiment=lambda rng, **cell: {"x": 1.0}, runs=20, **how: attsvm.replicate(
        experiment, runs, n_jobs=1, progress=False, **how))
replicate("grid must be a mapping", grid=[1])
replicate("grid['d'] must be a list of values, got int", grid={"d": 3})
replicate("must be a list of values, got str", grid={"d": "abc"})
replicate("must hold values, each of them once", grid={"d": []})
replicate("each of them once", grid={"d": [1, "1"]})
replicate("must hold numbers, words, bool or None, got list", grid={"d": [[1]]})
replicate("grid must have names that a function can take", grid={"run": [1]})
replicate("grid must have names that a function can take", grid={"rng": [1]})
replicate("experiment must return other names than those of the grid, got 'x'", grid={"x": [1]})
replicate("experiment must return a mapping of names to numbers, got float", experiment=lambda rng: 3.0)
replicate("experiment must return numbers, got <U4 for 'a'", experiment=lambda rng: {"a": "text"})
replicate("the same names and shapes in every run", experiment=lambda rng: {"a": np.zeros(rng.integers(1, 99))})
replicate("runs must be at least 1", runs=0)
replicate("seed must be", seed=-1)
row("solution", lambda g: attsvm.plot.correlation(attsvm.train(g.problem, steps=1), None))
row("run", lambda g: attsvm.plot.saturation(attsvm.solve_svm(g.data, [0, 0])))
row("run", lambda g: attsvm.plot.saturation(attsvm.train(changed(g, heads=1), steps=3), ax=object()))
refuse("run", lambda g, x: attsvm.plot.margin_share(x), [1.0])
refuse("steps", lambda g, x: attsvm.plot.band(x, [[1.0]]), ["a"])
refuse("curves", lambda g, x: attsvm.plot.band([0, 1], x), [[1.0]])
refuse("probabilities[0]", lambda g, x: attsvm.plot.attention(x), [["a"]])
refuse("probabilities", lambda g, x: attsvm.plot.attention(x), [])
refuse("selected", lambda g, x: attsvm.plot.attention(K, x, object()), [0])
# fmt: on


def arrays(g):
    """All arrays of the good arguments, to see that nothing has touched them."""
    flat = [a for value in vars(g).values() for a in (value if isinstance(value, list) else [value])]
    return [a for a in flat if isinstance(a, np.ndarray)]


@pytest.mark.parametrize("argument, call", [each[1:] for each in ROWS], ids=[each[0] for each in ROWS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_input_is_refused_by_name(argument, call):
    g = good()
    before = copy.deepcopy(arrays(g))
    with pytest.raises((ValueError, TypeError)) as caught:
        call(g)
    assert re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", str(caught.value)), str(caught.value)
    np.testing.assert_equal(arrays(g), before)


def test_good_arguments_are_good():
    """Otherwise the table would pass for the wrong reason."""
    g = good()
    for _, shape, call in ARRAYS.values():
        call(g, np.ones(shape))
    attsvm.train(g.problem, K=g.K, Q=g.Q, lr=[0.1] * 3, steps=3, record=[1, 2], ridge=0.1)
    attsvm.solve_svm(g.data, np.ones((2, 3), dtype=bool))
    attsvm.solve_svm(g.causal_ragged, [np.tri(T, dtype=bool) for T in (3, 1, 2)])
    attsvm.Problem(
        g.all_ragged, [np.ones(S) for S in (3, 1, 2)], attsvm.LinearHead([np.ones((S, 2)) for S in (3, 1, 2)])
    )


# ------------------------------------------------------------------------------------ the private module


core = attsvm._core
BINDINGS = {name for name in dir(core) if inspect.isbuiltin(getattr(core, name))}
BINDINGS -= {"config", "set_num_threads", "largest", *core.METHOD}  # a method's signature is that of check
REFUSED = (ValueError, TypeError, OverflowError, IndexError)


def arguments(name):
    """Of a binding, by its signature: each argument's name and how it is read, without its shape."""
    text = getattr(core, name).__doc__.partition("->")[0].replace("} run", "").replace("{", "")  # fields of a record
    items = re.sub(r"\[.*?\]", "", text).split(", ")
    return {item.split()[-1].rstrip("?"): item for item in items if item.strip()}


def call_of(name, given):
    """The binding, called with arguments by name; those of a run but for the last four are a record."""
    *values, first, last, recorded, combine = given.values() if name == "train" else (*given.values(), *(None,) * 4)
    if name == "train":
        return core.train(Descent(*values), first, last, recorded, combine)
    return getattr(core, name)(*values)


@pytest.fixture
def calls():
    """Of each binding the arguments, by name, of a call that is right; most as the package makes it."""
    found, g = {}, good()

    def listening(name, function):
        names = arguments(name)

        def call(*given):
            answer = function(*given)
            given = [*given[0], *given[1:]] if name == "train" else given
            found[name] = dict(zip(names, given, strict=True))
            return answer

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in BINDINGS:
            patch.setattr(core, name, listening(name, getattr(core, name)))
        data = attsvm.cross_attention(g.X, g.Z)
        core.index(attsvm.cross_attention(g.ragged_X, ones((3, 2)))._handle)
        core.reference(data._handle, [0, 1])
        data.probabilities(W), data.attended(W), data.margins(W, [0, 0])
        core.interval(data._handle, np.zeros(2, int), None, W[None], ones((1, 6)))
        core.check(data._handle, np.zeros(2, int), None, None, 1e-9, 0, 0.0, 2.0, 0, ones(6), None, None)
        core.loss_values(0, ones(2)), core.loss_bounds(0, 1.0), core.projection_ball(W + 1, 0, 1.0)
        attsvm.solve_svm(data, [0, 0])
        attsvm.regularization_path(g.problem, [1.0])
        linear = attsvm.Problem(data, g.y, g.head)
        linear.optimal, linear.loss(K=K, Q=K), linear.loss_and_grad(W)
        core.multipliers(linear._objective, None, None, W[None], None, None)
        attsvm.train(linear, W, steps=3, record=3, momentum=0.5, train_head=True)
        MLPHead(K, ones(3)).value_and_grad(ones((2, 2)))
        found["objective"] |= {"kind": core.HEAD["mlp"], "v": K, "a": ones(3), "scores": None}
    found["train"]["reached"] = np.zeros(2, int)  # as before the run
    return found


def refused(name, given, **change):
    with pytest.raises(REFUSED):
        call_of(name, given | change)
        pytest.fail(f"{name} takes {change}")


def test_the_private_module_refuses_arguments_of_another_kind(calls):
    """Every argument of every binding, by its signature; arrays of other lengths are refused, or do no harm."""
    assert calls.keys() == BINDINGS, "a binding without a call"
    for name, given in calls.items():
        handles = [call["windows"] for call in calls.values() if "windows" in call] + [calls["train"]["objective"]]
        for argument, item in arguments(name).items():
            x, wrong = given[argument], [object(), "x"]
            if "object" in item.split()[:1] or "function" in item:
                continue
            if isinstance(x, np.ndarray):
                wrong += [x.astype(complex), x.astype(x.dtype.newbyteorder())]
                wrong += [np.array(x.flat[0]), np.repeat(x, 2, -1)[..., ::2]] if x.size > 1 else []
                wrong += [np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape)] if "&" in item else []  # not writeable
            elif type(x) is type(handles[0]):
                wrong += [handles[0] if item == "objective" else handles[-1]]
            for value in wrong + ([] if "?" in item else [None]):
                refused(name, given, **{argument: value})
            for axis in range(x.ndim if isinstance(x, np.ndarray) else 0):
                for value in (np.repeat(x, 2, axis), np.take(x, [], axis)):
                    with contextlib.suppress(*REFUSED):
                        call_of(name, given | {argument: value})
        for less in (list(given.values())[:-1], [*given.values(), None]):
            with pytest.raises(TypeError):
                getattr(core, name)(*less)
                pytest.fail(f"{name} takes {len(less)} arguments")


def test_the_private_module_refuses_values_that_do_not_fit_together(calls):
    windows, start, one, many = calls["windows"], calls["windows"]["start"], np.ones((1, 2, 2)), np.ones((2, 2, 2))
    called = core.objective(*(calls["objective"] | {"kind": core.HEAD["call"], "v": None, "a": None}).values())
    per_query = core.objective(*(calls["objective"] | {"kind": core.HEAD["quadratic"], "v": W + 1, "a": None}).values())
    unseen = core.objective(*(calls["objective"] | {"values": None, "scores": np.ones(6), "kind": None}).values())
    none = np.zeros
    # fmt: off
    wrong = {  # of each binding: values of one argument, or several that do not fit together
        "windows": [{"stop": [windows["stop"] + 1, start]}, {"start": start - 1, "stop": windows["stop"] - 1}],
        "margins": [{"reference": [np.full(2, 10**12), np.full(2, -1)]}],
        "loss_values": [{"loss": [len(core.LOSS)]}], "loss_bounds": [{"loss": [-1]}],
        "objective": [{"loss": [-1, len(core.LOSS)], "y": [None], "H": [0, HUGE], "a": [None], "v": [None],
                       "kind": [None, len(core.HEAD)]}, {"H": 2, "concatenate": 1}],
        "loss": [{"Q": [one, None], "objective": [called]}, {"K": None, "Q": None},
                 {"W": many, "K": None, "Q": None}, {"objective": called, "head": "no function"}],
        "regularization_path_point": [{"objective": [called], "radius": [-1.0]}],
        "head": [{"kind": [3, -1], "v": [None]}, {"kind": 0, "v": np.ones(3)}],
        "projection_ball": [{"ball": [2, -1], "radius": [-1.0], "W": [np.ones(2)]}],
        "train": [
            {"rule": [len(core.UPDATE_RULE), -1], "root": [np.ones(5)], "mean": [None, none(5)],
             "past": [none((1, 2)), None], "momentum": [1.0], "decay": [-1.0], "second": [1.0], "eps": [nan],
             "p": [1.0], "ball": [2],
             "lr": [np.array([0.1]), np.array([[0.1, 0.1]]), np.ones((2, 1)), none((1, 0))],
             "span": [none((1, 3, 2)), none((1, 4, 2))], "first": [-1, 4], "last": [HUGE],
             "record": [np.array([3, 0]), np.array([0, 0]), np.array([0, 1, 3])], "W": [none((0, 2, 2)), None, many],
             "v": [np.ones((1, 3))], "objective": [unseen, per_query], "weights": [none((2, 2, 3)), None],
             "recorded": [1], "head_records": [None], "loss": [none(3)], "half_squares": [none(2)],
             "reached": [none(1, int), np.array([0, 3]), np.array([0, -1])]},
            {"rule": 7, "mean": None}, {"rule": 8, "root": None, "past": None}, {"rule": 9, "root": none(8)},
            {"rule": 5, "root": np.ones(4)}, {"v": None, "span": none((1, 4, 2)), "combine": lambda *_: None},
            {"objective": called, "called_head": lambda o: None},
        ],
    }
    # fmt: on
    for name, (alone, *together) in wrong.items():
        for change in [{argument: value} for argument in alone for value in alone[argument]] + together:
            assert change.keys() <= calls[name].keys()
            refused(name, calls[name], **change)


def test_a_record_without_a_field_is_refused_by_its_name():
    with pytest.raises(AttributeError, match="'objective'"):
        attsvm._core.train(object(), 0, 3, None, None)


class Number:
    """No float, so that C calls __float__; which takes an array's memory away."""

    def __init__(self, array):
        self.array = array

    def __float__(self):
        self.array.resize((0,) * self.array.ndim, refcheck=False)
        return 1.0


def test_numbers_are_read_before_arrays_are_checked(calls):
    """The call sees what is left of the array, and refuses it; a projection has any shape."""
    tried = 0
    for name, given in calls.items():
        numbers = [argument for argument, item in arguments(name).items() if item.startswith("number ")]
        for number, array in itertools.product(numbers, given):
            if isinstance(given[array], np.ndarray) and name != "projection_ball":
                emptied = given[array].copy()
                refused(name, given, **{array: emptied, number: Number(emptied)})
                tried += 1
    assert tried > 100


# ------------------------------------------------------------------------------------ leaks


@pytest.mark.slow
def test_calls_leave_no_references_and_no_memory():
    """Hundreds of rounds of calls that are right, and of some that fail at their arguments or amid their work."""
    g = good()
    spoiled = {"lr", "record", "W", "v", "query"}
    failing = [call for name, argument, call in ROWS if name.startswith(f"{argument}-") and argument in spoiled]
    amid = [{"W": g.W + 1e308}, {"callback": lambda run: int("no")}, {"reduce": lambda a: int("no")}]
    kept = [*arrays(g), g.data, g.problem]

    def rounds(times):
        for i in range(times):
            for _, shape, call in ARRAYS.values():
                call(g, np.ones(shape))
            attsvm.train(g.problem, steps=3, train_head=True, callback=lambda run: None, reduce=lambda a: None)
            for call in [
                failing[i % len(failing)],
                *(lambda g, how=how: attsvm.train(g.problem, **how) for how in amid),
            ]:
                with pytest.raises((ValueError, TypeError, FloatingPointError)):
                    call(g)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        rounds(2 * len(failing))  # caches of Python and NumPy fill up
        references = [sys.getrefcount(a) for a in kept]
        memory = [rounds(80) for _ in range(5)]
        # NumPy's caches of small blocks still fill, ever slower (most with a debugging malloc); a leak grows as
        # much in every batch: an array (112 bytes and its numbers) in each round.
        assert np.diff(memory).min() < 80 * 64
        assert [sys.getrefcount(a) for a in kept] == references
    finally:
        tracemalloc.stop()
