"""Replication: the same numbers whoever computes them, and files that take up where they were left."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import threading
import time

import attsvm
import numpy as np
import pytest
from attsvm.common.threads import on_workers

joblib = pytest.importorskip("joblib")


def experiment(rng, stop_at=None, calls=None):
    """Training, an SVM and NumPy's linear algebra, so that every BLAS has its part."""
    X, Z, y, v = attsvm.sample.unit_sphere(5, 6, 40, rng)
    data = attsvm.cross_attention(X, Z)
    run = attsvm.train(attsvm.Problem(data, y, attsvm.LinearHead(v)), steps=50, record=25)
    solution = attsvm.solve_svm(data, run.selected, "nuclear")
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
        np.testing.assert_array_equal(a[key], b[key])


@pytest.fixture(scope="module")
def alone():
    return attsvm.replicate(experiment, 12, seed=4, n_jobs=1, progress=False)


def test_runs_are_the_children_of_the_seed(alone):
    seeds = np.random.SeedSequence(4).spawn(12)
    for i, seed in enumerate(seeds):
        for key, value in experiment(np.random.default_rng(seed)).items():
            np.testing.assert_array_equal(alone[key][i], value)
    assert alone["loss"].shape == (12, 3) and alone["first"].dtype == bool
    assert len(np.unique(alone["margin"])) == 12
    same({key: array[:5] for key, array in alone.items()}, attsvm.replicate(experiment, 5, seed=4, progress=False))


def test_threads(alone):
    same(alone, attsvm.replicate(experiment, 12, seed=4, n_jobs=3, progress=False))


def test_processes(alone):
    with joblib.parallel_config("loky", n_jobs=2):
        same(alone, attsvm.replicate(experiment, 12, seed=4, progress=False))


def test_blas_has_one_thread_inside_and_what_it_had_outside():
    attsvm.set_num_threads(2)
    try:
        found = attsvm.replicate(lambda rng: {"threads": attsvm._core.config()["threads"]}, 2, progress=False)
        assert found["threads"].tolist() == [1, 1]
        assert attsvm._core.config()["threads"] == 2
    finally:
        attsvm.set_num_threads(1)


def test_a_file_is_the_result(alone, tmp_path):
    path = tmp_path / "runs.csv"
    same(alone, attsvm.replicate(experiment, 12, seed=4, file=path, progress=False))
    table = np.genfromtxt(path, delimiter=",", names=True, deletechars="", replace_space=" ")
    assert table["run"].tolist() == list(range(12))
    assert (table["margin"] == alone["margin"]).all() and (table["loss[2]"] == alone["loss"][:, 2]).all()
    assert np.isnan(table["nothing"]).all()
    calls = []
    again = functools.partial(experiment, calls=calls)
    same(alone, attsvm.replicate(again, 12, seed=4, file=path, progress=False))
    assert len(calls) == 1  # the one that shows whose file it is


def test_interrupted_it_resumes(alone, tmp_path):
    path, calls = tmp_path / "runs.csv", []
    with pytest.raises(KeyboardInterrupt) as caught:
        stopping = functools.partial(experiment, stop_at=8, calls=calls)
        attsvm.replicate(stopping, 12, seed=4, n_jobs=1, file=path, progress=False)
    same({key: array[:7] for key, array in alone.items()}, caught.value.partial)
    text = path.read_text()
    assert len(text.splitlines()) == 8
    path.write_text(text[:-9])  # as if the machine had gone down within a line
    calls.clear()
    resumed = attsvm.replicate(functools.partial(experiment, calls=calls), 12, seed=4, file=path, progress=False)
    same(alone, resumed)
    assert len(calls) == 1 + 6
    assert len(path.read_text().splitlines()) == 13


def test_another_experiments_file_is_not_touched(tmp_path):
    path = tmp_path / "runs.csv"
    attsvm.replicate(experiment, 3, seed=4, file=path, progress=False)
    text = path.read_text()
    with pytest.raises(ValueError, match="holds another experiment or seed: its run 2 comes out differently"):
        attsvm.replicate(experiment, 3, seed=5, file=path, progress=False)
    with pytest.raises(ValueError, match=r"holds another experiment, which returns loss\[0\]"):
        attsvm.replicate(lambda rng: {"loss": rng.random()}, 3, seed=4, file=path, progress=False)
    assert path.read_text() == text


FOREIGN = [
    b"my notes: only one line\n",
    b"my notes, without an end",
    b"a,b\n1,2\nx,y\n",
    b"run,b\n",
    b"run,b\n0,1.0\n",
    b"run,x\n0\n",
    b"run,x\nzero,1.0\n",
    b"run,x\n-1,1.0\n",
    b"run,x\n" + b"9" * 30 + b",1.0\n",
    b"\n\n",
    b"run",  # complete: the header of nothing
    b"\xff\xfe\x00",
    b"PK\x03\x04\n",
    b'"' * 200_000 + b"\n",
    b"run,x\n0,not a number\n",
]


