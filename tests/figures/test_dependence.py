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
    dependence.compare(found, table)
