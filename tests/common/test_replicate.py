"""Replication: the same numbers whoever computes them, and files that take up where they were left."""

import contextlib
import functools
import json
import os
import re
import sys
import time

import attsvm
import numpy as np
import pytest
from attsvm.common.threads import on_workers
from builders import paper
from numpy.testing import assert_array_equal
from processes import python

joblib = pytest.importorskip("joblib")


def experiment(rng, stop_at=None, calls=None):
    """Training, an SVM and NumPy's linear algebra, so that every BLAS has its part."""
    run = attsvm.train(paper(5, 6, 40, rng).problem, steps=50, record=25)
    solution = attsvm.solve_svm(run.data, run.selected, "nuclear")
    if calls is not None:
        calls.append(1)
        if len(calls) == stop_at:
            raise KeyboardInterrupt
    return {
        "loss": run.loss,
        "selected": run.selected,
        "margin": solution.margin,
        "spectrum": np.linalg.svd(run.W @ solution.W, compute_uv=False)[:3],
        "first": bool(run.selected[0] == 0),
        "nothing": np.nan,
    }


def same(a, b):
    assert list(a) == list(b)
    for key in a:
        assert a[key].dtype == b[key].dtype
        assert_array_equal(a[key], b[key])


@pytest.fixture(scope="module")
def alone():
    return attsvm.replicate(experiment, 12, seed=4, n_jobs=1, progress=False)


def test_runs_are_the_children_of_the_seed(alone):
    seeds = np.random.SeedSequence(4).spawn(12)
    for i, seed in enumerate(seeds):
        for key, value in experiment(np.random.default_rng(seed)).items():
            assert_array_equal(alone[key][i], value)
    assert alone["loss"].shape == (12, 3) and alone["first"].dtype == bool
    assert len(np.unique(alone["margin"])) == 12
    same({key: array[:5] for key, array in alone.items()}, attsvm.replicate(experiment, 5, seed=4, progress=False))


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_workers_change_nothing(backend, alone):
    with joblib.parallel_config(backend, n_jobs=2):
        same(alone, attsvm.replicate(experiment, 12, seed=4, progress=False))
    same(alone, attsvm.replicate(experiment, 12, seed=4, n_jobs=3, progress=False))


def test_blas_has_one_thread_inside_and_what_it_had_outside():
    attsvm.set_num_threads(2)
    try:
        found = attsvm.replicate(lambda rng: {"threads": attsvm._core.config()["threads"]}, 2, progress=False)
        assert found["threads"].tolist() == [1, 1]
        assert attsvm._core.config()["threads"] == 2
    finally:
        attsvm.set_num_threads(1)


def test_interrupted_it_resumes(alone, tmp_path):
    path, calls = tmp_path / "runs", []

    def replicate(runs, seed=4, **how):
        calls.clear()
        counting = functools.partial(experiment, calls=calls, **how)
        return attsvm.replicate(counting, runs, seed=seed, n_jobs=1, file=path, progress=False)

    with pytest.raises(KeyboardInterrupt) as caught:
        replicate(12, stop_at=8)
    same({key: array[:7] for key, array in alone.items()}, caught.value.partial)
    for missing in (5, 0):
        same(alone, replicate(12))
        assert len(calls) == missing and len(path.read_bytes().splitlines()) == 12
    text = path.read_bytes()
    same({key: array[:5] for key, array in alone.items()}, replicate(5))
    assert path.read_bytes() == text
    other = replicate(2, seed=5)  # beside the others
    assert other["margin"][0] != alone["margin"][0] and path.read_bytes().startswith(text)
    same(alone, replicate(12))


def row(**changes):
    return json.dumps({"seed": 0, "run": 0, "cell": {}, "found": {"x": 1.0}} | changes).encode() + b"\n"


FOREIGN = [b"my notes: only one line\n", b"my notes, without an end", b"\n\n", b"\xff\xfe\x00", b"[" * 99_999 + b"\n"]
FOREIGN += [row(run=-1), row(run="0"), row(cell=[]), row(cell={"d": 1}), row(found={"x": "word"}), row(found={"y": 1})]
FOREIGN += [row() + row(found={"x": [1, 2]}), row().replace(b"1.0", b"O.1")]


@pytest.mark.parametrize("content", FOREIGN, ids=lambda content: repr(content[:60]))
def test_a_foreign_file_is_refused_and_left(content, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="(file|experiment) must "):
        attsvm.replicate(lambda rng: {"x": rng.random()}, 2, file=path, progress=False)
    assert path.read_bytes() == content


