"""What every result can do: print, show itself, become tables, pictures and files, be compared, select on new data."""

import copy
import dataclasses
import importlib.util
import inspect
import json
import pickle
import re
from xml.etree import ElementTree

import attsvm
import attsvm.sklearn
import numpy as np
import pytest
from attsvm.common.result import Result
from builders import paper
from compare import reloaded
from numpy.testing import assert_allclose, assert_array_equal
from processes import python
from results import ALIKE, DATA, RESULTS, heads_start, report, run, solved

# Several runs, several attention heads, no weights: there is no one picture.
NOT_DRAWN = {
    "runs side by side",
    "runs in a metric",
    "run of two attention heads",
    "infeasible",
    "diagnosis of what cannot be",
}
# What a class of results lacks of data, status and message, and why.
LACKS = {
    "Path": {"data"},  # weights over radii: the problem that was asked has its data
    "NextToken": {"status", "message"},  # a problem that is ready to be solved
    "SoftLabels": {"status", "message"},  # likewise
    "Fit": {"data", "message"},  # tokens and queries would be kept as often as there are SVMs
    # Several SVMs, each with its own; a list; one query of a head; batches that are not kept; many problems.
    **dict.fromkeys(["HeadReport", "Reports", "Why", "Faithfulness", "Replicated"], {"data", "status", "message"}),
}
# Public classes that are no results: what they are instead.
NO_RESULTS = {
    "Claim",
    *("Data", "Problem", "LinearHead", "MLPHead", "QuadraticHead", "CallableHead", "SoftmaxHead"),  # what is given
    *("Head", "Text"),  # what is read
    *("Gradient", "Identifiability"),  # tuples of two
    *("ConvergenceWarning", "Monitor", "View", "AttentionClassifier", "HardMarginClassifier", "TokenSelector"),
}


def kinds(kind=Result):
    for one in kind.__subclasses__():
        yield one
        yield from kinds(one)


def test_every_class_of_results_is_here():
    found = {kind.__name__ for kind in kinds() if kind.__module__.startswith("attsvm.")}
    made = {type(make()).__name__ for make in RESULTS.values()}
    assert made == found - {"Solved"}  # what others begin with
    public = [getattr(part, name) for part in (attsvm, attsvm.heads, attsvm.sklearn) for name in part.__all__]
    assert {kind.__name__ for kind in public if inspect.isclass(kind)} <= made | NO_RESULTS
    assert LACKS.keys() <= found


def attributes_of(kind):
    """The names in the section Attributes of a docstring."""
    section = inspect.getdoc(kind).partition("\nAttributes\n----------\n")[2]
    names = re.findall(r"^\w[\w, ]*", re.split(r"\n.+\n---", section)[0], re.MULTILINE)
    return re.findall(r"\w+", " ".join(names))


def test_one_shape(case):
    """Of every class: what it can do, what it holds, how it prints, what its docstring says."""
    _, result = case
    kind = type(result)
    for name in ("data", "status", "message"):
        assert hasattr(result, name) == (name not in LACKS.get(kind.__name__, ())), name
        assert name == "data" or isinstance(getattr(result, name, ""), str)
    for name, part in vars(result).items():
        assert not isinstance(part, attsvm.Separation) or name in ("solution", "separation")
    assert ("solution" in vars(result)) == isinstance(result.to_dict().get("solution"), dict)
    for name in ("plot", "save", "to_dict", "to_dataframe", "__eq__", "__repr__", "_repr_html_"):
        assert getattr(kind, name) is getattr(Result, name)
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            assert field.name in kind._hidden or field.name in attributes_of(kind), field.name


@pytest.fixture(params=RESULTS, scope="module")
def case(request):
    """Its name and the result, which no test changes."""
    return request.param, RESULTS[request.param]()


def same(again, result):
    return type(again) is type(result) and again == result and not again != result and repr(again) == repr(result)


def test_file_gives_back_an_equal_result(case, tmp_path):
    _, result = case
    path = tmp_path / "result"
    result.save(path)
    again = attsvm.load(path)
    assert same(again, result) and reloaded(again) == result
    with np.load(path, allow_pickle=False) as archive:  # every member is readable without pickle
        assert json.loads(str(archive["attsvm"]))["format"] == 1
        assert all(archive[name].dtype != object for name in archive.files)


