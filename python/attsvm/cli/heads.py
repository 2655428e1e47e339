"""``attsvm heads``: a model folder and a text in; a table, pictures and a page out."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..common.arguments import UsageError, add_out, between, shortened, whole
from ..common.progress import counted
from ..common.render import write_picture
from ..common.storage import write_csv
from ..heads.analysis import SPLITS
from ..heads.model_analysis import analyze_model
from ..heads.pictures import plot_curve, plot_grid, plot_sentence
from ..heads.report import HeadReport, results_table
from ..heads.steps import Row, measure, plot_training, write_rows
from ..heads.table import CASES_HEADER, COLUMNS, CURVE_HEADER, HEADER, INTRODUCTION, cases_rows, curve_rows, rows_of
from ..heads.view import view
from ..reproduce.page import Section, Table, write_page
from .heads_input import load_reader, read_heads

DIGITS = 4  # of a layer or a head
SHOWN = 6  # heads that get a picture of a sentence: those whose SVM is furthest above the best simple rule


def add_parser(commands: Any) -> None:
    about = "read the attention heads of a trained transformer as support vector machines"
    parser = commands.add_parser("heads", help=about, description=about + ".")
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="a folder that transformers loads, or a name in its local cache"
    )
    parser.add_argument(
        "text",
        metavar="TEXT",
        type=Path,
        nargs="*",
        default=[],  # without one argparse would count it among the arguments that are missing
        help="a file, one sentence or paragraph a line (default: 1,000 sentences of the Python Language Reference); "
        "where the model takes images, a folder of them or image files (default: scikit-learn's digits)",
    )
    parser.add_argument(
        "--training",
        action="store_true",
        help="MODEL holds the checkpoint-STEP folders of a run: a table over its steps",
    )
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON in place of the table")
    parser.add_argument(
        "--space", choices=("auto", "residual", "head"), default="auto", help="of the tokens (default auto)"
    )
    parser.add_argument("--layers", type=_indices, help="such as 0,2-4 (default: all)")
    parser.add_argument("--heads", type=_indices, help="of each layer, such as 0,2-4 (default: all)")
    parser.add_argument(
        "--threshold",
        type=between(0, 1, "a number between 0 and 1"),
        default=0.9,
        help="least attention on one token for a query to count (default 0.9)",
    )
    parser.add_argument("--queries", type=whole(1), default=1500, help="that train an SVM (default 1500)")
    parser.add_argument(
        "--nuclear", type=whole(0), default=400, help="queries that train the nuclear SVM (default 400; 0: none)"
    )
    parser.add_argument(
        "--null",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="solve the controls too: random choices, and a random head (default; --no-null: not)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one split of the sentences in place of five, one random head a layer"
    )
    parser.add_argument(
        "--drop-sinks", action="store_true", help="leave out queries that select the first token or [SEP]"
    )
    parser.add_argument("--seed", type=whole(0, 2**63 - 1), default=0, help="of the split of the sentences (default 0)")
    parser.add_argument("--jobs", type=whole(1, 10**4), help="threads (default: all cores); changes no result")
    add_out(parser)
    parser.set_defaults(command=run, name="heads")


def _indices(text: str) -> list[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = [first, last] if dash else [first, first]
        if not all(end.isdecimal() and len(end) <= DIGITS for end in ends) or int(ends[0]) > int(ends[1]):
            raise argparse.ArgumentTypeError(
                f"must be numbers of at most {DIGITS} digits and ranges such as 0,2-4, got {shortened(text)!r}"
            )
        found |= set(range(int(ends[0]), int(ends[1]) + 1))
    return sorted(found)


def run(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    _without_windows()  # matplotlib is an extra: missing, it should be missed before the work

    if args.training:
        return _training(args)
    heads, read = read_heads(args, args.model)
    reports = analyze_model(
        heads,
        n_jobs=args.jobs,
        progress=True,
        threshold=args.threshold,
        drop_sinks=args.drop_sinks,
        queries=args.queries,
        nuclear_queries=args.nuclear,
        null="layer" if args.null and args.quick else args.null,
        splits=1 if args.quick else SPLITS,
        seed=args.seed,
    )
    if args.json:
        columns = {name: [_plain(value) for value in column] for name, column in reports.columns().items()}
        print(json.dumps({"read": read, "columns": columns}))
    else:
        print(read)
        print(results_table(reports))
    args.out.mkdir(parents=True, exist_ok=True)
    best = sorted((report for report in reports if report.curve), key=_gain, reverse=True)[:SHOWN]
    figures: dict[str, Any] = {"heads.png": plot_grid(reports)}
    if best:
        figures["curve.png"] = plot_curve(best)
    for report in best:
        figures[_picture(report)] = plot_sentence(report).figure
    for name, figure in figures.items():
        _write(args.out / name, figure)
    write_csv(args.out / "heads.csv", reports.columns())
    title = Path(args.model).resolve().name or str(args.model)
    view(reports, title=title).save(args.out / "view.html")
    write_page(args.out / "heads.html", title, read, _sections(reports, best))
    written = ", ".join(["heads.html", "view.html", "heads.csv", *figures])
    if not args.json:
        print(f"wrote {written} to {args.out} in {time.perf_counter() - begin:.1f} s")
    return 0


def _plain(value: Any) -> Any:
    """As JSON has it, which knows no NaN."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _without_windows() -> None:
    import jinja2  # noqa: F401  of the page
    import matplotlib

    matplotlib.use("agg")


