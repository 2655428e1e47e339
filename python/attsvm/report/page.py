"""One self-contained HTML page: text, pictures, tables, and claims with their verdicts."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .report import RULE, Claim

__all__ = ["Section", "Table", "write_page"]

STYLE = """
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #222 }
h1, h2 { line-height: 1.2; font-weight: 600 } h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1rem }
p { max-width: 44rem } img { max-width: 100%; display: block; margin: 1rem 0 }
table { border-collapse: collapse; font-size: 0.875rem; margin: 1rem 0 }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; border-bottom: 1px solid #e6e6e6 }
tr.heading td { font-weight: 600; padding-top: 0.8rem } caption { text-align: left; color: #555 }
td.yes { color: #00694d } td.no { color: #fff; background: #b3261e; font-weight: 600; padding-left: 0.4rem }
table.claims td:nth-child(n+2) { white-space: nowrap }
.fine { color: #666; font-size: 0.85rem }
"""


class Table(NamedTuple):
    """``header`` and rows of cells; a row of one cell is a heading."""

    header: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page, in this order: its title, text, pictures, tables and claims.

    ``text`` holds paragraphs, with an empty line between them; ``pictures`` are paths as seen from the page, each
    with a few words for those who cannot see it.  ``fine`` ends the section in small print.
    """

    title: str
    text: str = ""
    pictures: Mapping[str, str] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    claims: Mapping[str, Sequence[Claim]] = field(default_factory=dict)
    fine: str = ""


def write_page(path: Path, title: str, text: str, sections: Sequence[Section]) -> None:
    """The page, with a table of its contents where there is more than one section."""
    parts = [f"<h1>{_escape(title)}</h1>", _paragraphs(text)]
    if len(sections) > 1:
        parts.append(_contents(sections))
    for i, section in enumerate(sections):
        parts += [f'<h2 id="s{i}">{_escape(section.title)}</h2>', _paragraphs(section.text)]
        parts += [
            f'<img src="{_escape(picture)}" alt="{_escape(words)}">' for picture, words in section.pictures.items()
        ]
        parts += [_table(table) for table in section.tables]
        if section.claims:
            parts.append(_claims(section.claims))
        parts.append(_paragraphs(section.fine, ' class="fine"'))
    if any(section.claims for section in sections):
        parts.append(_paragraphs(RULE.replace("\n", " "), ' class="fine"'))
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_escape(title)}</title>'
    )
    page = ["<!doctype html>", f'<html lang="en"><head>{head}<style>{STYLE}</style></head><body>']
    page += [*filter(None, parts), "</body></html>", ""]
    path.write_text("\n".join(page), encoding="utf-8")


def _escape(text: Any) -> str:
    return html.escape(str(text))


def _paragraphs(text: str, attributes: str = "") -> str:
    """Text between double backticks becomes code, as in a docstring."""
    parts = [re.sub("``(.+?)``", r"<code>\1</code>", _escape(part.strip())) for part in text.split("\n\n")]
    return "\n".join(f"<p{attributes}>{part}</p>" for part in parts if part)


def _contents(sections: Sequence[Section]) -> str:
    """Links, with how many claims of a section hold."""
    rows = []
    for i, section in enumerate(sections):
        held = [claim.holds for claims in section.claims.values() for claim in claims]
        verdict = f"<td{_mark(all(held))}>{sum(held)} of {len(held)} claims hold</td>" if held else "<td></td>"
        rows.append(f'<tr><td><a href="#s{i}">{_escape(section.title)}</a></td>{verdict}</tr>')
    return "\n".join(["<table>", *rows, "</table>"])


def _table(table: Table) -> str:
    caption = [f"<caption>{_escape(table.caption)}</caption>"] if table.caption else []
    head = "<tr>" + "".join(f"<th>{_escape(cell)}</th>" for cell in table.header) + "</tr>"
    rows = []
    for row in table.rows:
        if len(row) == 1:
            rows.append(_heading(row[0], len(table.header)))
        else:
            rows.append("<tr>" + "".join(f"<td>{_escape(cell)}</td>" for cell in row) + "</tr>")
    return "\n".join(["<table>", *caption, head, *rows, "</table>"])


def _heading(text: Any, columns: int) -> str:
    return f'<tr class="heading"><td colspan="{columns}">{_escape(text)}</td></tr>'


def _claims(groups: Mapping[str, Sequence[Claim]]) -> str:
    rows = ["<tr><th>claim</th><th>expected</th><th>measured</th><th>holds</th></tr>"]
    for heading, claims in groups.items():
        rows.append(_heading(heading, 4))
        for claim in claims:
            cells = "".join(f"<td>{_escape(cell)}</td>" for cell in (claim.text, claim.expected, claim.measured))
            rows.append(f"<tr>{cells}<td{_mark(claim.holds)}>{'yes' if claim.holds else 'NO'}</td></tr>")
    return "\n".join(['<table class="claims">', *rows, "</table>"])


def _mark(holds: bool) -> str:
    return f' class="{"yes" if holds else "no"}"'