# Fields that came after the first files were written, of results and of what they consist of.
NEWEST = {
    "Run": ("half_squares", "mean", "metric", "lr", "besides"),
    "Diagnosis": ("undecided", "barrier", "longest_step"),
    "Influence": ("unit",),
    "HeadReport": ("labelled",),
    "Selection": ("tied",),
}


def test_a_file_without_the_newest_fields_loads(case, tmp_path):
    """An older version wrote it: the fields that it lacks have their defaults, all others what was written."""
    _, result = case
    path = tmp_path / "older.npz"
    result.save(path)
    with np.load(path) as archive:
        members = dict(archive)
    text = json.loads(str(members["attsvm"]))
    parts = [text]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            for name in NEWEST.get(str(part.get("type")), ()):
                del part["state"][name]
        parts += part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
    np.savez(path, **members | {"attsvm": json.dumps(text)})
    older, kind = copy.copy(result), type(result)
    vars(older).update({name: getattr(kind, name) for name in NEWEST.get(kind.__name__, ())})
    loaded = attsvm.load(path)
    assert loaded == older and str(loaded) and loaded.to_dict() and loaded.columns()


def test_file_is_read_where_heads_were_not_asked_for(tmp_path):
    report().save(tmp_path / "head.npz")
    code = f"""import sys, attsvm
assert "attsvm.heads" not in sys.modules
print(attsvm.load({str(tmp_path / "head.npz")!r}))"""
    assert python("-c", code).stdout == f"{report()}\n"


def test_every_pickle_protocol_gives_back_an_equal_result(case):
    _, result = case
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert same(pickle.loads(pickle.dumps(result, protocol)), result)


def largest_array(thing):
    """Of floats, somewhere in an object."""
    found, parts = [], [thing]
    while parts:
        part = parts.pop()
        if isinstance(part, np.ndarray) and part.dtype.kind == "f" and part.flags.writeable:
            found.append(part)
        elif isinstance(part, (list, tuple, dict)):
            parts += part.values() if isinstance(part, dict) else part
        elif type(part).__module__.startswith("attsvm.") and hasattr(part, "__dict__"):
            parts += [value for name, value in vars(part).items() if name != "memory"]  # of a run, and no result
    return max(found, key=lambda array: array.size)


def test_equality_sees_every_number(case):
    name, result = case
    again = RESULTS[name]()
    assert result == again == copy.deepcopy(result) == copy.copy(result)
    assert result != "something else" and (result == 1) is False
    changed = copy.deepcopy(result)
    if isinstance(changed, attsvm.theory.NextToken):
        changed.graphs[3][-1, 1] += 1
    else:
        largest_array(changed).flat[-1] += 1e-9
    assert changed != result
    with pytest.raises(TypeError, match="unhashable"):
        hash(result)


def test_dictionary_is_plain(case):
    _, result = case
    found = result.to_dict()
    assert json.loads(json.dumps(found)).keys() == found.keys()
    if isinstance(result, attsvm.heads.Reports):
        assert json.dumps(found["reports"]) == json.dumps([each.to_dict() for each in result])
    for name in found.keys() & {"status", "W", "loss", "margin", "gap", "R", "iota"} & {*dir(result)}:
        assert_array_equal(found[name], getattr(result, name))


def same_components(result, table):
    return [result.components[row.after][row.label] == result.components[row.after][row.token] for row in table]


# Of each class, columns of the table and what they must be.
TABLES = {
    "Run": lambda run, table: [(table["loss"], run.loss.ravel())],
    "Path": lambda path, table: [(table["radius"], [1.0, 4.0, 16.0])],
    "NextToken": lambda found, table: [
        (table["one_component"], same_components(found, table.itertuples())),
        ([len(table)], [sum(map(len, found.graphs.values()))]),
    ],
    "SoftLabels": lambda found, table: [
        (table["count"], found.counts[table["context"], table["token"]]),
        ([table["count"].sum()], [found.counts.sum()]),
    ],
    "Diagnosis": lambda found, table: [(table["query"], range(len(found.data)))],
    "HeadReport": lambda report, table: [(table["margin"], [fit.margin for fit in report.fits])],
    "Reports": lambda reports, table: [(table["margin"], [fit.margin for each in reports for fit in each.fits])],
    "Fit": lambda fit, table: [(table.to_numpy(), np.column_stack([fit.rows, fit.multipliers]))],
    "Why": lambda found, table: [(table["share"].sum(), pytest.approx(found.margin))],
    "Faithfulness": lambda found, table: [
        (table.set_index(["row", "column", "queries"]).loc[key, "damage"], damage.mean())
        for key, damage in found.damages.items()
    ],
    "Influence": lambda found, table: [(table[name], getattr(found, name)) for name in ("turn", "solved")],
    "Plane": lambda plane, table: [(table["point"][table["support"]], [1, 2]), (plane.support, [1, 2])],
    "Replicated": lambda found, table: [(table["x"], found["x"].ravel()), (table["d"], [1, 1, 2, 2])],
}


