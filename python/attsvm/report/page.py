"""One self-contained HTML page: text, pictures, tables, and claims with their verdicts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..common.storage import replacing
from .claims import VERDICTS, Claim
from .tables import RULE, count_verdicts, verdicts_line

__all__ = ["Section", "Table", "write_page"]

STYLE = """
:root { --ink: #222; --paper: #fff; --pale: #5c5c5c; --line: #ddd; --good: #00694d; --bad: #b3261e; --open: #7a5200 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --paper: #16181c; --pale: #a3a3a3; --line: #3a3d42; --good: #5ccf9f; --bad: #d8453b;
    --open: #e8b04b }
  a { color: #8ab8ff } a:visited { color: #c3a5ff }
}
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper) }
h1, h2 { line-height: 1.2; font-weight: 600 }
h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem }
p, figcaption { max-width: 44rem } figure { margin: 1rem 0 } figcaption { color: var(--pale); font-size: 0.875rem }
img { max-width: 100%; height: auto; display: block; background: #fff; border-radius: 4px }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 0.875rem; margin: 1rem 0 }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; border-bottom: 1px solid var(--line) }
tr.heading td { font-weight: 600; padding-top: 0.8rem } caption { text-align: left; color: var(--pale) }
td.holds { color: var(--good) } td.undecided { color: var(--open) }
td.fails { color: #fff; background: var(--bad); font-weight: 600; padding-left: 0.4rem }
nav { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: 1rem; margin: 1.5rem 0 }
nav a { border: 1px solid var(--line); border-radius: 6px; padding: 0.6rem; text-decoration: none; color: var(--ink) }
nav img { width: 100%; height: 7rem; object-fit: contain; margin-bottom: 0.4rem } nav small { display: block }
nav .holds { color: var(--good) } nav .undecided { color: var(--open) } nav .fails { color: var(--bad) }
summary { cursor: pointer; color: var(--pale) }
.fine { color: var(--pale); font-size: 0.85rem } code { overflow-wrap: anywhere }
@media (max-width: 40rem) {
  body { margin: 1rem auto; font-size: 15px }
  .wide img { max-width: none; width: 46rem } table { font-size: 0.8rem } th, td { padding-right: 0.4rem }
  nav { grid-template-columns: repeat(2, 1fr) }
  table.claims tr { display: block; padding: 0.3rem 0; border-bottom: 1px solid var(--line) }
  table.claims tr.head { display: none } table.claims td { display: block; border: 0; padding: 0 0.4rem 0 0 }
  table.claims td[data-label]::before { content: attr(data-label) ": "; color: var(--pale) }
}
"""
OPEN = 3  # claims of a section that are shown at once
FIRST, LAST = '<section id="{}"', "</section>"


class Table(NamedTuple):
    """``header`` and rows of cells; a row of one cell is a heading.  ``folded``: the line behind which it is."""

    header: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    folded: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page, in this order: its title, text, links, pictures with their captions, tables and claims.

    ``text`` holds paragraphs, with an empty line between them; ``pictures`` are paths as seen from the page, each
    with its caption, which also serves those who cannot see it.  A picture that lies beside the page as .svg too is
    linked; ``links`` are other pages beside this one, each with what it is.  ``fine`` ends the section in small print.
    ``name`` tells sections apart: in a page that is there already, one of the same name is replaced.
    """

    name: str
    title: str
    text: str = ""
    pictures: Mapping[str, str] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    claims: Mapping[str, Sequence[Claim]] = field(default_factory=dict)
    fine: str = ""
    links: Mapping[str, str] = field(default_factory=dict)


def write_page(
    path: Path, title: str, text: str, sections: Iterable[Section], keep: Sequence[str] | None = None
) -> None:
    """The page, with a table of its contents where there is more than one section.

    With ``keep``, names in the order of the page, sections of a page that is there already stay if they bear one of
    these names and are not among the new ones.
    """
    parts = {section.name: _section(section, path.parent) for section in sections}
    if keep is not None:
        parts = _present(path) | parts
        parts = {name: parts[name] for name in keep if name in parts}
    page = [f"<h1>{_escape(title)}</h1>", _paragraphs(text)]
    order = list(parts.values())
    lead = next((k for k, part in enumerate(order) if "<img" in part), 0)  # a table comes before the pictures
    page += order[:lead]
    if len(order) - lead > 1:
        page.append(_contents(order[lead:]))
    page += order[lead:]
    if any('<table class="claims">' in part for part in parts.values()):
        page.append(_paragraphs(RULE.replace("\n", " "), ' class="fine"'))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_escape(title)}</title>'
    top = ["<!doctype html>", f'<html lang="en"><head>{head}<style>{STYLE}</style></head><body>']
    with replacing(path, "w") as file:
        file.write("\n".join([*top, *filter(None, page), "</body></html>", ""]))


def _present(path: Path) -> dict[str, str]:
    """The sections of a page by their names."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.finditer(FIRST.format('([^"]*)') + ".*?" + LAST, text, flags=re.DOTALL)
    return {html.unescape(match[1]): match[0] for match in found}


def _section(section: Section, folder: Path) -> str:
    counts = count_verdicts(claim.verdict for claims in section.claims.values() for claim in claims)
    marks = " ".join(f'data-{verdict}="{counts[verdict]}"' for verdict in VERDICTS)
    parts = [f"{FIRST.format(_escape(section.name))} {marks}>", f"<h2>{_escape(section.title)}</h2>"]
    parts.append(_paragraphs(section.text))
    parts += [f'<p><a href="{_escape(page)}">{_escape(words)}</a></p>' for page, words in section.links.items()]
    parts += [_picture(folder, picture, caption) for picture, caption in section.pictures.items()]
    parts += [_table(table) for table in section.tables]
    if section.claims:
        parts.append(_claims(section.claims))
    parts.append(_paragraphs(section.fine, ' class="fine"'))
    return "\n".join([*filter(None, parts), LAST])


def _escape(text: Any) -> str:
    return html.escape(str(text))


def _code(text: str) -> str:
    """Text between double backticks becomes code, as in a docstring."""
    return re.sub("``(.+?)``", r"<code>\1</code>", _escape(text))


def _paragraphs(text: str, attributes: str = "") -> str:
    return "\n".join(f"<p{attributes}>{_code(part.strip())}</p>" for part in text.split("\n\n") if part.strip())


def _picture(folder: Path, picture: str, caption: str) -> str:
    drawn = picture.rpartition(".")[0] + ".svg"
    link = f' <a href="{_escape(drawn)}">SVG</a>' if (folder / drawn).exists() else ""
    image = f'<div class="wide"><img src="{_escape(picture)}" alt="{_escape(caption)}"></div>'
    return f"<figure>{image}<figcaption>{_code(caption)}{link}</figcaption></figure>"


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, flags=re.DOTALL)
    assert found is not None, pattern  # the page was written here
    return found[1]


def _contents(parts: Iterable[str]) -> str:
    """A grid of links, each with the first picture of its section, and how many claims of it hold."""
    cards = []
    for part in parts:
        name, title = _found('id="([^"]*)"', part), _found("<h2>(.*?)</h2>", part)
        counts = {verdict: int(_found(f'data-{verdict}="(\\d+)"', part)) for verdict in VERDICTS}
        worst = next((verdict for verdict in ("fails", "undecided", "holds") if counts[verdict]), None)
        picture = re.search('<img src="([^"]*)"', part)
        image = f'<img src="{picture[1]}" alt="" loading="lazy">' if picture else ""
        verdict = f'<small class="{worst}">{verdicts_line(counts)}</small>' if worst else ""
        cards.append(f'<a href="#{name}">{image}{title}{verdict}</a>')
    return "\n".join(["<nav>", *cards, "</nav>"])


def _table(table: Table) -> str:
    caption = [f"<caption>{_escape(table.caption)}</caption>"] if table.caption else []
    head = "<tr>" + "".join(f"<th>{_escape(cell)}</th>" for cell in table.header) + "</tr>" if table.header else ""
    rows = []
    for row in table.rows:
        if len(row) == 1:
            rows.append(_heading(row[0], max(len(table.header), 1)))
        else:
            rows.append("<tr>" + "".join(f"<td>{_escape(cell)}</td>" for cell in row) + "</tr>")
    whole = "\n".join(['<div class="wide"><table>', *caption, head, *rows, "</table></div>"])
    return f"<details><summary>{_escape(table.folded)}</summary>{whole}</details>" if table.folded else whole


def _heading(text: Any, columns: int) -> str:
    return f'<tr class="heading"><td colspan="{columns}">{_escape(text)}</td></tr>'


def _claims(groups: Mapping[str, Sequence[Claim]]) -> str:
    """Those that fail and the first few in the open, the rest behind a line that can be unfolded."""
    claims = [(heading, claim) for heading, claims in groups.items() for claim in claims]
    first = [entry for entry in claims if entry[1].verdict == "fails"]
    first += [entry for entry in claims if entry[1].verdict != "fails"][: max(0, OPEN - len(first))]
    parts = [_claims_table([entry for entry in claims if entry in first])]
    if rest := [entry for entry in claims if entry not in first]:
        counts = verdicts_line(count_verdicts(claim.verdict for _, claim in rest))
        parts.append(f"<details><summary>{len(rest)} more: {counts}</summary>{_claims_table(rest)}</details>")
    return "\n".join(parts)


def _claims_table(claims: Sequence[tuple[str, Claim]]) -> str:
    labels = ("claim", "expected", "measured", "verdict")
    rows, above = ['<tr class="head">' + "".join(f"<th>{label}</th>" for label in labels) + "</tr>"], None
    for heading, claim in claims:
        if heading != above:
            rows.append(_heading(heading, len(labels)))
            above = heading
        cells = f"<td>{_escape(claim.text)}</td>"
        for label, cell in zip(labels[1:], (claim.expected, claim.found), strict=False):
            cells += f'<td data-label="{label}">{_escape(cell)}</td>'
        rows.append(f'<tr>{cells}<td class="{claim.verdict}">{claim.verdict}</td></tr>')
    return "\n".join(['<table class="claims">', *rows, "</table>"])
