"""Bad input: every public function refuses it with a ValueError or TypeError that names the argument.

``BAD_INPUTS`` is a table of (id, argument, call); a call gets fresh good arguments and spoils one of them.
"""

import copy
import gc
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


def _called(g, function):
    return attsvm.Problem(g.data, g.y, attsvm.CallableHead(function)).loss(g.W)


ROWS = {}


def bad(name, argument):
    """Adds a row: ``@bad("what is wrong", "argument")`` over a call."""

    def add(call):
        assert name not in ROWS, name
        ROWS[name] = (name, argument, call)
        return call

    return add


def refuse(argument, call, values):
    """A row for each wrong value ``x`` of ``call(g, x)``."""
    for what, value in values.items():
        bad(f"{argument}-{what}", argument)(lambda g, x=value: call(g, x))


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
    "cross_attention": ("X", (2, 3, 2), lambda g, a: attsvm.cross_attention(a, g.Z)),
    "cross_attention_Z": ("Z", (2, 2), lambda g, a: attsvm.cross_attention(g.X, a)),
    "cross_attention_values": ("values", (2, 3, 2), lambda g, a: attsvm.cross_attention(g.X, g.Z, a)),
    "self_attention": ("X", (2, 3, 2), lambda g, a: attsvm.self_attention(a)),
    "self_attention_values": ("values", (2, 3, 2), lambda g, a: attsvm.self_attention(g.X, values=a)),
    "causal_attention": ("X", (2, 3, 2), lambda g, a: attsvm.causal_attention(a)),
    "causal_attention_values": ("values", (2, 3, 2), lambda g, a: attsvm.causal_attention(g.X, a)),
    "prompt_attention": ("X", (2, 3, 2), lambda g, a: attsvm.prompt_attention(a)),
    "prompt_attention_key": ("key", (4, 2), lambda g, a: attsvm.prompt_attention(g.X, a)),
    "logits": ("W", (2, 2), lambda g, a: g.data.logits(a)),
    "probabilities": ("W", (2, 2), lambda g, a: g.data.probabilities(a)),
    "attended": ("W", (2, 2), lambda g, a: g.data.attended(a)),
    "select": ("W", (2, 2), lambda g, a: g.data.select(a)),
    "LinearHead": ("v", (2,), lambda g, a: attsvm.Problem(g.data, g.y, attsvm.LinearHead(a))),
    "LinearHead_per_query": ("v", (2, 2), lambda g, a: attsvm.Problem(g.data, g.y, attsvm.LinearHead(a))),
    "Problem_y": ("y", (2,), lambda g, a: attsvm.Problem(g.data, a, g.head)),
    "loss_W": ("W", (2, 2), lambda g, a: g.problem.loss(a)),
    "loss_and_grad_W": ("W", (2, 2), lambda g, a: g.problem.loss_and_grad(a)),
    "loss_K": ("K", (2, 3), lambda g, a: g.problem.loss(K=a, Q=g.Q)),
    "loss_and_grad_Q": ("Q", (2, 3), lambda g, a: g.problem.loss_and_grad(K=g.K, Q=a)),
    "train_W": ("W", (2, 2), lambda g, a: attsvm.train(g.problem, a, steps=3)),
    "train_K": ("K", (2, 3), lambda g, a: attsvm.train(g.problem, K=a, Q=g.Q, steps=3)),
    "train_Q": ("Q", (2, 3), lambda g, a: attsvm.train(g.problem, K=g.K, Q=a, steps=3)),
    "train_lr": ("lr", (3,), lambda g, a: attsvm.train(g.problem, lr=a, steps=3)),
    "correlation_A": ("A", (2, 2), lambda g, a: attsvm.correlation(a, g.W + 1)),
    "correlation_B": ("B", (2, 2), lambda g, a: attsvm.correlation(g.W + 1, a)),
    "decompose_W": ("W", (2, 2), lambda g, a: attsvm.theory.decompose(g.data, g.data.probabilities(g.W), a)),
    "decompose_probabilities": ("probabilities", (2, 3), lambda g, a: attsvm.theory.decompose(g.data, a, g.W)),
}
# None is the default of these, or they take this number or shape.
FINE = {
    *(f"{where}-none" for where in ("cross_attention_values", "self_attention_values", "causal_attention_values")),
    *(f"{kind}_attention-no_rows" for kind in ("self", "causal", "prompt")),  # a shard of reduce
    *("prompt_attention_key-none", "Problem_y-none", "train_W-none"),
    *("train_lr-none", "train_lr-too_few_dimensions"),
    "LinearHead_per_query-too_few_dimensions",
    "train_lr-number",
}

for where, (argument, shape, call) in ARRAYS.items():
    for what in wrong_arrays(shape):
        if f"{where}-{what}" not in FINE:
            bad(f"{where}-{what}", argument)(lambda g, c=call, s=shape, w=what: c(g, wrong_arrays(s)[w]))

# ------------------------------------------------------------------------------------ data

# fmt: off
refuse("X", lambda g, x: attsvm.cross_attention(x, g.Z), {"ragged-dimension": [np.ones((3, 2)), np.ones((2, 3))],
    "list-of-none": [None, None], "list-with-none": [np.ones((3, 2)), None], "list-of-strings": ["ab", "cd"],
    "sequence-is-jagged": [[[1.0, 2.0], [3.0]], [[1.0, 2.0]]]})
refuse("X", lambda g, x: attsvm.causal_attention([np.ones((3, 2)), np.ones(x)]), {"ragged-one-is-empty": (0, 2),
    "ragged-one-is-flat": 2})