def _write(path: Path, figure: Any) -> None:
    from matplotlib import pyplot

    write_picture(path, figure)
    pyplot.close(figure)


def _training(args: argparse.Namespace) -> int:
    """The heads of every checkpoint of a run, as the monitor would have measured them."""
    found = load_reader().checkpoints(args.model)
    if not found:
        raise UsageError(f"{args.model} has no folders checkpoint-STEP, as a Trainer writes them")
    rows: list[Row] = []
    for step, folder in counted(iter(found), len(found), "read", "checkpoint"):
        rows += [measure(head, step, null=args.null, seed=args.seed) for head in read_heads(args, folder)[0]]
    args.out.mkdir(parents=True, exist_ok=True)
    write_rows(args.out / "training.csv", rows)
    _write(args.out / "training.png", plot_training(rows))
    if args.json:
        print(json.dumps({"rows": [{name: _plain(value) for name, value in row.items()} for row in rows]}))
    else:
        print(f"{len(found)} checkpoints: wrote training.csv and training.png to {args.out}")
    return 0


def _gain(report: HeadReport) -> float:
    """By how much the SVM beats the best simple rule on unseen sentences."""
    return report.gain if report.gain == report.gain else -1.0


def _picture(report: HeadReport) -> str:
    return f"head-{report.head.layer}-{report.head.number}.png"


def _sections(reports: Sequence[HeadReport], best: Sequence[HeadReport]) -> list[Section]:
    matters = Section(
        "matters", "What its heads do", MATTERS_TEXT, tables=_what_matters(reports), links={"view.html": VIEW_TEXT}
    )
    whole_model = Section(
        "all",
        "All heads",
        GRID_TEXT,
        {"heads.png": "Each cell is an attention head, a row a layer: margin, and accuracy on unseen sentences"},
        [
            Table(HEADER, rows_of(reports), "A row a head.", folded="all columns of all heads"),
            Table(("column", "meaning"), [column[:2] for column in COLUMNS], folded="what the columns are"),
        ],
        fine=INTRODUCTION,
    )
    parts = [matters, whole_model]
    if best:
        curve = Table(CURVE_HEADER, curve_rows(best), "The same in numbers, with the nuclear SVM.")
        parts.append(
            Section(
                "curve",
                "What more queries teach",
                CURVE_TEXT,
                {"curve.png": "Accuracy and logits on unseen sentences, over the queries the SVM was told"},
                [curve],
            )
        )
    for report in best:
        cases = Table(
            CASES_HEADER, cases_rows(report), "The hardest cases: token (position), multiplier in percent of all."
        )
        name = report.head.name.capitalize()
        parts.append(Section(name, name, SENTENCE_TEXT, {_picture(report): f"A sentence under {name}"}, [cases]))
    return parts


def _what_matters(reports: Sequence[HeadReport]) -> list[Table]:
    """The heads that may do something, most gain first; of the others, which they are."""
    few = [report for report in reports if report.fit is None or report.few]
    parked = [report for report in reports if report not in few and report.sinks >= 0.5]
    shown = sorted((report for report in reports if report not in [*few, *parked]), key=_gain, reverse=True)
    at = [HEADER.index(name) for name in MATTERS]
    grid = [tuple(row[i] for i in at) for row in rows_of(shown)]
    parts = [Table(MATTERS, grid)] if grid else []
    for left, why in (
        (parked, "park most of their attention on the first token or [SEP]"),
        (few, "have too few queries"),
    ):
        if left:
            names = ", ".join(report.head.label for report in left)
            parts.append(Table((), [(names,)], folded=f"{len(left)} heads {why}"))
    return parts


MATTERS = ("head", "gain", "null gain", "accuracy", "best rule")
MATTERS_TEXT = """\
Gain: how much more of a head's choices on unseen sentences the SVM finds than the best of six simple rules does. Null
gain: that of heads that learned nothing. A head whose gain is within its null does nothing that chance does not."""
VIEW_TEXT = "Interactive view: choose a head and a sentence, point at a query, and see why it selects its token"
GRID_TEXT = """\
Each cell is one attention head. Left: the margin by which a linear rule can separate the tokens the head selects from
all others it could have selected; "no" where none can, "-" where no query of the head counts, "few" where
too few do to say anything.

Right: how often that rule, the SVM, finds the head's token in sentences it has not seen, in percent. The letter names
the best rule without an SVM: p a fixed relative position, f the sentence's first token, w the word selected most often,
s the same word elsewhere in the sentence, i the token after an earlier copy, n copying the most similar query. A frame
marks heads where the SVM beats all six, by more than the splits of the sentences differ."""
CURVE_TEXT = """\
The heads with the most to explain. The SVM is told more and more of the head's choices, and nothing else; the dotted
lines are the best simple rules. Both its choices and its logits approach those of the head."""
SENTENCE_TEXT = """\
An arrow goes from each query of a training sentence to the token that the head selects for it. The dashed lines go to
the rivals that hold the SVM in place, its support tokens: the thicker, the more. The numbers are multipliers, in
percent of those of the sentence. All other tokens could be removed without changing the answer."""
