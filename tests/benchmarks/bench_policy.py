"""What falls off: method="auto" in every norm and with every option, on problems that no threshold was chosen on.

    PYTHONPATH=tests/support python tests/benchmarks/bench_policy.py [--problems 300] [--first 0]

after `pip install ".[bench]"`.

Shapes are log-uniform; norms, options and kinds of data are drawn; the seed is the number of the problem.  Each shape
is drawn three times.  A problem falls off where auto takes more than ten times its shape's quickest draw, LATE times
the Frobenius norm on the same rows, or WORTH times the best single method, and longer than NOTICED seconds.  Each solve
has a process of its own: its processor time (the best of three where that is short), what its memory peaked at beyond
the process before it, its status.  A solve is stopped after half a minute.  Writes results/policy.json.
"""

import json

from campaign import DRAWS, problem, shape, solved
from machine import problems, write

METHODS = {
    "frobenius": ("active", "block", "interior"),
    "soft": ("block", "interior"),
    "nuclear": ("interior", "factored"),
}
DECIDED = ("optimal", "infeasible", "stationary")
NOTICED, WORTH, LATE = 0.05, 3.0, 100.0


def measured(seed):
    norm, option, kind, lengths, dk, dz, C = shape(seed)
    row = {"seed": seed, "norm": norm, "option": option, "kind": kind, "C": C if option == "soft" else None,
           "n,T,dk,dz": (len(lengths), max(lengths), dk, dz), "rows": sum(lengths) - len(lengths)}  # fmt: skip
    drawn = [problem(seed, draw) for draw in range(DRAWS)]
    row["auto"] = [solved(*one) for one in drawn]
    slowest = max(range(DRAWS), key=lambda i: row["auto"][i][0])
    took, row["off"] = row["auto"][slowest][0], []
    if took < NOTICED:
        return row
    data, chosen, options = drawn[slowest]
    for method in METHODS.get("soft" if option == "soft" else norm, ()) if option != "rank" else ():
        row[method] = solved(data, chosen, options | {"method": method})
    alone = [row[m][0] for m in ("active", "block", "interior", "factored")
             if m in row and row[m][2] in ("optimal", "infeasible")]  # fmt: skip
    if norm != "frobenius" and option != "rank":
        row["frobenius"] = solved(data, chosen, options | {"norm": "frobenius"})
    if took > 10 * min(one[0] for one in row["auto"]):
        row["off"].append("its draws")
    if alone and took > WORTH * min(alone):
        row["off"].append("a method alone")
    if "frobenius" in row and took > LATE * row["frobenius"][0]:
        row["off"].append("Frobenius")
    if any(one[2] not in DECIDED for one in row["auto"]):
        row["off"].append("open")
    return row


if __name__ == "__main__":
    rows = []
    for seed in problems(__doc__, 300):
        rows.append(row := measured(seed))
        if row["off"]:
            print(json.dumps(row), flush=True)
    autos = [one for row in rows for one in row["auto"]]
    decided, off = sum(one[2] in DECIDED for one in autos), sum(bool(row["off"]) for row in rows)
    print(f"{decided} of {len(autos)} decided, {off} of {len(rows)} shapes off, {max(one[1] for one in autos):.2f} GB")
    print("wrote", write("policy", rows))