def test_table(case):
    pytest.importorskip("pandas")
    _, result = case
    table = result.to_dataframe()
    assert len(table) > 0
    if isinstance(result, (attsvm.Separation, attsvm.theory.Decomposition)):
        assert len(table) == result.data.indptr[-1] and (table.groupby("query")["selected"].sum() >= 1).all()
    else:
        for found, expected in TABLES[type(result).__name__](result, table):
            assert np.all(np.asarray(found) == expected) or found == expected


RENDERED = set()


def test_notebook_form(case, monkeypatch):
    """A picture is rendered once for each class of results: a second takes as long and shows nothing new."""
    name, result = case
    drawn = importlib.util.find_spec("matplotlib") is not None
    if drawn and type(result) in RENDERED:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **_: file.write(b"not rendered"))
    RENDERED.add(type(result))
    closed = re.sub("<(br|img)([^>]*)>", r"<\1\2/>", result._repr_html_())
    page = ElementTree.fromstring(f"<p>{closed}</p>")  # all is closed
    text = "".join(page.itertext())
    for word in repr(result).split():
        assert word in text or set(word) == {"-"}  # the line under the header of a table
    if drawn:  # a picture, or tables
        assert len(page.findall(".//img")) == (name not in NOT_DRAWN and not result._tables())


SHOWN = {
    "optimal": lambda ax: ax.lines[0].get_ydata().min() > 1 - 1e-9 and set(ax.lines[2].get_ydata()) == {1},
    "path": lambda ax: ax.get_xlabel() == "radius" and (np.diff(ax.lines[0].get_ydata()) < 0).all(),
    "influence": lambda ax: (ax.lines[0].get_xdata() == 0).all() and ax.lines[1].get_xdata().min() > 0,
    # The optimal tokens: nothing scores better, and a line says where scores are equal.
    "diagnosis": lambda ax: ax.lines[0].get_ydata().max() < 0 and set(ax.lines[2].get_ydata()) == {0},
    "run on W": lambda ax: len(ax.lines) == 2 and (ax.lines[0].get_ydata() <= ax.lines[1].get_ydata()).all(),
}


def test_picture(case, ax):
    name, result = case
    if name in NOT_DRAWN:
        from matplotlib import pyplot

        before = pyplot.get_fignums()
        for where in (ax, None):
            with pytest.raises(ValueError, match=r"must (be|have)"):
                result.plot(ax=where)
        assert pyplot.get_fignums() == before  # a new figure is closed again
        return
    assert result.plot(ax=ax) is ax and (ax.lines or ax.images or ax.patches)
    assert SHOWN.get(name, lambda ax: True)(ax)
    if isinstance(result, attsvm.heads.HeadReport):
        assert ax.lines[0].get_xdata().tolist() == [fit.queries for fit in result.curve]
    panels = len(ax.figure.axes)
    result.plot(ax=ax)
    assert len(ax.figure.axes) == panels or isinstance(
        result, attsvm.common.replicated.Replicated
    )  # one colour bar for both


def test_picture_of_soft_labels_is_what_attention_goes_to(ax):
    found = RESULTS["contexts with several next tokens"]()
    (image,) = found.plot(ax=ax).images
    run = attsvm.train(found.problem, rule="constant", lr=3.0, steps=3000)
    # Within the supports descent is linear; the rest of the probability is about 1 / (lr steps) = 1e-4.
    assert_allclose(found.data.probabilities(run.W), image.get_array(), atol=1e-3)