refuse("X", lambda g, x: attsvm.self_attention([np.ones((3, 2)), x]), {"ragged-nan": np.full((1, 2), nan),
    "ragged-masked": np.ma.masked_array(np.ones((1, 2)), True), "ragged-complex": np.ones((1, 2)) * 1j})
refuse("Z", lambda g, x: attsvm.cross_attention(g.X, x), {"other-n": np.ones((3, 2)),
    "other-n-of-several": np.ones((3, 4, 2)), "ragged-other-n": [np.ones((i, 2)) for i in (1, 2, 3)],
    "jagged-rows": [[1.0], [1.0, 2.0]], "no-queries": np.ones((2, 0, 2)), "flat-list": [1.0, 2.0]})
refuse("values", lambda g, x: attsvm.cross_attention(g.X, g.Z, np.ones(x)), {"other-T": (2, 4, 2),
    "other-n": (3, 3, 2)})
refuse("values", lambda g, x: attsvm.causal_attention(g.ragged_X, x), {
    "other-lengths": [np.ones((T, 2)) for T in (3, 2, 1)], "rectangular-for-ragged": np.ones((3, 2, 2))})
refuse("query", lambda g, x: attsvm.self_attention(g.X, query=x), {"out-of-range": 3, "before-the-first": -4,
    "float": 0.0, "bool": True, "string": "0", "list": [0, 1], "array": np.array([0, 1]), "huge": 2 ** 65,
    "hugely-negative": -2 ** 65, "bad-index": BadIndex()})
# fmt: on

bad("X-one-sequence-alone", "X")(lambda g: attsvm.cross_attention(g.X[0], g.Z))
bad("Z-ragged-dz", "Z[1]")(lambda g: attsvm.cross_attention(g.X, [np.ones((2, 2)), np.ones((3, 3))]))
bad("query-beyond-the-shortest", "query")(lambda g: attsvm.self_attention(g.ragged_X, query=1))
bad("key-other-d", "key")(lambda g: attsvm.prompt_attention(g.X, np.ones((4, 3))))
bad("key-overflows", "key")(lambda g: attsvm.prompt_attention(g.X * 1e300, np.full((2, 2), 1e300)))
bad("W-transposed", "W")(lambda g: attsvm.cross_attention(g.X, np.ones((2, 3))).logits(np.ones((3, 2))))
bad("W-prompt-as-a-vector", "W")(lambda g: attsvm.prompt_attention(g.X).logits([1.0, 2.0]))
bad("W-run", "W")(lambda g: g.data.logits(attsvm.train(g.problem, steps=1)))

# ------------------------------------------------------------------------------------ problem

# fmt: off
refuse("v", lambda g, x: attsvm.Problem(g.data, g.y, x), {"other-dv": attsvm.LinearHead(np.ones(3)),
    "other-dv-per-query": attsvm.LinearHead(np.ones((2, 3))), "other-n": attsvm.LinearHead(np.ones((3, 2))),
    "head-quadratic-v": attsvm.QuadraticHead(np.ones(3), 1.0)})
refuse("v", lambda g, x: attsvm.Problem(g.several, None, attsvm.LinearHead(np.ones(x))), {
    "per-sequence-for-several": (2, 2), "other-S": (2, 3, 2)})
refuse("v", lambda g, x: attsvm.Problem(g.all_ragged, None, attsvm.LinearHead(x)), {
    "array-for-ragged": np.ones((3, 2, 2)), "list-of-other-lengths": [np.ones((S, 2)) for S in (3, 2, 1)],
    "list-too-short": [np.ones((3, 2)), np.ones((1, 2))],
    "list-of-other-dv": [np.ones((3, 2)), np.ones((1, 2)), np.ones((2, 3))]})
refuse("v", lambda g, x: attsvm.LinearHead(x), {"list-with-a-jagged-part": [[[1.0, 2.0], [3.0]], [[1.0, 2.0]]],
    "list-with-none": [np.ones((3, 2)), None]})
refuse("y", lambda g, x: attsvm.Problem(g.data, x, g.head), {"zero": [1.0, 0.0], "two": [1, 2],
    "nearly-one": [1.0, 1.0 + 1e-15], "zero-one-labels": [0, 1], "other-n": [1.0, 1.0, 1.0], "column": [[1.0], [1.0]]})
refuse("y", lambda g, x: attsvm.Problem(g.all_ragged, x, g.head), {"flat-for-ragged": np.ones(6),
    "list-of-other-lengths": [np.ones(S) for S in (3, 2, 1)], "list-too-short": [np.ones(3), np.ones(1)],
    "list-with-none": [np.ones(3), np.ones(1), None], "list-with-a-jagged-part": [[[1.0], [1.0, 1.0]], [1.0], [1.0]]})
refuse("loss", lambda g, x: attsvm.Problem(g.data, g.y, g.head, x), {"unknown": "hinge", "other-case": "Logistic",
    "none": None, "function": np.exp, "list": ["logistic"], "log-of-negative-scores": "log"})
# fmt: on

