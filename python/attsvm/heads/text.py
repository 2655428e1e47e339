"""Sentences to read: out of a file, or those that come with the package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).with_name("language_reference.txt")
END = re.compile(r"(?<=[.!?])\s+(?=[\"'(]?[A-Z0-9])")


def read_sentences(path: Any) -> list[str]:
    """Sentences of a UTF-8 text file with one sentence or one paragraph a line.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    list of str
        Lines cut after ``.``, ``!`` or ``?`` where a new sentence seems to begin; each sentence once, in order.

    Examples
    --------
    >>> import attsvm
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "text.txt")
    >>> _ = path.write_text("One came. Two went!\\n\\nThree stayed.\\n")
    >>> attsvm.heads.read_sentences(path)
    ['One came.', 'Two went!', 'Three stayed.']
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
    parts = (part.strip() for line in lines for part in END.split(line))
    return list(dict.fromkeys(part for part in parts if part))


def example_sentences() -> list[str]:
    """1,000 sentences of the Python 3.11 Language Reference (their licence lies beside them in the package).

    Returns
    -------
    list of str

    Examples
    --------
    >>> import attsvm
    >>> len(attsvm.heads.example_sentences())
    1000
    """
    return EXAMPLE.read_text(encoding="utf-8").splitlines()
