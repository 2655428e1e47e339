"""Tables as text and for a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence

__all__ = ["Table", "html_table", "table"]

Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # header and rows


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns two spaces apart, a line under the header; a row of one cell is a heading."""
    full = [header, *(row for row in rows if len(row) > 1)]
    widths = [max(len(row[j]) for row in full) for j in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(header, widths, strict=True)).rstrip()]
    lines.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    return "\n".join(lines)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same as HTML."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
