"""``attsvm`` as a user calls it."""

import contextlib
import io

from attsvm.cli import main as cli


def run(*words):
    """Exit code, output and messages."""
    out, messages = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(messages):
        try:
            code = cli.main([*map(str, words)])
        except SystemExit as stop:
            code = stop.code
    return code, out.getvalue(), messages.getvalue()


def refused(*words):
    """The one line that says why."""
    code, said, messages = run(*words)
    last = messages.splitlines()[-1]
    assert code == 2 and said == "" and "Traceback" not in messages and len(last) < 500, messages
    return last
