"""One small random problem of every kind of data, by name."""

from types import SimpleNamespace

import attsvm
import numpy as np
from attsvm import _core

SIGNED = [loss for loss in _core.LOSS if loss != "log"]  # losses of scores of both signs
LENGTHS = [3, 1, 5, 2, 9]


def _ragged(tokens):
    return [tokens(T, 4) for T in LENGTHS]


# Each kind of data from `tokens(*shape)`, which draws keys and values, and `queries(*shape)`.
BUILDERS = {
    "cross": lambda tokens, queries: attsvm.cross_attention(tokens(5, 6, 4), queries(5, 3)),
    "cross_several_queries": lambda tokens, queries: attsvm.cross_attention(tokens(3, 6, 4), queries(3, 2, 5)),
    "cross_ragged": lambda tokens, queries: attsvm.cross_attention(_ragged(tokens), queries(5, 3)),
    "cross_ragged_several": lambda tokens, queries: attsvm.cross_attention(_ragged(tokens), queries(5, 2, 3)),
    "cross_values": lambda tokens, queries: attsvm.cross_attention(tokens(5, 6, 4), queries(5, 3), tokens(5, 6, 2)),
    "cross_float32": lambda tokens, queries: attsvm.cross_attention(tokens(5, 6, 4).astype(np.float32), queries(5, 3)),
    "cross_one_sequence": lambda tokens, queries: attsvm.cross_attention(tokens(1, 60, 203), queries(1, 3)),
    "cross_one_dimension": lambda tokens, queries: attsvm.cross_attention(tokens(4, 5, 1), queries(4, 1)),
    "cross_gemm": lambda tokens, queries: attsvm.cross_attention(tokens(40, 13, 21), queries(40, 17)),
    "self_first": lambda tokens, queries: attsvm.self_attention(tokens(4, 5, 3)),
    "self_last_ragged": lambda tokens, queries: attsvm.self_attention(_ragged(tokens), query=-1),
    "self_all": lambda tokens, queries: attsvm.self_attention(tokens(3, 5, 4), query=None),
    "self_all_ragged": lambda tokens, queries: attsvm.self_attention(_ragged(tokens), query=None),
    "causal": lambda tokens, queries: attsvm.causal_attention(tokens(3, 5, 4)),
    "causal_ragged": lambda tokens, queries: attsvm.causal_attention(_ragged(tokens)),
    "causal_values": lambda tokens, queries: attsvm.causal_attention(tokens(3, 5, 4), tokens(3, 5, 2)),
    "prompt": lambda tokens, queries: attsvm.prompt_attention(tokens(4, 5, 3)),
    "prompt_key_ragged": lambda tokens, queries: attsvm.prompt_attention(_ragged(tokens), queries(3, 4)),
    "causal_window_ragged": lambda tokens, queries: attsvm.causal_attention(_ragged(tokens), window=2),
    "causal_part": lambda tokens, queries: attsvm.causal_attention(_ragged(tokens), _ragged(tokens))[[4, 0, 2, 0]],
    "self_values": lambda tokens, queries: attsvm.self_attention(tokens(3, 5, 4), -1, tokens(3, 5, 2)),
}


def build_case(name, head="shared", positive=False, seed=0):
    """Data of a kind with labels y and head v to fit (positive scores for the log loss), and the generator."""
    rng = np.random.default_rng([seed, list(BUILDERS).index(name)])
    tokens = (lambda *shape: rng.uniform(0.1, 1.0, shape)) if positive else (lambda *shape: rng.standard_normal(shape))
    data = BUILDERS[name](tokens, lambda *shape: rng.standard_normal(shape))
    M, dv = len(data), data.values.shape[1]
    v = data._layout.shape_queries(tokens(M, dv)) if head == "per query" else tokens(dv)
    y = None if positive else data._layout.shape_queries(rng.choice([-1.0, 1.0], M))
    return SimpleNamespace(data=data, y=y, v=v, rng=rng)


def paper(n=6, T=8, d=10, seed=0, loss="logistic"):
    """The paper's random setting: X, Z, y, v, their data and the problem."""
    X, Z, y, v = attsvm.sample.unit_sphere(n, T, d, rng=seed)
    data = attsvm.cross_attention(X, Z)
    problem = attsvm.Problem(data, y, attsvm.LinearHead(v), loss)
    return SimpleNamespace(X=X, Z=Z, y=y, v=v, data=data, problem=problem)


def tied(scale=1.0):
    """The head reads one coordinate, in which two tokens of each query are best: the problem, and both tokens."""
    s, q = paper(4, 6, 12, 6), np.arange(4)
    best = (s.y[:, None] * s.X[:, :, 0]).argmax(axis=1)
    twin = (best + 1) % 6
    s.X[q, twin, 0] = s.X[q, best, 0]
    head = attsvm.LinearHead(scale * np.eye(12)[0])
    return attsvm.Problem(attsvm.cross_attention(s.X, s.Z), s.y, head), best, twin


def problem_of(case, loss="logistic"):
    """Of a linear head."""
    return attsvm.Problem(case.data, case.y, attsvm.LinearHead(case.v), loss)


def starts(case, trained, runs=None, m=3, size=0.5):
    """W, or K and Q, of one run or several (or of attention heads)."""
    shape = () if runs is None else (runs,)
    dims = {"K": case.data.dk, "Q": case.data.dz}
    if trained == "W":
        return dict(W=size * case.rng.standard_normal((*shape, *dims.values())))
    return {name: size * case.rng.standard_normal((*shape, d, m)) for name, d in dims.items()}
