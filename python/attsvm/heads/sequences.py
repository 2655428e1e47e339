"""The sequences that the heads of a layer attend to: tokens, their text, and who sees what; and sentences to read."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..common.check import check_parts
from ..common.storage import Mapped, storable

EXAMPLE = Path(__file__).with_name("language_reference.txt")
END = re.compile(r"(?<=[.!?])\s+(?=[\"'(]?[A-Z0-9])")


def printable(word: str) -> str:
    """The word with its control characters written out: a terminal would obey them."""
    return word if word.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in word)


@storable
@dataclass(frozen=True, eq=False)
class Text(Mapped):
    """The sequences that a layer attends to, and who sees what.

    Attributes
    ----------
    keys : (N, dk) array
        All tokens below each other: inputs of the layer with a 1 appended (it carries the biases), or keys as
        attention gets them.
    lengths, counts : (n,) integer arrays
        Tokens and queries of each sequence; the same in self-attention.
    words, query_words : list of n lists of str, or None
        Tokens and queries as text.
    start, stop : (M,) integer arrays
        Query q sees the tokens ``start[q] .. stop[q] - 1`` of its sequence; none where both are equal.
    visible : dict of int to (S, T) bool array
        Who sees what in the sequences where these tokens have gaps.
    numbers : (n,) integer array
        Which of all sequences that the model was given these are.
    places : (n, 4) integer array
        Queries and tokens of each sequence with its padding, and where the first of those kept stood.
    total : int
        How many sequences the model was given.
    """

    keys: np.ndarray
    lengths: np.ndarray
    words: Sequence[Sequence[str]] | None = None
    counts: Any = None
    query_words: Sequence[Sequence[str]] | None = None
    start: Any = None
    stop: Any = None
    visible: Mapping[int, np.ndarray] = field(default_factory=dict)
    numbers: Any = None
    places: Any = None
    total: int = 0

    def __post_init__(self) -> None:
        own = vars(self)
        if self.counts is None:
            own.update(counts=self.lengths, query_words=self.words)
        n, queries = len(self.lengths), int(self.counts.sum())
        check_parts("lengths", self.lengths, len(self.keys), least=0)
        if self.start is not None:
            check_parts("counts", self.counts, len(self.start), least=0)
        places = np.column_stack([self.counts, self.lengths, np.zeros((n, 2), dtype=np.intp)])
        defaults = {
            "start": np.zeros(queries, dtype=np.intp),
            "stop": np.repeat(self.lengths, self.counts),
            "numbers": np.arange(n),
            "places": places,
        }
        own.update({name: value for name, value in defaults.items() if own[name] is None}, total=max(self.total, n))

    @functools.cached_property
    def begin(self) -> np.ndarray:
        """First token of each sequence."""
        return np.cumsum(self.lengths) - self.lengths

    @functools.cached_property
    def query_begin(self) -> np.ndarray:
        """First query of each sequence."""
        return np.cumsum(self.counts) - self.counts

    def query_rows(self, rows: np.ndarray) -> np.ndarray:
        """Where the query of each row (sequence, query, ..) stands among all queries."""
        return self.query_begin[rows[:, 0]] + rows[:, 1]

    def seen(self, i: int, queries: slice = slice(None)) -> np.ndarray:
        """Which tokens each query of sequence i (or these of them) sees, (S, T)."""
        own = np.arange(self.query_begin[i], self.query_begin[i] + self.counts[i])[queries, None]
        at = np.arange(self.lengths[i])
        window = (at >= self.start[own]) & (at < self.stop[own])
        return window & self.visible[i][queries] if i in self.visible else window

    def window(self, i: int, query: int) -> np.ndarray:
        """The tokens that a query of sequence i sees."""
        if i in self.visible:
            return np.flatnonzero(self.visible[i][query])
        at = self.query_begin[i] + query
        return np.arange(self.start[at], self.stop[at])

    def find(self, sequence: int) -> int:
        """Index among the sequences kept of one that is counted among all."""
        at = np.searchsorted(self.numbers, sequence)
        if at < len(self.numbers) and self.numbers[at] == sequence:
            return int(at)
        if not 0 <= sequence < self.total:
            raise LookupError(f"sequence must lie in 0 .. {self.total - 1}, got {sequence}")
        raise LookupError(
            f"sequence {sequence} was not kept: {len(self.numbers)} of {self.total} were, drawn at random; read again "
            "with a larger tokens=, and with store= (a folder) where memory is short"
        )

    def names(self, sequences: Any, tokens: Any) -> np.ndarray:
        """Tokens of sequences (or of one) as text; their indices where there is none."""
        return _names(self.words, sequences, tokens)

    def query_names(self, sequences: Any, queries: Any) -> np.ndarray:
        """Queries of sequences as text; their indices where there is none."""
        return _names(self.query_words, sequences, queries)


def _names(words: Any, sequences: Any, tokens: Any) -> np.ndarray:
    pairs = np.broadcast(sequences, tokens)
    return np.array([f"{t}" if words is None else printable(words[i][t]) for i, t in pairs], dtype=str)


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
    >>> len(attsvm.heads.example_sentences())
    1000
    """
    return EXAMPLE.read_text(encoding="utf-8").splitlines()
