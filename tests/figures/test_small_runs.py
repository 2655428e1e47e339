"""Two runs of the figures beyond the linear-head theory: pictures, columns and claims are those of the runs."""

from __future__ import annotations

import numpy as np
import pytest
from attsvm.figures import load, measure
from pictures import assert_readable

FIGURES = """next-token precursor joint-training mirror-descent factor-balance rates several-classes positional-encoding
several-tokens quadratic-head sequence-to-sequence attention-heads soft-and-hard plain-descent soft-margins
certified-training""".split()
QUICK = ["next-token", "soft-and-hard", "soft-margins", "certified-training"]
every = pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FIGURES]
)


@every
def test_figure_draws_and_writes_what_it_measured(name, results):
    figure = load(name)
    found = results(figure)
    columns = figure.curves(found)
    assert len({len(column) for column in columns.values()}) == 1 and len(columns) > 3
    assert_readable(figure.plot(found))
    texts = [(heading, claim.text) for heading, claims in figure.claims(found).items() for claim in claims]
    assert len(texts) == len(set(texts)) >= 6
    assert figure.RUNS >= figure.QUICK >= 12 and figure.SETTINGS


@every
def test_runs_do_not_depend_on_threads_or_on_each_other(name, results):
    figure = load(name)
    again = measure(figure, 1, 3, 1)
    for key, numbers in again.items():
        np.testing.assert_array_equal(numbers[0], results(figure)[key][0])
