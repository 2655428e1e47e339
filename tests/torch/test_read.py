"""Heads read from running modules: what was computed, and nothing changed."""

import contextlib
import math
import random
import tracemalloc
from types import SimpleNamespace

import attsvm.torch
import numpy as np
import pytest
import torch
from attsvm.torch import watch
from attsvm.torch.batch import Batch
from attsvm.torch.record import Column
from numpy.testing import assert_allclose, assert_array_equal
from spellings import SPELLINGS, Own, made
from torch.nn import functional as F

CLOSE = 1e-6  # of probabilities in single precision: logits here are below 10


def expected(batches):
    """Probabilities of every sequence, (H, T, T), as one of the spellings computes them."""
    module, found = made(), []
    for batch in batches:
        module(*batch)
        found += list(module.seen.detach().numpy())
    return found


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_read(spelling, batches):
    module = made(spelling)
    found = attsvm.torch.read(module, batches)
    assert [(h.layer, h.number, h.kind, h.space) for h in found] == [(0, n, "self", "residual") for n in range(4)]
    for b, prob in enumerate(expected(batches)):
        for head in found:
            assert_allclose(head.attention(b), prob[head.number], atol=CLOSE)
            assert (head.attention(b)[np.triu_indices(len(prob[0]), 1)] == 0).all()
            x = head.keys[head.text.begin[b] :][: len(prob[0])]
            own = np.nan_to_num(head.logits(b), neginf=0)
            assert_allclose(np.tril((x @ head.W @ x.T).T), own, atol=1e-5)  # W is the head's own
    assert found[0].keys is found[3].keys and found[0].causal
    grouped = attsvm.torch.read(module, batches, space="head")
    assert grouped[0].keys is grouped[1].keys and grouped[1].keys is not grouped[2].keys
    assert grouped[0].keys.dtype == np.float32 and grouped[0].W == pytest.approx(np.eye(3) * grouped[0].W[0, 0])
    assert_allclose(grouped[2].attention(3), found[2].attention(3), atol=1e-12)


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("first", [True, False], ids=["batch first", "time first"])
def test_multihead_attention(weights, first):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(12, 3, batch_first=first).eval()
    x = 2 * torch.randn(4, 5, 12)
    hidden = torch.arange(20).view(4, 5) // 3 == 4  # the last two tokens of the third
    batch = dict.fromkeys(["query", "key", "value"], x if first else x.transpose(0, 1)) | {"key_padding_mask": hidden}
    prob = module(**batch, average_attn_weights=False)[1].detach().masked_fill(hidden[:, None, :, None], math.nan)
    found = attsvm.torch.read(module, [batch | {"need_weights": weights}])
    assert len(found) == 3 and {(h.space, h.kind) for h in found} == {("residual", "self")}
    for head in found:
        got = [head.attention(b) for b in range(4)]
        assert_allclose(got, prob[:, head.number], atol=CLOSE)


def test_transformer_with_its_fast_path_and_cross_attention():
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 4, 20, batch_first=True), 2)
    found = attsvm.torch.read(encoder.eval(), [{"src": torch.randn(2, 5, 12), "src_key_padding_mask": hidden}])
    assert [(h.layer, h.module) for h in found[::4]] == [(0, "layers.0.self_attn"), (1, "layers.1.self_attn")]
    both = torch.nn.Transformer(12, 4, 1, 1, 20, batch_first=True)
    found = attsvm.torch.read(both, [(torch.randn(2, 5, 12), torch.randn(2, 4, 12))])
    assert [h.kind for h in found[::4]] == ["self", "self", "cross"] and {h.space for h in found} == {"residual"}
    assert found[-1].attention(1).shape == (4, 5) and found[-1].module == "decoder.layers.0.multihead_attn"


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_attention_that_is_not_finite_is_said(bad, batches):
    batches[0][0][0, 2, 3] = bad
    with pytest.raises(ValueError, match="are not finite"):
        attsvm.torch.read(Own("@"), batches)


@pytest.mark.parametrize("model", [torch.nn.Linear(12, 2), Own("hand-written")])
def test_what_is_not_seen_is_said(model, batches):
    with pytest.raises(ValueError, match="no attention seen: load the model with attn_implementation='sdpa'"):
        attsvm.torch.read(model, batches)


