"""Without PyTorch there is nothing to test here."""

import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def batches():
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    return [(3 * torch.randn(2, 5, 12),), (3 * torch.randn(3, 4, 12),)]
