"""Heads captured from PyTorch modules."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import attsvm.torch  # noqa: E402


class Attention(torch.nn.Module):
    """As in BERT: maps of their own for queries and keys."""

    def __init__(self, d=12, heads=3):
        super().__init__()
        self.query, self.key, self.heads = torch.nn.Linear(d, d), torch.nn.Linear(d, d), heads

    def forward(self, x):
        q, k = (m(x).unflatten(-1, (self.heads, -1)).transpose(-3, -2) for m in (self.query, self.key))
        return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return Attention()


def test_captured_heads_attend_as_the_module_does(layer):
    batches = [torch.randn(2, 5, 12), torch.randn(3, 4, 12)]
    with attsvm.torch.capture(layer.query, layer.key) as kept:
        expected = [layer(x).detach().numpy() for x in batches]
    found = kept.heads(3, layer=4)
    assert [(head.layer, head.head) for head in found] == [(4, 0), (4, 1), (4, 2)]
    attention = [part for batch in expected for part in batch]
    for head in found:
        for i, expect in enumerate(attention):
            np.testing.assert_allclose(head.attention(i), expect[head.head], atol=1e-6)  # single precision


def test_padding_is_cut_off(layer):
    x = torch.randn(2, 5, 12)
    with attsvm.torch.capture(layer.query, layer.key) as kept:
        layer(x)
    (head, *_) = kept.heads(3, lengths=torch.tensor([5, 2]), tokens=[list("abcde"), list("fg")])
    assert head.text.lengths.tolist() == [5, 2]
    np.testing.assert_allclose(head.attention(1), layer(x[1, :2]).detach().numpy()[0], atol=1e-6)


def test_one_sentence_half_precision_and_no_bias():
    query, key = (torch.nn.Linear(6, 4, bias=False, dtype=torch.bfloat16) for _ in range(2))
    with attsvm.torch.capture(query, key) as kept:
        query(torch.ones(3, 6, dtype=torch.bfloat16))
    (head,) = kept.heads(1)
    assert head.text.keys.shape == (3, 7) and head.text.keys.dtype == np.float32
    assert (head.K[-1] == 0).all()


def test_the_hook_is_gone_afterwards(layer):
    with pytest.raises(RuntimeError, match="stop"), attsvm.torch.capture(layer.query, layer.key) as kept:
        raise RuntimeError("stop")
    layer(torch.ones(1, 2, 12))
    assert kept.inputs == []
    with pytest.raises(ValueError, match="nothing was captured"):
        kept.heads(3)


def test_lengths_that_do_not_fit(layer):
    with attsvm.torch.capture(layer.query, layer.key) as kept:
        layer(torch.ones(2, 3, 12))
    with pytest.raises(ValueError, match="lengths must be given for 2 sentences, got 1"):
        kept.heads(3, lengths=[3])


def test_captured_inputs_do_not_change_with_the_model(layer):
    x = torch.randn(1, 3, 12)
    with attsvm.torch.capture(layer.query, layer.key) as kept:
        layer(x)
    before = kept.inputs[0].copy()
    x.zero_()
    np.testing.assert_array_equal(kept.inputs[0], before)
