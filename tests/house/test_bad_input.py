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
    "decompose_W": ("W", (2, 2), lambda g, a: attsvm.decompose(g.data, g.data.probabilities(g.W), a)),
    "decompose_probabilities": ("probabilities", (2, 3), lambda g, a: attsvm.decompose(g.data, a, g.W)),
}
# None is the default of these, or they take this number or shape.
FINE = {
    *(f"{where}-none" for where in ("cross_attention_values", "self_attention_values", "causal_attention_values")),
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

bad("X-ragged-dimension", "X")(lambda g: attsvm.cross_attention([np.ones((3, 2)), np.ones((2, 3))], g.Z))
bad("X-ragged-one-is-empty", "X")(lambda g: attsvm.causal_attention([np.ones((3, 2)), np.ones((0, 2))]))
bad("X-ragged-one-is-flat", "X")(lambda g: attsvm.causal_attention([np.ones((3, 2)), np.ones(2)]))
bad("X-ragged-nan", "X")(lambda g: attsvm.self_attention([np.ones((3, 2)), np.full((1, 2), nan)]))
bad("X-ragged-masked", "X")(
    lambda g: attsvm.self_attention([np.ones((3, 2)), np.ma.masked_array(np.ones((1, 2)), True)])
)
bad("X-ragged-complex", "X")(lambda g: attsvm.self_attention([np.ones((3, 2)), np.ones((1, 2)) * 1j]))
bad("X-list-of-none", "X")(lambda g: attsvm.cross_attention([None, None], g.Z))
bad("X-list-with-none", "X")(lambda g: attsvm.cross_attention([np.ones((3, 2)), None], g.Z))
bad("X-list-of-strings", "X")(lambda g: attsvm.cross_attention(["ab", "cd"], g.Z))
bad("X-sequence-is-jagged", "X")(lambda g: attsvm.cross_attention([[[1.0, 2.0], [3.0]], [[1.0, 2.0]]], g.Z))
bad("X-one-sequence-alone", "X")(lambda g: attsvm.cross_attention(g.X[0], g.Z))
bad("Z-other-n", "Z")(lambda g: attsvm.cross_attention(g.X, np.ones((3, 2))))
bad("Z-other-n-of-several", "Z")(lambda g: attsvm.cross_attention(g.X, np.ones((3, 4, 2))))
bad("Z-ragged-other-n", "Z")(lambda g: attsvm.cross_attention(g.X, [np.ones((i, 2)) for i in (1, 2, 3)]))
bad("Z-ragged-dz", "Z[1]")(lambda g: attsvm.cross_attention(g.X, [np.ones((2, 2)), np.ones((3, 3))]))
bad("Z-jagged-rows", "Z")(lambda g: attsvm.cross_attention(g.X, [[1.0], [1.0, 2.0]]))
bad("Z-no-queries", "Z")(lambda g: attsvm.cross_attention(g.X, np.ones((2, 0, 2))))
bad("Z-flat-list", "Z")(lambda g: attsvm.cross_attention(g.X, [1.0, 2.0]))
bad("values-other-T", "values")(lambda g: attsvm.cross_attention(g.X, g.Z, np.ones((2, 4, 2))))
bad("values-other-n", "values")(lambda g: attsvm.cross_attention(g.X, g.Z, np.ones((3, 3, 2))))
bad("values-other-lengths", "values")(
    lambda g: attsvm.causal_attention(g.ragged_X, [np.ones((T, 2)) for T in (3, 2, 1)])
)
bad("values-rectangular-for-ragged", "values")(lambda g: attsvm.causal_attention(g.ragged_X, np.ones((3, 2, 2))))
bad("query-out-of-range", "query")(lambda g: attsvm.self_attention(g.X, query=3))
bad("query-before-the-first", "query")(lambda g: attsvm.self_attention(g.X, query=-4))
bad("query-beyond-the-shortest", "query")(lambda g: attsvm.self_attention(g.ragged_X, query=1))
bad("query-float", "query")(lambda g: attsvm.self_attention(g.X, query=0.0))
bad("query-bool", "query")(lambda g: attsvm.self_attention(g.X, query=True))
bad("query-string", "query")(lambda g: attsvm.self_attention(g.X, query="0"))
bad("query-list", "query")(lambda g: attsvm.self_attention(g.X, query=[0, 1]))
bad("query-array", "query")(lambda g: attsvm.self_attention(g.X, query=np.array([0, 1])))
bad("query-huge", "query")(lambda g: attsvm.self_attention(g.X, query=2**65))
bad("query-hugely-negative", "query")(lambda g: attsvm.self_attention(g.X, query=-(2**65)))
bad("query-bad-index", "query")(lambda g: attsvm.self_attention(g.X, query=BadIndex()))
bad("key-other-d", "key")(lambda g: attsvm.prompt_attention(g.X, np.ones((4, 3))))
bad("key-overflows", "key")(lambda g: attsvm.prompt_attention(g.X * 1e300, np.full((2, 2), 1e300)))
bad("W-transposed", "W")(lambda g: attsvm.cross_attention(g.X, np.ones((2, 3))).logits(np.ones((3, 2))))
bad("W-prompt-as-a-vector", "W")(lambda g: attsvm.prompt_attention(g.X).logits([1.0, 2.0]))
bad("W-run", "W")(lambda g: g.data.logits(attsvm.train(g.problem, steps=1)))

# ------------------------------------------------------------------------------------ problem

bad("data-array", "data")(lambda g: attsvm.Problem(g.X, g.y, g.head))
bad("data-none", "data")(lambda g: attsvm.Problem(None, g.y, g.head))
bad("data-problem", "data")(lambda g: attsvm.Problem(g.problem, g.y, g.head))
bad("head-missing", "head")(lambda g: attsvm.Problem(g.data, g.y))
bad("head-array", "head")(lambda g: attsvm.Problem(g.data, g.y, g.v))
bad("head-class", "head")(lambda g: attsvm.Problem(g.data, g.y, attsvm.LinearHead))
bad("v-other-dv", "v")(lambda g: attsvm.Problem(g.data, g.y, attsvm.LinearHead(np.ones(3))))
bad("v-other-dv-per-query", "v")(lambda g: attsvm.Problem(g.data, g.y, attsvm.LinearHead(np.ones((2, 3)))))
bad("v-other-n", "v")(lambda g: attsvm.Problem(g.data, g.y, attsvm.LinearHead(np.ones((3, 2)))))
bad("v-per-sequence-for-several", "v")(lambda g: attsvm.Problem(g.several, None, attsvm.LinearHead(np.ones((2, 2)))))
bad("v-other-S", "v")(lambda g: attsvm.Problem(g.several, None, attsvm.LinearHead(np.ones((2, 3, 2)))))
bad("v-array-for-ragged", "v")(lambda g: attsvm.Problem(g.all_ragged, None, attsvm.LinearHead(np.ones((3, 2, 2)))))
bad("v-list-of-other-lengths", "v")(
    lambda g: attsvm.Problem(g.all_ragged, None, attsvm.LinearHead([np.ones((S, 2)) for S in (3, 2, 1)]))
)
bad("v-list-too-short", "v")(
    lambda g: attsvm.Problem(g.all_ragged, None, attsvm.LinearHead([np.ones((3, 2)), np.ones((1, 2))]))
)
bad("v-list-of-other-dv", "v")(
    lambda g: attsvm.Problem(g.all_ragged, None, attsvm.LinearHead([np.ones((3, 2)), np.ones((1, 2)), np.ones((2, 3))]))
)
bad("v-list-with-a-jagged-part", "v")(lambda g: attsvm.LinearHead([[[1.0, 2.0], [3.0]], [[1.0, 2.0]]]))
bad("v-list-with-none", "v")(lambda g: attsvm.LinearHead([np.ones((3, 2)), None]))
bad("scores-overflow", "y v.x")(
    lambda g: attsvm.Problem(attsvm.cross_attention(g.X * 1e300, g.Z), None, attsvm.LinearHead([1e300, 1e300]))
)
bad("y-zero", "y")(lambda g: attsvm.Problem(g.data, [1.0, 0.0], g.head))
bad("y-two", "y")(lambda g: attsvm.Problem(g.data, [1, 2], g.head))
bad("y-nearly-one", "y")(lambda g: attsvm.Problem(g.data, [1.0, 1.0 + 1e-15], g.head))
bad("y-zero-one-labels", "y")(lambda g: attsvm.Problem(g.data, [0, 1], g.head))
bad("y-other-n", "y")(lambda g: attsvm.Problem(g.data, [1.0, 1.0, 1.0], g.head))
bad("y-column", "y")(lambda g: attsvm.Problem(g.data, [[1.0], [1.0]], g.head))
bad("y-per-sequence-for-several", "y")(lambda g: attsvm.Problem(g.several, g.y, g.head))
bad("y-flat-for-ragged", "y")(lambda g: attsvm.Problem(g.all_ragged, np.ones(6), g.head))
bad("y-list-of-other-lengths", "y")(lambda g: attsvm.Problem(g.all_ragged, [np.ones(S) for S in (3, 2, 1)], g.head))
bad("y-list-too-short", "y")(lambda g: attsvm.Problem(g.all_ragged, [np.ones(3), np.ones(1)], g.head))
bad("y-list-with-none", "y")(lambda g: attsvm.Problem(g.all_ragged, [np.ones(3), np.ones(1), None], g.head))
bad("y-list-with-a-jagged-part", "y")(
    lambda g: attsvm.Problem(g.all_ragged, [[[1.0], [1.0, 1.0]], [1.0], [1.0]], g.head)
)
bad("loss-unknown", "loss")(lambda g: attsvm.Problem(g.data, g.y, g.head, "hinge"))
bad("loss-other-case", "loss")(lambda g: attsvm.Problem(g.data, g.y, g.head, "Logistic"))
bad("loss-none", "loss")(lambda g: attsvm.Problem(g.data, g.y, g.head, None))
bad("loss-function", "loss")(lambda g: attsvm.Problem(g.data, g.y, g.head, np.exp))
bad("loss-list", "loss")(lambda g: attsvm.Problem(g.data, g.y, g.head, ["logistic"]))
bad("loss-log-of-negative-scores", "loss")(lambda g: attsvm.Problem(g.data, g.y, g.head, "log"))
bad("loss-log-of-zero-scores", "loss")(lambda g: attsvm.Problem(g.data, None, attsvm.LinearHead([0.0, 0.0]), "log"))
bad("weights-none-at-all", "W")(lambda g: g.problem.loss())
bad("weights-W-and-K", "W")(lambda g: g.problem.loss(g.W, K=g.K))
bad("weights-W-K-and-Q", "W")(lambda g: g.problem.loss_and_grad(g.W, K=g.K, Q=g.Q))
bad("weights-K-alone", "Q")(lambda g: g.problem.loss(K=g.K))
bad("weights-Q-alone", "K")(lambda g: g.problem.loss_and_grad(Q=g.Q))
bad("weights-K-and-Q-of-other-widths", "Q")(lambda g: g.problem.loss(K=g.K, Q=np.ones((2, 4))))
bad("weights-K-of-no-width", "K")(lambda g: g.problem.loss(K=np.ones((2, 0)), Q=np.ones((2, 0))))

# ------------------------------------------------------------------------------------ train

bad("train-problem-is-data", "problem")(lambda g: attsvm.train(g.data))
bad("train-problem-is-none", "problem")(lambda g: attsvm.train(None))
bad("train-W-K-and-Q", "W")(lambda g: attsvm.train(g.problem, g.W, K=g.K, Q=g.Q))
bad("train-K-alone", "Q")(lambda g: attsvm.train(g.problem, K=g.K))
bad("train-Q-alone", "K")(lambda g: attsvm.train(g.problem, Q=g.Q))
bad("rule-unknown", "rule")(lambda g: attsvm.train(g.problem, rule="lion"))
bad("rule-other-case", "rule")(lambda g: attsvm.train(g.problem, rule="Normalized"))
bad("rule-none", "rule")(lambda g: attsvm.train(g.problem, rule=None))
bad("rule-number", "rule")(lambda g: attsvm.train(g.problem, rule=0))
bad("target-without-rule", "target_loss")(lambda g: attsvm.train(g.problem, target_loss=0.0))
bad("target-nan", "target_loss")(lambda g: attsvm.train(g.problem, rule="polyak", target_loss=nan))
bad("target-with-head", "target_loss")(lambda g: attsvm.train(g.problem, rule="polyak", train_head=True))
bad("p-without-rule", "p")(lambda g: attsvm.train(g.problem, p=3.0))
bad("p-one", "p")(lambda g: attsvm.train(g.problem, rule="mirror", p=1.0))
bad("p-none", "p")(lambda g: attsvm.train(g.problem, rule="mirror", p=None))
bad("radius-negative", "radius")(lambda g: attsvm.train(g.problem, radius=-1.0))
bad("radius-nan", "radius")(lambda g: attsvm.train(g.problem, radius=nan))
bad("radius-mirror", "radius")(lambda g: attsvm.train(g.problem, radius=1.0, rule="mirror"))
bad("ball-unknown", "ball")(lambda g: attsvm.train(g.problem, radius=1.0, ball="spectral"))
bad("ball-of-factors", "ball")(lambda g: attsvm.train(g.problem, K=g.K, Q=g.Q, radius=1.0))
bad("runs-zero", "runs")(lambda g: attsvm.train(g.problem, runs=0))
bad("runs-float", "runs")(lambda g: attsvm.train(g.problem, runs=2.0))
bad("runs-W", "W")(lambda g: attsvm.train(g.problem, g.W, runs=2))
bad("runs-W-other", "W")(lambda g: attsvm.train(g.problem, np.zeros((3, 2, 2)), runs=2))
bad("runs-K", "K")(lambda g: attsvm.train(g.problem, K=g.K, Q=g.Q, runs=2))
bad("runs-Q", "Q")(lambda g: attsvm.train(g.problem, K=np.ones((2, 2, 3)), Q=np.ones((2, 2, 4)), runs=2))
bad("runs-lr", "lr")(lambda g: attsvm.train(g.problem, runs=2, lr=np.ones((3, 1))))
bad("runs-lr-steps", "lr")(lambda g: attsvm.train(g.problem, runs=2, lr=np.ones((2, 4)), steps=3))
bad("lr-matrix", "lr")(lambda g: attsvm.train(g.problem, lr=np.ones((1, 3)), steps=3))
bad("svm-reduce-word", "reduce")(lambda g: attsvm.solve_svm(g.data, [0, 0], reduce="sum"))
bad("callback-number", "callback")(lambda g: attsvm.train(g.problem, callback=1))
bad("reduce-word", "reduce")(lambda g: attsvm.train(g.problem, reduce="sum"))
bad("reduce-copies", "reduce")(lambda g: attsvm.train(g.problem, reduce=lambda a: 2 * a))
bad("train_head-number", "train_head")(lambda g: attsvm.train(g.problem, train_head=1))
bad("train_head-v-per-query", "train_head")(
    lambda g: attsvm.train(attsvm.Problem(g.data, g.y, attsvm.LinearHead(np.ones((2, 2)))), train_head=True)
)
bad("train_head-log", "train_head")(
    lambda g: attsvm.train(
        attsvm.Problem(attsvm.cross_attention(abs(g.X), g.Z), head=g.head, loss="log"), train_head=True
    )
)
bad("train_head-callable", "train_head")(
    lambda g: attsvm.train(attsvm.Problem(g.data, g.y, attsvm.CallableHead(lambda o: (o[:, 0], o))), train_head=True)
)
bad("lr-negative", "lr")(lambda g: attsvm.train(g.problem, lr=-0.1))
bad("lr-nan", "lr")(lambda g: attsvm.train(g.problem, lr=nan))
bad("lr-inf", "lr")(lambda g: attsvm.train(g.problem, lr=inf))
bad("lr-bool", "lr")(lambda g: attsvm.train(g.problem, lr=True))
bad("lr-too-short", "lr")(lambda g: attsvm.train(g.problem, lr=[0.1, 0.1], steps=3))
bad("lr-too-long", "lr")(lambda g: attsvm.train(g.problem, lr=[0.1] * 4, steps=3))
bad("lr-one-for-many", "lr")(lambda g: attsvm.train(g.problem, lr=[0.1], steps=3))
bad("lr-one-is-negative", "lr")(lambda g: attsvm.train(g.problem, lr=[0.1, -0.1, 0.1], steps=3))
bad("lr-function", "lr")(lambda g: attsvm.train(g.problem, lr=lambda k: None))
bad("steps-negative", "steps")(lambda g: attsvm.train(g.problem, steps=-1))
bad("steps-float", "steps")(lambda g: attsvm.train(g.problem, steps=10.0))
bad("steps-nan", "steps")(lambda g: attsvm.train(g.problem, steps=nan))
bad("steps-bool", "steps")(lambda g: attsvm.train(g.problem, steps=True))
bad("steps-numpy-bool", "steps")(lambda g: attsvm.train(g.problem, steps=np.True_))
bad("steps-none", "steps")(lambda g: attsvm.train(g.problem, steps=None))
bad("steps-string", "steps")(lambda g: attsvm.train(g.problem, steps="10"))
bad("steps-array", "steps")(lambda g: attsvm.train(g.problem, steps=np.array([3])))
bad("steps-huge", "steps")(lambda g: attsvm.train(g.problem, steps=2**70))
bad("steps-just-too-large", "steps")(lambda g: attsvm.train(g.problem, steps=2**63))
bad("steps-too-many-to-record", "record")(lambda g: attsvm.train(g.problem, steps=2**62, record=1))
bad("steps-largest", "record")(lambda g: attsvm.train(g.problem, steps=2**63 - 1, record=1))
bad("record-negative", "record")(lambda g: attsvm.train(g.problem, record=-1))
bad("record-float", "record")(lambda g: attsvm.train(g.problem, record=10.0))
bad("record-floats", "record")(lambda g: attsvm.train(g.problem, record=[1.0, 2.0]))
bad("record-bool", "record")(lambda g: attsvm.train(g.problem, record=True))
bad("record-none", "record")(lambda g: attsvm.train(g.problem, record=None))
bad("record-string", "record")(lambda g: attsvm.train(g.problem, record="all"))
bad("record-huge", "record")(lambda g: attsvm.train(g.problem, record=2**70))
bad("record-beyond-the-end", "record")(lambda g: attsvm.train(g.problem, steps=10, record=[11]))
bad("record-before-the-start", "record")(lambda g: attsvm.train(g.problem, steps=10, record=[-1, 3]))
bad("record-matrix", "record")(lambda g: attsvm.train(g.problem, steps=10, record=[[1, 2]]))
bad("record-unsigned-huge", "record")(lambda g: attsvm.train(g.problem, record=np.array([2**64 - 1], dtype=np.uint64)))
bad("record-huge-in-a-list", "record")(lambda g: attsvm.train(g.problem, record=[2**70]))
bad("record-jagged", "record")(lambda g: attsvm.train(g.problem, record=[1, [2, 3]]))
bad("record-masked", "record")(lambda g: attsvm.train(g.problem, record=np.ma.masked_array([1, 2], [True, False])))
bad("ridge-negative", "ridge")(lambda g: attsvm.train(g.problem, ridge=-1e-3))
bad("ridge-nan", "ridge")(lambda g: attsvm.train(g.problem, ridge=nan))
bad("ridge-inf", "ridge")(lambda g: attsvm.train(g.problem, ridge=inf))
bad("ridge-bool", "ridge")(lambda g: attsvm.train(g.problem, ridge=True))
bad("ridge-none", "ridge")(lambda g: attsvm.train(g.problem, ridge=None))
bad("ridge-array", "ridge")(lambda g: attsvm.train(g.problem, ridge=[0.1, 0.2]))
bad("ridge-string", "ridge")(lambda g: attsvm.train(g.problem, ridge="1e-3"))
bad("ridge-complex", "ridge")(lambda g: attsvm.train(g.problem, ridge=1j))

# ------------------------------------------------------------------------------------ solve_svm

bad("svm-data-is-array", "data")(lambda g: attsvm.solve_svm(g.X, [0, 0]))
bad("svm-data-is-problem", "data")(lambda g: attsvm.solve_svm(g.problem, [0, 0]))
bad("selected-none", "selected")(lambda g: attsvm.solve_svm(g.data, None))
bad("selected-float", "selected")(lambda g: attsvm.solve_svm(g.data, [0.0, 1.0]))
bad("selected-string", "selected")(lambda g: attsvm.solve_svm(g.data, "01"))
bad("selected-number", "selected")(lambda g: attsvm.solve_svm(g.data, 0))
bad("selected-too-few", "selected")(lambda g: attsvm.solve_svm(g.data, [0]))
bad("selected-out-of-range", "selected")(lambda g: attsvm.solve_svm(g.data, [0, 3]))
bad("selected-negative", "selected")(lambda g: attsvm.solve_svm(g.data, [0, -1]))
bad("selected-unsigned-huge", "selected")(lambda g: attsvm.solve_svm(g.data, np.array([0, 2**64 - 1], dtype=np.uint64)))
bad("selected-huge", "selected")(lambda g: attsvm.solve_svm(g.data, [0, 2**70]))
bad("selected-jagged", "selected")(lambda g: attsvm.solve_svm(g.data, [0, [1]]))
bad("selected-out-of-a-short-window", "selected")(lambda g: attsvm.solve_svm(g.ragged, [2, 1, 0]))
bad("selected-after-the-causal-query", "selected")(lambda g: attsvm.solve_svm(g.causal, [[0, 2, 0], [0, 0, 0]]))
bad("selected-bool-empty-row", "selected")(
    lambda g: attsvm.solve_svm(g.data, np.array([[True, False, False], [False, False, False]]))
)
bad("selected-bool-per-query", "selected")(lambda g: attsvm.solve_svm(g.data, [True, False]))
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
bad("selected-masked", "selected")(lambda g: attsvm.solve_svm(g.data, np.ma.masked_array([0, 1], [True, False])))
bad("selected-no-row-at-all", "selected")(lambda g: attsvm.solve_svm(g.data, []))
bad("norm-unknown", "norm")(lambda g: attsvm.solve_svm(g.data, [0, 0], "operator"))
bad("norm-none", "norm")(lambda g: attsvm.solve_svm(g.data, [0, 0], None))
bad("norm-list", "norm")(lambda g: attsvm.solve_svm(g.data, [0, 0], ["frobenius"]))
bad("method-unknown", "method")(lambda g: attsvm.solve_svm(g.data, [0, 0], method="simplex"))
bad("method-of-the-other-norm", "method")(lambda g: attsvm.solve_svm(g.data, [0, 0], "nuclear", method="active"))
bad("method-none", "method")(lambda g: attsvm.solve_svm(g.data, [0, 0], method=None))
bad("method-list", "method")(lambda g: attsvm.solve_svm(g.data, [0, 0], method=["active"]))
bad("tol-zero", "tol")(lambda g: attsvm.solve_svm(g.data, [0, 0], tol=0.0))
bad("tol-negative", "tol")(lambda g: attsvm.solve_svm(g.data, [0, 0], tol=-1e-9))
bad("tol-nan", "tol")(lambda g: attsvm.solve_svm(g.data, [0, 0], tol=nan))
bad("tol-string", "tol")(lambda g: attsvm.solve_svm(g.data, [0, 0], tol="tight"))
bad("margins-number", "margins")(lambda g: attsvm.solve_svm(g.data, [0, 0], margins=1.0))
bad("margins-per-query", "margins")(lambda g: attsvm.solve_svm(g.data, [0, 0], margins=[1.0, 1.0]))
bad("margins-other-T", "margins")(lambda g: attsvm.solve_svm(g.data, [0, 0], margins=np.ones((2, 4))))
bad("margins-nan", "margins")(lambda g: attsvm.solve_svm(g.data, [0, 0], margins=np.full((2, 3), nan)))
bad("margins-infinite", "margins")(lambda g: attsvm.solve_svm(g.data, [0, 0], margins=np.full((2, 3), -np.inf)))
bad("margins-string", "margins")(lambda g: attsvm.solve_svm(g.data, [0, 0], margins="1"))
bad("margins-masked", "margins")(
    lambda g: attsvm.solve_svm(g.data, [0, 0], margins=np.ma.masked_array(np.ones((2, 3)), np.eye(2, 3)))
)
bad("margins-beyond-range", "margins")(lambda g: attsvm.solve_svm(g.data, [0, 0], margins=np.full((2, 3), 1e200)))
bad("margins-below-range", "margins")(lambda g: attsvm.solve_svm(g.data, [0, 0], margins=np.full((2, 3), 1e-200)))
bad("margins-ragged-too-few", "margins")(lambda g: attsvm.solve_svm(g.ragged, [0, 0, 0], margins=[np.ones(2)]))
bad("C-zero", "C")(lambda g: attsvm.solve_svm(g.data, [0, 0], C=0.0))
bad("C-negative", "C")(lambda g: attsvm.solve_svm(g.data, [0, 0], C=-1.0))
bad("C-nan", "C")(lambda g: attsvm.solve_svm(g.data, [0, 0], C=nan))
bad("C-string", "C")(lambda g: attsvm.solve_svm(g.data, [0, 0], C="1"))
bad("C-nuclear", "C")(lambda g: attsvm.solve_svm(g.data, [0, 0], "nuclear", C=1.0))
bad("feasible-data", "data")(lambda g: attsvm.feasible(g.X, [0, 0]))
bad("feasible-selected-out-of-range", "selected")(lambda g: attsvm.feasible(g.data, [0, 3]))
bad("feasible-selected-floats", "selected")(lambda g: attsvm.feasible(g.data, [0.0, 1.0]))
bad("max_iter-zero", "max_iter")(lambda g: attsvm.solve_svm(g.data, [0, 0], max_iter=0))
bad("max_iter-negative", "max_iter")(lambda g: attsvm.solve_svm(g.data, [0, 0], max_iter=-5))
bad("max_iter-float", "max_iter")(lambda g: attsvm.solve_svm(g.data, [0, 0], max_iter=1e3))
bad("max_iter-huge", "max_iter")(lambda g: attsvm.solve_svm(g.data, [0, 0], max_iter=2**70))

# ------------------------------------------------------------------------------------ the rest

bad("correlation-shapes", "B")(lambda g: attsvm.correlation(np.ones((2, 2)), np.ones((2, 3))))
bad("locally-optimal-problem", "problem")(lambda g: attsvm.is_locally_optimal(g.data, g.sol))
bad("locally-optimal-solution", "solution")(lambda g: attsvm.is_locally_optimal(g.problem, g.W))
bad("locally-optimal-solution-of-other-data", "solution")(lambda g: attsvm.is_locally_optimal(g.problem, g.sol))
bad("n-zero", "n")(lambda g: attsvm.sample.unit_sphere(0, 8, 10))
bad("T-negative", "T")(lambda g: attsvm.sample.unit_sphere(6, -8, 10))
bad("d-float", "d")(lambda g: attsvm.sample.unit_sphere(6, 8, 10.0))
bad("d-bool", "d")(lambda g: attsvm.sample.unit_sphere(6, 8, True))
bad("n-huge", "n")(lambda g: attsvm.sample.unit_sphere(2**65, 8, 10))
bad("n-T-d-huge-together", "n")(lambda g: attsvm.sample.unit_sphere(2**22, 2**22, 2**22))
bad("markov-ragged", "P")(lambda g: attsvm.sample.markov([[1.0], [0.5, 0.5]], 2, 2))
bad("markov-no-square", "P")(lambda g: attsvm.sample.markov([[0.5, 0.5]], 2, 2))
bad("replicate-experiment", "experiment")(lambda g: attsvm.replicate({}, 2))
bad("replicate-n_jobs", "n_jobs")(lambda g: attsvm.replicate(dict, 2, n_jobs=1.5))
bad("rng-string", "rng")(lambda g: attsvm.sample.unit_sphere(6, 8, 10, rng="seed"))
bad("rng-negative", "rng")(lambda g: attsvm.sample.unit_sphere(6, 8, 10, rng=-1))
bad("rng-float", "rng")(lambda g: attsvm.sample.unit_sphere(6, 8, 10, rng=0.5))
bad("positions-none", "T")(lambda g: attsvm.sample.positional_encoding(0, 4))
bad("positions-base", "base")(lambda g: attsvm.sample.positional_encoding(3, 4, 1.0))
bad("sets-thresholds", "low")(lambda g: attsvm.selected_sets([0.5, 0.5], 1e-3, 1e-6))
bad("sets-above-one", "probabilities")(lambda g: attsvm.selected_sets([0.5, 1.5]))
bad("sets-negative", "probabilities")(lambda g: attsvm.selected_sets([[1.0], [1.5, -0.5]]))
bad("sets-number", "probabilities")(lambda g: attsvm.selected_sets(1.0))
bad("decompose-data", "data")(lambda g: attsvm.decompose(g.X, np.ones((2, 3)) / 3, g.W))
bad("decompose-norm", "norm")(lambda g: attsvm.decompose(g.data, np.ones((2, 3)) / 3, g.W, "operator"))
bad("decompose-selected", "selected")(
    lambda g: attsvm.decompose(g.data, np.ones((2, 3)) / 3, g.W, selected=np.ones((2, 2), bool))
)
bad("kept-lam", "lam")(lambda g: attsvm.tokens_kept([1.0, 0.0], -1.0))
bad("kept-scores", "scores")(lambda g: attsvm.tokens_kept([1.0, nan], 1.0))
bad("kept-number", "scores")(lambda g: attsvm.tokens_kept(1.0, 1.0))
bad("head-V", "V")(lambda g: attsvm.Problem(g.data, g.y, attsvm.MLPHead(np.ones((3, 4)))))
bad("head-V-flat", "V")(lambda g: attsvm.MLPHead(np.ones(3)))
bad("head-a", "a")(lambda g: attsvm.MLPHead(np.ones((2, 4)), np.ones(3)))
bad("head-lam", "lam")(lambda g: attsvm.QuadraticHead([1.0, 2.0], nan))
bad("head-quadratic-v", "v")(lambda g: attsvm.Problem(g.data, g.y, attsvm.QuadraticHead(np.ones(3), 1.0)))
bad("head-function", "value_and_grad")(lambda g: attsvm.CallableHead(1.0))
bad("head-answer", "value_and_grad")(lambda g: _called(g, lambda o: o.sum(axis=1)))
bad("head-answer-none", "value_and_grad")(lambda g: _called(g, lambda o: None))
bad("head-answer-shape", "value_and_grad")(lambda g: _called(g, lambda o: (o.sum(axis=1), np.ones(2))))
bad("head-answer-value", "value_and_grad")(lambda g: _called(g, lambda o: (o, o)))
bad("head-answer-nan", "value_and_grad")(lambda g: _called(g, lambda o: (o.sum(axis=1), nan * o)))
bad("head-o", "o")(lambda g: g.head.value_and_grad([1.0, 2.0, 3.0]))
bad("head-o-nan", "o")(lambda g: g.head.value_and_grad([1.0, nan]))
bad("head-o-queries", "o")(lambda g: attsvm.LinearHead(np.ones((2, 2))).value_and_grad(np.ones((3, 2))))
bad("head-c", "c")(lambda g: g.head.parameter_grad([[1.0, 2.0]], [1.0, 2.0]))
bad("heads-zero", "heads")(lambda g: attsvm.Problem(g.data, g.y, g.head, heads=0))
bad("heads-float", "heads")(lambda g: attsvm.Problem(g.data, g.y, g.head, heads=2.0))
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
    lambda g: attsvm.is_locally_optimal(attsvm.Problem(g.data, g.y, g.head, heads=1), g.sol)
)
bad("plot-excess", "path")(lambda g: attsvm.plot.excess(g.data))
bad("plot-scores", "diagnosis")(lambda g: attsvm.plot.scores(None))
bad("plot-margins", "solution")(lambda g: attsvm.plot.margins(attsvm.train(g.problem, steps=1)))
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
bad("threads-zero", "k")(lambda g: attsvm.set_num_threads(0))
bad("threads-float", "k")(lambda g: attsvm.set_num_threads(2.0))
bad("threads-huge", "k")(lambda g: attsvm.set_num_threads(2**70))

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
    handle, scores, W, W3 = g.data.handle, g.problem.flat_scores, g.W, g.W[None]
    head = (1, np.ones((2, 3)), np.ones(3), 0.0)
    problem = dict(windows=handle, loss=0, scores=None, values=keys, y=g.y, head=head, heads=1, concatenate=False)
    general = core.objective(*problem.values())
    linear = core.objective(handle, 0, scores, None, None, None, 1, False)
    trained = core.objective(handle, 0, scores, keys, g.y, None, 1, False)
    called = core.objective(*(problem | dict(head=(3, None, None, 0.0))).values())
    one_v_per_query = core.objective(*(problem | dict(head=(2, np.ones((2, 2)), None, 0.1))).values())
    settings = dict(
        ridge=0.0, rule=1, lr=np.array([[0.1]]), target=0.0, p=2.0, radius=-1.0, ball=0, momentum=0.0, decay=0.0,
        second=0.0, eps=0.0,
    )  # fmt: skip
    weights = dict(W=W3, K=None, Q=None, span=None, v=np.ones((1, 2)), mean=None, root=None, past=None)
    out = dict(
        weights=np.empty((2, 1, 4)), head_records=np.empty((2, 1, 2)), losses=np.empty((2, 1)),
        norm=np.empty((2, 1)), log_grad_norm=np.empty((2, 1)),
    )  # fmt: skip
    run = dict(
        objective=trained, function=None, settings=tuple(settings.values()), first=0, last=3,
        record=np.array([0, 3]), weights=tuple(weights.values()), out=tuple(out.values()),
        reached=np.zeros(2, int), recorded=None, combine=None,
    )  # fmt: skip
    core.train(*run.values())
    core.loss(general, None, W3, None, None)

    def made(**one):
        return lambda: core.objective(*(problem | one).values())

    def changed(**one):
        def call():
            groups = dict(settings=settings, weights=weights, out=out)
            for name, group in groups.items():
                here = {key: value for key, value in one.items() if key in group and key not in run}
                groups[name] = tuple((group | here).values())
            core.train(*(run | groups | {key: value for key, value in one.items() if key in run}).values())

        return call

    def frozen(array):
        array = array.copy()
        array.flags.writeable = False
        return array

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
        lambda: core.entries(general),  # an objective is no windows
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
        made(loss=4),
        made(loss=-1),
        made(loss="logistic"),
        made(scores=scores[:-1].copy()),
        made(scores=scores, values=keys[:-1].copy()),
        made(scores=scores, y=np.ones(3)),
        made(values=keys[:-1].copy()),
        made(y=np.ones(3)),
        made(y=None),
        made(heads=0),
        made(heads=2**70),
        made(heads=2, concatenate=True),  # V is shorter than the concatenated vectors
        made(head=None),
        made(head=head[:-1]),
        *(
            made(head=(*head[:i], x, *head[i + 1 :]))
            for i, x in [(0, 4), (0, "mlp"), (1, np.ones(3)), (2, np.ones(2)), (2, None), (3, "0")]
        ),
        lambda: core.loss(handle, None, W3, None, None),  # windows are no objective
        lambda: core.loss(object(), None, W3, None, None),
        lambda: core.loss(linear, None, None, None, None),
        lambda: core.loss_and_grad(linear, None, None, g.K[None], np.ones((1, 2, 2))),
        lambda: core.loss(linear, None, W, None, None),
        lambda: core.loss(linear, None, np.ones((2, 2, 2)), None, None),
        lambda: core.loss(called, None, W3, None, None),
        lambda: core.loss_values(0, [1.0]),
        lambda: core.loss_values(4, np.ones(1)),
        lambda: core.loss_bounds(0, "least"),
        lambda: core.regularization_path_point(general, W.copy(), 0, 1.0, 1e-6, 10),
        lambda: core.regularization_path_point(linear, frozen(W), 0, 1.0, 1e-6, 10),
        lambda: core.regularization_path_point(linear, W.copy(), 0, -1.0, 1e-6, 10),
        lambda: core.head(3, None, None, 0.0, np.ones((2, 2))),
        lambda: core.head(0, np.ones(3), None, 0.0, np.ones((2, 2))),
        lambda: core.head_parameters(0, np.ones(2), None, 0.0, np.ones((2, 2)), np.ones(3)),
        changed(ridge="ridge"),
        changed(rule=10),
        changed(rule=7),  # adam without means
        changed(rule=8, past=np.zeros((2, 2))),  # adagrad without roots
        changed(rule=9, root=np.zeros(8), past=np.zeros((2, 2))),  # shampoo with a vector
        changed(rule=5, root=np.ones(4)),  # signs in a metric
        changed(root=np.ones(5)),
        changed(momentum=0.5),
        changed(momentum=0.5, mean=np.zeros(6)),
        changed(momentum=0.5, mean=np.zeros(5), past=np.zeros((2, 2))),
        changed(momentum=0.5, mean=np.zeros(6), past=np.zeros((1, 2))),
        changed(momentum=1.0, mean=np.zeros(6), past=np.zeros((2, 2))),
        changed(decay=-1.0),
        changed(second=1.0),
        changed(eps=nan),
        changed(rule=-1),
        changed(lr=np.array([0.1])),
        changed(lr=np.array([[0.1, 0.1]])),
        changed(lr=np.array([[0.1], [0.1]])),
        changed(lr=np.empty((1, 0))),
        changed(lr=np.empty((0, 1))),
        changed(p=1.0),
        changed(span=np.zeros((1, 3, 2))),
        changed(span=np.zeros((1, 4, 2))),  # a head is trained
        changed(target=None),
        changed(radius="1"),
        changed(ball=2),
        changed(first=-1),
        changed(first=4),
        changed(last=2**70),
        changed(record=np.array([3, 0])),
        changed(record=np.array([0, 4])),
        changed(record=np.array([0, 1, 3])),
        changed(W=W),
        changed(W=np.ones((0, 2, 2))),
        changed(W=np.ones((2, 2, 2))),
        changed(v=np.ones((1, 3))),
        changed(v=None, span=np.zeros((1, 4, 2)), combine=lambda *_: None),
        changed(objective=linear),  # without values its head cannot be trained
        changed(objective=one_v_per_query),
        changed(objective=called, function=lambda o: None),
        changed(settings=()),
        changed(settings=None),
        changed(weights=(W3,)),
        lambda: core.train(*(run | dict(weights=None)).values()),
        lambda: core.train(*(run | dict(out=list(out.values()))).values()),
        lambda: core.train(*(run | dict(out=(np.empty((2, 2, 3)), *run["out"][1:]))).values()),
        changed(head_records=None),
        changed(losses=np.empty(2)),
        changed(reached=np.zeros(1, int)),
        *(
            changed(**{name: frozen(array)})
            for name, array in [("W", W3), ("v", np.ones((1, 2))), *list(out.items())[1:]]
        ),
        lambda: core.train(*(run | dict(out=(frozen(out["weights"]), *run["out"][1:]))).values()),
        changed(reached=frozen(np.zeros(2, int))),
        lambda: core.set_num_threads("2"),
    ]
    for i, call in enumerate(calls):
        with pytest.raises((ValueError, TypeError, OverflowError, IndexError)):
            call()
            pytest.fail(f"call {i} was accepted")


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
        settings = (Number(array), 1, np.array([[0.1]]), 0.0, 2.0, -1.0, 0)
        out = (np.empty((2, 1, 4)), None, *(np.empty((2, 1)) for _ in range(3)))
        weights = (W, None, None, None, None)
        core.train(g.problem.objective, None, settings, 0, 3, record, weights, out, np.zeros(2, int), None, None)

    v, W, o, chosen = np.ones(2), np.ones((2, 2)), np.ones((2, 2)), np.zeros(2, np.intp)
    for call in [
        lambda: train(np.ones((1, 2, 2))),
        lambda: train(np.array([0, 3])),
        lambda: core.head(0, v, None, Number(v), o),
        lambda: core.regularization_path_point(g.problem.objective, W, 0, Number(W), 1e-6, 10),
        lambda: core.frobenius_active(
            g.data.handle, chosen, None, None, Number(chosen), 100, 0.0, 2.0, 0, None, None, None
        ),
        lambda: core.objective(g.data.handle, 0, None, o, np.ones(2), (2, o, None, Number(o)), 1, False),
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
