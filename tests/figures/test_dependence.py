"""Every line, column and claim of a figure is made of the arrays that its table names, and of their right numbers.

The arrays of two runs are stored as one number each; then they are planted, and changed one at a time.  After a change
that is meant, ``python tests/support/dependence.py`` writes the table anew, and its difference is what to read.
"""

from __future__ import annotations

import dependence
import pytest
from attsvm.figures import FIGURES, load

pytestmark = pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")  # rank stops a solver on purpose

STORED = dependence.stored()


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_shows_what_its_table_says(name, results):
    measured = results(load(name))
    found, table = dependence.lines_of(load(name), measured), STORED[name]
    assert [*found] == [*table]
    for line, (numbers, sources) in found.items():
        expected, of = table[line]
        measured = line.startswith("measured")  # of trainings, which compilers round differently
        rounding = 0.2 if of == ["about"] else 1e-3 if measured else 1e-5
        assert numbers == pytest.approx(expected, rel=rounding, abs=1e-6), line
        assert measured or sources == of, line
