"""``attsvm heads``: a model folder and a text in; a table, pictures and a page out."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._arguments import UsageError, add_out, between, whole
from ..page import Section, Table, write_page
from ..report import write_csv
from .analysis import HeadReport, analyze_model
from .bert import read_bert
from .model import Head
from .pictures import plot_curve, plot_grid, plot_sentence
from .report import (
    CAPTION,
    CASES_HEADER,
    CURVE_HEADER,
    cases_rows,
    curve_rows,
    results_columns,
    results_header,
    results_rows,
    results_table,
)
from .text import EXAMPLE, read_sentences

TOKENS = (10, 50)  # of a sentence: fewer say little, more cannot be looked at
SHOWN = 6  # heads that get a picture of a sentence: those whose SVM is furthest above the best simple rule


def add_parser(commands: Any) -> None:
    about = "read the attention heads of a trained BERT model as support vector machines"
    parser = commands.add_parser("heads", help=about, description=about + ".")
    parser.add_argument(
        "model", metavar="MODEL_FOLDER", type=Path, help="with config.json, model.safetensors and vocab.txt"
    )
    parser.add_argument(
        "text",
        metavar="TEXT_FILE",
        type=Path,
        nargs="?",
        default=EXAMPLE,
        help="one sentence or paragraph a line (default: 1,000 sentences of the Python Language Reference)",
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
        "--drop-sinks", action="store_true", help="leave out queries that select the first token or [SEP]"
    )
    parser.add_argument("--seed", type=whole(0), default=0, help="of the split of the sentences (default 0)")
    parser.add_argument("--jobs", type=whole(1), help="threads (default: all cores); changes no result")
    add_out(parser)
    parser.set_defaults(command=run, name="heads")


def _indices(text: str) -> list[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not (last.isdecimal() and int(first) <= int(last))):
            raise argparse.ArgumentTypeError(f"must be numbers and ranges such as 0,2-4, got {text!r}")
        found |= set(range(int(first), int(last or first) + 1))
    return sorted(found)


def run(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    from matplotlib.figure import Figure  # an extra: missing, it should be missed before the work

    heads, read = _read(args)
    reports = analyze_model(
        heads,
        n_jobs=args.jobs,
        progress=True,
        threshold=args.threshold,
        drop_sinks=args.drop_sinks,
        queries=args.queries,
        nuclear_queries=args.nuclear,
        seed=args.seed,
    )
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
        assert isinstance(figure, Figure)
        figure.savefig(args.out / name, dpi=160)
    write_csv(args.out / "heads.csv", results_columns(reports))
    write_page(args.out / "index.html", f"Heads of {args.model}", read, _sections(reports, best))
    written = ", ".join(["index.html", "heads.csv", *figures])
    print(f"wrote {written} to {args.out} in {time.perf_counter() - begin:.1f} s")
    return 0


def _read(args: argparse.Namespace) -> tuple[list[Head], str]:
    """The heads asked for, and what was read, in words."""
    try:
        model = read_bert(args.model)
        sentences = read_sentences(args.text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    for name, most in (("layers", model.layers), ("heads", model.heads)):
        if max(getattr(args, name) or [0]) >= most:
            raise UsageError(f"--{name} must lie in 0-{most - 1}, got {max(getattr(args, name))}")
    lengths = [len(model.tokenizer.encode(sentence)) for sentence in sentences]
    low, high = TOKENS[0], min(TOKENS[1], model.longest)
    kept = [sentence for sentence, T in zip(sentences, lengths, strict=True) if low <= T <= high]
    if len(kept) < 2:
        raise UsageError(f"{args.text} has {len(kept)} sentences of {low} to {high} tokens, too few to learn from")
    heads = model.read(kept, args.layers, progress=True)
    if args.heads is not None:
        heads = [head for head in heads if head.head in args.heads]
    read = f"{len(heads)} heads, {len(kept)} of {len(sentences)} sentences ({low} to {high} tokens)"
    return heads, f"{read}, {len(heads[0].text.keys)} tokens; seed {args.seed}."


def _gain(report: HeadReport) -> float:
    """By how much the SVM beats the best simple rule on unseen sentences."""
    gain = report.curve[-1].accuracy - report.best_baseline[1]
    return gain if gain == gain else -1.0


def _picture(report: HeadReport) -> str:
    return f"head-{report.head.layer}-{report.head.head}.png"


def _sections(reports: Sequence[HeadReport], best: Sequence[HeadReport]) -> list[Section]:
    whole_model = Section(
        "All heads",
        GRID_TEXT,
        {"heads.png": "layers by heads: margin, and held-out accuracy"},
        [
            Table(
                results_header(), results_rows(reports), "A row a head; the small print says what the columns are."
            )
        ],
        fine=CAPTION,
    )
    parts = [whole_model]
    if best:
        curve = Table(CURVE_HEADER, curve_rows(best), "The same in numbers, with the nuclear SVM.")
        parts.append(
            Section("What more queries teach", CURVE_TEXT, {"curve.png": "accuracy over queries"}, [curve])
        )
    for report in best:
        cases = Table(
            CASES_HEADER, cases_rows(report), "The hardest cases: token (position), multiplier in percent of all."
        )
        name = report.head.name.capitalize()
        parts.append(Section(name, SENTENCE_TEXT, {_picture(report): f"a sentence under {name}"}, [cases]))
    return parts


GRID_TEXT = """\
Each cell is one attention head. Left: the margin by which a linear rule can separate the tokens the head selects from
all others it could have selected; "no" where none can, "-" where no query of the head counts, "few" where
too few do to say anything.

Right: how often that rule, the SVM, finds the head's token in sentences it has not seen, in percent. The letter names
the best rule without an SVM: p a fixed relative position, f the sentence's first token, w the word selected most often,
s the same word elsewhere in the sentence, n copying the most similar query. A frame marks heads where the SVM beats all
five by more than 2 points: there it has found something about the head that no simple rule says."""
CURVE_TEXT = """\
The heads with the most to explain. The SVM is told more and more of the head's choices, and nothing else; the dotted
lines are the best simple rules. Both its choices and its logits approach those of the head."""
SENTENCE_TEXT = """\
An arrow goes from each query of a training sentence to the token that the head selects for it. The dashed lines go to
the rivals that hold the SVM in place, its support tokens: the thicker, the more. The numbers are multipliers, in
percent of those of the sentence. All other tokens could be removed without changing the answer."""
