"""Draws results without importing matplotlib: the package ``plot`` registers a function for each class of results when
it is imported."""

import base64
import functools
import io
from pathlib import Path
from typing import Any

from .storage import replacing

DPI = 160  # resolution of pictures written to files
COMPRESSION = 3  # PNG compression level: level 6 made files 7 % smaller and took twice as long


@functools.singledispatch
def _drawn(result: Any, ax: Any, **line_kw: Any) -> None:
    raise ValueError(f"result must have a picture, got {type(result).__name__}")


drawing = _drawn.register  # decorator: the function ``(result, ax, **line_kw)`` draws the results of a class


def axes(ax: Any) -> Any:
    """The axes ``ax`` or, if None, those of a new figure.  The current axes of pyplot are never taken, so that nothing
    is drawn into another picture by accident."""
    return new_figure().subplots() if ax is None else ax


def new_figure(size: tuple[float, float] | None = None) -> Any:
    """A new pyplot figure, which becomes the current one: ``plt.savefig`` and ``plt.show`` refer to it."""
    try:
        import matplotlib.pyplot as plt  # imported here: drawing into given axes does not need pyplot
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install matplotlib") from error
    return plt.figure(figsize=size, layout="constrained")


def draw(result: Any, ax: Any = None, **line_kw: Any) -> Any:
    """Draws the result into ``ax``, or into a new figure, and returns the axes.

    A new figure is closed again if the result has no single picture.
    """
    own = axes(ax)
    try:
        _drawn(result, own, **line_kw)
    except ValueError:
        if ax is None:
            import matplotlib.pyplot as plt

            plt.close(own.figure)
        raise
    return own


def picture(result: Any) -> str | None:
    """An HTML image of the result; None without matplotlib, or if the result has no single picture."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure  # used instead of pyplot, which would keep the figure open
    except ImportError:
        return None
    figure, file = Figure(figsize=(4.2, 2.4), layout="constrained"), io.BytesIO()
    with rc_context({"font.size": 7.5}):  # the longest axis label then fits the height of the axes
        try:
            draw(result, figure.subplots())
        except ValueError:  # the result has no single picture: several runs or attention heads, or no weights
            return None
        figure.savefig(file, format="png", dpi=110)
    text = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{type(result).__name__}" style="max-width:100%" src="data:image/png;base64,{text}">'


def write_picture(path: Path, figure: Any) -> None:
    """Writes a matplotlib figure as PNG or SVG, chosen by the suffix of the path."""
    with replacing(path) as file:
        file.write(picture_bytes(figure, path.suffix))


def picture_bytes(figure: Any, suffix: str) -> bytes:
    """The bytes of a matplotlib figure as a .png or a .svg file.

    Minor ticks are turned off: they took a third of the drawing time.  The canvas is printed directly, which draws
    once; ``savefig`` would draw twice to find the layout.  A second format keeps the layout found for the first.
    """
    from matplotlib.backends import backend_agg, backend_svg  # matplotlib is an optional dependency

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