bad("data-array", "data")(lambda g: attsvm.Problem(g.X, g.y, g.head))
bad("data-none", "data")(lambda g: attsvm.Problem(None, g.y, g.head))
bad("data-problem", "data")(lambda g: attsvm.Problem(g.problem, g.y, g.head))
bad("head-missing", "head")(lambda g: attsvm.Problem(g.data, g.y))
bad("head-array", "head")(lambda g: attsvm.Problem(g.data, g.y, g.v))
bad("head-class", "head")(lambda g: attsvm.Problem(g.data, g.y, attsvm.LinearHead))
bad("scores-overflow", "y v.x")(
    lambda g: attsvm.Problem(attsvm.cross_attention(g.X * 1e300, g.Z), None, attsvm.LinearHead([1e300, 1e300]))
)
bad("y-per-sequence-for-several", "y")(lambda g: attsvm.Problem(g.several, g.y, g.head))
bad("loss-log-of-zero-scores", "loss")(lambda g: attsvm.Problem(g.data, None, attsvm.LinearHead([0.0, 0.0]), "log"))
bad("weights-none-at-all", "W")(lambda g: g.problem.loss())
bad("weights-W-and-K", "W")(lambda g: g.problem.loss(g.W, K=g.K))
bad("weights-W-K-and-Q", "W")(lambda g: g.problem.loss_and_grad(g.W, K=g.K, Q=g.Q))
bad("weights-K-alone", "Q")(lambda g: g.problem.loss(K=g.K))
bad("weights-Q-alone", "K")(lambda g: g.problem.loss_and_grad(Q=g.Q))
bad("weights-K-and-Q-of-other-widths", "Q")(lambda g: g.problem.loss(K=g.K, Q=np.ones((2, 4))))
bad("weights-K-of-no-width", "K")(lambda g: g.problem.loss(K=np.ones((2, 0)), Q=np.ones((2, 0))))

# ------------------------------------------------------------------------------------ train

# fmt: off
refuse("rule", lambda g, x: attsvm.train(g.problem, rule=x), {"unknown": "lion", "other-case": "Normalized",
    "none": None, "number": 0})
refuse("p", lambda g, x: attsvm.train(g.problem, rule=attsvm.rules.mirror(p=x)), {"one": 1.0, "none": None})
refuse("ball", lambda g, x: attsvm.train(g.problem, ball=x), {"negative": -1.0, "nan": nan, "word": "nuclear",
    "three": ("nuclear", 1.0, 2.0)})
refuse("until", lambda g, x: attsvm.train(g.problem, until=x), {"word": "end", "number": 1})
for old in ("betas", "eps", "p", "target_loss", "metric", "radius"):
    refuse(old, lambda g, x, old=old: attsvm.train(g.problem, **{old: x}), {"moved": 0.5})
refuse("runs", lambda g, x: attsvm.train(g.problem, runs=x), {"zero": 0, "float": 2.0})
refuse("lr", lambda g, x: attsvm.train(g.problem, lr=x, steps=3), {"matrix": np.ones((1, 3)), "too-short": [0.1, 0.1],
    "too-long": [0.1] * 4, "one-for-many": [0.1], "one-is-negative": [0.1, -0.1, 0.1]})
refuse("reduce", lambda g, x: attsvm.train(g.problem, reduce=x), {"word": "sum", "copies": lambda a: 2 * a})
refuse("train_head", lambda g, x: attsvm.train(attsvm.Problem(g.data, g.y, x), train_head=True), {
    "v-per-query": attsvm.LinearHead(np.ones((2, 2))), "callable": attsvm.CallableHead(lambda o: (o[:, 0], o))})
refuse("lr", lambda g, x: attsvm.train(g.problem, lr=x), {"negative": -0.1, "nan": nan, "inf": inf, "bool": True,
    "function": lambda k: None})
refuse("steps", lambda g, x: attsvm.train(g.problem, steps=x), {"negative": -1, "float": 10.0, "nan": nan, "bool": True,
    "numpy-bool": np.True_, "none": None, "string": "10", "array": np.array([3]), "huge": 2 ** 70,
    "just-too-large": 2 ** 63})
refuse("record", lambda g, x: attsvm.train(g.problem, steps=x, record=1), {"steps-too-many-to-record": 2 ** 62,
    "steps-largest": 2 ** 63 - 1})
refuse("record", lambda g, x: attsvm.train(g.problem, record=x), {"negative": -1, "float": 10.0, "floats": [1.0, 2.0],
    "bool": True, "none": None, "string": "all", "huge": 2 ** 70,
    "unsigned-huge": np.array([2 ** 64 - 1], dtype=np.uint64), "huge-in-a-list": [2 ** 70], "jagged": [1, [2, 3]],
    "masked": np.ma.masked_array([1, 2], [True, False])})
refuse("record", lambda g, x: attsvm.train(g.problem, steps=10, record=x), {"beyond-the-end": [11],
    "before-the-start": [-1, 3], "matrix": [[1, 2]]})
refuse("ridge", lambda g, x: attsvm.train(g.problem, ridge=x), {"negative": -0.001, "nan": nan, "inf": inf,
    "bool": True, "none": None, "array": [0.1, 0.2], "string": "1e-3", "complex": 1j})
# fmt: on

