"""The command line: ``attsvm reproduce``, ``attsvm run``, ``attsvm prove`` and ``attsvm heads``."""

import argparse
import sys
import warnings
from collections.abc import Sequence

from .. import __version__
from ..common.arguments import UsageError, shortened
from ..reproduce import command as reproduce
from ..svm.solve import ConvergenceWarning
from . import heads, run


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, 1 if a claim fails, 2 for a wrong input."""
    parser = argparse.ArgumentParser(
        prog="attsvm", description="Which tokens will attention select, and in which direction do its weights go?"
    )
    parser.add_argument("--version", action="version", version=f"attsvm {__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="{reproduce,run,prove,heads}")
    for command in (reproduce, run, heads):
        command.add_parser(commands)
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        with warnings.catch_warnings():
            # Warnings of solves that did not converge are left out: every table shows the status of its solves.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return args.command(args)
    except UsageError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.strerror}: {error.filename}" if error.filename else str(error)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in reproduce.EXTRAS:
            raise
        message = f"{missing} is not installed: in a clone, pip install '.[reproduce]'"
    except MemoryError as error:
        message = f"not enough memory. {error}"
    except KeyboardInterrupt:
        print(f"\nattsvm {args.name}: interrupted", file=sys.stderr)
        return 130
    print(f"attsvm {args.name}: {shortened(message)}", file=sys.stderr)
    return 2
