"""WordPiece: text to the tokens of a BERT vocabulary.

Text is normalised, split at spaces and punctuation, and each word is cut greedily into the longest pieces that the
vocabulary has; all but the first start with ``##``.  Source: Wu et al., "Google's Neural Machine Translation System"
(2016), in the form of Devlin et al., "BERT" (2018).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

LONGEST_WORD = 100  # characters; a longer word is unknown, as in BERT's own code
# Blocks of Chinese characters: each of them is a word of its own.
IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """Token ids of sentences, from the ``vocab.txt`` of a BERT model (one token a line)."""

    def __init__(self, path: Path, lowercase: bool = True):
        self.tokens = path.read_text(encoding="utf-8").split("\n")
        if self.tokens[-1] == "":
            self.tokens.pop()
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.lowercase = lowercase
        for special in ("[CLS]", "[SEP]", "[UNK]"):
            if special not in self.ids:
                raise ValueError(f"{path} must be the vocabulary of a BERT model, but it has no {special}")

    def encode(self, sentence: str) -> list[int]:
        """Ids of ``[CLS]``, the pieces of the sentence, ``[SEP]``."""
        pieces = [self.ids["[CLS]"]]
        for word in self.words(sentence):
            pieces += self.pieces(word)
        return [*pieces, self.ids["[SEP]"]]

    def words(self, sentence: str) -> list[str]:
        """Normalised words; every punctuation mark and every Chinese character is one."""
        characters = sentence.translate(SPACED)
        if self.lowercase:
            characters = unicodedata.normalize("NFD", characters).translate(UNACCENTED).lower()
        return characters.translate(APART).split()

    def pieces(self, word: str) -> list[int]:
        """Ids of the longest pieces from the left; of ``[UNK]`` when some part of the word has none."""
        found, begin = [], 0
        while begin < len(word) <= LONGEST_WORD:
            for end in range(len(word), begin, -1):
                piece = self.ids.get(("##" if begin else "") + word[begin:end])
                if piece is not None:
                    break
            else:
                break
            found.append(piece)
            begin = end
        return found if begin == len(word) else [self.ids["[UNK]"]]


def _spaced(c: str) -> str:
    """The character, without what cannot be seen, and with space around what is a word by itself."""
    if c in "\t\n\r" or unicodedata.category(c) == "Zs":
        return " "
    if c in "\0\ufffd" or unicodedata.category(c).startswith("C"):
        return ""
    return f" {c} " if any(low <= ord(c) <= high for low, high in IDEOGRAPHS) else c


def _is_punctuation(c: str) -> bool:
    return unicodedata.category(c).startswith("P") or (33 <= ord(c) <= 126 and not c.isalnum())


class _Table(dict[int, str]):
    """What ``str.translate`` puts for a character, looked up in Unicode the first time that it comes."""

    def __init__(self, replace: Callable[[str], str]):
        self.replace = replace

    def __missing__(self, point: int) -> str:
        self[point] = replaced = self.replace(chr(point))
        return replaced


SPACED = _Table(_spaced)
UNACCENTED = _Table(lambda c: "" if unicodedata.category(c) == "Mn" else c)
APART = _Table(lambda c: f" {c} " if _is_punctuation(c) else c)
