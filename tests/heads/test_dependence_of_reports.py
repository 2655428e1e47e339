"""Every column, cell, row and line of a report is made of the numbers that its table names."""

import dependence
import pytest
from head_reports import HEADS


@pytest.mark.parametrize("name", HEADS)
def test_what_is_shown_is_what_the_table_says(name):
    dependence.compare(HEADS[name](), dependence.stored()[name])
