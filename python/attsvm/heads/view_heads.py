"""What the interactive view says of each head beside its sentences: numbers, directions, its place on the map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .faithful import Faithfulness
from .names import Direction, name_directions
from .report import HeadReport
from .table import number
from .why import svm_weights

NAMED = 32  # directions of each head
BESIDE = 8  # of its SVM


def head_data(report: HeadReport, text: int, measured: Faithfulness | None) -> dict[str, Any]:
    head, fit = report.head, report.fit
    about = f"{report.hard} queries give one token more than {100 * report.threshold:g} % of their attention"
    if fit is not None and fit.margin > 0:
        about += f"; the SVM of {fit.queries} of them has {len(fit.rows)} support tokens"
        if math.isfinite(report.accuracy):
            rule, right = report.best_baseline
            about += f" and finds {number(report.accuracy)} of the held-out choices (best rule {number(right)}: {rule})"
    return {
        "name": head.label, "layer": head.layer, "number": head.number, "module": head.module, "kind": head.kind,
        "space": head.space, "text": text, "about": about + ".",
    } | _directions(report, measured)  # fmt: skip


def _directions(report: HeadReport, measured: Faithfulness | None) -> dict[str, Any]:
    """Of the leading directions of the W whose shares are shown, and of the SVM beside it: what they are, percent of
    the mean margin; and of the former the damage without it and without a random one, where they are known."""
    head, svm = report.head, svm_weights(report)
    own = head.space != "head"  # there it is a multiple of the identity and has no directions of its own
    known = {d.number: d for d in measured.directions if own and d.label == head.label} if measured is not None else {}
    named = name_directions(head, report.train, None if own else svm, NAMED)
    beside = [] if svm is None or not own else name_directions(head, report.train, svm, BESIDE)
    damages = [[known[d.number].damage, known[d.number].random] if d.number in known else [None] * 2 for d in named]
    pairs = zip(named, damages, strict=True)
    return {"directions": [[*_name(d), *some] for d, some in pairs], "svm": [_name(d) for d in beside]}


def _name(direction: Direction) -> list[Any]:
    return [str(direction), None if math.isnan(direction.share) else round(100 * direction.share)]


def importance(report: HeadReport, measured: Faithfulness | None) -> float:
    """Of the head in its model where that was measured, else its gain; nan where neither is known."""
    if measured is None:
        return report.gain
    return measured.importance(report.head.label) if report.head.label in measured.labels else float("nan")


def map_data(reports: Sequence[HeadReport], shown: list[int], measured: Faithfulness | None) -> dict[str, Any]:
    """Every head as [layer, number, name, its place among those shown or -1, thousandths of the largest number, whether
    it parks most of its attention, what is known]."""
    sizes = [importance(report, measured) for report in reports]
    largest = max((x for x in sizes if x > 0), default=1.0)
    cells = []
    for k, report in enumerate(reports):
        head, place = report.head, shown.index(k) if k in shown else -1
        level = round(1000 * sizes[k] / largest) if sizes[k] > 0 else 0
        parked = bool(report.sinks >= 0.5)
        cells.append([head.layer, head.number, head.label, place, level, parked, _said(report, measured)])
    by = "gain over the best rule" if measured is None else f"importance ({measured.metric})"
    return {"by": by, "largest": number(largest), "cells": cells}


def _said(report: HeadReport, measured: Faithfulness | None) -> str:
    label, parts = report.head.label, [f"{report.hard} hard queries"]
    if measured is not None and label in measured.labels:
        parts.append(f"importance {measured.importance(label):.2g}")
        rule = measured.rules[label][0]
        for column, name in (("SVM", "its SVM"), ("rule", f"the rule “{rule}”"), ("random head", "a random head")):
            part = measured.recovered(label, column)
            parts += [] if math.isnan(part) else [f"{name} recovers {100 * part:.0f} %"]
    if math.isfinite(report.gain):
        null = (
            ""
            if report.null is None
            else f" (random heads {report.null.gain.min():+.2f} to {report.null.gain.max():+.2f})"
        )
        parts.append(f"gain {report.gain:+.2f}{null} over “{report.rule}”")
    if report.sinks > 0:
        parts.append(f"{100 * report.sinks:.0f} % parked")
    return ", ".join(parts)
