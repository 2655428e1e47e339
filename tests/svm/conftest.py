"""The parts of the solvers, compiled once."""

import pytest
from parts import build


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("parts") / "parts.so")
