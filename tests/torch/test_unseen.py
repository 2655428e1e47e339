"""Attention that is not read is named, whether or not other heads are."""

import math
import warnings

import attsvm.torch
import pytest
import torch
from torch.nn import functional as F


class Mixer(torch.nn.Module):
    """One head in spellings that are not followed; and a softmax that is no attention."""

    def __init__(self, spelling):
        super().__init__()
        self.spelling, self.map = spelling, torch.nn.Linear(8, 8)

    def forward(self, x):
        q = self.map(x)
        if self.spelling == "kernel":
            one = q[:, None]
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(one, one, one)[0][:, 0]
        if self.spelling == "gate":
            return torch.softmax(q, -1) * x
        if self.spelling == "experts":
            chosen = torch.softmax(q.flatten(0, 1), -1)
            return (chosen @ torch.ones(8, 8)).view_as(x)
        if self.spelling == "vocabulary":
            F.softmax(q @ x[0].mT, -1), F.log_softmax(q, -1)
            return x
        logits = torch.einsum("...sm,...tm->...st", q, q)
        prob = logits.exp() / logits.exp().sum(-1, keepdim=True)
        if self.spelling != "by hand":
            prob = torch.softmax(logits, -1).clone()
        return torch.einsum("...st,...tm->...sm", prob, q)


class MixerAttention(Mixer):
    pass


class BothAttention(Mixer):
    """A head that is read, and windows of which even the product with values is not followed."""

    def forward(self, x):
        q = self.map(x)[:, None]
        near = torch.softmax(torch.einsum("...sm,...tm->...st", q, q), -1)
        return (F.scaled_dot_product_attention(q, q, q) + near.roll(1, -1) @ q)[:, 0]


def beside(module):
    return torch.nn.Sequential(module, torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))


@pytest.fixture
def batches():
    torch.manual_seed(0)
    return [torch.randn(2, 5, 8), torch.randn(1, 4, 8)]


@pytest.mark.parametrize(
    "module",
    [Mixer("kernel"), Mixer("chunks"), MixerAttention("chunks"), MixerAttention("by hand")],
    ids=["kernel", "product with values", "class", "by hand"],
)
def test_attention_beside_heads_that_are_read(module, batches):
    kind = type(module).__name__
    expected = rf"the attention of 1 module: 0 \({kind}\); their heads are missing"
    with pytest.warns(UserWarning, match=expected) as caught:
        found = attsvm.torch.read(beside(module), batches)
    assert caught[0].filename == __file__ and [(h.layer, h.module) for h in found] == [(0, "1.self_attn")] * 2
    with pytest.raises(ValueError, match=rf"no attention seen: load .* 1 module: the model \({kind}\); their"):
        attsvm.torch.read(module, batches)


def test_an_attention_that_is_read_in_part(batches):
    with pytest.warns(UserWarning, match=r"1 module: the model \(BothAttention\)"):
        assert len(attsvm.torch.read(BothAttention(""), batches)) == 1


def test_attention_outside_the_modules(batches):
    mixer, layer = Mixer("kernel"), torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.warns(UserWarning, match=r"the model \(outside its modules\)"):
        attsvm.torch.read(layer, batches, forward=lambda x: layer(mixer(x)))


def test_many_modules_are_counted(batches):
    with pytest.warns(UserWarning, match=r"of 10 modules: 0 .*, 5 \(MixerAttention\), 4 more; their heads"):
        attsvm.torch.read(
            torch.nn.Sequential(*(MixerAttention("by hand") for _ in range(9)), *beside(Mixer(""))), batches
        )


@pytest.mark.parametrize("spelling", ["gate", "experts", "vocabulary"])
def test_what_is_no_attention_is_not_named(spelling, batches):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = attsvm.torch.read(beside(Mixer(spelling)), batches)
    assert len(found) == 2


def test_an_attention_that_is_read_in_one_call_and_not_in_another(batches):
    class EitherAttention(MixerAttention):
        def forward(self, x):
            if x.shape[1] == 5:
                return super().forward(x)
            return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], scale=1 / math.e)[:, 0]

    module = EitherAttention("by hand")
    with pytest.warns(UserWarning, match=r"1 module: the model \(EitherAttention\)"):
        attsvm.torch.read(module, batches[1:], forward=lambda x: module(torch.cat([module(x), x[:, :1]], 1)))


def test_parameters_without_values_are_named(batches):
    model = beside(Mixer("gate"))
    model[1].to("meta")
    with pytest.raises(ValueError, match=r"model must hold its values, got 1.self_attn.in_proj_weight on the meta"):
        attsvm.torch.read(model, batches)
