"""Replication over a grid: an explicit loop, seeds of a cell's own, tables, pictures, and files of growing grids."""

import attsvm
import numpy as np
import pytest
from numpy.testing import assert_array_equal, assert_equal

pytest.importorskip("joblib")
GRID = {"d": [2, 3], "rule": ["plain", "double"], "bias": [True, None, 0.5]}


def experiment(rng, d, rule, bias):
    x = rng.standard_normal(d) * (2 if rule == "double" else 1)
    return {"first": x[0], "ends": x[[0, -1]], "biased": bias is not None}


def replicate(runs, grid=None, **how):
    return attsvm.replicate(experiment, runs, 3, 1, grid=GRID if grid is None else grid, progress=False, **how)


@pytest.fixture(scope="module")
def found():
    return replicate(4)


def test_a_grid_is_a_loop_over_its_cells(found):
    """Each cell by itself, as a grid of one value an axis, in whatever order the axes are named."""
    assert {key: array.shape[3:] for key, array in found.items()} == {"first": (4,), "ends": (4, 2), "biased": (4,)}
    for cell in np.ndindex(2, 2, 3):
        d, rule, bias = ([values[i]] for values, i in zip(GRID.values(), cell, strict=True))
        one = replicate(4, {"bias": bias, "d": np.array(d), "rule": rule})
        assert_equal(one, {key: array[cell][None, None, None] for key, array in found.items()})
    assert found["biased"][:, :, [0, 2]].all() and not found["biased"][:, :, 1].any()


def test_cells_and_runs_draw_apart(found):
    assert len(np.unique(found["first"])) == found["first"].size
    with_grid = attsvm.replicate(lambda rng, d: {"x": rng.random()}, 3, grid={"d": [0]}, progress=False)
    assert set(with_grid["x"][0]).isdisjoint(attsvm.replicate(lambda rng: {"x": rng.random()}, 3, progress=False)["x"])


def test_the_table_is_tidy(found):
    pytest.importorskip("pandas")
    table = found.to_dataframe()
    assert list(table) == ["d", "rule", "bias", "run", "first", "ends[0]", "ends[1]", "biased"]
    assert len(table) == 2 * 2 * 3 * 4
    i = (1 * 2 * 3 + 0 * 3 + 2) * 4 + 3
    assert table.loc[i, ["d", "rule", "bias", "run"]].tolist() == [3, "plain", 0.5, 3]
    assert table.loc[i, "ends[1]"] == found["ends"][1, 0, 2, 3, 1]
    plain = attsvm.replicate(lambda rng: {"x": rng.random()}, 3, progress=False)
    assert plain.to_dataframe()["x"].tolist() == plain["x"].tolist()


def test_pictures_are_means_of_what_is_known():
    figure = pytest.importorskip("matplotlib.figure").Figure

    def experiment(rng, a, b, c):
        return {"x": np.nan if a == 2 and c == 0 else 100 * a + 10 * b + c, "y": np.nan}

    found = attsvm.replicate(experiment, 2, grid={"a": [1, 2], "b": [3, 4, 5], "c": [0, 1]}, progress=False)

    def plot(**how):
        return found.plot(figure().subplots(), **how)

    ax = plot(x="b", y="a", value="x", cmap="viridis")
    assert_array_equal(ax.images[0].get_array(), [[130.5, 140.5, 150.5], [231, 241, 251]])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["3", "4", "5"]
    assert ax.figure.axes[1].get_ylabel() == "x, mean of 4"
    assert np.isnan(plot(x="a", y="b", value="y").images[0].get_array().filled(np.nan)).all()
    lines = plot(x="b", hue="a", value="x").containers
    assert [line.get_label() for line in lines] == ["a = 1", "a = 2"]
    assert_array_equal(lines[1][0].get_xydata(), [[3, 231], [4, 241], [5, 251]])
    for x, y, value in (("a", "a", "x"), ("z", "a", "x"), ("a", "b", "z")):
        with pytest.raises(ValueError, match="two parameters|must be one of"):
            plot(x=x, y=y, value=value)


def test_a_line_has_intervals_that_cover():
    """95 % of the intervals hold the mean, of numbers by their spread and of flags by their share; NaN is left out."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    def experiment(rng, d):
        return {"x": np.nan if rng.random() < 0.3 else rng.standard_normal(), "flag": rng.random() < 0.2}

    found = attsvm.replicate(experiment, 20, grid={"d": list(range(1000))}, progress=False)
    for value, truth in (("x", 0.0), ("flag", 0.2)):
        (line,) = found.plot(Figure().subplots(), value=value).containers
        ends = np.array(line[2][0].get_segments())[:, :, 1]
        assert 0.92 < np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) < 0.98
    few = attsvm.replicate(experiment, 6, grid={"d": [0]}, progress=False)
    known = few["x"][~np.isnan(few["x"])]
    error = known.std(ddof=1) / np.sqrt(len(known))
    assert f"mean {known.mean():.6g} +- {error:.2g}, {6 - len(known)} of 6 NaN" in repr(few)


def test_a_file_of_a_grid_resumes_and_grows(tmp_path, found):
    """More runs, more values: what is in the file is not done again, and what another grid left there stays."""
    path, calls = tmp_path / "grid", []

    def counting(rng, **cell):
        calls.append(cell)
        return experiment(rng, **cell)

    def resumed(runs, grid, missing):
        calls.clear()
        again = attsvm.replicate(counting, runs, 3, 1, grid=grid, file=path, progress=False)
        assert len(calls) == missing
        return again

    resumed(2, GRID | {"d": [3]}, 12)
    grown = resumed(4, GRID, 48 - 12)
    text = path.read_text()
    small = resumed(3, GRID | {"bias": [0.5], "d": [2]}, 0)
    assert path.read_text() == text
    assert_equal(grown, found)
    assert_equal(small, {key: array[:1, :, 2:, :3] for key, array in found.items()})
    with pytest.raises(ValueError, match=r"line 1 of '.*grid' is of the parameters \['d', 'rule', 'bias'\], not"):
        resumed(2, {"d": [2], "bias": [1]}, 0)


def test_interrupted_every_cell_has_the_same_runs():
    calls = []

    def stopping(rng, d):
        calls.append(d)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return {"x": rng.random()}

    with pytest.raises(KeyboardInterrupt) as caught:
        attsvm.replicate(stopping, 10, n_jobs=1, grid={"d": [1, 2, 3]}, progress=False)
    assert caught.value.partial["x"].shape == (3, 2) and caught.value.partial.grid == {"d": [1, 2, 3]}
    assert calls == [1, 2, 3] * 2 + [1, 2]


def test_an_error_says_its_cell():
    def failing(rng, d):
        return {"x": 1 / (d - 2)}

    with pytest.raises(ZeroDivisionError) as caught:
        attsvm.replicate(failing, 2, n_jobs=1, grid={"d": [1, 2]}, progress=False)
    assert "in run 0 at d = 2 of replicate" in caught.value.__notes__[0]
