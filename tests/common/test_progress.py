"""Progress: shown by default where somebody looks on, never by workers, as asked everywhere."""

import sys
from multiprocessing import process

import attsvm
import numpy as np
import pytest
from attsvm import heads
from attsvm.common import progress
from attsvm.common.progress import watched

joblib = pytest.importorskip("joblib")


@pytest.fixture(params=[False, True], ids=["a file", "a terminal"])
def terminal(request, monkeypatch, capsys):
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: request.param)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # lines in place of bars
    return request.param


def test_who_watches(terminal, monkeypatch):
    assert watched(None) == terminal and watched(True) and not watched(False)
    monkeypatch.setattr(type(sys.stderr), "__module__", "ipykernel.iostream")  # of a notebook
    assert watched(None)
    of_threads = joblib.Parallel(2, backend="threading")(joblib.delayed(watched)(None) for _ in range(4))
    assert of_threads == [False] * 4
    monkeypatch.setattr(process, "_parent_process", "another")  # of a process that works for others
    assert not watched(None) and not watched(True)


@pytest.mark.parametrize("asked", [None, False, True])
def test_long_work_is_shown(terminal, asked, rng, monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    X, y = rng.standard_normal((200, 60)), np.arange(200) < 100
    found = heads.from_arrays(rng.standard_normal((60, 6, 8)), *(rng.standard_normal((8, 8)), None) * 2, heads=2)
    reports = heads.analyze_model(found, null=False, nuclear_queries=0, progress=asked)
    heads.view(reports, progress=asked)
    attsvm.replicate(lambda rng: {"x": rng.random()}, 20, n_jobs=1, progress=asked)
    attsvm.separable(X, y, progress=asked)
    begun = {line.partition(":")[0] for line in capsys.readouterr().err.splitlines()}
    shown = terminal if asked is None else asked
    assert begun == ({"solve", "view", "replicate", "solve_svm"} if shown else set())