def test_picture_of_graphs_has_their_edges(ax):
    found = RESULTS["next token, ragged"]()
    found.plot(ax=ax)
    place = {}
    for text in ax.texts:
        x, y = text.get_position()
        place[list(found.graphs)[round(x)], int(text.get_text())] = x, y
    drawn = {}
    for arrows in ax.collections:
        for start, way in zip(arrows.get_offsets(), np.stack([arrows.U, arrows.V], axis=1), strict=True):
            ends = [min(place, key=lambda node: np.hypot(*(place[node] - at))) for at in (start, start + way)]  # noqa: B023
            drawn[ends[0][0], ends[0][1], ends[1][1]] = arrows.get_label(), way[1]
    edges = found.to_dict()["graphs"]
    assert drawn.keys() == {(int(k), *edge) for k in edges for edge in edges[k]}
    for (k, label, token), (kind, up) in drawn.items():
        one = found.components[k][label] == found.components[k][token]
        assert kind == ("one component" if one else "ranked") and (one or up < 0)


def test_margin_bar_shows_an_interval_that_is_seen():
    with pytest.warns(attsvm.ConvergenceWarning):
        sol = solved(method="gradient", max_iter=1)
    assert 0 < sol.margin < 0.99 * sol.margin_bound
    shown, full = sol._repr_html_(), RESULTS["optimal"]()._repr_html_()
    assert f"width:{100 * sol.margin / sol.margin_bound:.6f}%" in shown
    assert "reached (dark)" in shown and "reached (dark)" not in full


def test_selects_on_new_data():
    new = paper(3, 5, seed=1).data
    for result in (solved(), run()):
        assert_array_equal(result.select(new), new.select(result.W))
    assert_array_equal(solved().select(DATA), [0] * 6)
    assert run(heads_start((2, 10, 10)), runs=2).select(new).shape == (2, 3)


@pytest.mark.parametrize("result", ["optimal", "run on W"])
def test_new_data_of_another_length(result):
    with pytest.raises(ValueError, match=r"data must have .* \(dk, dz\) = \(10, 10\) as the weights, got \(4, 4\)"):
        RESULTS[result]().select(paper(d=4).data)
    with pytest.raises(TypeError, match="data must come from cross_attention"):
        RESULTS[result]().select(np.ones((2, 3, 10)))


def test_nothing_to_select_by():
    with pytest.raises(ValueError, match="there are no weights to select by, the answer is infeasible"):
        solved([0], ALIKE).select(ALIKE)


def of_text(**content):
    return lambda file: np.savez(
        file, attsvm=np.array(json.dumps({"format": 1, "attsvm": "9.0", "content": None} | content))
    )


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda file: file.write(b"hello"), "file must be a result written by its save.*odd"),
        (lambda file: None, "file must be a result written by its save.*odd"),
        (lambda file: np.save(file, np.ones(3)), "a single array"),
        (lambda file: np.savez(file, X=np.ones(3)), "attsvm is not a file in the archive"),
        (of_text(format=2), "its format 2 is that of attsvm 9.0, a later version"),
        (
            of_text(content={"type": "os.system", "state": {}}),
            "a 'os.system', which this version of attsvm does not know",
        ),
        (lambda file: np.savez(file, attsvm=np.array([object()])), "Object arrays cannot be loaded"),
    ],
)
def test_files_that_are_something_else(write, message, tmp_path):
    with open(tmp_path / "odd", "wb") as file:
        write(file)
    with pytest.raises(ValueError, match=message):
        attsvm.load(tmp_path / "odd")
    with pytest.raises(FileNotFoundError):
        attsvm.load(tmp_path / "missing")


@pytest.mark.parametrize(("name", "other"), [("a.json", "to_dict"), ("a.CSV", "to_dataframe")])
def test_a_file_of_another_format_is_refused(name, other, tmp_path):
    with pytest.raises(ValueError, match=f"file must be an npz file, got .*{name}.*{other}"):
        RESULTS["run on W"]().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_long_lines_are_wrapped():
    text = repr(RESULTS["infeasible"]())
    assert max(map(len, text.splitlines())) <= 120 and "no weights can prefer one" in " ".join(text.split())


def test_a_number_is_no_file(tmp_path):
    """open() takes it for a file that is open already, and closes it in the end."""
    with open(tmp_path / "other", "wb") as other:
        for use in (RESULTS["optimal"]().save, attsvm.load, attsvm.heads.read_training):
            with pytest.raises(TypeError, match="PathLike"):
                use(other.fileno())
        other.write(b"still open")


def test_tab_completion_shows_public_names_alone():
    assert set(dir(attsvm)) == {*attsvm.__all__, "__version__"} and set(dir(attsvm.heads)) == {*attsvm.heads.__all__}