def test_what_does_not_agree_is_refused(monkeypatch, batches):
    """Whatever is misread is noticed by what the model computed."""
    module = Own("gqa")
    attsvm.torch.read(module, batches)
    sdpa = watch.Watch._sdpa
    monkeypatch.setattr(watch.Watch, "_sdpa", lambda self, out, q, *k, **more: sdpa(self, out, 1.01 * q, *k, **more))
    with pytest.raises(ValueError, match="differs from what the model computed by"):
        attsvm.torch.read(module, batches)


class Failing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.MultiheadAttention(12, 3, dropout=0.5, batch_first=True)
        self.still = torch.nn.Dropout().eval()
        self.calls = 0

    def forward(self, x):
        torch.rand(3), np.random.rand(), random.random()
        self.inner(x, x, x)
        self.calls += 1
        if self.calls == 2:
            raise RuntimeError("no more")
        return x


def state(model):
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called", "_forward_hooks_with_kwargs")
    return (
        [(module.training, *(len(getattr(module, name)) for name in hooks)) for module in model.modules()],
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        F.has_torch_function,
        torch.is_grad_enabled(),
        [parameter.requires_grad for parameter in model.parameters()],
        torch.overrides._len_torch_function_stack(),
    )


@pytest.mark.parametrize("times", [1, 2])
def test_nothing_is_changed_also_after_an_exception(times, batches):
    model = Failing().train()
    model.still.eval()
    before = state(model)
    with contextlib.nullcontext() if times == 1 else pytest.raises(RuntimeError, match="no more"):
        attsvm.torch.read(model, batches[:times])
    assert state(model) == before


def test_compiled_and_wrapped_models_are_unwrapped(batches):
    module = Own("@")
    plain = attsvm.torch.read(module, batches)
    for wrapped in (torch.compile(module, backend="eager"), torch.nn.DataParallel(module)):
        for one, other in zip(plain, attsvm.torch.read(wrapped, batches), strict=True):
            assert_array_equal(one.attention(2), other.attention(2))


def test_sequences_are_drawn_until_they_hold_the_tokens(batches, tmp_path):
    module = Own("@")

    def read(**options):
        return attsvm.torch.read(module, batches * 5, **options)

    whole, drawn, stored, other = read(), read(tokens=30), read(tokens=30, store=tmp_path), read(tokens=30, seed=1)
    numbers = drawn[0].text.numbers
    assert 30 <= drawn[0].text.lengths.sum() < 35 and drawn[0].text.total == 25
    assert numbers.tolist() == stored[0].text.numbers.tolist() != other[0].text.numbers.tolist()
    assert isinstance(stored[0].keys.base, np.memmap) or isinstance(stored[0].keys, np.memmap)
    for b in range(25):
        for heads in zip(drawn, stored, whole, strict=True):
            if b in numbers:
                one, other, expected = (head.attention(b) for head in heads)
                assert (one == expected).all() and (other == expected).all()
            else:
                with pytest.raises(LookupError, match=r"tokens=.*store="):
                    heads[0].attention(b)
    with pytest.raises(LookupError, match=r"must lie in 0 .. 24"):
        drawn[0].attention(25)
    before = np.array(stored[0].keys)
    read(tokens=30, seed=1, store=tmp_path)
    assert_array_equal(stored[0].keys, before)  # a file that is mapped is replaced, not written into
    assert {path.suffix for path in tmp_path.iterdir()} == {".npy"}
    column = Column("x", tmp_path)
    parts = [column.add(np.ones((1000, 1, 100))) for _ in range(20)]
    tracemalloc.start()
    column.collect(parts)
    assert tracemalloc.get_traced_memory()[1] < 4e6  # a column of 16 MB is written part by part
    tracemalloc.stop()


