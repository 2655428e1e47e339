"""Files that somebody edited: what cannot be is a ValueError that names the file."""

from __future__ import annotations

import copy
import functools
import io
import json
import operator
import re
import zipfile

import attsvm
import numpy as np
import pytest

HUGE = 10**9
NODES = [None, True, -1, HUGE, 1e308, "text", [], {}, [[]], {"array": "array99"}, {"tuple": []}, {"dict": [[1]]}]
NODES += [{"type": "Nothing", "state": {}}, {"type": "Layout", "state": {}}, {"type": 3}]


@functools.cache
def kinds():
    rng = np.random.default_rng(5)
    X, Z = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 2))
    data = attsvm.cross_attention(X, Z, values=rng.standard_normal((2, 3, 2)))
    ragged = attsvm.causal_attention([X[0], X[1, :2]])
    problem = attsvm.Problem(data, [1, -1], attsvm.LinearHead(rng.standard_normal(2)))
    kept = np.array([[True, True, False], [False, True, False]])
    W = 30 * attsvm.solve_svm(data, kept).W
    Wq, Wk = rng.standard_normal((2, 4, 4))
    heads = attsvm.heads.from_arrays(rng.standard_normal((40, 5, 4)), Wq, None, Wk, None)
    return {
        "optimal": attsvm.solve_svm(data, [0, 0]),
        "ragged": attsvm.feasible(ragged, [[0, 0, 0], [0, 0]]),
        "soft": attsvm.solve_svm(data, [0, 0], C=1.0, margins=np.full((2, 3), 2.0)),
        "several tokens": attsvm.solve_svm(data, kept),
        "infeasible": attsvm.solve_svm(attsvm.cross_attention(np.ones((1, 2, 2)), [[1.0]]), [0]),
        "run": attsvm.train(problem, steps=20, record=10),
        "path": attsvm.regularization_path(problem, [1.0, 2.0]),
        "decomposition": attsvm.theory.decompose(data, data.probabilities(W), W),
        "diagnosis": attsvm.diagnose(problem),
        "next token": attsvm.theory.next_token([[0, 1, 3], [1, 0, 3]], [0, 1], np.eye(4)),
        "soft labels": attsvm.theory.soft_labels(np.eye(3), [[1, 2, 0], [0, 1, 0], [3, 0, 1]]),
        "their SVM": attsvm.feasible(
            (found := attsvm.theory.soft_labels(np.eye(2), [[1, 0], [0, 1]])).data, found.selected
        ),
        "heads": attsvm.heads.analyze_model(heads, queries=40, splits=1, nuclear_queries=20),
    }


def places(content, path=()):
    """The path of every part of the text."""
    yield path
    for key in content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ():
        yield from places(content[key], (*path, key))


def edits(array, rng):
    """What may become of an array."""
    yield array.astype(float if array.dtype.kind in "biu" else int, casting="unsafe")
    yield array[..., None]
    yield np.resize(array, array.size + 1)
    yield array.reshape(-1)[:-1]
    yield np.array("text")
    yield np.array(0)
    some = array.copy().reshape(-1)
    if some.size:
        for value in (HUGE, -1, np.nan, np.inf):
            other = some.astype(float) if not np.isfinite(value) else some.copy()
            other[rng.integers(some.size)] = value if some.dtype.kind != "b" else 1
            yield other.reshape(array.shape)


def written(members):
    file = io.BytesIO()
    np.savez(file, **members)
    file.seek(0)
    file.name = "edited.npz"
    return file


def outcome(file):
    """The refusal, or None where the file is read."""
    try:
        attsvm.load(file)
    except ValueError as error:
        return str(error)
    return None


@pytest.fixture(scope="module", params=range(13))
def members(request):
    return kept(list(kinds().values())[request.param])


def test_every_member_edited(members):
    rng, said = np.random.default_rng(0), []
    for name in [name for name in members if name != "attsvm"][:15]:
        missing = outcome(written({key: array for key, array in members.items() if key != name}))
        assert "edited.npz" in missing and name in missing
        said += [outcome(written(members | {name: other})) for other in edits(members[name], rng)]
    refused = [each for each in said if each is not None]
    assert len(refused) > 4 and all("edited.npz" in each for each in refused)


