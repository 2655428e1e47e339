"""The tables of solves in README.md and notebooks/performance.md, as tests/benchmarks/results/svm.json has them.

python tests/support/speed_pages.py     writes both (bench_svm.py does so itself); a test compares them
"""

import json
import re
import statistics

from places import ROOT, TESTS

PERFORMANCE = ROOT / "notebooks" / "performance.md"
NAMES = {
    **{"daqp": "DAQP", "one class": "OneClassSVM", "l-bfgs-b": "L-BFGS-B, dual"},
    **{"l-bfgs-b, 1e-5": "L-BFGS-B, dual, gtol 1e-5", "scs": "SCS, dual", "clarabel": "Clarabel, dual"},
    **{
        "pdhg": "PDHG in NumPy",
        "highs": "HiGHS, linear program",
        "clarabel W": "Clarabel, on W",
        "newton": "Newton's method",
    },
}
NORMS = {"frobenius": "Frobenius", "arrays": "Frobenius, from arrays"}
SHOWN = [
    *[("frobenius", "6,8,10"), ("frobenius", "64,32,64"), ("nuclear", "20,16,32")],
    *[("max", "15,15,20"), ("spectral", "15,15,20")],
]


def time(milliseconds):
    for unit, size in (("us", 1e-3), ("ms", 1.0), ("s", 1e3)):
        number = milliseconds / size
        if number < 995 or unit == "s":
            return f"{number:.0f} {unit}" if number >= 9.95 else f"{number:.1f} {unit}"
    raise AssertionError


def show(us):
    return f"{us:.2f} us" if us < 10 else f"{us:.0f} us" if us < 1000 else f"{us / 1000:.3g} ms"


def drawn(rows, names):
    """What problems drawn by a seed are like, and the eight least ratios; times in microseconds."""
    found = sorted(rows, key=lambda row: row["ratio"])
    ratios, times = [row["ratio"] for row in found], [name for name in ("floor", "attsvm") if name in found[0]]
    lines = [
        f"{len(found)} problems were drawn by seed {found[0]['drawn']}. The median of the ratios is "
        f"{statistics.median(ratios):.2f}; {sum(r < 1 for r in ratios)} are below 1.",
        "",
        f"| drawn n,T,d | | {' | '.join(times)} | peer | ratio |",
        "| --- " * (4 + len(times)) + "|",
    ]
    for row in found[:8]:
        kind, peer = (names.get(row[word], row[word]) for word in ("kind", "peer"))
        cells = [row["row"], kind, *(show(row[name]) for name in times), f"{peer}, {show(row[row['peer']])}"]
        lines.append(f"| {' | '.join(cells)} | {row['ratio']:.2f} |")
    return "\n".join(lines)


def off(peer):
    return f"{peer['off']:.0e}" if peer["off"] else "0"


def performance(found):
    """Every row, every peer."""
    lines = ["| norm | n,T,d | method (auto) | attsvm | certified gap | peer | its time | off by | ratio |"]
    lines.append("| --- " * 9 + "|")
    for row in found["rows"]:
        label = re.sub(r"head (\d+)\.(\d+), (\d+)", r"L\1H\2, \3 queries", row["problem"])
        start = [
            NORMS.get(row["norm"], row["norm"]),
            label,
            row["method"],
            time(row["milliseconds"]),
            f"{row['gap']:.1e}",
        ]
        for name, peer in row["peers"].items() or [("", None)]:
            end = ["-", "", "", ""]
            if peer:
                ratio = peer["milliseconds"] / row["milliseconds"]
                end = [NAMES[name], time(peer["milliseconds"]), off(peer), f"{ratio:.1f}"]
            lines.append(f"| {' | '.join(start + end)} |")
    return "\n".join([*lines, "", said(found), "", drawn(found["drawn"], NORMS | NAMES)])


def readme(found):
    """Five rows, each beside its fastest peer."""
    lines = ["| certified solve, n,T,d | attsvm | certified gap | fastest peer | its time | off by |"]
    lines.append("| --- " * 6 + "|")
    rows = {(row["norm"], row["problem"]): row for row in found["rows"]}
    for norm, problem in SHOWN:
        row = rows[norm, problem]
        name, peer = min(row["peers"].items(), key=lambda item: item[1]["milliseconds"])
        cells = [f"{NORMS.get(norm, norm)} {problem}", time(row["milliseconds"]), f"{row['gap']:.0e}", NAMES[name]]
        cells += [time(peer["milliseconds"]), off(peer)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", said(found)])


def said(found):
    kernels = re.search(r"(\w+) MAX_THREADS", found["blas"])
    kernels = f"OpenBLAS's {kernels[1]} kernels" if kernels else found["blas"]
    return (
        f"One core of an {found['cpu']} with {kernels}, {found['date']}, commit {found['commit']}: medians of "
        f"interleaved warm\ncalls. The first call of a process takes {found['first_call_us']:.0f} us at 6,8,10."
    )


def pages():
    """Both pages as they should be."""
    found = json.loads((TESTS / "benchmarks" / "results" / "svm.json").read_text())
    wanted = {ROOT / "README.md": readme(found), PERFORMANCE: performance(found)}
    return {path: filled(path.read_text(), "solves", text) for path, text in wanted.items()}


def filled(page, name, text):
    """The page with that text between its two marks."""
    marks = rf"(<!-- {name}: written by [\w/.]+ -->\n).*(\n<!-- end of the {name} -->)"
    new, times = re.subn(marks, lambda found: f"{found[1]}\n{text}\n{found[2]}", page, flags=re.DOTALL)
    assert times == 1, f"the marks of {name} are missing"
    return new


def fill(name, text):
    """Of the page on performance."""
    PERFORMANCE.write_text(filled(PERFORMANCE.read_text(), name, text))


def write():
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    write()
