"""The interactive view: one HTML file, without network, in which one head, one sequence and one query are looked at."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..common.check import as_count, as_list, as_numeric, check_type
from ..common.storage import replacing
from .faithful import Faithfulness
from .head import Head, as_heads, count_heads
from .model_analysis import analyze_model
from .report import HeadReport, Reports, as_reports
from .view_data import contents, on_text

HEIGHT = 720  # pixels, in a notebook
READ = 'attsvm.torch.read(model, [tokenizer(text, return_tensors="pt")], tokenizer)'
LARGEST = 224  # pixels to a side of an image: larger ones are made smaller


class View:
    """An HTML page that shows itself in a notebook.

    Attributes
    ----------
    html : str
        The page: text, style, script and numbers; nothing is fetched.
    left_out : int
        Heads that the page has no room for.
    """

    def __init__(self, html: str, left_out: int = 0):
        self.html, self.left_out = html, left_out

    def __repr__(self) -> str:
        rest = f", {count_heads(self.left_out)} left out" if self.left_out else ""
        return f"<attsvm view of heads: {len(self.html) / 1e6:.1f} MB of HTML{rest}>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="Attention heads" sandbox="allow-scripts" srcdoc="{escape(self.html)}" '
            f'style="width:100%;height:{HEIGHT}px;border:0"></iframe>'
        )

    def save(self, path: Any) -> None:
        """Write the page to a file.

        Parameters
        ----------
        path : path-like
        """
        with replacing(path, "w") as file:
            file.write(self.html)


def view(
    heads: Sequence[Head] | Sequence[HeadReport],
    *,
    sequences: int = 8,
    title: str = "Attention heads",
    text: Sequence[Head] | None = None,
    faithfulness: Faithfulness | None = None,
    images: Iterable[Any] | None = None,
    progress: bool | None = None,
) -> View:
    """An interactive page: choose a layer, a head and a sequence, point at a query, and see why it selects its token.

    Parameters
    ----------
    heads : list of HeadReport, or list of Head
        From :func:`analyze_model`; heads that are not analysed yet are, on one split and without controls.
    sequences : int
        At most this many are shown, the same for all heads that read the same text: those with the most support tokens,
        and for a quarter those with the most held-out queries.
    title : str
    text : list of Head, optional
        The heads read on sentences of your own, ``attsvm.torch.read(model, [tokenizer(sentences,
        return_tensors="pt", padding=True)], tokenizer)``: those are shown, the first ones, with the SVMs of the
        reports.  Heads that are not among them are left out.
    faithfulness : attsvm.torch.Faithfulness, optional
        What the same heads do in their model: their importance and what is recovered stand on the map of all heads, and
        the damage without a direction beside its name.  Without it the map shows ``report.damage`` where that is known,
        and else by how much the SVM predicts the head better than untrained ones.
    images : list of array_like, optional
        Where sequences are patches of images: those that were read, in their order, as (height, width, 3) uint8, or as
        the model takes them, (3, height, width) floats.  They are shown under their patches (by Pillow).
    progress : bool, optional
        Whether to show a bar; by default at a terminal or in a notebook.

    Returns
    -------
    View
        Shows itself in a notebook; ``.save("heads.html")`` writes one file that needs no network.

    Raises
    ------
    ValueError
        For a text that another model read, or none of these heads.

    Notes
    -----
    For each query the page has the tokens that it attends to, the rivals of the selected token by their margin (of the
    SVM, and of the head's own W), the support tokens among them, and the margin over the nearest rival as a sum over
    the singular directions of W, as :func:`why` has it.

    The numbers have four digits and the page at most 4 MB: where that is too little there are fewer sequences, at least
    two, and then fewer heads: those with the fewest queries that count are left out.  Of a long sequence (an image) 48
    queries are shown.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk = rng.standard_normal((2, 8, 8))
    >>> heads = attsvm.heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None, heads=2)
    >>> page = attsvm.heads.view(attsvm.heads.analyze_model(heads, queries=40))
    >>> page.left_out, "<iframe" in page._repr_html_()
    (0, True)
    """
    sequences = as_count("sequences", sequences, 1)
    if not isinstance(title, str):
        raise TypeError(f"title must be a string, got {type(title).__name__}")
    given = list(heads) if isinstance(heads, (list, tuple)) else [heads]
    if given and isinstance(given[0], HeadReport):
        reports = as_reports(given)
    else:
        reports = analyze_model(as_heads(given), nuclear_queries=0, null=False, splits=1, progress=progress)
    if not reports:
        raise ValueError("heads must hold at least one head, got none")
    shown = None
    if text is not None:
        pairs = [(report, own) for report in reports for own in on_text(report, as_list("text", text, Head, READ))]
        if not pairs:
            raise ValueError("text must hold one of the heads of the reports, got none")
        reports, shown = ([pair[k] for pair in pairs] for k in (0, 1))
    if faithfulness is not None:
        check_type("faithfulness", faithfulness, Faithfulness, "attsvm.torch.faithfulness")
    data, left_out = contents(reports, shown, sequences, faithfulness, as_images(images), progress)
    room = f"{count_heads(left_out)} had no room on this page." if left_out else ""
    # As \\u003c a token cannot close the script it stands in.
    safe = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    parts = {"TITLE": escape(title), "STYLE": _part("view.css"), "SCRIPT": _part("view.js"), "ROOM": room, "DATA": safe}
    order = sorted(reports, key=lambda report: -np.nan_to_num(report.ahead, nan=-np.inf))
    parts["TABLE"] = Reports(order)._repr_html_()
    html = re.sub("@([A-Z]+)@", lambda found: parts[found[1]], _part("view.html"))
    return View(html, left_out)


def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def as_images(images: Iterable[Any] | None) -> list[str]:
    """Addresses that hold the images: (height, width, 3) bytes, or (3, height, width) floats, between their smallest
    (black) and largest (white)."""
    found = []
    for k, image in enumerate(() if images is None else images):
        from PIL import Image

        pixels = as_numeric(f"images[{k}]", image)
        if pixels.dtype.kind == "f" and pixels.ndim == 3 and pixels.shape[0] == 3:
            low, high = float(pixels.min()), float(pixels.max())
            pixels = (255 * (pixels - low) / max(high - low, 1e-300)).round().astype(np.uint8).transpose(1, 2, 0)
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
            raise ValueError(
                f"images[{k}] must be (height, width, 3) uint8 or (3, height, width) floats, got {pixels.dtype} of "
                f"shape {pixels.shape}"
            )
        written, file = Image.fromarray(pixels), io.BytesIO()
        written.thumbnail((LARGEST, LARGEST))
        written.save(file, "png")
        found.append("data:image/png;base64," + base64.b64encode(file.getvalue()).decode())
    return found
