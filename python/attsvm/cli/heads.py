"""The command ``attsvm heads``: analyses a model's heads on texts or images; writes a table, a picture and a page."""

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..common.arguments import UsageError, add_out, between, refused, shortened, whole
from ..common.progress import counted
from ..common.render import write_picture
from ..common.storage import write_table
from ..heads.analysis import SPLITS, analyze_model
from ..heads.head import QUERIES, THRESHOLD, Head, count_heads
from ..heads.report import results_table
from ..heads.steps import measure, plot_training, write_rows
from ..heads.view import view

DIGITS = 4  # largest number of digits in the number of a layer or head
RANGE = re.compile(rf"(\d{{1,{DIGITS}}})(?:-(\d{{1,{DIGITS}}}))?")  # such as 3 or 2-4
# least and largest number of tokens of a sentence: shorter ones say little, longer ones do not fit the page
TOKENS = (10, 50)
MOST_TOKENS = 50_000  # largest number of tokens that are read from a text


def add_parser(commands: Any) -> None:
    about = "read the attention heads of a trained transformer as support vector machines"
    parser = commands.add_parser("heads", help=about, description=about + ".")
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a folder that transformers loads, or a name in its local cache")
    add(
        "text",
        metavar="TEXT",
        type=Path,
        nargs="*",
        default=[],  # without a default, argparse lists TEXT among missing arguments
        help="a file, one sentence or paragraph a line (default: 1,000 sentences of the Python Language Reference); "
        "where the model takes images, a folder of them or image files (default: scikit-learn's digits)",
    )
    add(
        "--training",
        action="store_true",
        help="MODEL holds the checkpoint-STEP folders of a run: a table over its steps",
    )
    add("--json", action="store_true", help="print all numbers as JSON in place of the table")
    add("--space", choices=("auto", "residual", "head"), default="auto", help="of the tokens (default auto)")
    add("--layers", type=_indices, help="such as 0,2-4 (default: all)")
    add("--heads", type=_indices, help="of each layer, such as 0,2-4 (default: all)")
    add(
        "--threshold",
        type=between(0, 1, "a number between 0 and 1"),
        default=THRESHOLD,
        help=f"least attention on one token for a query to count (default {THRESHOLD})",
    )
    add("--queries", type=whole(1), default=QUERIES, help=f"that train an SVM (default {QUERIES})")
    add("--nuclear", type=whole(0), default=400, help="queries that train the nuclear SVM (default 400; 0: none)")
    add(
        "--null",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="solve the controls too: random choices, and a random head (default; --no-null: not)",
    )
    add("--quick", action="store_true", help="one split of the sentences in place of five, one random head a layer")
    add("--drop-sinks", action="store_true", help="leave out queries that select the first token or [SEP]")
    add("--seed", type=whole(0, 2**63 - 1), default=0, help="of the split of the sentences (default 0)")
    add("--jobs", type=whole(1, 10**4), help="threads (default: all cores); changes no result")
    add_out(parser)
    parser.set_defaults(command=run, name="heads")


def _indices(text: str) -> list[int]:
    found: set[int] = set()
    for part in text.split(","):
        ends = RANGE.fullmatch(part)
        numbers = range(int(ends[1]), int(ends[2] or ends[1]) + 1) if ends else ()
        if not numbers:
            raise argparse.ArgumentTypeError(
                f"must be numbers of at most {DIGITS} digits and ranges such as 0,2-4, got {shortened(text)!r}"
            )
        found |= set(numbers)
    return sorted(found)


def run(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    from matplotlib.figure import Figure  # raises before any work if matplotlib is missing

    if args.training:
        return _training(args, Figure(figsize=(11, 6.5), layout="constrained"))
    heads, read, model, sample = _read(args, args.model)
    reports = analyze_model(
        heads,
        n_jobs=args.jobs,
        progress=True,
        drop_sinks=args.drop_sinks,
        nuclear_queries=args.nuclear,
        null="layer" if args.null and args.quick else args.null,
        splits=1 if args.quick else SPLITS,
        seed=args.seed,
    )
    from ..torch import damage

    reports = damage(model, reports, sample, progress=True)
    columns = reports.columns()
    if args.json:
        _print_json({"read": read, "columns": columns})
    else:
        print(read)
        print(results_table(reports))
    args.out.mkdir(parents=True, exist_ok=True)
    size = 2 + 0.6 * max(len({head.number for head in heads}), 6), 1.6 + 0.45 * len({head.layer for head in heads})
    figure = Figure(figsize=size, layout="constrained")
    reports.plot(figure.subplots())
    write_picture(args.out / "heads.png", figure)
    write_table(args.out / "heads.csv", list(columns), zip(*columns.values(), strict=True))
    view(reports, title="/".join(args.model.resolve().parts[-2:]), progress=True).save(args.out / "heads.html")
    if not args.json:
        print(f"wrote heads.html, heads.csv, heads.png to {args.out} in {time.perf_counter() - begin:.1f} s")
    return 0


def _print_json(value: dict[str, Any]) -> None:
    """Prints the value as JSON, with null for NaN and infinity, which JSON cannot hold."""
    text = json.dumps(value, default=np.generic.item)
    print(json.dumps(json.loads(text, parse_constant=lambda name: None)))


def _training(args: argparse.Namespace, figure: Any) -> int:
    """Measures the heads of every checkpoint of a training run as the monitor does; writes a table and a picture."""
    found = _reader().checkpoints(args.model)
    if not found:
        raise UsageError(f"{args.model} has no folders checkpoint-STEP, as a Trainer writes them")
    rows = [
        measure(head, step, null=args.null, seed=args.seed)
        for step, folder in counted(found, len(found), "read", "checkpoint")
        for head in _read(args, folder)[0]
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    write_rows(args.out / "training.csv", rows)
    write_picture(args.out / "training.png", plot_training(rows, figure.subplots(2, 2).ravel()))
    if args.json:
        _print_json({"rows": rows})
    else:
        print(f"{len(found)} checkpoints: wrote training.csv and training.png to {args.out}")
    return 0


def _reader() -> Any:
    """The module that loads models; raises UsageError if PyTorch or transformers is missing."""
    try:
        import transformers  # noqa: F401

        from ..torch import pretrained
    except ImportError as error:
        raise UsageError(
            f"reading a model needs PyTorch and transformers ({error}): pip install torch transformers"
        ) from None
    return pretrained


def _read(args: argparse.Namespace, model: Path) -> tuple[list[Head], str, Any, list[Any]]:
    """Returns the heads that the user asked for; a description of the input; the model; and a few batches of its
    input."""
    with refused(ValueError):
        heads, given, *rest = _reader().read_pretrained(
            model,
            args.text,
            TOKENS,
            progress=not args.training,
            layers=args.layers,
            heads=args.heads,
            space=args.space,
            threshold=args.threshold,
            tokens=MOST_TOKENS,
            queries=args.queries,
            seed=args.seed,
        )
    tokens = heads[0].text.lengths.sum()
    return heads, f"{count_heads(len(heads))}, {given}, {tokens} tokens; seed {args.seed}.", *rest
