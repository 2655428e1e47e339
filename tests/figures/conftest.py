"""What the tests of figures share."""

import pytest
from attsvm.reproduce import load, measure


@pytest.fixture(scope="session")
def results():
    """Two runs of a figure, made once."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = measure(load(name), 2, 3)
        return made[name]

    return of
