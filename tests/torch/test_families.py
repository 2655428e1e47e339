"""Heads of many families of models, as Hugging Face builds them, against the attention they report themselves."""

import json
import re

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

pytest.importorskip("transformers")

import attsvm.torch
import model_families as families
from marks import slow
from model_families import MORE, REFUSED, RESIDUAL, ROTARY
from places import ROOT

# Of probabilities, in single precision: logits of these models stay below 40.
CLOSE = 5e-6
pytestmark = pytest.mark.filterwarnings("error:read does not follow")  # all of their attention is read
QUICK = ["bert", "gpt2", "llama", "t5", "bloom", "openai-gpt", "nystromformer", "mixtral"]
VERSION = int(families.transformers.__version__.split(".")[0])
# Whose sdpa is not their eager attention: ALiBi divided by another number, and in transformers 4 factors left out.
ANOTHER_SDPA = ["falcon-alibi", *(["gpt2-inverse", "gemma2"] if VERSION < 5 else [])]
OF_HEADS = (
    "modernbert gpt-j gpt-neox falcon llama mistral qwen2 qwen3 gemma2 gemma3 phi olmo2 gpt-oss falcon-alibi".split()
)
HEAD_SPACE = [*OF_HEADS, *ROTARY]


def each(names):
    return [name if name in QUICK else slow(name) for name in families.available(names)]


every = pytest.mark.parametrize("name", each(families.FAMILIES))


def built(name, implementation):
    try:
        return families.make(name, implementation)
    except (ImportError, ValueError) as error:
        pytest.skip(str(error).splitlines()[0])


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", each(families.FAMILIES | MORE))
def test_attention_is_the_model_s_own(name, implementation):
    model, eager = built(name, implementation), built(name, "eager")
    takes, layers = families.ALL[name].takes, families.ALL[name].calls
    kinds = ["self"] * 2 + ["self", "cross"] * 2 if layers == 6 else ["self"]
    for padding in ("", "left", "right") if takes in ("text", "pair") else ("",):
        batches = families.batches(name, padding)
        found = attsvm.torch.read(model, batches)  # refuses what does not agree with what ran
        assert 1 + max(head.layer for head in found) == layers
        assert {head.space for head in found} == ({"head"} if name in HEAD_SPACE else {"residual"})
        assert name in MORE or all(head.kind == kinds[head.layer % len(kinds)] for head in found)
        if name == "swin" or (name in ANOTHER_SDPA and implementation == "sdpa"):
            continue  # reports windows in another shape; what ran is not what is reported
        own = [families.attentions(eager, batch) for batch in batches]
        for number in range(4):
            mask = batches[number // 2].get("attention_mask")
            for head in found:
                got, expected = head.attention(number), own[number // 2][head.layer][number % 2, head.number].numpy()
                live = ~np.isnan(got).any(axis=1)
                if mask is not None and len(got) == mask.shape[1]:
                    assert live.tolist() == (mask[number % 2].numpy() > 0).tolist()
                assert got.shape == expected.shape and live.sum() >= len(got) - 3  # padding is 3 tokens
                assert_allclose(got[live], expected[live], atol=CLOSE)


@pytest.mark.parametrize("name", each(REFUSED))
def test_what_has_no_attention_to_watch_is_refused(name):
    with pytest.raises(ValueError, match="no attention seen: load the model with"):
        attsvm.torch.read(built(name, "eager"), families.batches(name)[:1])


def test_xlnet_attends_to_its_own_tokens():
    """Its positions, twice as many rows, are no other tokens."""
    found = attsvm.torch.read(built("xlnet", "eager"), families.batches("xlnet"))
    assert {head.kind for head in found} == {"self"} and len(found) == 8


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["t5", "clip-vision"])
def test_large_logits_in_double_precision(name, implementation, monkeypatch):
    """Where logits reach hundreds, single precision is too coarse to compare in; in double 1e-10 is left of them."""
    if name == "t5" and VERSION < 5:
        pytest.skip("rounds its logits to single precision")
    softmax = torch.nn.functional.softmax

    def double_softmax(input, dim=None, _stacklevel=3, dtype=None):  # models ask for single precision
        return softmax(input, dim)

    double_softmax.__name__ = "softmax"
    monkeypatch.setattr(torch.nn.functional, "softmax", double_softmax)
    monkeypatch.setitem(families.SCALES, name, 8.0)
    model, eager = built(name, implementation).double(), families.make(name, "eager").double()
    batches = [
        {key: x.double() if x.is_floating_point() else x for key, x in batch.items()}
        for batch in families.batches(name)
    ]
    largest = 0.0
    own = [families.attentions(eager, batch) for batch in batches]
    for head in attsvm.torch.read(model, batches):
        assert head.keys.dtype == np.float64
        for number in range(4):
            expected = own[number // 2][head.layer][number % 2, head.number].numpy()
            assert_allclose(head.attention(number), expected, atol=1e-10)
            logits = head.logits(number)
            largest = max(largest, np.abs(logits[np.isfinite(logits)]).max())
    assert largest > 50


@pytest.mark.parametrize("name", ["llama", slow("qwen3")])
def test_rotary_models_have_no_residual_space(name):
    with pytest.raises(ValueError, match=r"space='residual': layer 0 .* has none, since its queries are no columns"):
        attsvm.torch.read(families.make(name, "sdpa"), families.batches(name), space="residual")
    first, second, third, _ = attsvm.torch.read(families.make(name, "eager"), families.batches(name), layers=[0])
    assert first.keys is second.keys and second.keys is not third.keys  # two query heads share a key head


@pytest.mark.parametrize("padding", ["", "left"])
@every
def test_the_head_s_own_choices_are_feasible(name, padding):
    """Own W ranks what it selects first, in either space, with the bias as a coordinate."""
    if padding and families.FAMILIES[name].takes != "text":
        pytest.skip("nothing to pad")
    model = built(name, "eager")
    solved = 0
    for space in {"auto", "head"}:
        for head in attsvm.torch.read(model, families.batches(name, padding), space=space, threshold=0.4):
            rows = attsvm.heads.hard_queries(head)
            if len(rows) < 5 or head.given.cap is not None:
                continue
            report = attsvm.heads.analyze_head(head, nuclear_queries=0, null=False)
            assert report.fit.status == "optimal" and 0 < report.fit.learned_margin <= report.fit.margin * (1 + 1e-9)
            solved += 1
            for i, q, selected in rows:
                assert head.sequence_attention(i)[q].argmax() == selected
    assert solved or name in ("gemma2", "gpt-oss")  # capped logits; a sink takes most of the attention


# ------------------------------------------------------------------------- attention that is not read

LONGFORMER = r"of 2 modules: encoder.layer.0.attention.self \(LongformerSelfAttention\)"
FLEX = r"of 2 modules: encoder.layer.0.attention.self \(BertSelfAttention\)"


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("led", "encoder.layers.{}.self_attn.longformer_self_attn (LEDEncoderSelfAttention)"),
        ("long-t5", "encoder.block.{}.layer.0.LocalSelfAttention (LongT5LocalAttention)"),
        ("long-t5-global", "encoder.block.{}.layer.0.TransientGlobalSelfAttention (LongT5TransientGlobalAttention)"),
    ],
)
def test_an_encoder_in_chunks(name, modules):
    shown = f"{modules.format(0)}, {modules.format(1)}"
    with pytest.warns(
        UserWarning,
        match=f"^read does not follow the attention of 2 modules: {re.escape(shown)}; their heads are missing$",
    ):
        found = attsvm.torch.read(families.make(name, "eager"), families.batches(name))
    assert 1 + max(head.layer for head in found) == families.ALL[name].calls
    assert all("decoder" in head.module for head in found)


