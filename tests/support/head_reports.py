"""A report of a head with planted numbers: what its tables, columns, rows of training and pictures are made of."""

from unittest.mock import patch

import dependence
import numpy as np
from attsvm import heads
from attsvm.heads import steps, table
from attsvm.heads.controls import Null
from attsvm.heads.fit import Fit
from attsvm.heads.report import HeadReport

FITS = ("few", "many", "nuclear", "random")
NULLS = ("null", "shuffled")
NUMBERS = "margin gap learned_margin accuracy score_correlation cosine".split()
OF_NULLS = "hard cosine own accuracy rule_accuracy support_share".split()


def head():
    rng = np.random.default_rng(4)
    Wq, Wk = 3 * rng.standard_normal((2, 3, 6))
    return heads.from_arrays(rng.standard_normal((40, 5, 6)), Wq, None, Wk, None)[0]


def planted():
    """Every number of a report by name, and the same numbers changed."""
    rng = np.random.default_rng(9)
    found = {f"{fit} {name}": rng.uniform(0.1, 0.5, 2) for fit in FITS for name in NUMBERS}
    for k, fit in enumerate(FITS):
        found[f"{fit} queries"] = ((100, 101), (400, 401), (120, 121), (399, 398))[k]  # nuclear is nearest to few
        found |= {f"{fit} {name}": (3 * k + 2, 3 * k + 3) for name in ("rank", "missed", "rows")}
        margin = found[f"{fit} margin"]
        found[f"{fit} margin_bound"] = tuple(margin.max() * rng.uniform(1, [1.01, 2]))
    found |= {f"{null} {name}": rng.uniform(0.1, 0.9, (2, 3)) for null in NULLS for name in OF_NULLS}
    found |= dict(hard=(321, 322), sinks=(0.6, 0.7), sink_value=(0.1, 0.2), damage=(0.01, 0.02))
    found["rule"] = "first", "offset"
    found |= {name: rng.uniform(0.1, 0.9, (2, 5)) for name in ("accuracies", "rule_accuracies")}
    found |= {"first rule": (0.31, 0.32), "other rule": (0.21, 0.22), "test": (6, 7), "train": (8, 9)}
    return ({name: pair[k] for name, pair in found.items()} for k in range(2))


def in_sequences(count, width):
    """Rows (sequence, query, ..), each of a sequence of its own."""
    rows = np.zeros((count, width), dtype=np.intp)
    rows[:, 0] = np.arange(count)
    return rows


def report_of(found, own):
    def fit(kind):
        rows = in_sequences(found[f"{kind} rows"], 4)
        given = {name: float(found[f"{kind} {name}"]) for name in [*NUMBERS, "margin_bound"]}
        given |= {name: int(found[f"{kind} {name}"]) for name in ("queries", "rank", "missed")}
        norm, status = ("nuclear" if kind == "nuclear" else "frobenius"), "optimal"
        return Fit(norm=norm, status=status, rows=rows, multipliers=np.ones(len(rows)), W=None, **given)

    nulls = [
        Null(queries=np.full(3, 50), **{name: np.array(found[f"{null} {name}"]) for name in OF_NULLS}) for null in NULLS
    ]
    train, test = (in_sequences(found[name], 3) for name in ("train", "test"))
    rules = {"first": found["first rule"], "offset": found["other rule"]}
    return HeadReport(
        own, 0.9, found["hard"], found["sinks"], train, test, rules, found["rule"],
        [fit("few"), fit("many")], fit("nuclear"), fit("random"), *nulls,
        np.array(found["accuracies"]), np.array(found["rule_accuracies"]), found["sink_value"], found["damage"], "KL",
    )  # fmt: skip


def shown(found, own):
    shown, report = {}, report_of(found, own)
    for name, column in report.columns().items():
        dependence.add(shown, f"column {name}", column)
    names, (row,) = table.grid([report], table.NAMES)
    for name, cell in zip(names, row, strict=True):
        dependence.add(shown, f"cell {name}", cell)
    header, rows = table.curve_table(report)
    for row in rows:
        for name, cell in zip(header, row, strict=True):
            dependence.add(shown, f"curve {name}", cell)
    gradients = [np.random.default_rng(i).standard_normal((5, 5)) for i in range(40)]
    with patch.object(steps, "analyze_head", lambda *_, **__: report):
        for name, cell in heads.measure(own, 7, gradients=gradients, queries=20).items():
            dependence.add(shown, f"step {name}", cell)
    heads.Reports([report]).plot(dependence.Panel("grid", shown))
    report.plot(dependence.Panel("curve", shown))
    dependence.add(shown, "summary", report.summary)
    dependence.add(shown, "stars", table.stars([report, report]))
    return shown


def table_of(shown, plain, changed):
    before, depends = dependence.depend(shown, plain, changed)
    return {name: ([dependence.digest(before[name])], depends[name]) for name in before}


def of_report():
    own = head()
    plain, changed = planted()
    return table_of(lambda found: shown(found, own), plain, changed)


def of_training():
    """Rows of two layers with two heads each at three steps."""
    rng, wide = np.random.default_rng(2), [(s, k, h) for s in (10, 0, 20) for k in (1, 0) for h in (1, 0)]
    plain, changed = ({name: rng.uniform(0.1, 0.9, len(wide)) for name in steps.COLUMNS} for _ in range(2))
    plain["null_own"][0] = plain["null_cosine"][4:8] = np.nan

    def rows(columns):
        drawn = {}
        made = [
            {name: column[k] for name, column in columns.items()} | {"step": at[0], "layer": at[1], "head": at[2]}
            for k, at in enumerate(wide)
        ]
        heads.plot_training(made, [dependence.Panel(k, drawn) for k in range(4)])
        return drawn

    return table_of(rows, plain, changed)


HEADS = {"report of a head": of_report, "heads in training": of_training}
