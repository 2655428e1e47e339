"""Every figure says what it is; its picture and its claims are made of the arrays that its table names.

The arrays of two runs are stored as one number each; then they are planted, and changed one at a time: every line drawn
and every claim that changes must be what the table says.  After a change that is meant, ``python
tests/support/dependence.py`` writes the table anew, and its difference is what to read.
"""

import dependence
import numpy as np
import pytest
from attsvm.reproduce import FIGURES, NAMED, load, measure, papers
from marks import slow
from pictures import assert_readable

pytestmark = pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")  # rank stops a solver on purpose

STORED = dependence.stored()


def some(fast, names):
    """The others are slow."""
    return pytest.mark.parametrize("name", [name if name in fast.split() else slow(name) for name in names])


@pytest.mark.parametrize("name", (*FIGURES, *NAMED))
def test_a_figure_says_what_it_is_and_where_it_comes_from(name):
    if name in NAMED:
        pytest.importorskip("torch")
    figure = load(name)
    title, _, text = figure.__doc__.partition("\n\n")
    assert title and text and figure.SETTINGS and 1 <= figure.QUICK <= figure.RUNS
    paper = figure.PAPER.format_map(vars(papers))
    sources = [words for name, words in vars(papers).items() if name.isupper()]
    assert any(paper.startswith(source) for source in sources) and not paper.endswith(".")
    assert figure.CAPTION.endswith(".") and len(figure.CAPTION) > 60


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_shows_what_its_table_says(name, results):
    figure, found = load(name), results(name)
    dependence.compare(dependence.lines_of(figure, found), STORED[name])
    texts = [(heading, claim.text) for heading, claims in figure.claims(found).items() for claim in claims]
    assert len(texts) == len(set(texts)) >= 6


@some("gd-paths rank basin next-token soft-and-hard soft-margins certified-training", FIGURES)
def test_a_picture_is_readable(name, results):
    assert_readable(load(name).plot(results(name)))


@some("next-token soft-and-hard soft-margins certified-training", FIGURES)
def test_runs_do_not_depend_on_threads_or_on_each_other(name, results):
    for key, numbers in measure(name, 1, 3, 1).items():
        np.testing.assert_array_equal(numbers[0], results(name)[key][0])


@pytest.mark.parametrize("name", ["gd-paths", "rank", "basin"])  # a slow test makes the whole report
def test_no_claim_fails(name):
    groups = load(name).claims(measure(name, 8, 1, 2))
    assert not [claim.text for claims in groups.values() for claim in claims if claim.verdict == "fails"]
