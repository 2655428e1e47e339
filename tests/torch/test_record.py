"""What a layer keeps of a forward pass reaches its heads: of their group, with cap and sink, without padding."""

import math

import attsvm.torch
import numpy as np
import pytest
import torch
from attsvm.torch import standard_form, watch
from numpy.testing import assert_allclose
from spellings import Own

HEADS, GROUPS, WIDTH = 6, 3, 12
CLOSE = 1e-12  # of probabilities in double precision


class Grouped(torch.nn.Module):
    """Causal attention of heads in groups; ``seen`` is what it computed, batch after batch."""

    def __init__(self, cap=None, sink=False, bend=0.0, moved=None, scales=(1.0, 1.0)):
        super().__init__()
        torch.manual_seed(0)
        m = WIDTH // HEADS
        self.query, self.key, self.value = (torch.nn.Linear(WIDTH, n * m) for n in (HEADS, GROUPS, GROUPS))
        self.double()
        self.cap, self.bend, self.moved, self.scales = cap, bend, moved, scales
        self.sink = torch.linspace(0, 2, HEADS, dtype=torch.float64)[:, None, None] if sink else None
        self.seen = []

    def forward(self, x, attention_mask=None):
        if self.moved and self.seen:
            getattr(self, self.moved).weight.data *= 1 + 1e-3 * torch.arange(WIDTH)
        B, T, _ = x.shape
        q = self.query(x)
        q = (q + self.bend * q.roll(1, 1)).view(B, T, HEADS, -1).transpose(1, 2)
        k, v = (map(x).view(B, T, GROUPS, -1).transpose(1, 2) for map in (self.key, self.value))
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
        if attention_mask is not None:
            hidden = hidden | (attention_mask == 0)[:, None, None]
        k, v = (a.repeat_interleave(HEADS // GROUPS, 1) for a in (k, v))
        logits = q @ k.mT * self.scales[min(len(self.seen), 1)]
        if self.cap is not None:
            logits = self.cap * torch.tanh(logits / self.cap)
        logits = logits.masked_fill(hidden, -math.inf)
        if self.sink is not None:
            logits = torch.cat([logits, self.sink.expand(B, HEADS, T, 1)], -1)
        prob = torch.softmax(logits, -1)[..., :T]
        self.seen.append(prob)
        for _ in range(watch.FOLLOWED):  # neither views nor other softmaxes hide the values
            torch.softmax(prob.detach().exp(), -1)
        return prob @ v


def drawn(*shape):
    return 2 * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("space", ["residual", "head"])
@pytest.mark.parametrize("options", [{}, {"cap": 0.5}, {"sink": True}, {"cap": 0.7, "sink": True}], ids=str)
def test_a_head_attends_as_the_model_did(options, space):
    module = Grouped(**options)
    found = attsvm.torch.read(module, [(drawn(2, 5, WIDTH),), (drawn(3, 4, WIDTH),)], space=space)
    for head in found:
        for b, prob in enumerate(one for batch in module.seen for one in batch.numpy()):
            assert_allclose(head.attention(b), prob[head.number], atol=CLOSE)
    for number, head in enumerate(found):  # what was chosen is its own, too
        top = np.concatenate([one[number].max(-1) for batch in module.seen for one in batch.numpy()])
        assert_allclose(head.choices.top, top, atol=CLOSE)
        assert head.value_norms is not None


@pytest.mark.parametrize("spelling", ["gqa", "@"])
def test_lengths_of_values_are_those_of_the_group(spelling):
    module, x = Own(spelling), drawn(2, 5, WIDTH).float()
    values = module.value(x).view(10, module.groups, -1).norm(dim=-1).detach()
    for head in attsvm.torch.read(module, [(x,)]):
        assert_allclose(head.value_norms, values[:, head.number * module.groups // module.heads], rtol=1e-6)


@pytest.mark.parametrize("moved", ["query", "key"])
def test_weights_that_change_between_batches_are_refused(moved):
    with pytest.raises(ValueError, match="used other weights in another batch"):
        attsvm.torch.read(Grouped(moved=moved), [(drawn(2, 5, WIDTH),)] * 2)


def test_a_scale_that_changes_between_batches_is_refused():
    with pytest.raises(ValueError, match="scaling 2 in one batch, 6 and 1 in another"):
        attsvm.torch.read(Grouped(scales=(1.0, 2.0)), [(drawn(2, 5, WIDTH),)] * 2, space="head")


@pytest.mark.parametrize("live", [[1, 1, 1, 1, 0], [0, 1, 1, 1, 1], [1, 1, 0, 1, 1], [0, 1, 0, 1, 0]], ids=str)
def test_padding_is_no_query(live):
    """Wherever it lies: a query that is padding still sees the tokens before it."""
    mask = torch.tensor([[1] * 5, live])
    at = np.flatnonzero(live)
    for head in attsvm.torch.read(Grouped(), [{"x": drawn(2, 5, WIDTH), "attention_mask": mask}]):
        dead = np.isnan(head.attention(1)).all(axis=1)
        assert (dead == (np.array(live) == 0)).all()
        assert head.text.lengths.tolist() == [5, at[-1] - at[0] + 1]
        assert (head.choices.selected[5:] >= 0).sum() == len(at)


@pytest.mark.parametrize(("bend", "space"), [(0.0, "residual"), (3e-5, "head"), (1e-2, "head")])
def test_a_residual_space_is_found_to_rounding(bend, space):
    found = attsvm.torch.read(Grouped(bend=bend), [(drawn(2, 30, WIDTH),)])
    assert {head.space for head in found} == {space}


@pytest.mark.parametrize(
    ("turn", "size", "fits"), [(0, 1, True), (0, 1e-7, True), (3e-5, 1, False), (0.05, 1e-7, False)]
)
def test_columns_are_parallel_and_close(turn, size, fits):
    """A column that is turned is refused by the largest difference, and a small one by its direction."""
    basis = torch.linalg.qr(drawn(30, 4))[0]
    wanted = basis[:, :2] * torch.tensor([1.0, size], dtype=torch.float64)
    wanted[:, 1] += turn * size * basis[:, 3]
    match = standard_form._match(wanted, 2 * basis[:, [2, 1, 0]], 2.0**-52)
    assert (match is not None) == fits
    if fits:
        assert match[0].tolist() == [2, 1] and match[1].tolist() == pytest.approx([0.5, size / 2])
