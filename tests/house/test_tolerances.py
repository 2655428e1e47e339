"""A tolerance decides where it says: a case of half its size is inside, one of twice its size outside."""

from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
from attsvm.attention.selection import Selection, undecided
from attsvm.common.norms import as_metric
from attsvm.heads.controls import own_rank
from attsvm.svm.support import holding, is_unique
from attsvm.theory import conditions, regularization_path
from attsvm.training.checked_losses import CallableLoss, check_log_loss
from network import Network
from test_wiring import answer


def refuses(function, *args, error=ValueError):
    try:
        function(*args)
    except error:
        return True
    return False


def scores_that_tie(size):
    """The spread of the scores that are not optimal, beside a gap of 1 above them."""
    X = np.array([[[2.0, 0], [1, 1], [1 + size, -1]]])
    problem = attsvm.Problem(attsvm.cross_attention(X, [[1.0, 1.0]]), None, attsvm.LinearHead([1.0, 0.0]))
    return not attsvm.diagnose(problem).equal_scores


def held_by_the_ball(size):
    problem = attsvm.Problem(attsvm.cross_attention([[[1.0], [0.0]]], [[1.0]]), None, attsvm.LinearHead([1.0]))
    log_size, gap = regularization_path._gap(problem, np.array([[3 * (size - 1)]]), 3.0, "frobenius")
    return gap != pytest.approx(2, rel=1e-5)  # against the gradient: on the rim twice the radius, over the radius


def support_of_a_margin(size):
    data = attsvm.cross_attention([[[1.0, 0], [0, 0], [0, -1]]], [[1.0]])
    W, selection = np.array([[1.0], [size]]), Selection(data, [0])
    margins = data._flat_margins(W, selection.reference)
    return not conditions.tight_entries(SimpleNamespace(flat_margins=margins, status="stopped"))[2]


def multiplier_of_support(size):
    """Of tokens of one size, an answer that was stopped."""
    data = attsvm.cross_attention([[[1.0, 0], [0, 0], [1, 1]]], [[1.0]])
    selection = Selection(data, [0])
    sol = SimpleNamespace(data=data, selection=selection, C=None, status="stopped", flat_dual=np.array([0, 1.0, size]))
    return bool(holding(sol)[2])


def direction_that_no_row_sees(size):
    """Max norm: the second entry is free but for rows that see it by as little as that."""
    return is_unique(answer([[[0, 0], [-1, -size], [-1, size]]], [[1.0]], [[1.0], [0.3]], "max", [1.0, 1.0])) is None


def rank(size):
    sol = attsvm.solve_svm(attsvm.cross_attention([[[1.0, 0], [0, 0]], [[0, 1 / size], [0, 0]]], np.eye(2)), [0, 0])
    return sol.rank == 2


def rank_of_a_head(size):
    return own_rank(SimpleNamespace(singular_values=np.array([1.0, size]))) == 2


def row_that_shards_add(size):
    """Of tol = .01: alone the second worker meets its second row, with the first it misses that by ``size``."""
    each = []
    for own in ([[1.0, 0]], [[0, 1.0], [-0.1 - size, 1.1]]):
        data = attsvm.cross_attention([[[0.0, 0], [-row[0], -row[1]]] for row in own], np.ones((len(own), 1)))
        each.append({"data": data, "selected": [0] * len(own)})
    return bool(Network(2).apart(attsvm.solve_svm, each, tol=0.01)[1].dual[1].any())


def metric_that_is_symmetric(size):
    return refuses(as_metric, "metric", (np.array([[1.0, size], [0, 1.0]]), np.eye(2)), 2, 2)


def loss_with_its_logarithm(size):
    off = lambda u: -u + size * np.r_[np.ones(1), np.zeros(len(u) - 1)]  # noqa: E731
    return refuses(CallableLoss, (lambda u: np.exp(-u), lambda u: -np.exp(-u), off), np.linspace(-1, 1, 5))


def score_below_zero(size):
    return refuses(check_log_loss, np.array([1.0, -size]), np.array([0]))


def not_yet_chosen(size):
    return not bool(undecided(np.array([[size, 1 - size]]), True)[0])


def spanned(size):
    return conditions._span([np.diag([1.0, size])]).shape[1] == 2


def probabilities_that_ran(size):
    call = pytest.importorskip("attsvm.torch.standard_form")
    import torch

    ran, q = torch.tensor([[[[0.5 + size, 0.5 - size]]]]), torch.zeros(1, 1, 1, 2)
    of = SimpleNamespace(
        q=q,
        k=torch.zeros(1, 1, 2, 2),
        tensor=q,
        v=None,
        scale=1.0,
        cap=None,
        plain=True,
        result=ran,
        fused=False,
        within=SimpleNamespace(name=""),
    )
    return refuses(call.sequence, of, 0, error=ValueError)


def parallel_columns(size):
    """1 - cosine is half of the angle squared."""
    residual = pytest.importorskip("attsvm.torch.standard_form")
    import torch

    wanted = torch.tensor([[1.0, 0], [np.sqrt(2 * size), 1e3]], dtype=torch.float64)  # beside a far longer column
    return residual._match(wanted, torch.eye(2, dtype=torch.float64), 1e-16) is None


def tolerance_of_replaced_heads(size):
    """The SVMs are asked for 1e-4."""
    candidates = pytest.importorskip("attsvm.torch.replacement")
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "as_cases", lambda *_: SimpleNamespace(data=None, selected=None))
        patch.setattr(candidates, "solve_svm", lambda *_, tol: asked.append(tol) or SimpleNamespace(W=None))
        candidates._of_column(
            SimpleNamespace(rows=np.zeros((1, 3)), head=SimpleNamespace(rank=1)), "SVM", 1, np.random.default_rng(0)
        )
    return asked[0] < size


TOLERANCES = {
    scores_that_tie: 1e-9,
    held_by_the_ball: 1e-6,
    support_of_a_margin: 1e-4,
    multiplier_of_support: 1e-12,
    direction_that_no_row_sees: 1e-11,
    rank: 1e-4,
    rank_of_a_head: 1e-6,
    row_that_shards_add: 0.01 / 4,
    metric_that_is_symmetric: 1e-12,
    loss_with_its_logarithm: 2e-6,  # of 1 + the largest logarithm
    score_below_zero: 1e-11,
    spanned: 1e-6,
    probabilities_that_ran: 5e-6,
    parallel_columns: 1e-9,
    tolerance_of_replaced_heads: 1e-4,
}


@pytest.mark.parametrize("beyond", TOLERANCES, ids=lambda function: function.__name__)
def test_half_is_inside_and_twice_outside(beyond):
    assert not beyond(TOLERANCES[beyond] / 2)
    assert beyond(TOLERANCES[beyond] * 2)


def test_a_query_has_chosen_from_nine_tenths():
    assert not not_yet_chosen(0.899) and not_yet_chosen(0.901)