bad("train-problem-is-data", "problem")(lambda g: attsvm.train(g.data))
bad("train-problem-is-none", "problem")(lambda g: attsvm.train(None))
bad("train-W-K-and-Q", "W")(lambda g: attsvm.train(g.problem, g.W, K=g.K, Q=g.Q))
bad("train-K-alone", "Q")(lambda g: attsvm.train(g.problem, K=g.K))
bad("train-Q-alone", "K")(lambda g: attsvm.train(g.problem, Q=g.Q))
bad("target-nan", "target_loss")(lambda g: attsvm.train(g.problem, rule=attsvm.rules.polyak(target_loss=nan)))
bad("target-with-head", "target_loss")(lambda g: attsvm.train(g.problem, rule="polyak", train_head=True))
bad("ball-mirror", "ball")(lambda g: attsvm.train(g.problem, ball=1.0, rule="mirror"))
bad("ball-unknown", "ball")(lambda g: attsvm.train(g.problem, ball=("spectral", 1.0)))
bad("ball-of-factors", "ball")(lambda g: attsvm.train(g.problem, K=g.K, Q=g.Q, ball=1.0))
bad("runs-W", "W")(lambda g: attsvm.train(g.problem, g.W, runs=2))
bad("runs-W-other", "W")(lambda g: attsvm.train(g.problem, np.zeros((3, 2, 2)), runs=2))
bad("runs-K", "K")(lambda g: attsvm.train(g.problem, K=g.K, Q=g.Q, runs=2))
bad("runs-Q", "Q")(lambda g: attsvm.train(g.problem, K=np.ones((2, 2, 3)), Q=np.ones((2, 2, 4)), runs=2))
bad("runs-lr", "lr")(lambda g: attsvm.train(g.problem, runs=2, lr=np.ones((3, 1))))
bad("runs-lr-steps", "lr")(lambda g: attsvm.train(g.problem, runs=2, lr=np.ones((2, 4)), steps=3))
bad("svm-reduce-word", "reduce")(lambda g: attsvm.solve_svm(g.data, [0, 0], reduce="sum"))
bad("callback-number", "callback")(lambda g: attsvm.train(g.problem, callback=1))
bad("train_head-number", "train_head")(lambda g: attsvm.train(g.problem, train_head=1))
bad("train_head-log", "train_head")(
    lambda g: attsvm.train(
        attsvm.Problem(attsvm.cross_attention(abs(g.X), g.Z), head=g.head, loss="log"), train_head=True
    )
)

# ------------------------------------------------------------------------------------ solve_svm

# fmt: off
refuse("selected", lambda g, x: attsvm.solve_svm(g.data, x), {"none": None, "float": [0.0, 1.0], "string": "01",
    "number": 0, "too-few": [0], "out-of-range": [0, 3], "negative": [0, -1],
    "unsigned-huge": np.array([0, 2 ** 64 - 1], dtype=np.uint64), "huge": [0, 2 ** 70], "jagged": [0, [1]],
    "bool-empty-row": np.array([[True, False, False], [False, False, False]]), "bool-per-query": [True, False],
    "masked": np.ma.masked_array([0, 1], [True, False]), "no-row-at-all": []})
refuse("norm", lambda g, x: attsvm.solve_svm(g.data, [0, 0], x), {"unknown": "operator", "none": None,
    "list": ["frobenius"]})
refuse("method", lambda g, x: attsvm.solve_svm(g.data, [0, 0], method=x), {"unknown": "simplex", "none": None,
    "list": ["active"]})
refuse("tol", lambda g, x: attsvm.solve_svm(g.data, [0, 0], tol=x), {"zero": 0.0, "negative": -1e-09, "nan": nan,
    "string": "tight"})
refuse("margins", lambda g, x: attsvm.solve_svm(g.data, [0, 0], margins=x), {"number": 1.0, "per-query": [1.0, 1.0],
    "other-T": np.ones((2, 4)), "nan": np.full((2, 3), nan), "infinite": np.full((2, 3), -np.inf), "string": "1",
    "masked": np.ma.masked_array(np.ones((2, 3)), np.eye(2, 3)), "beyond-range": np.full((2, 3), 1e+200),
    "below-range": np.full((2, 3), 1e-200)})
refuse("C", lambda g, x: attsvm.solve_svm(g.data, [0, 0], C=x), {"zero": 0.0, "negative": -1.0, "nan": nan,
    "string": "1"})
refuse("selected", lambda g, x: attsvm.feasible(g.data, x), {"feasible-selected-out-of-range": [0, 3],
    "feasible-selected-floats": [0.0, 1.0]})
refuse("max_iter", lambda g, x: attsvm.solve_svm(g.data, [0, 0], max_iter=x), {"zero": 0, "negative": -5,
    "float": 1000.0, "huge": 2 ** 70})
# fmt: on

bad("svm-data-is-array", "data")(lambda g: attsvm.solve_svm(g.X, [0, 0]))
bad("svm-data-is-problem", "data")(lambda g: attsvm.solve_svm(g.problem, [0, 0]))
bad("selected-out-of-a-short-window", "selected")(lambda g: attsvm.solve_svm(g.ragged, [2, 1, 0]))
bad("selected-after-the-causal-query", "selected")(lambda g: attsvm.solve_svm(g.causal, [[0, 2, 0], [0, 0, 0]]))
bad("selected-bool-after-the-causal-query", "selected")(
    lambda g: attsvm.solve_svm(g.causal, np.ones((2, 3, 3), dtype=bool))
)
bad("selected-bool-after-the-ragged-causal-query", "selected")(
    lambda g: attsvm.solve_svm(g.causal_ragged, [np.ones((T, T), dtype=bool) for T in (3, 1, 2)])
)
bad("selected-bool-other-T", "selected")(lambda g: attsvm.solve_svm(g.data, np.ones((2, 4), dtype=bool)))
bad("selected-ragged-other-lengths", "selected")(
    lambda g: attsvm.solve_svm(g.ragged, [np.ones(T, dtype=bool) for T in (3, 2, 1)])
)
bad("selected-ragged-too-short", "selected")(lambda g: attsvm.solve_svm(g.all_ragged, [np.zeros(3, dtype=int)]))
bad("selected-ragged-jagged", "selected")(lambda g: attsvm.solve_svm(g.all_ragged, [[[0], [1, 2]], [0], [0, 0]]))
bad("method-of-the-other-norm", "method")(lambda g: attsvm.solve_svm(g.data, [0, 0], "nuclear", method="active"))
bad("margins-ragged-too-few", "margins")(lambda g: attsvm.solve_svm(g.ragged, [0, 0, 0], margins=[np.ones(2)]))
bad("C-nuclear", "C")(lambda g: attsvm.solve_svm(g.data, [0, 0], "nuclear", C=1.0))
bad("feasible-data", "data")(lambda g: attsvm.feasible(g.X, [0, 0]))

