"""The page is well-formed, self-contained, and says what it was given."""

from html.parser import HTMLParser

import numpy as np
import pytest
from attsvm.report.claims import exactly, share
from attsvm.report.page import Section, Table, write_page

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
            self.words.append(data)


@pytest.fixture
def page(tmp_path):
    sections = [
        Section(
            "first",
            "First & best",
            "One paragraph\nof two lines.\n\nAnother, with ``1 < 2``.",
            {"a.png": 'a "picture"'},
            [Table(["n", "rank"], [["of all"], [5, 2.5]], "ranks")],
            {"Group": [exactly("it moves", 2, low=1), exactly("it <stops>", 3, high=0)]},
            "took 3 s",
        ),
        Section("second", "Second"),
    ]
    write_page(tmp_path / "index.html", "A title", "Why.", sections)
    reader = Reader()
    reader.feed((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def test_everything_given_is_there_and_escaped(page):
    text = "\n".join(page.words)
    shown = ["A title", "Why.", "First & best", "Another, with ", "1 < 2", "ranks", "2.5", "it <stops>", "took 3 s"]
    for words in shown:
        assert words in text
    assert ("img", {"src": "a.png", "alt": 'a "picture"'}) in page.seen and 'a "picture"' in text
    assert sum(tag == "p" for tag, _ in page.seen) == 5  # why, two paragraphs, fine print, the rule


def test_verdicts_are_marked(page):
    assert "2 claims: 1 hold, 1 fail, 0 undecided" in page.words
    marks = [words.get("class") for tag, words in page.seen if tag in ("small", "td") and words.get("class")]
    assert marks == ["fails", "holds", "fails"]  # of the section in the contents, then of its claims


def test_most_claims_are_folded(tmp_path):
    """What fails is in the open, wherever it stands, and three in all."""
    claims = {"many": [share(f"claim {i}", np.full(100, i != 7), 0.9) for i in range(9)]}
    write_page(tmp_path / "index.html", "T", "", [Section("a", "A", claims=claims)])
    shown, _, folded = (tmp_path / "index.html").read_text().partition("<details>")
    assert [i for i in range(9) if f"claim {i}<" in shown] == [0, 1, 7] and "6 more: 6 claims" in folded
    assert [i for i in range(9) if f"claim {i}<" in folded] == [2, 3, 4, 5, 6, 8]


def test_sections_stay_and_are_replaced(tmp_path):
    path, order = tmp_path / "index.html", ("a", "b", "c")
    write_page(path, "T", "", [Section("b", "Bee", "stale"), Section("c", "Sea")], keep=order)
    write_page(path, "T", "", [Section("a", "Ay"), Section("b", "Bee", "fresh")], keep=order)
    text = path.read_text()
    assert [text.index(f'<section id="{name}"') for name in order] == sorted(
        text.index(f'<section id="{name}"') for name in order
    )
    assert "fresh" in text and "stale" not in text and text.count("<section") == 3 and text.count('href="#') == 3
    write_page(path, "T", "", [Section("b", "Bee")])
    assert path.read_text().count("<section") == 1


def test_a_drawing_beside_a_picture_is_linked(tmp_path):
    (tmp_path / "a.svg").write_text("")
    write_page(tmp_path / "index.html", "T", "", [Section("a", "A", "", {"a.png": "one", "b.png": "two"})])
    text = (tmp_path / "index.html").read_text()
    assert 'one <a href="a.svg">SVG</a>' in text and "b.svg" not in text


def test_it_fits_a_phone_and_a_dark_room(tmp_path):
    write_page(tmp_path / "index.html", "T", "", [])
    text = (tmp_path / "index.html").read_text()
    assert "width=device-width" in text and "prefers-color-scheme: dark" in text and "max-width: 40rem" in text


def test_nothing_is_loaded_from_elsewhere(page):
    for tag, attributes in page.seen:
        assert tag not in ("script", "link")
        assert not any(str(value).startswith(("http", "//")) for value in attributes.values())
