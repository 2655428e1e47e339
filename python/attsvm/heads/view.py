"""The interactive view: an HTML file, without network, that shows one head, one sequence and one query at a time."""

import base64
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..common.check import as_count, as_list, as_numeric, check_type
from ..common.storage import replacing
from .analysis import analyze_model
from .faithful import Faithfulness
from .head import Head, count_heads
from .report import HeadReport, Reports, as_reports
from .view_data import contents, on_text

HEIGHT = 720  # height in pixels of the page in a notebook
READ = 'attsvm.torch.read(model, [tokenizer(text, return_tensors="pt")], tokenizer)'
LARGEST = 224  # an image is scaled down until no side has more than this number of pixels


@dataclass(eq=False, repr=False)
class View:
    """An HTML page that shows itself in a notebook.

    Attributes
    ----------
    html : str
        The page, with its text, style, script and numbers; it loads nothing else.
    left_out : int
        Number of heads that did not fit on the page.
    """

    html: str
    left_out: int = 0

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
        with replacing(path) as file:
            file.write(self.html.encode())


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
    """An interactive page that shows why each query of a head selects its token.

    The reader chooses a layer, a head and a sequence, and points at a query.

    Parameters
    ----------
    heads : list of HeadReport, or list of Head
        From :func:`analyze_model`.  Heads without a report are analysed, on one split and without controls.
    sequences : int
        Largest number of sequences that are shown.  They are the same for all heads that read the same text.  Three
        quarters are the sequences with the largest multipliers of support tokens, and one quarter are the sequences
        with the largest numbers of held-out queries.
    title : str
    text : list of Head, optional
        The same heads, read on sentences of your own: ``attsvm.torch.read(model, [tokenizer(sentences,
        return_tensors="pt", padding=True)], tokenizer)``.  The page shows the first of these sentences, with the SVMs
        of the reports.  Heads that are not in the list are left out.
    faithfulness : attsvm.torch.Faithfulness, optional
        What the same heads do in their model.  The map of all heads then shows their importance and the share that is
        recovered, and the damage without a direction stands beside its name.  Without it the map shows
        ``report.damage`` if it is known, and otherwise how much better the SVM predicts the head than untrained heads.
    images : list of array_like, optional
        If sequences are patches of images: the images that were read, in the same order, as (height, width, 3) uint8,
        or as (3, height, width) floats, as the model takes them.  They are shown under their patches (by Pillow).
    progress : bool, optional
        Whether to show a bar; by default at a terminal or in a notebook.

    Returns
    -------
    View
        It shows itself in a notebook.  ``.save("heads.html")`` writes one file that needs no network.

    Raises
    ------
    ValueError
        If another model read ``text``, or if it has none of the heads of the reports.

    Notes
    -----
    For each query the page shows the tokens that it attends to, and the rivals of the selected token in the order of
    their margins (of the SVM, or of the head's own W), with the support tokens among them.  It shows the margin over
    the nearest rival as a sum over the singular directions of W, as :func:`why` does.

    Numbers have four digits, and the page has at most 4 MB.  If there is not enough room, fewer sequences are shown, at
    least two; then the heads with the fewest queries that count are left out.  At most 48 queries of a long sequence
    (an image) are shown.

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
    given: list[Any] = list(heads) if isinstance(heads, (list, tuple)) else [heads]
    if given and isinstance(given[0], HeadReport):
        reports = as_reports(given)
    else:
        reports = analyze_model(given, nuclear_queries=0, null=False, splits=1, progress=progress)
    if not reports:
        raise ValueError("heads must hold at least one head, got none")
    shown = reports
    if text is not None:
        reports, shown = on_text(reports, as_list("text", text, Head, READ))
    if faithfulness is not None:
        check_type("faithfulness", faithfulness, Faithfulness, "attsvm.torch.faithfulness")
    data, left_out = contents(reports, shown, sequences, faithfulness, as_images(images), progress)
    # With "<" escaped, no text of a token can close the page's script element that holds the data.
    safe = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    order = sorted(reports, key=lambda report: -np.nan_to_num(report.ahead, nan=-np.inf))
    parts = {
        "TITLE": escape(title), "STYLE": _part("view.css"), "SCRIPT": _part("view.js"), "DATA": safe,
        "ROOM": f"{count_heads(left_out)} had no room on this page." if left_out else "",
        "TABLE": Reports(order)._repr_html_(),
    }  # fmt: skip
    return View(re.sub("@([A-Z]+)@", lambda found: parts[found[1]], _part("view.html")), left_out)


def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def as_images(images: Iterable[Any] | None) -> list[str]:
    """Data URLs of images, which are (height, width, 3) bytes or (3, height, width) floats.

    The smallest float of an image becomes black, the largest white.
    """
    found = []
    for k, image in enumerate(() if images is None else images):
        from PIL import Image

        pixels = as_numeric(f"images[{k}]", image)
        if pixels.dtype.kind == "f" and pixels.shape[:-2] == (3,):
            shares = (pixels - pixels.min()) / max(np.ptp(pixels), 1e-300)
            pixels = (255 * shares).round().astype(np.uint8).transpose(1, 2, 0)
        if pixels.dtype != np.uint8 or pixels.shape[2:] != (3,):
            raise ValueError(
                f"images[{k}] must be (height, width, 3) uint8 or (3, height, width) floats, got {pixels.dtype} of "
                f"shape {pixels.shape}"
            )
        written, file = Image.fromarray(pixels), io.BytesIO()
        written.thumbnail((LARGEST, LARGEST))
        written.save(file, "png")
        found.append("data:image/png;base64," + base64.b64encode(file.getvalue()).decode())
    return found