@pytest.mark.parametrize("content", FOREIGN, ids=lambda content: repr(content[:24]))
def test_a_foreign_file_is_refused_and_left(content, tmp_path):
    """Whatever it is: only a torn beginning of replicate's own may be written over."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    if content == b"run":
        attsvm.replicate(lambda rng: {"x": rng.random()}, 2, file=path, progress=False)
        assert path.read_text().startswith("run,x\n0,")
        return
    with pytest.raises(ValueError, match="notes.txt (is not|holds|is damaged)"):
        attsvm.replicate(lambda rng: {"x": rng.random()}, 2, file=path, progress=False)
    assert path.read_bytes() == content and list(tmp_path.iterdir()) == [path]


def test_fewer_runs_leave_the_others_in_the_file(tmp_path):
    path = tmp_path / "runs.csv"

    def experiment(rng):
        return {"x": rng.standard_normal(), "k": rng.integers(5, size=2)}

    many = attsvm.replicate(experiment, 50, file=path, progress=False)
    text = path.read_text()
    few = attsvm.replicate(experiment, 10, file=path, progress=False)
    same({key: array[:10] for key, array in many.items()}, few)
    assert path.read_text() == text
    same(many, attsvm.replicate(experiment, 50, file=path, progress=False))


def test_a_torn_file_goes_on_and_doubled_rows_go(tmp_path):
    path = tmp_path / "runs.csv"

    def experiment(rng):
        return {"x": rng.standard_normal(), "k": rng.integers(5, size=2)}

    whole = attsvm.replicate(experiment, 8, file=path, progress=False)
    text = path.read_text()
    for cut in (1, 2, 3, 4, 6, 9, 30, 100):
        path.write_text(text[:cut])
        same(whole, attsvm.replicate(experiment, 8, file=path, progress=False))
        assert path.read_text() == text
    path.write_text(text + text.splitlines(keepends=True)[3])
    same(whole, attsvm.replicate(experiment, 8, file=path, progress=False))
    assert path.read_text() == text and list(tmp_path.iterdir()) == [path]
    path.write_text(text + text.splitlines(keepends=True)[3].replace("2,", "2,1", 1) + text.splitlines()[-1] + "\n")
    with pytest.raises(ValueError, match="holds two runs 2 that differ"):
        attsvm.replicate(experiment, 8, file=path, progress=False)


def test_a_damaged_number_is_named(tmp_path):
    path = tmp_path / "runs.csv"
    experiment = functools.partial(lambda rng: {"x": rng.standard_normal()})
    attsvm.replicate(experiment, 3, file=path, progress=False)
    path.write_text(path.read_text().replace("\n0,", "\n0,O", 1))
    with pytest.raises(ValueError, match="is damaged: 'x' of run 0 is 'O"):
        attsvm.replicate(experiment, 3, file=path, progress=False)


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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


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

    def experiment(rng):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return {"x": rng.random()}

    with pytest.raises(KeyboardInterrupt) as caught:
        attsvm.replicate(experiment, 10**18, n_jobs=1, progress=False)
    assert len(calls) == 5 and isinstance(caught.value.partial, dict)


@pytest.mark.parametrize(
    ("experiment", "error", "match"),
    [
        (lambda rng: 3.0, TypeError, "experiment must return a mapping of names to numbers, got float"),
        (lambda rng: {"a": "text"}, TypeError, "experiment must return numbers, got <U4 for 'a'"),
        (lambda rng: {"a": np.zeros(rng.integers(1, 99))}, ValueError, "the same names and shapes in every run"),
    ],
)
def test_experiments_that_do_not_fit(experiment, error, match):
    with pytest.raises(error, match=match):
        attsvm.replicate(experiment, 20, progress=False)


@pytest.mark.parametrize(("runs", "seed", "match"), [(0, 0, "runs must be at least 1"), (1, -1, "seed must be")])
def test_wrong_arguments(runs, seed, match):
    with pytest.raises(ValueError, match=match):
        attsvm.replicate(experiment, runs, seed)


def test_without_tqdm_there_are_lines(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    attsvm.replicate(lambda rng: {"x": rng.random()}, 20, name="coins")
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize(
    "place", ["threads._joblib", "threads.one_blas_thread", "sheet._read", "sheet.Sheet.add", "replication._each"]
)
def test_ctrl_c_has_its_partial_wherever_it_comes(place, tmp_path, monkeypatch):
    """Before the first run, while the file is read, between runs: what is finished is handed over."""
    path = tmp_path / "runs.csv"
    attsvm.replicate(lambda rng: {"x": rng.random()}, 3, file=path, progress=False)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"attsvm.common.{place}", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        attsvm.replicate(lambda rng: {"x": rng.random()}, 5, file=path, progress=False)
    assert len(caught.value.partial.get("x", ())) == (0 if place == "sheet._read" else 3)


@pytest.mark.skipif(joblib.effective_n_jobs(-1) < 2, reason="one core")
def test_all_cores_work_where_nothing_is_said():
    seen, two = set(), threading.Event()

    def experiment(rng):
        seen.add(threading.get_ident())
        if len(seen) > 1:
            two.set()
        assert two.wait(60), "the second run never began beside the first"
        return {"number": rng.random()}

    attsvm.replicate(experiment, 40, progress=False)
