"""Files that somebody edited: what cannot be is a ValueError that names the file."""

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
from results import RESULTS

HUGE = 10**9
NODES = [None, True, -1, HUGE, 1e308, "text", [], {}, [[]], {"array": "array99"}, {"tuple": []}, {"dict": [[1]]}]
NODES += [{"type": "Nothing", "state": {}}, {"type": "Layout", "state": {}}, {"type": 3}]


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


EDITED = ["optimal", "optimal, ragged", "soft", "several tokens", "infeasible", "run on K, Q", "path", "decomposition"]
EDITED += ["diagnosis", "next token, ragged", "contexts with several next tokens", "SVM of contexts", "heads"]


@pytest.fixture(scope="module", params=EDITED)
def members(request):
    return kept(RESULTS[request.param]())


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
    assert said.count(None) < 0.75 * len(said)  # other places that are drawn have up to .62


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


SHAPES = [
    "run on W",
    "run on K, Q",
    "runs side by side",
    "runs in a metric",
    "run in a metric of sides",
    "run by shampoo",
]
FREE = [("head", name) for name in ("train", "test", "W")]  # rows: of which there may be any number
SHAPES += ["run of two attention heads", "path", "diagnosis", "diagnosis, ragged", "head"]


@pytest.mark.parametrize("kind", SHAPES)
def test_an_array_of_another_shape(kind):
    """A row more than there are records, points, queries or splits; or an axis more."""
    members = kept(RESULTS[kind]())
    found = list(arrays_of(json.loads(str(members["attsvm"]))["content"]["state"]))
    for name, member, place in found:
        array = members[member]
        said = outcome(written(members | {member: array[..., None]}))
        assert re.search(rf"edited\.npz.*\b{name}{re.escape(place)}", said), name
        if array.size and (kind, name) not in FREE:
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
