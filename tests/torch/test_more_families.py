"""Families that nobody designed the reader for: read as the model itself attends, or refused with the reason."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import attsvm.torch  # noqa: E402
import model_families as families  # noqa: E402
from model_families import MORE, REFUSED, RESIDUAL  # noqa: E402

CLOSE = 5e-6  # of probabilities, in single precision: logits of these models stay below 40
pytestmark = pytest.mark.filterwarnings("error:read does not follow")  # all of their attention is read
QUICK = ["openai-gpt"]  # its mask is a factor of zeros and ones on the logits


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in families.available(MORE)]
)
def test_attention_is_the_model_s_own(name, implementation):
    try:
        model, eager = families.make(name, implementation), families.make(name, "eager")
    except ValueError as error:
        pytest.skip(str(error).splitlines()[0])
    for padding in ("", "left", "right") if MORE[name].takes in ("text", "pair") else ("",):
        batches = families.batches(name, padding)
        found = attsvm.torch.read(model, batches)  # refuses what does not agree with what ran
        assert 1 + max(head.layer for head in found) == MORE[name].calls
        assert {head.space for head in found} == {"residual" if name in RESIDUAL else "head"}
        own = [families.attentions(eager, batch) for batch in batches]
        for head in found:
            for number in range(4):
                got, expected = (head.attention(number), own[number // 2][head.layer][number % 2, head.number].numpy())
                live = ~np.isnan(got).any(axis=1)
                assert got.shape == expected.shape and live.sum() >= len(got) - 3  # padding is 3 tokens
                np.testing.assert_allclose(got[live], expected[live], atol=CLOSE)


@pytest.mark.parametrize(
    "name",
    [
        name if name == "nystromformer" else pytest.param(name, marks=pytest.mark.slow)
        for name in families.available(REFUSED)
    ],
)
def test_what_has_no_attention_to_watch_is_refused(name):
    with pytest.raises(ValueError, match="no attention seen: load the model with"):
        attsvm.torch.read(families.make(name, "eager"), families.batches(name)[:1])


def test_xlnet_attends_to_its_own_tokens():
    """Its positions, twice as many rows, are no other tokens."""
    found = attsvm.torch.read(families.make("xlnet", "eager"), families.batches("xlnet"))
    assert {head.kind for head in found} == {"self"} and len(found) == 8