@pytest.mark.parametrize(
    ("name", "way", "modules"), [("longformer", "eager", LONGFORMER), ("bert", "flex_attention", FLEX)]
)
def test_what_is_not_followed_is_refused_by_name(name, way, modules):
    with pytest.raises(ValueError, match=modules):
        attsvm.torch.read(built(name, way), families.batches(name))


def test_tokens_are_named():
    class Tokenizer:
        def convert_ids_to_tokens(self, ids):
            return [f"<{i}>" for i in ids]

    model, batches = families.make("t5", "eager"), families.batches("t5")
    found = attsvm.torch.read(model, batches, Tokenizer())
    encoder, cross = found[0].text, found[-1].text
    assert encoder.words[0] == cross.words[0] == [f"<{i}>" for i in batches[0]["input_ids"][0].tolist()]
    assert cross.query_words[3] == [f"<{i}>" for i in batches[1]["decoder_input_ids"][1].tolist()]
    assert attsvm.torch.read(model, batches)[0].text.words[0][0] == str(batches[0]["input_ids"][0, 0].item())


@pytest.mark.parametrize("name", ["vit", slow("clip-vision")])
def test_patches_are_named_by_row_and_column(name):
    (head, *_) = attsvm.torch.read(built(name, "sdpa"), families.batches(name))
    patches = [f"r{row}c{column}" for row in range(4) for column in range(4)]
    assert head.text.words[3] == ["[CLS]", *patches]


@pytest.mark.slow
def test_windows_of_patches_have_no_names():
    """Swin's first layer cuts the 16 x 16 patches of an image into 16 windows."""
    found = attsvm.torch.read(built("swin", "sdpa"), families.batches("swin"), layers=[0])
    assert found[0].text.total == 64 and found[0].text.words is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whisper", "bart", "gpt-oss", "t5"])
def test_views_of_families(name):
    """Cross attention, where queries and tokens differ; a sink; a bias."""
    found = attsvm.torch.read(built(name, "eager"), families.batches(name), threshold=0.4)
    page = attsvm.heads.view(found)
    assert page.left_out == 0
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.html, re.DOTALL)[1])
    for head, shown in zip(found, data["heads"], strict=True):
        sentences = data["texts"][shown["text"]]["sentences"]
        for sentence, cases in zip(sentences, shown["cases"], strict=True):
            prob = head.sequence_attention(sentence["index"])
            names = sentence.get("queries", sentence["keys"])
            assert prob.shape == (len(names), len(sentence["keys"])) and len(cases) == len(names)
            for row, case in zip(prob, cases, strict=True):
                assert case[0] == row.argmax()
                assert all(abs(1000 * row[t] - p) <= 0.5 for t, p in zip(case[2][::2], case[2][1::2], strict=True))


def families_table():
    """The table of notebooks/models.md: what these lists test."""
    residual = [name for name in families.FAMILIES if name not in HEAD_SPACE]
    rows = {
        "residual space": [*residual, *RESIDUAL],
        "head space": HEAD_SPACE,
        "the decoder alone, with a warning": families.PARTLY,
        "refused, with the reason": families.REFUSED,
    }
    lines = [f"| {kind} | {', '.join(sorted(names))} |" for kind, names in rows.items()]
    return "\n".join(["| read | families |", "| --- | --- |", *lines, ""])


def test_the_page_lists_the_families():
    page = ROOT / "notebooks" / "models.md"
    if not page.is_file():
        pytest.skip("the pages are not here")
    assert families_table() in page.read_text(encoding="utf-8")
