"""The page is well-formed, self-contained, and says what it was given."""

from html.parser import HTMLParser

import pytest
from attsvm.page import Section, Table, write_page
from attsvm.report import Claim

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
            "First & best",
            "One paragraph\nof two lines.\n\nAnother, with ``1 < 2``.",
            {"a.png": 'a "picture"'},
            [Table(["n", "rank"], [["of all"], [5, 2.5]], "ranks")],
            {"Group": [Claim("it moves", "at least 1", "2", True), Claim("it <stops>", "0", "3", False)]},
            "took 3 s",
        ),
        Section("Second"),
    ]
    write_page(tmp_path / "index.html", "A title", "Why.", sections)
    reader = Reader()
    reader.feed((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def test_everything_given_is_there_and_escaped(page):
    text = "\n".join(page.words)
    for words in (
        "A title",
        "Why.",
        "First & best",
        "Another, with ",
        "1 < 2",
        "ranks",
        "2.5",
        "it <stops>",
        "took 3 s",
    ):
        assert words in text
    assert ("img", {"src": "a.png", "alt": 'a "picture"'}) in page.seen
    assert sum(tag == "p" for tag, _ in page.seen) == 5  # why, two paragraphs, fine print, the rule


def test_verdicts_are_marked(page):
    assert "1 of 2 claims hold" in page.words
    marks = [attributes.get("class") for tag, attributes in page.seen if tag == "td" and attributes.get("class")]
    assert marks == ["no", "yes", "no"]  # of the section in the contents, then of its claims


def test_nothing_is_loaded_from_elsewhere(page):
    for tag, attributes in page.seen:
        assert tag not in ("script", "link")
        assert not any(str(value).startswith(("http", "//")) for value in attributes.values())
