"""Heads on workers: the same numbers on threads and processes, arrays travel as places in files, a file resumes."""

import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
from attsvm import heads
from attsvm.heads import analysis
from attsvm.heads.sequences import Text
from made import make_heads
from numpy.testing import assert_array_equal, assert_equal

joblib = pytest.importorskip("joblib")
OPTIONS = dict(threshold=0.6, queries=40, nuclear_queries=0, splits=2, progress=False)


def stored(folder):
    """Two heads of memory-mapped tokens, as attsvm.torch.read(store=) leaves them."""
    found = make_heads(np.random.default_rng(3), n=40, lengths=(6, 7), count=2)
    keys = found[0].keys
    for name, array in (("keys", np.stack([-keys, keys])), ("norms", np.abs(keys[:, 0]))):
        np.save(folder / f"{name}.npy", array)
    keys, norms = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("keys", "norms"))
    text = replace(found[0].text, keys=keys[1])
    return [replace(head, text=text, queries=None, value_norms=norms) for head in found]


@pytest.fixture
def found(tmp_path):
    return stored(tmp_path)


def same(a, b):
    a, b = a.columns(), b.columns()
    assert list(a) == list(b)
    assert_equal(a, b)


def test_mapped_arrays_are_pickled_as_places(found):
    whole = len(pickle.dumps(found))
    assert whole < found[0].keys.nbytes
    for head, again in zip(found, pickle.loads(pickle.dumps(found)), strict=True):
        for name in ("keys", "queries", "value_norms", "K", "Q"):
            assert_array_equal(getattr(again, name), getattr(head, name))
        assert isinstance(again.keys, np.memmap) and again.text.words == head.text.words
    keys = found[0].keys
    for text in (
        Text(keys[6:12], np.array([6])),
        Text(keys[:, :2], np.full(40, 6)),
    ):  # that is by value: not contiguous
        assert_array_equal(pickle.loads(pickle.dumps(text)).keys, text.keys)


def test_more_workers_need_joblib(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(ModuleNotFoundError, match="analyze_model needs joblib: pip install joblib"):
        heads.analyze_model(found, n_jobs=2, **OPTIONS)


@pytest.mark.slow
def test_processes_find_the_same(found):
    expected = heads.analyze_model(found, n_jobs=1, **OPTIONS)
    with joblib.parallel_config("loky", n_jobs=2):
        again = heads.analyze_model(found, **OPTIONS)
    same(expected, again)
    assert [report.head for report in again] == found


def test_a_file_keeps_what_is_done(found, tmp_path, monkeypatch):
    path = tmp_path / "heads.log"
    expected = heads.analyze_model(found, n_jobs=1, **OPTIONS)
    held = [replace(head, text=replace(head.text, keys=np.array(head.keys))) for head in found]
    same(expected, heads.analyze_model(held, n_jobs=2, **OPTIONS))  # neither threads nor files change anything
    assert all(fit.W is None for report in expected for fit in [*report.curve, report.random])
    done = []

    def analyzed(head, **options):
        done.append(head)
        if len(done) == 2:
            raise KeyboardInterrupt
        return heads.analyze_head(head, **options)

    monkeypatch.setattr(analysis, "analyze_head", analyzed)
    with pytest.raises(KeyboardInterrupt) as caught:
        heads.analyze_model(found, n_jobs=1, file=path, **OPTIONS)
    assert len(caught.value.partial) == 1
    torn = path.read_bytes()
    path.write_bytes(torn + torn[:300])  # a second record that an interruption cut short
    same(heads.analyze_model(found, n_jobs=1, file=path, **OPTIONS), expected)
    assert len(done) == 3 and done[0] is found[0] and done[2] is found[1]
    same(heads.analyze_model(found[::-1], n_jobs=1, file=path, **OPTIONS)[::-1], expected)
    assert len(done) == 3


def test_a_file_of_something_else_is_refused(found, tmp_path):
    path = tmp_path / "heads.log"
    heads.analyze_model(found[:1], n_jobs=1, file=path, **OPTIONS)
    with pytest.raises(ValueError, match=r"heads.log holds layer 2 head 0 of another model, text, version or options"):
        heads.analyze_model(found, n_jobs=1, file=path, **OPTIONS | {"seed": 1})
    np.save(tmp_path / "array.npy", np.ones(3))
    path.write_bytes(b"run,x\n")
    for other in (path, tmp_path / "array.npy"):
        with pytest.raises(ValueError, match="is not a file of analyze_model|must be a result written by its save"):
            heads.analyze_model(found[:1], file=other, **OPTIONS)
    path.write_bytes(b"")
    assert heads.analyze_model(found[:1], n_jobs=1, file=path, **OPTIONS)[0].hard > 0
