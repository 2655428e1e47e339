"""Nothing falls off: an answer in little memory, whatever the norm, the option, the shape and the data."""

import pytest
from campaign import problem, shape, solved
from marks import needs_linux, slow
from problems import gaussian

pytestmark = [
    needs_linux,
    pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning", "ignore::DeprecationWarning"),
]


def most(lengths, dk, dz, option=None):
    """Gigabytes: a dozen vectors as long as the tokens, four matrices of the least order, and what a process needs; a
    metric has tokens as long as W, twice."""
    least = min(sum(lengths), dk * dz)
    return (
        (12 * 8 * (sum(lengths) * (dk + 3) + len(lengths) * dz) + 32 * least**2) / 1e9
        + 0.05
        + (option == "metric") * 16e-9 * sum(lengths) * dk * dz
    )


@pytest.mark.parametrize("seed", [*range(8), *(slow(seed) for seed in range(8, 60))])
def test_every_problem_has_an_answer(seed):
    norm, option, _, lengths, dk, dz, _ = shape(seed)
    seconds, grown, status = solved(*problem(seed, 0))
    wanted = ("stationary", "optimal", "iteration limit") if option == "rank" else ("optimal", "infeasible")
    assert status in wanted and grown <= most(lengths, dk, dz, option), (norm, option, seconds, grown, status)


@pytest.mark.parametrize("seed", [0, *(slow(seed) for seed in range(1, 12))])
def test_a_polish_takes_no_more_rows_than_weights_have_freedom(seed):
    """1,600 queries of eight dimensions: 12,986 rows in one Schur complement were 1.35 GB for 64 entries of W."""
    case = gaussian(seed, 1600, 8, 8)
    _, grown, status = solved(case.data, case.selected, {"norm": "nuclear"})
    assert status == "optimal" and grown < 0.05
