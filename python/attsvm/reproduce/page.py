"""Writes an HTML page of text, pictures and claims with their verdicts, and ``claims.json`` with the claims as data."""

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..claims import VERDICTS, Claim
from ..common.storage import replacing

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
.wide { overflow-x: auto; display: block }
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
SECTION = """
<section id="{{ s.name }}" data-holds="{{ counts.holds }}" data-fails="{{ counts.fails }}"
 data-undecided="{{ counts.undecided }}">
<h2>{{ s.title }}</h2>
{% for part in s.text | paragraphs %}
<p>{{ part | safe }}</p>
{% endfor %}
<figure><a class="wide" href="{{ s.name }}.png"><img src="{{ s.name }}.png" alt="{{ s.caption }}"></a>
<figcaption>{{ s.caption | code | safe }}{% if drawn %} <a href="{{ s.name }}.svg">SVG</a>{% endif %}</figcaption>
</figure>
{% macro claims_table(entries) %}
<table class="claims">
<tr class="head"><th>claim</th><th>expected</th><th>measured</th><th>verdict</th></tr>
{% for heading, claim in entries %}
{% if loop.changed(heading) %}
<tr class="heading"><td colspan="4">{{ heading }}</td></tr>
{% endif %}
<tr><td>{{ claim.text }}</td><td data-label="expected">{{ claim.expected }}</td>
<td data-label="measured">{{ claim.found }}</td><td class="{{ claim.verdict }}">{{ claim.verdict }}</td></tr>
{% endfor %}
</table>
{% endmacro %}
{% if s.claims %}
{{ claims_table(shown) }}
{% if folded %}
<details><summary>{{ folded | length }} more: {{ folded_counts }}</summary>{{ claims_table(folded) }}</details>
{% endif %}
{% endif %}
{% for part in s.fine | paragraphs %}
<p class="fine">{{ part | safe }}</p>
{% endfor %}
</section>
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ title }}</title><style>{{ style }}</style></head><body>
<h1>{{ title }}</h1>
{% for part in text | paragraphs %}
<p>{{ part | safe }}</p>
{% endfor %}
{% if cards | length > 1 %}
<nav>
{% for card in cards %}
<a href="#{{ card.name | safe }}"><img src="{{ card.name | safe }}.png" alt="" loading="lazy">
{{ card.title | safe }}{% if card.worst %}<small class="{{ card.worst }}">{{ card.counts }}</small>{% endif %}</a>
{% endfor %}
</nav>
{% endif %}
{% for section in sections %}
{{ section | safe }}
{% endfor %}
{% for part in fine | paragraphs %}
<p class="fine">{{ part | safe }}</p>
{% endfor %}
</body></html>
"""
# The beginning of a section as the template above writes it: its name, its numbers of claims in the order of VERDICTS,
# and its title.
HEAD = r'(?s)<section id="([^"]*)" data-holds="(\d+)" data-fails="(\d+)"\s+data-undecided="(\d+)">\s*<h2>(.*?)</h2>'
OPEN = 3  # number of claims of a section that are shown unfolded, or more if more claims failed


class Section(NamedTuple):
    """A section of the page: title, text, picture with its caption, and claims, in this order.

    ``name`` identifies the section; it replaces the section of this name in an existing page.  ``text`` holds
    paragraphs, with an empty line between them.  The picture is ``{name}.png`` beside the page; if there is a
    ``{name}.svg`` too, the caption links to it.  The caption is also the alternative text of the picture.  ``fine`` is
    small print at the end.
    """

    name: str
    title: str
    text: str
    caption: str
    claims: Mapping[str, Sequence[Claim]]
    fine: str


def write_page(path: Path, title: str, text: str, section: Section, order: Iterable[str], fine: str) -> None:
    """Writes a section into the page, with a table of contents if there are several sections, and ``fine`` in small
    print.

    ``order`` lists the names of sections in the order of the page.  Sections of an existing page stay if their names
    are in the list.
    """
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    parts = {found[1]: found[0] for found in re.finditer('(?s)<section id="([^"]*)".*?</section>', page)}
    parts[section.name] = _section(section, path.parent)
    sections = [parts[name] for name in order if name in parts]
    page = _filled(
        PAGE, title=title, text=text, fine=fine, style=STYLE, cards=[*map(_card, sections)], sections=sections
    )
    with replacing(path) as file:
        file.write(page.encode())


def _filled(template: str, **words: Any) -> str:
    import jinja2  # an optional dependency

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"code": _code, "paragraphs": _paragraphs}
    return environment.from_string(template).render(words)


def _code(text: str) -> str:
    """HTML of a text, in which double backticks enclose code, as in docstrings."""
    return re.sub("``(.+?)``", r"<code>\1</code>", html.escape(text))


def _paragraphs(text: str) -> Iterator[str]:
    return (_code(part) for part in map(str.strip, text.split("\n\n")) if part)


def _section(section: Section, folder: Path) -> str:
    claims = [(heading, claim) for heading, claims in section.claims.items() for claim in claims]
    counts = Counter(claim.verdict for _, claim in claims)
    # The page shows all failed claims unfolded, then other claims from the first on, until OPEN claims are shown.
    first = sorted(claims, key=lambda entry: entry[1].verdict != "fails")[: max(OPEN, counts["fails"])]
    shown, folded = ([entry for entry in claims if (entry in first) == there] for there in (True, False))
    return _filled(
        SECTION,
        s=section,
        counts=counts,
        shown=shown,
        folded=folded,
        folded_counts=verdicts_line(Counter(claim.verdict for _, claim in folded)),
        drawn=(folder / f"{section.name}.svg").exists(),
    )


def _card(part: str) -> dict[str, Any]:
    """The entry of a section in the table of contents, read from its HTML: name, title, counts of verdicts."""
    name, *numbers, title = re.findall(HEAD, part)[0]
    counts = dict(zip(VERDICTS, map(int, numbers), strict=True))
    worst = next(filter(counts.get, ("fails", "undecided", "holds")), None)
    return {"name": name, "title": title, "worst": worst, "counts": verdicts_line(counts)}


def verdicts_line(counts: Mapping[str, int]) -> str:
    """The numbers of claims by verdict as text, such as "12 claims: 11 hold, 0 fail, 1 undecided"."""
    return (
        f"{sum(counts.values())} claims: "
        f"{counts['holds']} hold, {counts['fails']} fail, {counts['undecided']} undecided"
    )


def write_claims(path: Path, figure: str, groups: Mapping[str, Sequence[Claim]]) -> list[dict[str, Any]]:
    """Writes a figure's claims into ``claims.json`` in place of its former entries; other figures' entries stay.
    Returns all entries.

    An entry has the keys figure, claim (heading and text), low, high, measured, measured_low, measured_high, runs and
    verdict.
    """
    present = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    entries = [entry for entry in present if entry["figure"] != figure]
    numbers = ("low", "high", "measured", "measured_low", "measured_high", "runs", "verdict")
    entries += [
        {"figure": figure, "claim": f"{heading}: {claim.text}"} | {name: getattr(claim, name) for name in numbers}
        for heading, claims in groups.items()
        for claim in claims
    ]
    entries.sort(key=lambda entry: entry["figure"])  # sorted, since figures are finished in any order
    with replacing(path) as file:
        file.write(f"{json.dumps(entries, indent=1, allow_nan=False, ensure_ascii=False)}\n".encode())
    return entries
