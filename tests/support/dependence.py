"""What a picture, a table and claims are made of: recorded instead of drawn and judged, once per array changed.

``python tests/support/dependence.py`` writes the table that ``tests/figures`` and ``tests/heads`` read.
"""

import warnings
import zlib
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import numpy as np
import pytest
from attsvm.reproduce import panels
from places import TESTS

TABLE = TESTS / "support" / "dependence.txt"
ROWS = 9  # of planted results: an odd number has a middle
LOOKS = "color alpha linewidth linestyle marker markersize fontsize label zorder loc xlabel ylabel cmap middle".split()


class Panel:
    """Axes that note what they are told to draw."""

    def __init__(self, at, drawn):
        self.__dict__.update(at=at, drawn=drawn, lines=True)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "get_legend_handles_labels":
            return lambda: ([], [])
        if name == "images":
            return [SimpleNamespace(norm=lambda value: 0)]
        if name in ("figure", "spines", "xaxis", "yaxis", "transAxes", "get_legend"):
            return MagicMock()

        def note(*args, **kwargs):
            given = {key: value for key, value in kwargs.items() if key not in LOOKS}
            color = kwargs.get("color")
            words = (kwargs.get("label") or (color if isinstance(color, str) else "")).replace("\n", " ")
            if name not in ("set_title", "grid", "margins", "legend", "tick_params", "set_axisbelow", "set_prop_cycle"):
                add(self.drawn, f"panel {self.at} {name} {words}".strip(), [args, given, [1] * (name == "add_patch")])
            line = MagicMock(get_color=lambda: words)  # by which the band of a line is named
            return [line] if name in ("plot", "step", "loglog") else line

        return note


def add(found, name, value):
    """What has the same name stands behind each other."""
    found[name] = np.append(found.get(name, []), list(numbers(value)))


