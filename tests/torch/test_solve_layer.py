"""The attention SVM as a PyTorch layer."""

import attsvm.torch
import numpy as np
import pytest
import torch


def draw(seed, *batch):
    rng = np.random.default_rng(seed)
    X, Z = (torch.tensor(rng.standard_normal((*batch, *shape)), requires_grad=True) for shape in ((4, 3, 3), (4, 3)))
    W = torch.tensor(rng.standard_normal((3, 3)))
    return X, Z, torch.einsum("...ntd,de,...ne->...nt", X, W, Z).argmax(-1)


@pytest.mark.parametrize("options", [{}, {"norm": "nuclear"}, {"C": 1.0}], ids=str)
def test_gradcheck(options):
    X, Z, selected = draw(0, 2)

    def answer(X, Z):
        W, margin = attsvm.torch.solve_svm(X, Z, selected, **options)
        return W if "C" in options else (W, margin)

    assert torch.autograd.gradcheck(answer, (X, Z))


def test_each_problem_of_a_batch_is_that_problem():
    X, Z, selected = draw(1, 2, 2)
    W, margin = attsvm.torch.solve_svm(X.float(), Z.float(), selected)
    assert W.dtype == torch.float32 and W.shape == (2, 2, 3, 3) and margin.shape == (2, 2)
    sol = attsvm.solve_svm(attsvm.cross_attention(X[1, 0].detach().float(), Z[1, 0].detach().float()), selected[1, 0])
    np.testing.assert_allclose(W[1, 0].detach(), sol.W, rtol=1e-5)
    assert margin[1, 0].item() == pytest.approx(sol.margin, rel=1e-6)


def test_problems_without_weights_are_named():
    X = torch.zeros(2, 1, 2, 2)
    X[0, 0, 0, 0] = 1
    with pytest.raises(ValueError, match="problem 1 of the batch: infeasible"):
        attsvm.torch.solve_svm(X, torch.ones(2, 1, 1), [0])
    with pytest.raises(ValueError, match="Z must have shape"):
        attsvm.torch.solve_svm(X, torch.ones(3, 1, 1), [0])
