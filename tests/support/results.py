"""One result of every class and kind, by name: ``RESULTS[name]()`` makes it."""

import functools

import attsvm
import numpy as np
from attsvm.heads import faithful
from builders import paper


def heads_start(shape):
    return np.random.default_rng(0).standard_normal(shape)


PROBLEM = paper().problem
DATA = PROBLEM.data
ALIKE = attsvm.cross_attention(np.ones((1, 2, 2)), [[1.0]])
RAGGED = attsvm.cross_attention([heads_start((T, 4)) for T in (3, 1, 5)], heads_start((3, 2)))
SHORT = paper(2, 4, 6).data
CONTEXTS = attsvm.theory.soft_labels(np.eye(3), [[1, 2, 0], [0, 1, 0], [3, 0, 1]])
KEPT = np.array([[True, True, False, False], [False, True, False, True]])


@functools.cache
def head():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((T, 6)) for T in rng.integers(4, 9, 30)]
    tokens = [["[CLS]", *["a"] * (len(x) - 2), "[SEP]"] for x in X]
    Wq, Wk = 3 * rng.standard_normal((2, 3, 6))
    return attsvm.heads.from_arrays(X, Wq, None, Wk, None, tokens=tokens)[0]


def report():
    return attsvm.heads.analyze_head(head())


def faithfulness():
    columns = {
        **dict.fromkeys(faithful.OF_CHOICES, 30),
        **dict.fromkeys([*faithful.DRAWN, *faithful.FIXED, "uniform"], 0),
    }
    rows = ("L0H0", faithful.ALL)
    damages = {(r, c, n): np.array([[0.5, 0.25], [0.5, 0.3]]) for r in rows for c, n in columns.items()}
    lost = faithful.LostDirection("L0H0", 0, "a → b", 0.5, 2.0, 0.1, 0.05, "")
    return faithful.Faithfulness(["L0H0"], {}, "KL", {"L0H0": ("first", 0.5)}, {"L0H0": 40}, damages, [lost])


def run(start=None, head=None, heads=None, **how):
    problem = PROBLEM if head is None else attsvm.Problem(DATA, None, head, heads=heads)
    return attsvm.train(problem, start, **{"steps": 50} | how)


def solved(selected=(0,) * 6, data=None, **how):
    return attsvm.solve_svm(data or DATA, selected, **how)


def decomposition():
    W = 30 * attsvm.solve_svm(SHORT, KEPT).W
    return attsvm.theory.decompose(SHORT, SHORT.probabilities(W), W)


RESULTS = {
    "run on W": lambda: run(steps=300),
    "run on K, Q": lambda: run(K=heads_start((10, 3)), Q=heads_start((10, 3)), record=10),
    "runs side by side": lambda: run(heads_start((12, 10, 10)), runs=12, train_head=True, rule="adam"),
    "run with its head": lambda: run(train_head=True),
    "run of two attention heads": lambda: run(
        None, attsvm.MLPHead(heads_start((10, 3))), 2, K=heads_start((2, 10, 3)), Q=heads_start((2, 10, 3))
    ),
    "runs in a metric": lambda: run(runs=2, rule=attsvm.rules.normalized(1 + heads_start((10, 10)) ** 2)),
    "run in a metric of sides": lambda: run(rule=attsvm.rules.normalized((np.eye(10), np.eye(10)))),
    "run by shampoo": lambda: run(rule="shampoo"),
    "run of soft labels": lambda: attsvm.train(CONTEXTS.problem, steps=5),
    "optimal": lambda: solved([0, 1, 2, 3, 4, 5]),
    "optimal, ragged": lambda: solved([0, 0, 2], RAGGED),
    "entrywise": lambda: solved(norm=3.0),
    "in a metric": lambda: solved(metric=np.full((10, 10), 2.0)),
    "soft": lambda: solved(C=1.0, margins=np.full((6, 8), 2.0)),
    "several tokens": lambda: solved(KEPT, SHORT),
    "feasible": lambda: attsvm.feasible(DATA, [0] * 6),
    "infeasible": lambda: solved([0], ALIKE),
    "no constraint": lambda: solved([0], attsvm.cross_attention(np.ones((1, 1, 2)), [[1.0]])),
    "nothing asked": lambda: solved([0], ALIKE, margins=[[1.0, -np.inf]]),
    "path": lambda: attsvm.regularization_path(PROBLEM, [1.0, 4.0, 16.0]),
    "decomposition": decomposition,
    "diagnosis": lambda: attsvm.diagnose(PROBLEM),
    "diagnosis of what cannot be": lambda: attsvm.diagnose(
        attsvm.Problem(ALIKE, None, attsvm.LinearHead([1.0, 0.0])), [0]
    ),
    "diagnosis, ragged": lambda: attsvm.diagnose(attsvm.Problem(RAGGED, head=attsvm.LinearHead(heads_start(4)))),
    "next token, ragged": lambda: attsvm.theory.next_token(
        [[0, 1, 3], [1, 0, 2, 3], [0, 2, 1, 3], [2, 1]], [0, 1, 0, 2], heads_start((4, 6))
    ),
    "contexts with several next tokens": lambda: CONTEXTS,
    "SVM of contexts": lambda: attsvm.feasible(CONTEXTS.data, CONTEXTS.selected),
    "plane": lambda: attsvm.separable([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]], [0, 0, 1]),
    "influence": lambda: solved([0, 1, 2, 3, 4, 5]).influence(),
    "head": report,
    "heads": lambda: attsvm.heads.analyze_model([head(), head()], n_jobs=1),
    "SVM of a head": lambda: report().fit,
    "why": lambda: attsvm.heads.why(report(), *report().train[0, :2]),
    "faithfulness": faithfulness,
    "replicated": lambda: attsvm.replicate(
        lambda rng, d, T: {"x": rng.random()}, 2, grid={"d": [1, 2], "T": [3]}, progress=False
    ),
}
