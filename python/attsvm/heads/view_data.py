"""The numbers on the interactive page of :func:`attsvm.heads.view`.

A query has its attention, its rivals and the shares of its margin.  A head has its description, its directions and its
cell on the map of all heads.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..common.progress import counted
from .cases import Cases, as_cases
from .choices import all_queries, hard_queries
from .directions import Direction, directions, name_directions
from .faithful import Faithfulness
from .fit import NO_ROWS, support_of
from .head import Head
from .pictures import READABLE
from .report import HeadReport
from .table import SPACES, sequence_text
from .why import svm_weights

MOST = 4_000_000  # largest number of characters of the page's JSON, which a phone can open and a notebook can hold
FEWEST = 2  # if the page is too long with this number of sequences, heads are left out
QUERIES = 48  # largest number of queries shown of a sequence: queries with support tokens come first
TOKENS, LEAST = 24, 0.005  # a query has at most TOKENS lines to tokens, and only to tokens with attention LEAST or more
RIVALS = 5  # number of rivals shown with the least margins under the SVM's W, and as many under the head's own W
DIRECTIONS = 6  # number of directions shown of a margin, those with the largest shares
NAMED, BESIDE = 32, 8  # number of named directions of each head, and of its SVM
SAME = 1e-5  # a head's W, read on another text, may differ from the report's W by this fraction of the largest entry
DIGITS = 4  # significant digits of the numbers on the page
PATCH = re.compile(r"r(\d+)c(\d+)")  # the name that attsvm.torch.read gives to a patch of an image


def contents(
    reports: Sequence[HeadReport],
    shown: Sequence[HeadReport],
    count: int,
    measured: Faithfulness | None,
    images: Sequence[str],
    progress: bool | None,
) -> tuple[str, int]:
    """Returns the data of the page as JSON of at most ``MOST`` characters; and the number of heads that are left out.

    ``shown``: ``reports``, or the same heads on another text, whose first sequences are shown.  All heads that read the
    same text show the same sequences, at most ``count``.  If the JSON is too long, fewer sequences are shown, and then
    fewer heads: the heads with the largest numbers of queries that count stay.
    """
    numbers: dict[Any, int] = {}  # the number of each text on the page
    read = [numbers.setdefault(_same_text(report.head), len(numbers)) for report in shown]
    chosen: list[Sequence[int]] = []
    texts, heads, cases = [], [], []
    for text in range(len(numbers)):
        members = [report for report, own in zip(shown, read, strict=True) if own == text]
        head = members[0].head
        first = range(len(head.text.lengths))[:count]
        chosen.append(choose_sequences(members, count) if shown is reports else first)
        texts.append([_sequence(head, i, images) for i in chosen[-1]])
    for report, own, text in counted(zip(reports, shown, read, strict=True), len(read), "view", "head", progress):
        heads.append(_head(report, text, measured))
        cases.append(_cases(own, chosen[text]))
    sizes = [[len(_compact(found)) + 1 for found in own] for own in cases]
    order = np.argsort([-report.hard for report in reports], kind="stable")
    while (whole := np.cumsum([sum(sizes[k][:count]) for k in order]))[-1] > MOST and count > FEWEST:
        count -= 1
    kept = np.sort(order[np.append(True, whole[1:] <= MOST)]).tolist()  # the first stays even if it is too long
    page = _map(reports, kept, measured) | {
        "spaces": SPACES,
        "texts": [{"sentences": found[:count]} for found in texts],
        "heads": [heads[k] | {"cases": cases[k][:count]} for k in kept],
    }
    return _compact(page), len(reports) - len(kept)


def on_text(reports: Sequence[HeadReport], heads: Sequence[Head]) -> tuple[list[HeadReport], list[HeadReport]]:
    """Returns the reports whose heads have read another text too; and copies of these reports on the other text.

    ``heads``: the heads on the other text.  The SVM keeps its W, and has no support tokens there.
    """
    others = {head.name: head for head in reversed(heads)}  # the first, if a head occurs twice
    found = [report for report in reports if report.head.name in others]
    if not found:
        raise ValueError("text must hold one of the heads of the reports, got none")
    copies, none = [], NO_ROWS[:, :3]
    for report in found:
        other, own = others[report.head.name], report.head.W
        if other.W.shape != own.shape or not np.allclose(other.W, own, atol=SAME * np.abs(own).max()):
            raise ValueError(f"text must hold heads of the same model, got another W of {other.label}")
        W = svm_weights(report)
        fits = [replace(fit, W=W, rows=NO_ROWS, multipliers=np.empty(0)) for fit in report.curve[-1:]]
        copies.append(replace(report, head=other, train=none, test=none, curve=fits))
    return found, copies


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _same_text(head: Head) -> Any:
    """A key that is equal for heads that read the same text."""
    text = head.text
    numbers = (part.tobytes() for part in (text.numbers, text.lengths, text.counts))
    return head.kind, tuple(map(tuple, text.words or ())), *numbers


def choose_sequences(reports: Sequence[HeadReport], most: int) -> list[int]:
    """Indices of the sequences to show, of readable length if there are any.

    Three quarters are the sequences with the largest multipliers of support tokens, summed over the heads; one quarter
    are the sequences with the largest numbers of held-out queries.
    """
    text = reports[0].head.text

    held, tests, hard = (  # sums over the heads, for each sequence
        np.array(sum(np.bincount(rows[:, 0], weights, len(text.lengths)) for rows, weights in parts))
        for parts in zip(*((support_of(r.fit), (r.test, None), (r.train, None)) for r in reports), strict=True)
    )
    unreadable = np.isin(text.lengths, READABLE, invert=True)
    first, unseen = (np.lexsort((text.lengths, -hard, -score, unreadable)).tolist() for score in (held, tests))
    chosen = first[: most - most // 4]
    return chosen + [i for i in unseen if i not in chosen][: most // 4]


def _sequence(head: Head, i: int, images: Sequence[str]) -> dict[str, Any]:
    text = head.text
    keys, number = text.names(i, range(text.lengths[i])).tolist(), text.numbers[i]
    found: dict[str, Any] = {"index": i, "keys": keys, "kind": "Sentence"}
    if head.kind == "cross":
        found["queries"] = text.query_names(i, range(text.counts[i])).tolist()
    given = "" if number == i else f"number {number} of those given"
    if text.words is None:
        return found | {"kind": "Sequence", "title": given}
    if last := PATCH.fullmatch(keys[-1]):
        rows, columns = int(last[1]) + 1, int(last[2]) + 1
        return found | {
            "kind": "Image", "title": given, "columns": columns, "before": len(keys) - rows * columns,
            "image": images[number] if number < len(images) else None,
        }  # fmt: skip
    return found | {"title": sequence_text(text, i, 60)}


def _cases(report: HeadReport, chosen: Sequence[int]) -> list[list[Any]]:
    """What the page shows of a head's queries: a list for each chosen sequence, with an item for each query.

    The item is 0 if there is nothing to show, and otherwise [selected, role, attention, rivals, W, margin, decimals,
    shares]:

    - role: 0 does not count, 1 counts, 2 trained the SVM, 3 held out;
    - attention: token, probability in thousandths, token, ..;
    - rivals: [token, margin by the SVM, margin by the own W, percent of the sum of multipliers];
    - W: the matrix of the margin and the shares, 0 for the head's own W, 1 for the SVM's;
    - shares: direction, singular value, share, direction, ..
    """
    head, (support, _) = report.head, support_of(report.fit)
    kinds = hard_queries(head, report.threshold), report.train, report.test
    roles = {(i, q): role for role, rows in enumerate(kinds, 1) for i, q, _ in rows.tolist()}
    every, shown = all_queries(head), []
    for i in chosen:  # of each sequence at most QUERIES, those with support tokens first
        at = np.flatnonzero((every[:, 0] == i) & (every[:, 2] >= 0))
        without = np.isin(every[at, 1], support[support[:, 0] == i, 1], invert=True)
        shown.append(every[np.sort(at[np.lexsort((-head.choices.top[at], without))[:QUERIES]])])
    rows = np.concatenate(shown)
    several = rows[head.window(rows) > 1]
    rivals = _rivals(report, as_cases(head, several)) if len(several) else {}
    found = []
    for i, own in zip(chosen, shown, strict=True):
        prob = head.sequence_attention(i)
        queries: list[Any] = [0] * int(head.text.counts[i])
        for _, q, selected in own.tolist():
            tokens = np.argsort(-prob[q], kind="stable")[:TOKENS].tolist()
            flat = [x for t in tokens if prob[q, t] >= LEAST for x in (t, round(1000 * prob[q, t]))]
            queries[q] = [selected, roles.get((i, q), 0), flat, *rivals.get((i, q), [[], 0, None, 0, []])]
        found.append(queries)
    return found


def _rivals(report: HeadReport, cases: Cases) -> dict[tuple[int, int], list[Any]]:
    """The list [rivals, W, margin, decimals, shares] of each query, as explained in :func:`_cases`.

    The keys are (sequence, query).  The margin is that over the nearest rival.  Margin and shares are rounded to the
    same number of decimals, so that the shares add up to the margin.
    """
    head, svm = report.head, svm_weights(report)
    # In the head space the head's own W is a multiple of the identity: its singular directions are arbitrary.
    of_svm = svm is not None and head.space == "head"
    parts = directions(head, svm if of_svm else None)
    margins = [cases.data._flat_margins(W, cases.selected) for W in (svm, head.W) if W is not None]
    every = cases.shares(cases.nearest(margins[0 if of_svm else -1]), *parts)
    support, held_by = support_of(report.fit)
    held = dict(zip(map(tuple, support.tolist()), (100 * held_by).tolist(), strict=True))  # % of all multipliers
    columns = map(cases.split, (cases.tokens, *margins))
    found = {}
    for row, own, tokens, *ahead in zip(cases.rows.tolist(), every, *columns, strict=True):
        holds = [held.get((*row, t), 0.0) for t in tokens.tolist()]
        near = np.concatenate([*(np.argsort(part)[:RIVALS] for part in ahead), np.flatnonzero(holds)])
        rivals = [
            [int(tokens[e]), *[None] * (svm is None), *(_rounded(part[e]) for part in ahead), _rounded(holds[e])]
            for e in np.unique(near)
            if tokens[e] != row[2]
        ]
        decimals = max(0, DIGITS - 1 - math.floor(math.log10(max(np.abs(own).max(), 1e-12))))
        order = np.argsort(-np.abs(own))[:DIRECTIONS].tolist()
        flat = [x for d in order for x in (d, _rounded(parts[1][d]), round(float(own[d]), decimals))]
        found[row[0], row[1]] = [rivals, int(of_svm), round(float(own.sum()), decimals), decimals, flat]
    return found


def _rounded(value: float) -> float | None:
    """The number rounded to ``DIGITS`` significant digits; None if it is not finite."""
    value = float(f"{value:.{DIGITS}g}")
    return int(value) if value.is_integer() else value if math.isfinite(value) else None


def _head(report: HeadReport, text: int, measured: Faithfulness | None) -> dict[str, Any]:
    """Description of a head and its named directions.

    "directions" are those of the W whose shares are shown: name, percent of the mean margin, damage without the
    direction, and damage without a random direction (None if not known).  "svm" has names and percents of the
    directions of the SVM's W, if the others are those of the head's own W.
    """
    head, svm, fit, support = report.head, svm_weights(report), report.fit, ""
    if fit and fit.margin > 0:
        support = f"  The SVM of {fit.queries} of its queries has {len(fit.rows)} support tokens."
    lost, beside, of = {}, [], svm
    if head.space != "head":  # in the head space the own W is a multiple of the identity: no direction stands out
        known = measured.directions if measured else ()
        lost = {d.number: [d.damage, d.random] for d in known if d.label == head.label}
        beside = [] if svm is None else name_directions(head, report.train, svm, BESIDE)
        of = None
    return {
        "name": head.label, "layer": head.layer, "number": head.number, "module": head.module, "kind": head.kind,
        "space": head.space, "text": text, "support": support,
        "directions": [
            [*_name(d), *lost.get(d.number, [None, None])] for d in name_directions(head, report.train, of, NAMED)
        ],
        "svm": [_name(d) for d in beside],
    }  # fmt: skip


def _name(direction: Direction) -> list[Any]:
    return [str(direction), None if math.isnan(direction.share) else round(100 * direction.share)]


def _map(reports: Sequence[HeadReport], shown: list[int], measured: Faithfulness | None) -> dict[str, Any]:
    """The map of all heads, one cell for each; and the index of the head with which the page starts.

    A cell is [layer, number, name, index among the heads on the page or -1, number in thousandths of the largest,
    whether most hard queries select a sink, description].  The number is the head's importance or its damage, if
    known, and otherwise its accuracy above that of untrained heads.
    """
    by, sizes = "accuracy above that of untrained heads", np.array([report.ahead for report in reports])
    damages = np.array([report.damage for report in reports])
    if measured:
        by, labels = f"importance ({measured.metric})", [report.head.label for report in reports]
        sizes = np.array([measured.importance(label) if label in measured.labels else math.nan for label in labels])
    elif np.isfinite(damages).any():
        by, sizes = f"damage without the head ({', '.join(sorted({r.metric for r in reports} - {''}))})", damages
    positive = np.fmax(sizes, 0.0)  # 0 also where the number is not known
    largest, cells = positive.max() or 1.0, []
    for k, (report, level) in enumerate(zip(reports, 1000 * positive / largest, strict=True)):
        head, place = report.head, shown.index(k) if k in shown else -1
        said = report.summary + _recovered(head.label, measured)
        cells.append([head.layer, head.number, head.label, place, round(level), report.sinks >= 0.5, said])
    start = np.argmax(np.nan_to_num(sizes[shown], nan=-1.0))
    return {"start": int(start), "map": {"by": by, "largest": f"{largest:.3f}", "cells": cells}}


def _recovered(label: str, measured: Faithfulness | None) -> str:
    """A sentence with a head's importance and the shares that substitutes for it recover, or "" if not measured."""
    if not measured or label not in measured.labels:
        return ""
    parts, rule = [f"  Importance {measured.importance(label):.2g}"], measured.rules[label][0]
    for column, name in (("SVM", "its SVM"), ("rule", f"the rule “{rule}”"), ("random head", "a random head")):
        part = measured.recovered(label, column)
        if math.isfinite(part):
            parts.append(f"{name} recovers {100 * part:.0f} %")
    return ", ".join(parts) + "."