def test_layers_and_heads_are_chosen(batches):
    model = torch.nn.Sequential(
        torch.nn.TransformerEncoderLayer(12, 3, 20), torch.nn.TransformerEncoderLayer(12, 3, 20)
    )
    for which, names in (
        ({"layers": [1]}, "L1H0 L1H1 L1H2"),
        ({"heads": [2]}, "L0H2 L1H2"),
        ({"heads": ["1.0", "L0H2"]}, "L0H2 L1H0"),
    ):
        assert " ".join(head.label for head in attsvm.torch.read(model, batches, **which)) == names


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "gpt2"}, TypeError, "model must be a torch.nn.Module, got str"),
        ({"batches": torch.zeros(1)}, TypeError, "batches must be an iterable of what the model takes"),
        ({"batches": []}, ValueError, "batches must hold at least one batch"),
        ({"batches": ["a text"]}, TypeError, "batches must hold what the model takes, numbers, got text"),
        ({"batches": [["a text", "another"]]}, TypeError, "got text: make each batch by tokenizer"),
        ({"space": "lifted"}, ValueError, "space must be"),
        ({"threshold": 1.0}, ValueError, "threshold must lie below 1"),
        ({"queries": 0}, ValueError, "queries must be at least 1"),
        ({"tokens": 0}, ValueError, "tokens must be at least 1"),
        ({"forward": "generate"}, TypeError, "forward must be a function, got str"),
        ({"tokenizer": "gpt2"}, TypeError, "tokenizer must have one of convert_ids_to_tokens, .*, got str"),
        ({"layers": 0}, TypeError, "layers must be a list of numbers, got int"),
        ({"layers": [1]}, ValueError, r"layers must lie in 0 .. 0, got \[1\]"),
        ({"heads": 1.5}, TypeError, "heads must be a list of numbers or names, got float"),
        ({"heads": ["5.3"]}, ValueError, "heads must name heads of the model's 1 layers"),
        ({"heads": ["last"]}, ValueError, "'5.3' or 'L5H3', got 'last'"),
    ],
)
def test_arguments_that_do_not_fit(batches, options, error, message):
    arguments = {"model": Own("@"), "batches": batches} | options
    with pytest.raises(error, match=message):
        attsvm.torch.read(**arguments)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"id_to_token": {0: "a"}.get}, "none for number 7"),
        ({"convert_ids_to_tokens": lambda ids: [*"ab"][ids]}, "TypeError: list indices"),
        ({"decode": lambda ids: {0: "a"}[ids[0]]}, "KeyError: 7"),
    ],
)
def test_a_tokenizer_of_another_vocabulary_is_refused(names, said):
    batch = Batch({"input_ids": torch.tensor([[0, 7]])}, torch.nn.Identity(), None, SimpleNamespace(**names))
    with pytest.raises(ValueError, match=f"tokenizer must name all tokens of the model, as its own does, got {said}"):
        batch.words(0, "", "self", 1, 2, slice(2), True)


def test_half_precision_is_read_exactly():
    """Choices are those of the product of queries and keys in float32, whatever the model's rounding."""
    module = made().bfloat16()
    x = 3 * torch.randn(3, 8, 12, dtype=torch.bfloat16)
    found = attsvm.torch.read(module, [(x,)])
    for head in found:
        given = head.given
        for i in range(3):
            q, k = (a[8 * i : 8 * i + 8].astype(np.float64) for a in (given.queries, given.keys))
            logits = np.where(np.tri(8) > 0, q @ k.T, -np.inf)
            assert (head.choices.selected[8 * i : 8 * i + 8] == logits.argmax(axis=1)).all()


def test_one_token_sequences_a_sliding_window_and_a_query_of_nan():
    def sliding(x):
        at = torch.arange(x.shape[1])
        seen = (at[:, None] >= at) & (at[:, None] - at < 3)
        q = x.masked_fill(at[:, None] == 5, math.nan)
        return F.scaled_dot_product_attention(*(a[:, None] for a in (q, x, x)), attn_mask=seen)

    batches = [torch.randn(1, 6, 12), torch.randn(2, 1, 12)]
    (head,) = attsvm.torch.read(torch.nn.Identity(), batches, forward=sliding)
    assert head.text.start[:6].tolist() == [0, 0, 0, 1, 2, 0] and head.text.stop[:6].tolist() == [1, 2, 3, 4, 5, 0]
    assert head.choices.selected[5] == -1 and np.isnan(head.choices.top[5])
    assert head.attention(2).tolist() == [[1.0]]