def test_a_torn_file_goes_on(tmp_path):
    path = tmp_path / "runs"

    def experiment(rng):
        return {"x": rng.standard_normal(), "k": rng.integers(5, size=2)}

    whole = attsvm.replicate(experiment, 8, file=path, progress=False)
    text = path.read_bytes()
    for cut in (0, 1, 6, 30, 100, len(text) - 1):
        path.write_bytes(text[:cut])
        same(whole, attsvm.replicate(experiment, 8, file=path, progress=False))
        assert path.read_bytes() == text


def test_it_works_without_joblib(alone, monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)  # importing it fails
    same(alone, attsvm.replicate(experiment, 12, seed=4, progress=False))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_experiments_error_says_its_run(n_jobs):
    def experiment(rng):
        if (number := rng.integers(40)) == 7:
            raise ZeroDivisionError("seven")
        return {"x": number}

    with pytest.raises(ZeroDivisionError, match="seven") as caught:
        attsvm.replicate(experiment, 999, n_jobs=n_jobs, progress=False)
    run = int(re.search(r"in run (\d+) of replicate", caught.value.__notes__[0])[1])  # the first, or near it
    assert np.random.default_rng(np.random.SeedSequence(0).spawn(run + 1)[run]).integers(40) == 7


def test_configured_workers_are_joblibs_own(monkeypatch):
    """None is all cores unless parallel_config says something."""
    asked, Parallel = [], joblib.Parallel
    monkeypatch.setattr(joblib, "Parallel", lambda n_jobs, **more: asked.append(n_jobs) or Parallel(n_jobs, **more))
    for configured in (joblib.parallel_config("threading", n_jobs=2), contextlib.nullcontext()):
        with configured:
            attsvm.replicate(lambda rng: {"x": 1.0}, 2, progress=False)
    assert asked == [None, -1]


def test_a_process_that_works_for_others_has_one_thread():
    program = """if True:
        import attsvm
        from attsvm.common.threads import _call
        attsvm.set_num_threads(2)
        print(_call(lambda: attsvm._core.config()["threads"], (), -1))"""
    assert python("-c", program).stdout == "1\n"


def test_processes_hand_over_what_is_done_first(tmp_path):
    """They are processes whatever is configured; an error of a task named earlier comes when it happens."""

    def work(first):
        for _ in range(6000 if first else 0):  # a minute at most
            time.sleep(0.01)
            if (tmp_path / "other is done").exists():
                raise ZeroDivisionError
        return os.getpid(), attsvm._core.config()["threads"]

    tasks = [(True,), (False,)]
    with joblib.parallel_config("threading"), on_workers(work, tasks, 2, "this", processes=True) as done:
        process, threads = next(done)
        assert process != os.getpid() and threads == 1
        (tmp_path / "other is done").touch()
        with pytest.raises(ZeroDivisionError):
            next(done)


def test_a_number_of_runs_beyond_memory_begins_at_once():
    """Nothing of the length of the runs is made before they are."""
    calls = []
    with pytest.raises(KeyboardInterrupt):
        attsvm.replicate(functools.partial(experiment, stop_at=3, calls=calls), 10**18, n_jobs=1, progress=False)
    assert len(calls) == 3


def test_without_tqdm_there_are_lines(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    attsvm.replicate(lambda rng: {"x": rng.random()}, 20, name="coins", progress=True)
    assert capsys.readouterr().err.splitlines()[-1] == "coins: 20 of 20 runs"


def test_ctrl_c_ends_a_long_replication():
    """In a process of its own, which sets the handler: nohup, and some machines that run tests, ignore SIGINT."""
    code = """
import attsvm, os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
begun = 0
def experiment(rng):
    global begun
    begun += 1
    if begun == 300:
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.001)
    return {"x": rng.random()}
try:
    attsvm.replicate(experiment, 10**9, n_jobs=2, progress=False)
except KeyboardInterrupt as interrupt:
    print(len(interrupt.partial.get("x", ())) < begun < 10**6)
"""
    done = python("-c", code)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize("place", ["threads.one_blas_thread", "replication._Found._read", "replication._Found.add"])
def test_ctrl_c_has_its_partial_wherever_it_comes(place, tmp_path, monkeypatch):
    """Before the first run, while the file is read, between runs: what is finished is handed over."""
    path = tmp_path / "runs"
    attsvm.replicate(lambda rng: {"x": rng.random()}, 3, file=path, progress=False)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"attsvm.common.{place}", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        attsvm.replicate(lambda rng: {"x": rng.random()}, 5, file=path, progress=False)
    assert len(caught.value.partial.get("x", ())) == (0 if place.endswith("_read") else 3)
