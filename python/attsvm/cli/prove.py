"""The command ``attsvm prove``: solves the SVM of selected tokens and writes its proof."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..common.arguments import UsageError, between, shortened
from ..common.check import as_norm
from ..svm.solve import solve_svm
from .arrays import as_data, as_selected, read_arrays


def add_parser(commands: Any) -> None:
    about = "solve the SVM of selected tokens and write a proof of it that anybody can check"
    three = commands.add_parser(
        "prove",
        help=about,
        description=about + ": python -S -I check.py OUT, with attsvm/check.py alone.",
        epilog="arrays in DATA.npz: X, Z, lengths and selected, as `attsvm run` reads them.  The exit code is 1 where "
        "it is not proved, and nothing is written.",
    )
    three.add_argument("data", metavar="DATA.npz", type=Path)
    three.add_argument("out", metavar="OUT", type=Path, help="the proof; compressed where the name ends in .gz")
    three.add_argument(
        "--norm",
        type=_norm,
        default="frobenius",
        help="frobenius (default), nuclear, max, spectral, or a number above 1: entrywise",
    )
    three.add_argument("--C", type=between(0, float("inf"), "a positive number"), help="soft margins, of this cost")
    three.set_defaults(command=_prove, name="prove")


def _norm(text: str) -> Any:
    try:
        value: Any = float(text)
    except ValueError:
        value = text
    try:
        return as_norm("norm", value)
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(shortened(str(error))) from None


def _prove(args: argparse.Namespace) -> int:
    arrays = read_arrays(args.data)
    if "selected" not in arrays:
        raise UsageError(f"{args.data} has no selected (n,) or (n, T), the tokens whose SVM is to be proved")
    try:
        sol = solve_svm(as_data(arrays), as_selected(arrays), args.norm, C=args.C)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    print(sol)
    try:
        print(f"PROVED: {sol.prove(args.out)}\nwrote {args.out}")
    except ValueError as error:
        print(str(error).replace("not proved", "NOT PROVED"))
        return 1
    return 0
