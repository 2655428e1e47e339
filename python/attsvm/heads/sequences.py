"""Sequences that the heads of a layer attend to: tokens, their text, and which tokens each query sees.

Also functions that read sentences from files.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..common.check import check_parts
from ..common.storage import Mapped, storable

EXAMPLE = Path(__file__).with_name("language_reference.txt")
END = re.compile(r"(?<=[.!?])\s+(?=[\"'(]?[A-Z0-9])")


def printable(word: str) -> str:
    """The word with its control characters escaped, since a terminal would execute them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in word)


@storable
@dataclass(frozen=True, eq=False)
class Text(Mapped):
    """The sequences that a layer attends to, and which tokens each query sees.

    Attributes
    ----------
    keys : (N, dk) array
        Tokens of all sequences, stacked: inputs of the layer with a 1 appended, which multiplies the biases, or the
        keys that attention compares.
    lengths, counts : (n,) integer arrays
        Number of tokens and of queries of each sequence; the same in self-attention.
    words, query_words : list of n lists of str, or None
        Tokens and queries as text.
    start, stop : (M,) integer arrays
        Query q sees the tokens ``start[q] .. stop[q] - 1`` of its sequence, no token if both are equal.
    visible : dict of int to (S, T) bool array
        For each sequence in which the visible tokens have gaps: whether each query sees each token between its start
        and its stop.
    numbers : (n,) integer array
        Number of each kept sequence among all sequences that the model was given.
    places : (n, 4) integer array
        For each sequence: number of queries and of tokens with padding, index of the first query and of the first token
        that is not padding.
    total : int
        Number of sequences that the model was given.
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
        check_parts("lengths", self.lengths, len(self.keys), least=0)
        if self.start is not None:
            check_parts("counts", self.counts, len(self.start), least=0)
        n, stop = len(self.lengths), np.repeat(self.lengths, self.counts)
        places = np.column_stack([self.counts, self.lengths, np.zeros((n, 2), dtype=np.intp)])
        defaults = {"start": 0 * stop, "stop": stop, "numbers": np.arange(n), "places": places}
        own.update({name: value for name, value in defaults.items() if own[name] is None}, total=max(self.total, n))

    @cached_property
    def begin(self) -> np.ndarray:
        """Index of the first token of each sequence among the tokens of all sequences."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def query_begin(self) -> np.ndarray:
        """Index of the first query of each sequence among the queries of all sequences."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of tokens that each query sees."""
        sizes = self.stop - self.start
        for i in self.visible:
            sizes[self.query_begin[i] :][: self.counts[i]] = self.seen(i).sum(axis=1)
        return sizes

    @property
    def queries(self) -> np.ndarray:
        """Rows (sequence, query) of all queries."""
        sequence = np.repeat(np.arange(len(self.counts)), self.counts)
        return np.column_stack([sequence, np.arange(len(sequence)) - self.query_begin[sequence]])

    def query_rows(self, rows: np.ndarray) -> np.ndarray:
        """For each row (sequence, query, ..), the number of its query, counted over the queries of all sequences."""
        return self.query_begin[rows[:, 0]] + rows[:, 1]

    def seen(self, i: int, queries: slice | int = slice(None)) -> np.ndarray:
        """Flags (S, T): whether each query of sequence i (or of its ``queries``, or only one) sees each token."""
        ends = (part[self.query_begin[i] :][: self.counts[i]] for part in (self.start, self.stop))
        start, stop = (part[queries][..., None] for part in ends)
        at = np.arange(self.lengths[i])
        window = (at >= start) & (at < stop)
        return window & self.visible[i][queries] if i in self.visible else window

    def window(self, i: int, query: int) -> np.ndarray:
        """Indices of the tokens that a query of sequence i sees."""
        return np.flatnonzero(self.seen(i, query))

    def find(self, sequence: int) -> int:
        """Index of a sequence among the kept sequences, from its number among all sequences that the model got."""
        if sequence in self.numbers:
            return int(np.searchsorted(self.numbers, sequence))
        if not 0 <= sequence < self.total:
            raise LookupError(f"sequence must lie in 0 .. {self.total - 1}, got {sequence}")
        raise LookupError(
            f"sequence {sequence} was not kept: {len(self.numbers)} of {self.total} were, drawn at random; read again "
            "with a larger tokens=, and with store= (a folder) where memory is short"
        )

    def names(self, sequences: Any, tokens: Any) -> np.ndarray:
        """Texts of the tokens with these indices in these sequences (or in one), or the indices if there is no text."""
        return _names(self.words, sequences, tokens)

    def query_names(self, sequences: Any, queries: Any) -> np.ndarray:
        """Texts of the queries with these indices in these sequences (or in one), or the indices if without text."""
        return _names(self.query_words, sequences, queries)


def _names(words: Any, sequences: Any, tokens: Any) -> np.ndarray:
    pairs = np.broadcast(sequences, tokens)
    return np.array([f"{t}" if words is None else printable(words[i][t]) for i, t in pairs], dtype=str)


def read_sentences(path: Any) -> list[str]:
    """The sentences of a UTF-8 text file that has one sentence or one paragraph per line.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    list of str
        Each line is cut after ``.``, ``!`` or ``?`` if a new sentence seems to begin there.  Each sentence occurs once,
        in the order of the file.

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
    return list(dict.fromkeys(filter(None, parts)))


def example_sentences() -> list[str]:
    """1,000 sentences of the Python 3.11 Language Reference (the package contains their licence).

    Returns
    -------
    list of str

    Examples
    --------
    >>> len(attsvm.heads.example_sentences())
    1000
    """
    return EXAMPLE.read_text(encoding="utf-8").splitlines()
