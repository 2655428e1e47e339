"""Two runs of the figures beyond the linear-head theory: pictures, columns and claims are those of the runs."""

from __future__ import annotations

import numpy as np
import pytest
from attsvm.figures import (
    attention_heads,
    certified_training,
    factor_balance,
    joint_training,
    measure,
    mirror_descent,
    next_token,
    plain_descent,
    positional_encoding,
    precursor,
    quadratic_head,
    rates,
    sequence_to_sequence,
    several_classes,
    several_tokens,
    soft_and_hard,
    soft_margins,
)
from pictures import assert_readable

EXACT = [
    next_token,
    precursor,
    joint_training,
    mirror_descent,
    factor_balance,
    rates,
    several_classes,
    positional_encoding,
]
FIGURES = [*EXACT, several_tokens, quadratic_head, sequence_to_sequence, attention_heads, soft_and_hard]
FIGURES += [plain_descent, soft_margins, certified_training]


def name(figure):
    return figure.__name__.rsplit(".", 1)[-1]


QUICK = [next_token, soft_and_hard, soft_margins, certified_training]
every = pytest.mark.parametrize(
    "figure",
    [figure if figure in QUICK else pytest.param(figure, marks=pytest.mark.slow) for figure in FIGURES],
    ids=name,
)


@every
def test_figure_draws_and_writes_what_it_measured(figure, results):
    found = results(figure)
    columns = figure.curves(found)
    assert len({len(column) for column in columns.values()}) == 1 and len(columns) > 3
    assert_readable(figure.plot(found))
    texts = [(heading, claim.text) for heading, claims in figure.claims(found).items() for claim in claims]
    assert len(texts) == len(set(texts)) >= 6
    assert figure.RUNS >= figure.QUICK >= 12 and figure.SETTINGS


@every
def test_runs_do_not_depend_on_threads_or_on_each_other(figure, results):
    again = measure(figure, 1, 3, 1)
    for key, numbers in again.items():
        np.testing.assert_array_equal(numbers[0], results(figure)[key][0])


@pytest.mark.parametrize("figure", EXACT, ids=name)
def test_exact_claims_hold_for_any_runs(figure, results):
    """Exact ones do not need many runs: none of them fails, and no other is decided against the theory."""
    for claims in figure.claims(results(figure)).values():
        for claim in claims:
            assert claim.verdict == "holds" or (claim.verdict == "undecided" and claim.runs == 2), claim