def numbers(value):
    """All numbers in it, words as numbers."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, str):
        yield zlib.crc32(value.encode()) % 997
    elif isinstance(value, (list, tuple, zip, range)):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, np.ma.MaskedArray):
        yield from value.filled(np.nan).ravel()
    elif isinstance(value, (np.ndarray, int, float, np.generic)):
        array = np.asarray(value)
        yield from numbers(array.ravel().tolist()) if array.dtype.kind in "UO" else array.astype(float).ravel()


def canvas(drawn):
    """A figure whose panels are noted."""
    figure = MagicMock(axes=[])

    def subplots(rows=1, columns=1, **_):
        panels = [Panel(len(figure.axes) + k, drawn) for k in range(rows * columns)]
        figure.axes.extend(panels)
        shaped = np.empty(len(panels), dtype=object)
        shaped[:] = panels
        return shaped.reshape(rows, columns).squeeze() if len(panels) > 1 else panels[0]

    figure.subplots = subplots
    return figure


def outputs(figure, results, claims_alone=False):
    """Every call that draws and what is handed to every claim, as numbers."""
    found = {}

    def claim(kind):
        def made(text, *samples, low=None, high=None):
            usual = {"mean": 2, "difference": 2}.get(kind, 1)
            samples, bounds = samples[:usual], (*samples[usual:], low, high)
            return text, [kind, *samples, *(str(b) for b in bounds if b is not None)]

        return made

    kinds = ("share", "median", "mean", "exactly", "difference", "none")
    fakes = {kind: claim(kind) for kind in kinds if hasattr(figure, kind)}
    drawing = canvas(found)
    drawn = patch.object(panels, "Figure", lambda *_, **__: drawing)
    with patch.multiple(figure, **fakes), drawn, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if not claims_alone:
            assert figure.plot(results) is drawing
        for heading, claims in figure.claims(results).items():
            for text, sample in claims:
                add(found, f"claim {heading}: {text}", sample)
    return found


def planted(results):
    """Arrays of the same shapes and kinds, with numbers on both sides of every threshold; and the same arrays changed,
    one of their runs without a number."""
    made, changed = {}, {}
    for name, array in results.items():
        rng, array = np.random.default_rng(zlib.crc32(name.encode())), np.asarray(array)
        shape = (ROWS, *array.shape[1:]) if len(array) > 1 else array.shape
        if array.dtype == bool:
            made[name] = rng.random(shape) < 0.5
            changed[name] = ~made[name]
        elif array.dtype.kind in "iu":
            made[name], changed[name] = rng.integers(0, 1 + max(1, array.max()), (2, *shape))
        else:
            small, near = 10 ** rng.uniform(-10, 0.3, (2, *shape)), 1 - 10 ** rng.uniform(-8, -0.3, (2, *shape))
            made[name], changed[name] = np.where(rng.random((2, *shape)) < 0.5, small, near)
            if len(array) > 1:
                changed[name][1] = np.nan
    return made, changed


def digest(values):
    """One number of all; what is not finite counts by its place."""
    values = np.asarray(values, dtype=float).ravel()
    weights = 1.5 + np.cos(np.arange(len(values)))
    finite = np.isfinite(values)
    return float(weights @ np.where(finite, values, 7.0))


def same(a, b):
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-13, equal_nan=True)


def depend(shown, plain, changed):
    """What is shown of ``plain``, and which of its values each of it depends on."""
    before = shown(plain)
    depends = {name: [] for name in before}
    for value in plain:
        after = shown(plain | {value: changed[value]})
        for name in before:
            if name not in after or not same(before[name], after[name]):
                depends[name].append(value)
    return before, depends


def lines_of(figure, results):
    """Name, numbers and sources of each array measured, of each output, and of all outputs of no array."""
    plain, changed = planted(results)
    wrong = {}
    for name, array in results.items():
        flags = array.dtype.kind in "biu"
        wrong[name] = array == 0 if flags else changed[name][: len(array)]
    before, depends = depend(lambda arrays: outputs(figure, arrays), plain, changed)
    where_it_holds = depend(lambda arrays: outputs(figure, arrays, True), results, wrong)[1]
    for name in depends.keys() & where_it_holds:  # a claim on all of many may be false of any planted numbers
        sources = where_it_holds[name]
        depends[name] = [array for array in plain if array in depends[name] or array in sources]
    without = outputs(figure, changed)
    fixed = [before[name] for name in before if not depends[name]]
    found = {f"measured {name}": ([digest(array)], []) for name, array in results.items()}
    found["fixed"] = [digest(np.concatenate([[], *fixed]))], [name for name in before if not depends[name]]
    for name in before:
        if depends[name]:
            found[name] = [digest(before[name]), digest(without.get(name, []))], depends[name]
    return found


def stored():
    """Of every figure the lines of its table."""
    found = {}
    for line in TABLE.read_text().splitlines():
        if line.startswith("## "):
            found[line[3:]] = here = {}
        else:
            name, shown, sources = f"{line} ".split(" | ")
            here[name] = [float(x) for x in shown.split()], [x for x in sources.strip().split("; ") if x]
    return found


def compare(found, table):
    assert [*found] == [*table], "python tests/support/dependence.py writes the table anew"
    for line, (numbers, sources) in found.items():
        expected, of = table[line]
        measured = line.startswith("measured")  # of trainings, which compilers round differently
        rounding = 0.2 if of == ["about"] else 1e-3 if measured else 1e-5
        assert numbers == pytest.approx(expected, rel=rounding, abs=1e-6), line
        assert measured or sources == of, line


def main():
    from attsvm.reproduce import FIGURES, load, measure
    from head_reports import HEADS

    text, before = [], stored()
    tables = {name: lambda name=name: lines_of(load(name), measure(name, 2, 3)) for name in FIGURES}
    for name, table in (tables | HEADS).items():
        text.append(f"## {name}")
        for output, (shown, sources) in table().items():
            if output.startswith("measured"):  # "about" stays: another compiler's rounding moves it
                sources = before.get(name, {}).get(output, ((), sources))[1]
            text.append(f"{output} | {' '.join(f'{x:.7g}' for x in shown)} | {'; '.join(sources)}".rstrip())
    TABLE.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
