"""The field's words: private ones do not occur in the sources, in names, comments or messages."""

from __future__ import annotations

import re
from pathlib import Path

import attsvm
import pytest
from places import CSRC

PACKAGE = Path(attsvm.__file__).parent
pytestmark = pytest.mark.skipif(not CSRC.is_dir(), reason="the sources are not next to the tests")

# As words or beginnings of words, also within a name.  What the field says instead: thread pool, primal-dual active
# set, SIMD dispatch, converge, add a constraint, rank, "at most N", callbacks, stagnation at rounding level,
# strongly correlated.
FORBIDDEN = re.compile(
    r"(?<![a-z])(crew|burst|clones|settle|offer|seat|so\s+many|ha(?:ve|s)\s+a\s+say|last\s+word|upper\s+hand|lean(?:s|ing)?\s+on\b)",
    re.IGNORECASE,
)
SOURCES = [*CSRC.rglob("*.[ch]"), *CSRC.rglob("*.md"), *PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]


def prose(text):
    """The text with comments' line breaks closed, so that two words are found across them."""
    return re.sub(r"\n\s*(?:\*|#|//)?\s*", " ", text.replace("target_clones", ""))


def test_no_private_words():
    for path in sorted(SOURCES):
        found = FORBIDDEN.findall(prose(path.read_text(encoding="utf-8")))
        assert not found, f"{path}: {found}"


@pytest.mark.parametrize(
    "text", ["the crew of\n * threads", "int settle(", "ROUNDS_SETTLED", "so\n * many rows", "leans on"]
)
def test_the_words_are_found(text):
    assert FORBIDDEN.search(prose(text))


@pytest.mark.parametrize("text", ["target_clones", "coffer", "lean one", "unsettled"])
def test_other_words_are_not(text):
    assert not FORBIDDEN.search(prose(text))