def test_every_part_of_the_text_edited(members):
    text, said, rng = json.loads(str(members["attsvm"])), [], np.random.default_rng(1)
    every = [path for path in places(text) if path]
    for k in rng.permutation(len(every))[:15]:
        for node in [*NODES, "gone"]:
            other = copy.deepcopy(text)
            *path, last = every[k]
            at = functools.reduce(operator.getitem, path, other)
            at[last] = node
            if node == "gone":
                del at[last]
            said.append(outcome(written(members | {"attsvm": np.array(json.dumps(other))})))
    assert all("edited.npz" in each for each in said if each is not None)
    assert said.count(None) < len(said) / 2


def saved(result):
    file = io.BytesIO()
    result.save(file)
    file.seek(0)
    return file


def kept(result):
    """What its file holds, by member."""
    assert attsvm.load(saved(result)) == result
    with np.load(saved(result)) as archive:
        return dict(archive)


def arrays_of(state):
    """Name, member and place of each array of a result and of what it consists of, but for what has data of its own."""
    for name, node in state.items():
        for i, part in enumerate(node if isinstance(node, list) else [node]):
            if isinstance(part, dict) and part.get("type") == "Fit":
                yield from arrays_of(part["state"])
            elif isinstance(part, dict) and "array" in part:
                yield name, part["array"], f"[{i}]" * isinstance(node, list)
            elif isinstance(part, dict) and "tuple" in part:
                yield from arrays_of({name: part["tuple"]})


def of_shapes():
    """Results whose arrays have shapes that go together."""
    rng, problem = np.random.default_rng(0), kinds()["run"].problem
    K, Q, W = rng.standard_normal((4, 2)), rng.standard_normal((2, 2)), rng.standard_normal((2, 4, 2))
    two = attsvm.Problem(problem.data, problem.y, attsvm.MLPHead(rng.standard_normal((2, 3))), heads=2)
    fast = dict(steps=20, record=10)
    ragged = kinds()["ragged"].data
    found = {name: kinds()[name] for name in ("run", "path", "diagnosis", "heads")}
    found["heads"] = found["heads"][0]
    found["factors"] = attsvm.train(problem, K=K, Q=Q, **fast)
    found["several, with their head"] = attsvm.train(problem, W, runs=2, train_head=True, rule="adam", **fast)
    in_metric = attsvm.rules.normalized
    found["metric"] = attsvm.train(problem, W, runs=2, rule=in_metric(np.ones((4, 2))), **fast)
    found["metric of sides"] = attsvm.train(problem, rule=in_metric((np.eye(4), np.eye(2))), **fast)
    found["shampoo"] = attsvm.train(problem, rule="shampoo", **fast)
    found["two heads"] = attsvm.train(two, K=np.stack([K, -K]), Q=np.stack([Q, Q + 1]), **fast)
    found["ragged"] = attsvm.diagnose(attsvm.Problem(ragged, head=attsvm.LinearHead(rng.standard_normal(4))))
    return found


@pytest.mark.parametrize(
    "kind",
    [
        "run",
        "path",
        "diagnosis",
        "heads",
        "factors",
        "several, with their head",
        "metric",
        "metric of sides",
        "shampoo",
        "two heads",
        "ragged",
    ],
)
def test_an_array_of_another_shape(kind):
    """A row more than there are records, points, queries or splits; or an axis more."""
    members = kept(of_shapes()[kind])
    found = list(arrays_of(json.loads(str(members["attsvm"]))["content"]["state"]))
    for name, member, place in found:
        array = members[member]
        said = outcome(written(members | {member: array[..., None]}))
        assert re.search(rf"edited\.npz.*\b{name}{re.escape(place)}", said), name
        if array.size and name not in ("train", "test"):  # of which there may be any number
            said = outcome(written(members | {member: np.concatenate([array, array[-1:]])}))
            assert re.search(r"edited\.npz.*: \w+(\[\d\])? must ", said), name
    assert len(found) >= 4


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "3", "[]", '{"format": 1}', '{"format": "x", "attsvm": "1"}'])
def test_texts_that_are_none(text):
    assert "edited.npz" in outcome(written({"attsvm": np.array(text)}))


def test_a_header_that_asks_for_more_than_the_member_holds(members):
    """A shape of 10^12 in the member's own header."""
    name, other = f"{next(name for name in members if name != 'attsvm')}.npy", io.BytesIO()
    other.name = "edited.npz"
    with zipfile.ZipFile(written(members)) as archive, zipfile.ZipFile(other, "w") as edited:
        for member in archive.namelist():
            content = archive.read(member)
            if member == name:
                end = 10 + int.from_bytes(content[8:10], "little")
                shape = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}".ljust(end - 11) + "\n"
                content = content[:10] + shape.encode() + content[end:]
            edited.writestr(member, content)
    other.seek(0)
    assert "edited.npz" in outcome(other)
