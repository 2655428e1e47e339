"""A real model: the table of notebooks/models_found.md to the digit, and the findings behind it.  By hand."""

import re

import pytest
from attsvm import heads
from bert import packaged_model, read_encoder
from places import ROOT

pytestmark = pytest.mark.long
PAGE = ROOT / "notebooks" / "models_found.md"


def cells(table):
    """Rows by column of a printed table: a line of names, a rule, lines of cells that two spaces part."""
    names, _, *rows = (re.split(r" {2,}", line.rstrip()) for line in table.strip().splitlines())
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.fixture(scope="module")
def printed():
    """Cells of the tables of notebooks/models_found.md by head and column: the page has two, of half the columns."""
    if not PAGE.is_file():
        pytest.skip("the pages are not here")
    found = {}
    for block in re.findall(r"^```text\n(head  .*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL):
        for row in cells(block):
            layer, head = re.fullmatch(r"L(\d+)H(\d+)", row["head"]).groups()
            found.setdefault((int(layer), int(head)), {}).update(row)
    assert len(found) >= 10
    return found


@pytest.fixture(scope="module")
def reports(printed):
    """The heads of the table of notebooks/models_found.md, analysed as the command does."""
    layers = sorted({layer for layer, _ in printed})
    found = read_encoder(packaged_model(), heads.example_sentences(), layers)
    wanted = [head for head in found if (head.layer, head.number) in printed]
    reports = heads.analyze_model(wanted)
    return {(report.head.layer, report.head.number): report for report in reports}


def test_the_page_shows_what_comes_out(printed, reports):
    for at, row in printed.items():
        known = {name: cell for name, cell in row.items() if name != "queries"}  # of which the page has another share
        assert cells(heads.results_table([reports[at]], [*known], caption=False).partition("head  ")[2]) == [known]