# ------------------------------------------------------------------------------------ the rest

# fmt: off
refuse("n", lambda g, x: attsvm.sample.unit_sphere(x, 8, 10), {"zero": 0, "huge": 2 ** 65})
refuse("d", lambda g, x: attsvm.sample.unit_sphere(6, 8, x), {"float": 10.0, "bool": True})
refuse("P", lambda g, x: attsvm.sample.markov(x, 2, 2), {"markov-ragged": [[1.0], [0.5, 0.5]],
    "markov-no-square": [[0.5, 0.5]]})
refuse("rng", lambda g, x: attsvm.sample.unit_sphere(6, 8, 10, rng=x), {"string": "seed", "negative": -1, "float": 0.5})
refuse("probabilities", lambda g, x: attsvm.theory.selected_sets(x), {"sets-above-one": [0.5, 1.5],
    "sets-negative": [[1.0], [1.5, -0.5]], "sets-number": 1.0})
refuse("scores", lambda g, x: attsvm.theory.tokens_kept(x, 1.0), {"kept-scores": [1.0, nan], "kept-number": 1.0})
refuse("value_and_grad", lambda g, x: _called(g, x), {"answer": lambda o: o.sum(axis=1), "answer-none": lambda o: None,
    "answer-shape": lambda o: (o.sum(axis=1), np.ones(2)), "answer-value": lambda o: (o, o),
    "answer-nan": lambda o: (o.sum(axis=1), nan * o)})
refuse("o", lambda g, x: g.head.value_and_grad(x), {"head-o": [1.0, 2.0, 3.0], "head-o-nan": [1.0, nan]})
refuse("heads", lambda g, x: attsvm.Problem(g.data, g.y, g.head, heads=x), {"zero": 0, "float": 2.0})
refuse("k", lambda g, x: attsvm.set_num_threads(x), {"threads-zero": 0, "threads-float": 2.0, "threads-huge": 2 ** 70})
# fmt: on

bad("correlation-shapes", "B")(lambda g: attsvm.correlation(np.ones((2, 2)), np.ones((2, 3))))
bad("locally-optimal-problem", "problem")(lambda g: attsvm.theory.is_locally_optimal(g.data, g.sol))
bad("locally-optimal-solution", "solution")(lambda g: attsvm.theory.is_locally_optimal(g.problem, g.W))
bad("locally-optimal-solution-of-other-data", "solution")(lambda g: attsvm.theory.is_locally_optimal(g.problem, g.sol))
bad("T-negative", "T")(lambda g: attsvm.sample.unit_sphere(6, -8, 10))
bad("n-T-d-huge-together", "n")(lambda g: attsvm.sample.unit_sphere(2**22, 2**22, 2**22))
bad("replicate-experiment", "experiment")(lambda g: attsvm.replicate({}, 2))
bad("replicate-n_jobs", "n_jobs")(lambda g: attsvm.replicate(dict, 2, n_jobs=1.5))
bad("positions-none", "T")(lambda g: attsvm.sample.positional_encoding(0, 4))
bad("positions-base", "base")(lambda g: attsvm.sample.positional_encoding(3, 4, 1.0))
bad("sets-thresholds", "low")(lambda g: attsvm.theory.selected_sets([0.5, 0.5], 1e-3, 1e-6))
bad("decompose-data", "data")(lambda g: attsvm.theory.decompose(g.X, np.ones((2, 3)) / 3, g.W))
bad("decompose-norm", "norm")(lambda g: attsvm.theory.decompose(g.data, np.ones((2, 3)) / 3, g.W, "operator"))
bad("decompose-selected", "selected")(
    lambda g: attsvm.theory.decompose(g.data, np.ones((2, 3)) / 3, g.W, selected=np.ones((2, 2), bool))
)
bad("kept-lam", "lam")(lambda g: attsvm.theory.tokens_kept([1.0, 0.0], -1.0))
bad("head-V", "V")(lambda g: attsvm.Problem(g.data, g.y, attsvm.MLPHead(np.ones((3, 4)))))
bad("head-V-flat", "V")(lambda g: attsvm.MLPHead(np.ones(3)))
bad("head-a", "a")(lambda g: attsvm.MLPHead(np.ones((2, 4)), np.ones(3)))
bad("head-lam", "lam")(lambda g: attsvm.QuadraticHead([1.0, 2.0], nan))
bad("head-function", "value_and_grad")(lambda g: attsvm.CallableHead(1.0))
bad("head-o-queries", "o")(lambda g: attsvm.LinearHead(np.ones((2, 2))).value_and_grad(np.ones((3, 2))))
bad("head-c", "c")(lambda g: g.head.parameter_grad([[1.0, 2.0]], [1.0, 2.0]))
bad("combine", "combine")(lambda g: attsvm.Problem(g.data, g.y, g.head, heads=2, combine="mean"))
bad("concatenate-v", "v")(lambda g: attsvm.Problem(g.data, g.y, g.head, heads=2, combine="concatenate"))
bad("concatenate-scores", "combine")(
    lambda g: attsvm.Problem(g.data, g.y, attsvm.LinearHead(np.ones(4)), heads=2, combine="concatenate").scores
)
bad("heads-W", "W")(lambda g: attsvm.Problem(g.data, g.y, g.head, heads=2).loss(g.W))
bad("heads-Q", "Q")(
    lambda g: attsvm.Problem(g.data, g.y, g.head, heads=2).loss(K=np.ones((2, 2, 3)), Q=np.ones((2, 2, 4)))
)
bad("diagnose-head", "problem")(lambda g: attsvm.diagnose(attsvm.Problem(g.data, g.y, attsvm.MLPHead(np.eye(2)))))
bad("locally-optimal-head", "problem")(
    lambda g: attsvm.theory.is_locally_optimal(attsvm.Problem(g.data, g.y, g.head, heads=1), g.sol)
)
bad("plot-correlation", "solution")(lambda g: attsvm.plot.correlation(attsvm.train(g.problem, steps=1), None))
bad("plot-saturation", "run")(lambda g: attsvm.plot.saturation(attsvm.solve_svm(g.data, [0, 0])))
bad("plot-band-steps", "steps")(lambda g: attsvm.plot.band(["a"], [[1.0]]))
bad("plot-band-curves", "curves")(lambda g: attsvm.plot.band([0, 1], [[1.0]]))
bad("plot-attention", "probabilities[0]")(lambda g: attsvm.plot.attention([["a"]]))
bad("plot-attention-empty", "probabilities")(lambda g: attsvm.plot.attention([]))
bad("plot-attention-selected", "selected")(lambda g: attsvm.plot.attention(np.ones((2, 3)), [0], object()))
bad("plot-share", "run")(lambda g: attsvm.plot.margin_share([1.0]))
bad("plot-heads", "run")(
    lambda g: attsvm.plot.saturation(attsvm.train(attsvm.Problem(g.data, g.y, g.head, heads=1), steps=3), ax=object())
)
bad("heads-start", "W")(lambda g: attsvm.train(attsvm.Problem(g.data, g.y, g.head, heads=2), steps=3))
bad("log-loss-head", "loss")(lambda g: attsvm.Problem(g.data, head=attsvm.MLPHead(np.eye(2)), loss="log"))

