"""Shared fixtures: one small random problem of every kind of data, by name."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
from builders import BUILDERS, build_case
from hypothesis import settings

# pytest puts this folder on the path; where PyTorch is missing, `import torch` would find tests/torch.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

# The same examples every time (a failing one must fail again); shared processors make any deadline meaningless.
settings.register_profile("attsvm", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("attsvm")


@pytest.fixture(params=BUILDERS)
def case(request):
    """Every kind of data, one v for all queries."""
    return build_case(request.param)


@pytest.fixture(params=BUILDERS)
def case_name(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(20231)


@pytest.fixture
def sphere():
    """The paper's random setting: (n, T, d, seed) -> X, Z, y, v, data and the logistic problem."""

    def make(n=6, T=8, d=10, seed=0, loss="logistic"):
        X, Z, y, v = attsvm.sample.unit_sphere(n, T, d, rng=seed)
        data = attsvm.cross_attention(X, Z)
        problem = attsvm.Problem(data, y, attsvm.LinearHead(v), loss)
        return SimpleNamespace(X=X, Z=Z, y=y, v=v, data=data, problem=problem)

    return make
