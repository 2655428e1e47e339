"""Shared fixtures: one small random problem of every kind of data, by name."""

import os
import sys
from pathlib import Path

# One thread for the small products of PyTorch, NumPy and SciPy: where cores are shared, theirs wait by spinning, ten
# times longer than they compute.  Before any of them is imported; attsvm's threads are counted apart.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from builders import BUILDERS, build_case, paper  # noqa: E402
from hypothesis import settings  # noqa: E402

# pytest puts this folder on the path; where PyTorch is missing, `import torch` would find tests/torch.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

# The same examples every time (a failing one must fail again); shared processors make any deadline meaningless.
settings.register_profile("attsvm", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("attsvm")


@pytest.fixture(params=BUILDERS)
def case_name(request):
    return request.param


@pytest.fixture
def case(case_name):
    """Every kind of data, one v for all queries."""
    return build_case(case_name)


@pytest.fixture
def rng():
    return np.random.default_rng(20231)


@pytest.fixture
def sphere():
    return paper


@pytest.fixture
def ax():
    return pytest.importorskip("matplotlib.figure").Figure().subplots()


@pytest.fixture
def no_picture(monkeypatch):
    """Pictures are made and not drawn, which takes most of a short run's time."""
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(figure.Figure, "draw", lambda self, renderer: None)
