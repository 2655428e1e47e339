"""The page is well-formed, self-contained, and says what it was given."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest
from attsvm.claims import exactly, median, share
from attsvm.reproduce.page import Section, write_claims, write_page

VOID = {"meta", "img", "!doctype"}


class Reader(HTMLParser):
    """Text and tags; every tag but the void ones must be closed in its turn."""

    def __init__(self):
        super().__init__()
        self.open, self.words, self.seen = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data.strip())


def section(name, title="", text="", caption="", claims={}, fine=""):  # noqa: B006
    return Section(name, title, text, caption, claims, fine)


@pytest.fixture
def write(tmp_path):
    """The text of the page."""

    def written(*sections, order="abc"):
        for one in sections:
            write_page(tmp_path / "index.html", "A title", "Why.", one, order, "how often")
        return (tmp_path / "index.html").read_text(encoding="utf-8")

    return written


def test_everything_given_is_there_and_escaped(write):
    first = section(
        "a",
        "First & best",
        "One paragraph\nof two lines.\n\nAnother, with ``1 < 2``.",
        'a "picture"',
        {"Group": [exactly("it moves", 2, low=1), exactly("it <stops>", 3, high=0)]},
        "took 3 s",
    )
    reader = Reader()
    reader.feed(write(first, section("b")))
    assert reader.open == []
    text = "\n".join(reader.words)
    shown = "A title|Why.|First & best|Another, with|1 < 2|it <stops>|took 3 s|how often"
    assert all(words in text for words in shown.split("|"))
    assert ("img", {"src": "a.png", "alt": 'a "picture"'}) in reader.seen and ("a", {"href": "#b"}) in reader.seen
    assert sum(tag == "p" for tag, _ in reader.seen) == 5  # why, two paragraphs, fine print, how often
    assert "2 claims: 1 hold, 1 fail, 0 undecided" in reader.words
    marks = [words.get("class") for tag, words in reader.seen if tag in ("small", "td") and words.get("class")]
    assert marks == ["fails", "holds", "fails"]  # of the section in the contents, then of its claims
    for tag, attributes in reader.seen:  # nothing is loaded from elsewhere
        assert tag not in ("script", "link")
        assert not any(str(value).startswith(("http", "//")) for value in attributes.values())


def test_most_claims_are_folded(write):
    """What fails is in the open, wherever it stands, and three in all."""
    claims = {"many": [share(f"claim {i}", np.full(100, i != 7), 0.9) for i in range(9)]}
    shown, _, folded = write(section("a", claims=claims)).partition("<details>")
    assert [i for i in range(9) if f"claim {i}<" in shown] == [0, 1, 7] and "6 more: 6 claims" in folded
    assert [i for i in range(9) if f"claim {i}<" in folded] == [2, 3, 4, 5, 6, 8]


def test_sections_stay_and_are_replaced(write):
    write(section("b", "Bee", "stale"), section("c", "Sea <"))
    text = write(section("a", "Ay"), section("b", "Bee", "fresh"))
    at = [text.index(f'<section id="{name}"') for name in "abc"]
    assert at == sorted(at) and text.count("<section") == 3 == text.count('href="#') and text.count("Sea &lt;") == 2
    assert "fresh" in text and "stale" not in text
    assert write(section("b"), order="b").count("<section") == 1


def test_a_drawing_beside_a_picture_is_linked_on_every_screen(tmp_path, write):
    (tmp_path / "a.svg").write_text("")
    text = write(section("a", caption="one"), section("b"))
    assert 'one <a href="a.svg">SVG</a>' in text and "b.svg" not in text and 'href="b.png"' in text
    assert "width=device-width" in text and "prefers-color-scheme: dark" in text and "max-width: 40rem" in text


def test_claims_json_keeps_other_figures_and_replaces_its_own(tmp_path):
    path = tmp_path / "claims.json"
    write_claims(path, "rank", {"A": [exactly("gap", [1e-9], high=1e-6), share("of", [1, 1, 0], 0.9)]})
    write_claims(path, "basin", {"B": [median("x", np.full(9, np.nan), 0)]})
    entries = write_claims(path, "rank", {"C": [exactly("gap", [1e-8], high=1e-6)]})
    assert entries == json.loads(path.read_text())
    assert [(entry["figure"], entry["claim"]) for entry in entries] == [("basin", "B: x"), ("rank", "C: gap")]
    keys = "figure claim low high measured measured_low measured_high runs verdict"
    assert all([*entry] == keys.split() for entry in entries)
