"""How results draw themselves without importing what draws: ``plot`` enters its functions here when it is imported."""

from __future__ import annotations

import base64
import importlib.util
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .storage import replacing

WIDTH, HEIGHT = 4.2, 2.4  # inches, of the small picture in a notebook
DPI = 160  # of pictures in files
COMPRESSION = 3  # of PNG: 7 % larger files than by 6, in half the time
FONT = 7.5  # points: the longest label of an axis is as high as the axes

_drawings: dict[type, Callable[..., Any]] = {}


def drawing(kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: this function ``(result, ax, **line_kw)`` draws results of that class."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        _drawings[kind] = function
        return function

    return enter


def _drawing_of(result: Any) -> Callable[..., Any] | None:
    """That of its class, or of the class it is a kind of."""
    return next((_drawings[kind] for kind in type(result).__mro__ if kind in _drawings), None)


def axes(ax: Any) -> Any:
    """These, or those of a new figure: nothing is drawn into a picture by chance."""
    return new_figure().subplots() if ax is None else ax


def new_figure(size: tuple[float, float] | None = None) -> Any:
    """One of pyplot's, which its ``savefig`` and ``show`` mean from then on."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("plot needs matplotlib: pip install matplotlib")
    import matplotlib.pyplot as plt  # only whoever lets us find the axes needs all of pyplot

    return plt.figure(figsize=size, layout="constrained")


def draw(result: Any, ax: Any = None, **line_kw: Any) -> Any:
    """The result drawn into ``ax``, or a new figure."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("plot needs matplotlib: pip install matplotlib")
    if (found := _drawing_of(result)) is None:
        raise ValueError(f"result must have a picture, got {type(result).__name__}")
    return found(result, ax, **line_kw)


def picture(result: Any) -> str | None:
    """An HTML image of the result; None without matplotlib, or where nothing can be drawn."""
    if _drawing_of(result) is None or importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # not pyplot, whose figures would stay open

    figure, file = Figure(figsize=(WIDTH, HEIGHT), layout="constrained"), io.BytesIO()
    with rc_context({"font.size": FONT}):
        try:
            draw(result, figure.subplots())
        except ValueError:  # several runs or attention heads, or no weights: there is no one picture
            return None
        figure.savefig(file, format="png", dpi=110)
    text = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{type(result).__name__}" style="max-width:100%" src="data:image/png;base64,{text}">'


def write_picture(path: Path, figure: Any) -> None:
    """A matplotlib figure, as PNG or SVG by the name."""
    with replacing(path) as file:
        file.write(picture_bytes(figure, path.suffix))


def picture_bytes(figure: Any, suffix: str) -> bytes:
    """A matplotlib figure as a .png or a .svg.

    There are no minor ticks, which take a third of the time and tell nothing that the major ones do not.  Canvases
    draw once (``savefig`` twice where there is a layout to find), and a second format keeps the layout of the first.
    """
    from matplotlib.backends import backend_agg, backend_svg  # an extra

    for ax in figure.axes:
        ax.minorticks_off()
    figure.set_dpi(DPI)
    file = io.BytesIO()
    if suffix == ".png":
        backend_agg.FigureCanvasAgg(figure).print_png(file, pil_kwargs={"compress_level": COMPRESSION})
    else:
        backend_svg.FigureCanvasSVG(figure).print_svg(file)
    figure.set_layout_engine("none")
    return file.getvalue()