# ------------------------------------------------------------------------------------- caches, and what is gone


def test_from_cache_is_what_read_finds(batches):
    whole = attsvm.torch.read(made(), batches[:1], space="head")
    q, k = (
        torch.tensor(np.stack([getattr(head.given, name).reshape(2, 5, 3) for head in heads], 1))
        for name, heads in (("queries", whole), ("keys", whole[::2]))
    )
    mask, bias = torch.ones(5, 5).tril().bool(), torch.randn(4, 5, 5)
    prob = torch.softmax((0.5 * q @ k.repeat_interleave(2, 1).mT + bias).masked_fill(~mask, -math.inf), -1)
    for arrays in ((q, k, mask), (q.numpy(), k.numpy(), mask.numpy())):
        found = attsvm.torch.from_cache(*arrays, layer=3)
        assert [h.label for h in found] == ["L3H0", "L3H1", "L3H2", "L3H3"] and found[0].keys is found[1].keys
        for one, other, biased in zip(whole, found, attsvm.torch.from_cache(*arrays, 0.5, bias), strict=True):
            assert_allclose(one.attention(1), other.attention(1), atol=CLOSE)
            assert_allclose(biased.attention(0), prob[0, one.number], atol=CLOSE)


def test_the_words_of_a_cache_say_what_is_padding():
    q, words = torch.ones(2, 1, 3, 4), [["a", "b"], ["b", "c", "d"]]
    (head,) = attsvm.torch.from_cache(q, q, torch.ones(3, 3).tril().bool(), tokens=words)
    assert head.text.words == words and head.text.lengths.tolist() == [2, 3]
    assert np.isnan(head.attention(0)[2]).all() and head.attention(0)[1].tolist() == [0.5, 0.5, 0]
    (head,) = attsvm.torch.from_cache(q, q[:, :, :2], tokens=words[:1] * 2)  # queries in another sequence
    assert head.text.words == words[:1] * 2 and head.text.query_words is None and head.text.counts.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": torch.ones(2, 3, 6, 3)}, r"k must have shape \(B, G, T, m\)"),
        ({"mask": torch.ones(5, 5).bool()}, "mask must broadcast to"),
        ({"q": torch.ones(2, 4, 5, 3) * math.nan}, "q must be finite"),
        ({"q": None}, "q must .* got "),
        ({"mask": torch.ones(5, 6, dtype=torch.long)}, "mask must .* got "),  # 1 would be added to the logits
        ({"bias": ["a"]}, "bias must .* got "),
        ({"tokens": 3}, "tokens must .* got "),
        ({"threshold": 1.5}, "threshold must .* got "),
    ],
)
def test_a_cache_that_does_not_fit(change, message):
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        attsvm.torch.from_cache(**{"q": torch.ones(2, 4, 5, 3), "k": torch.ones(2, 2, 6, 3)} | change)


def test_a_forward_of_one_argument_gets_a_tuple_whole():
    model, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    forwards = (lambda batch: model(*batch), model.forward)
    whole, parts = (attsvm.torch.read(model, [(x, x, x)], forward=forward) for forward in forwards)
    assert_array_equal(whole[0].keys, parts[0].keys)
    for batch, forward, held in (
        ((x, x, x), lambda q, k: model(q, k, k), r"positions 1 to 3, got \(q, k\)"),
        ({"query": x}, lambda batch: model(**batch), r"names query, got \(batch\)"),
    ):
        with pytest.raises(TypeError, match=f"forward must take what a batch gives it by {held}"):
            attsvm.torch.read(model, [batch], forward=forward)


@torch.library.custom_op("attsvm_tests::linear", mutates_args=())
def quantized_linear(x: torch.Tensor, weight: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
    """A map with more arguments than torch's own, under the same name, as the kernels of quantized layers are."""
    return scale * x @ weight.mT + zero


def test_a_linear_map_of_another_kind_is_passed_over(batches):
    module, linear = made(), torch.ops.attsvm_tests.linear
    found = attsvm.torch.read(module, batches, forward=lambda x: module(linear(x, torch.eye(12), 0.5, 0)))
    assert [(h.layer, h.number, h.space) for h in found] == [(0, n, "residual") for n in range(4)]