BAD_INPUTS = list(ROWS.values())


def arrays(g):
    """All arrays of the good arguments, to see that nothing has touched them."""
    flat = [a for value in vars(g).values() for a in (value if isinstance(value, list) else [value])]
    return [a for a in flat if isinstance(a, np.ndarray)]


@pytest.mark.parametrize("argument, call", [row[1:] for row in BAD_INPUTS], ids=[row[0] for row in BAD_INPUTS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_input_is_refused_by_name(argument, call):
    g = good()
    before = copy.deepcopy(arrays(g))
    with pytest.raises((ValueError, TypeError)) as caught:
        call(g)
    assert re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", str(caught.value)), str(caught.value)
    for now, then in zip(arrays(g), before, strict=True):
        np.testing.assert_array_equal(now, then)


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


def test_messages_say_what_was_expected_and_what_came():
    g = good()
    for call, message in [
        (
            lambda: attsvm.cross_attention(g.X, np.ones((5, 10))),
            r"Z must have shape \(n, dz\) = \(2, dz\), got \(5, 10\)",
        ),
        (lambda: g.data.logits(np.ones((2, 3))), r"W must have shape \(dk, dz\) = \(2, 2\), got \(2, 3\)"),
        (lambda: attsvm.causal_attention([[[nan]]]), r"X must be finite, got nan at \(0, 0, 0\)"),
        (lambda: attsvm.train(g.problem, lr=[1.0], steps=3), r"lr must have shape \(steps,\) = \(3,\), got \(1,\)"),
        (lambda: attsvm.Problem(g.data, [1, 3], g.head), r"y must hold labels -1 and \+1 only, got 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


# ------------------------------------------------------------------------------------ the private module


def test_the_private_module_refuses_what_does_not_fit():
    """Private calls are unchecked in meaning, but none may crash."""
    core = attsvm._core
    g = good()
    keys, queries = g.data.keys, g.data.queries
    start, stop = g.data.start, g.data.stop
    handle, scores, W, W3 = g.data._handle, g.problem._flat_scores, g.W, g.W[None]
    head, no_head = (core.HEAD["mlp"], np.ones((2, 3)), np.ones(3), 0.0), (None, None, None, 0.0)

    def parts(head):
        return dict(zip(("head", "v", "a", "lam"), head, strict=True))

    problem = dict(windows=handle, loss=0, scores=None, values=keys, y=g.y, **parts(head), heads=1, concatenate=False)
    general = core.objective(*problem.values())
    linear = core.objective(handle, 0, scores, None, None, *no_head, 1, False)
    trained = core.objective(handle, 0, scores, keys, g.y, *no_head, 1, False)
    called = core.objective(*(problem | parts((core.HEAD["call"], None, None, 0.0))).values())
    one_v_per_query = core.objective(*(problem | parts((core.HEAD["quadratic"], np.ones((2, 2)), None, 0.1))).values())
    out = dict(
        weights=np.empty((2, 1, 4)), head_records=np.empty((2, 1, 2)), loss=np.empty((2, 1)),
        norm=np.empty((2, 1)), log_grad_norm=np.empty((2, 1)), half_squares=None,
    )  # fmt: skip
    run = dict(
        objective=trained, called_head=None, called_loss=None,
        ridge=0.0, rule=1, lr=np.array([[0.1]]), target=0.0, p=2.0, radius=-1.0, ball=0, momentum=0.0, decay=0.0,
        second=0.0, eps=0.0, record=np.array([0, 3]),
        W=W3, K=None, Q=None, span=None, v=np.ones((1, 2)), mean=None, root=None, past=None, **out,
        reached=np.zeros(2, int),
    )  # fmt: skip

    def train(first=0, last=3, recorded=None, combine=None, **fields):
        return core.train(SimpleNamespace(**fields), first, last, recorded, combine)

    assert train(**run)[0] == 0
    core.loss(general, None, None, W3, None, None)

    def made(**one):
        return lambda: core.objective(*(problem | one).values())

    def changed(**one):
        assert set(one) <= {*run, "first", "last", "recorded", "combine"}
        return lambda: train(**run | dict(reached=np.zeros(2, int)) | one)

    def frozen(array):
        array = array.copy()
        array.flags.writeable = False
        return array

    # fmt: off
    calls = [
        lambda: core.windows(keys, queries, start),
        lambda: core.windows(keys, queries, start, stop + 1),
        lambda: core.windows(keys, queries, start - 1, stop - 1),
        lambda: core.windows(keys, queries, start, start),
        lambda: core.windows(keys, queries, start, stop[:1]),
        lambda: core.windows(keys[:, :0].copy(), queries, start, stop),
        lambda: core.windows(keys.astype(">f8"), queries, start, stop),
        lambda: core.windows(keys[:, ::-1], queries, start, stop),
        lambda: core.windows(keys, queries, start.astype(np.int32), stop),
        lambda: core.plain_windows(keys, queries),
        lambda: core.index(None),
        lambda: core.index(object()),
        lambda: core.index(general),  # an objective is no windows
        lambda: core.reference(object(), start),
        lambda: core.logits(None, W),
        lambda: core.logits(object(), W),
        lambda: core.logits(handle, None),
        lambda: core.logits(handle, np.ones((3, 2))),
        lambda: core.logits(handle, np.asfortranarray(np.arange(4.0).reshape(2, 2))),
        lambda: core.margins(handle, W, np.zeros(3, int)),
        lambda: core.margins(handle, W, np.full(2, 10**12)),
        lambda: core.margins(handle, W, np.full(2, -1)),
        lambda: core.top(handle, np.ones(5)),
        lambda: core.attended(handle, np.ones((5, 2)), np.ones(6)),
        lambda: core.scores(handle, keys, np.ones(2), np.ones(3)),
        lambda: core.scores(handle, keys, np.ones(2), np.ones((3, 2))),
        made(loss=len(core.LOSS)), made(loss=-1), made(loss="logistic"), made(scores=scores[:-1].copy()),
        made(scores=scores, values=keys[:-1].copy()), made(scores=scores, y=np.ones(3)), made(values=keys[:-1].copy()),
        made(y=np.ones(3)), made(y=None), made(heads=0), made(heads=2**70),
        made(heads=2, concatenate=True),  # V is shorter than the concatenated vectors
        made(head=None), made(head=len(core.HEAD)), made(head="mlp"), made(v=np.ones(3)), made(v=None),
        made(a=np.ones(2)), made(a=None), made(lam="0"),
        lambda: core.loss(handle, None, None, W3, None, None),  # windows are no objective
        lambda: core.loss(object(), None, None, W3, None, None),
        lambda: core.loss(linear, None, None, None, None, None),
        lambda: core.loss(linear, None, None, W3),
        lambda: core.loss_and_grad(linear, None, None, None, g.K[None], np.ones((1, 2, 2)), False),
        lambda: core.loss_and_grad(linear, None, None, None, g.K[None], None, False),
        lambda: core.loss_and_grad(linear, None, None, np.ones((1, 2, 3)), None, None, False),
        lambda: core.loss(linear, None, None, W[0], None, None),
        lambda: core.loss(linear, None, None, np.ones((2, 2, 2)), None, None),
        lambda: core.loss(called, None, None, W3, None, None),
        lambda: core.loss(called, "no function", None, W3, None, None),
        lambda: core.loss_values(0, [1.0]),
        lambda: core.loss_values(4, np.ones(1)),
        lambda: core.loss_bounds(0, "least"),
        lambda: core.regularization_path_point(general, W.copy(), 0, 1.0, 1e-6, 10),
        lambda: core.regularization_path_point(linear, frozen(W), 0, 1.0, 1e-6, 10),
        lambda: core.regularization_path_point(linear, W.copy(), 0, -1.0, 1e-6, 10),
        lambda: core.head(3, None, None, 0.0, np.ones((2, 2))),
        lambda: core.head(0, np.ones(3), None, 0.0, np.ones((2, 2))),
        lambda: core.head(0, np.ones((3, 2)), None, 0.0, np.ones((2, 2))),
        lambda: core.head_parameters(0, np.ones(2), None, 0.0, np.ones((2, 2)), np.ones(3)),
        changed(ridge="ridge"), changed(rule=10),
        changed(rule=7),  # adam without means
        changed(rule=8, past=np.zeros((2, 2))),  # adagrad without roots
        changed(rule=9, root=np.zeros(8), past=np.zeros((2, 2))),  # shampoo with a vector
        changed(rule=5, root=np.ones(4)),  # signs in a metric
        changed(root=np.ones(5)), changed(momentum=0.5), changed(momentum=0.5, mean=np.zeros(6)),
        changed(momentum=0.5, mean=np.zeros(5), past=np.zeros((2, 2))),
        changed(momentum=0.5, mean=np.zeros(6), past=np.zeros((1, 2))),
        changed(momentum=1.0, mean=np.zeros(6), past=np.zeros((2, 2))), changed(decay=-1.0), changed(second=1.0),
        changed(eps=nan), changed(rule=-1), changed(lr=np.array([0.1])), changed(lr=np.array([[0.1, 0.1]])),
        changed(lr=np.array([[0.1], [0.1]])), changed(lr=np.empty((1, 0))), changed(lr=np.empty((0, 1))),
        changed(p=1.0), changed(span=np.zeros((1, 3, 2))),
        changed(span=np.zeros((1, 4, 2))),  # a head is trained
        changed(target=None), changed(radius="1"), changed(ball=2), changed(first=-1), changed(first=4),
        changed(last=2**70), changed(record=np.array([3, 0])), changed(record=np.array([0, 0])),
        changed(record=np.array([0, 1, 3])), changed(W=W[0]), changed(W=np.ones((0, 2, 2))),
        changed(W=np.ones((2, 2, 2))),
        changed(v=np.ones((1, 3))), changed(v=None, span=np.zeros((1, 4, 2)), combine=lambda *_: None),
        changed(objective=linear),  # without values its head cannot be trained
        changed(objective=one_v_per_query), changed(objective=called, called_head=lambda o: None), changed(W=None),
        changed(weights=None), changed(weights=np.empty((2, 2, 3))), changed(recorded=1),
        changed(head_records=None), changed(loss=np.empty(3)), changed(half_squares=np.empty(2)),
        changed(reached=np.zeros(1, int)), changed(reached=np.array([0, 3])), changed(reached=np.array([0, -1])),
        *(changed(**{name: frozen(run[name])}) for name in ("W", "v", *list(out)[:-1], "reached")),
        lambda: core.train(SimpleNamespace(**run), 0, 3, None),
        lambda: core.set_num_threads("2"),
    ]
    # fmt: on
    for i, call in enumerate(calls):
        with pytest.raises((ValueError, TypeError, OverflowError, IndexError)):
            call()
            pytest.fail(f"call {i} was accepted")
    for call, message in [
        (lambda: core.logits(handle, np.ones((3, 2))), r"W must be .*\[k,z\] .*k = 2, z = 2, got float64 \(3, 2\)"),
        (lambda: core.scores(handle, keys, np.ones(2, int), np.ones(2)), r"y must be .*\[M\] .* M = 2, got int"),
        (changed(v=frozen(run["v"])), r"v must be .* that may be written to"),
        (lambda: core.logits(handle), "logits takes 2 arguments, got 1"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            call()


def test_a_record_without_a_field_is_refused_by_its_name():
    with pytest.raises(AttributeError, match="'objective'"):
        attsvm._core.train(object(), 0, 3, None, None)


def test_numbers_are_read_before_arrays_are_checked():
    """A number whose conversion takes an array's memory away: the call sees what is left, and refuses it."""
    core, g = attsvm._core, good()

    class Number:  # no float: C has to call __float__
        def __init__(self, array):
            self.array = array

        def __float__(self):
            self.array.resize((0,) * self.array.ndim, refcheck=False)
            return 1.0

    def train(array):
        W = array if array.ndim == 3 else g.W[None].copy()
        record = array if array.ndim == 1 else np.array([0, 3])
        settings = (Number(array), 1, np.array([[0.1]]), 0.0, 2.0, -1.0, 0, 0.0, 0.0, 0.0, 0.0)
        out = (np.empty((2, 1, 4)), None, *(np.empty((2, 1)) for _ in range(3)), None, np.zeros(2, int))
        run = Descent(g.problem._objective, None, None, *settings, record, W, *(None,) * 7, *out)
        core.train(run, 0, 3, None, None)

    v, W, o, chosen = np.ones(2), np.ones((2, 2)), np.ones((2, 2)), np.zeros(2, np.intp)
    for call in [
        lambda: train(np.ones((1, 2, 2))),
        lambda: train(np.array([0, 3])),
        lambda: core.head(0, v, None, Number(v), o),
        lambda: core.regularization_path_point(g.problem._objective, W, 0, Number(W), 1e-6, 10),
        lambda: core.frobenius_active(
            g.data._handle, chosen, None, None, Number(chosen), 100, 0.0, 2.0, 0, None, None, None
        ),
        lambda: core.objective(g.data._handle, 0, None, o, np.ones(2), 2, o, None, Number(o), 1, False),
    ]:
        with pytest.raises((ValueError, TypeError)):
            call()


# ------------------------------------------------------------------------------------ leaks


@pytest.mark.slow
def test_calls_leave_no_references_and_no_memory():
    """Hundreds of rounds of eleven good and four failing calls."""
    g = good()
    failing = [row[2] for row in BAD_INPUTS if row[0].split("-")[0] in ("lr", "record", "W", "v", "query", "weights")]
    kept = [g.X, g.Z, g.y, g.v, g.W, g.K, g.Q, g.data, g.problem, *g.ragged_X]

    def rounds(times):
        for i in range(times):
            data = attsvm.cross_attention(g.X, g.Z)
            problem = attsvm.Problem(data, g.y, attsvm.LinearHead(g.v))
            problem.loss(g.W)
            problem.loss_and_grad(K=g.K, Q=g.Q)
            data.probabilities(g.W), data.attended(g.W), data.select(g.W)
            attsvm.causal_attention(g.ragged_X).logits(g.W)
            attsvm.train(g.problem, g.W, steps=3, record=1)
            attsvm.train(g.problem, K=g.K, Q=g.Q, steps=3, record=1)
            attsvm.train(g.problem, g.W, steps=3, train_head=True, callback=lambda run: None, reduce=lambda a: None)
            raising = (
                failing[i % len(failing)],
                lambda g: attsvm.train(g.problem, g.W + 1e308, steps=3),
                lambda g: attsvm.train(g.problem, g.W, steps=3, callback=lambda run: int("no")),
                lambda g: attsvm.train(g.problem, g.W, steps=3, reduce=lambda a: int("no")),
            )
            for call in raising:
                try:
                    call(g)
                except (ValueError, TypeError, FloatingPointError):
                    continue
                pytest.fail("a bad call was accepted")
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
