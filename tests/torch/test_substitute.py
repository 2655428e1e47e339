"""Heads replaced while the model runs: by their own W, which changes nothing, and by what a twin computes by hand."""

import attsvm.torch
import numpy as np
import pytest
import torch
from attsvm.torch import substitute
from attsvm.torch.replacement import _recorded, as_form
from compare import close
from marks import slow
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from spellings import SPELLINGS, made

CLOSE = 5e-6  # of the largest value, in single precision: logits here are below 10


def run(model, batches):
    with torch.no_grad():
        return [model(*batch).numpy() for batch in batches]


@pytest.mark.parametrize("space", ["residual", "head"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_own_weights_change_nothing_and_others_do(spelling, space, batches):
    model = made(spelling)
    found = attsvm.torch.read(model, batches, space=space)
    own = run(model, batches)
    with substitute(model, {head: head.W for head in found}):
        same = run(model, batches)
    with substitute(model, {found[2]: -found[2].W}):
        other = run(model, batches)
    for x, y, z in zip(own, same, other, strict=True):
        close(y, x, CLOSE)
        assert_array_equal(z[:, [0, 1, 3]], x[:, [0, 1, 3]])
        assert np.abs(z[:, 2] - x[:, 2]).max() > 0.1
    assert_equal(run(model, batches), own)


def by_hand(head, value, b):
    """Attention of sequence b with the value in the head's place, from the head's own arrays."""
    text = head.text
    rows = slice(text.begin[b], text.begin[b] + text.lengths[b])
    x, z = text.keys[rows].astype(float), head.queries[rows].astype(float)
    seen, n = text.seen(b), text.lengths[b]
    prob = np.where(seen, 1.0, 0.0) / seen.sum(axis=1, keepdims=True)
    if isinstance(value, np.ndarray):
        left, sizes, right = np.linalg.svd(value)
        cut = (left[:, : head.rank] * sizes[: head.rank]) @ right[: head.rank]
        logits = np.where(seen, z @ cut.T @ x.T, -np.inf)
        prob = np.exp(logits - logits.max(axis=1, keepdims=True))
        return prob / prob.sum(axis=1, keepdims=True)
    if value == "none":
        return 0 * prob
    hard = attsvm.heads.hard_queries(head)
    for q in range(n) if value != "uniform" else ():
        if value == "nearest query":
            at = np.argmin([((z[q] - head.queries[text.query_begin[i] + p]) ** 2).sum() for i, p, _ in hard])
            copied = text.keys[text.begin[hard[at, 0]] + hard[at, 2]]
            token = min(np.flatnonzero(seen[q]), key=lambda t: ((x[t] - copied) ** 2).sum())
        else:
            token = {"first token": 0, "the query itself": q}.get(value, q - 2)
        if 0 <= token and seen[q, token]:
            prob[q] = np.arange(n) == token
    return prob


VALUES = ["uniform", "none", "offset -2", "the query itself", "first token", "nearest query", "array"]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("spelling", ["gqa", "@"])
def test_what_stands_in_the_place_of_a_head(spelling, value, batches):
    model = made(spelling)
    head = attsvm.torch.read(model, batches, threshold=0.6)[3]
    if value == "array":
        value = np.random.default_rng(0).standard_normal(head.W.shape)  # of full rank: 13, of which 3 stay
    with substitute(model, {head: value}):
        got = [x for batch in run(model, batches) for x in batch[:, 3]]
    values = [v for (x,) in batches for v in model.value(x).detach().unflatten(-1, (2, -1))[:, :, 1].numpy()]
    for b, (attended, v) in enumerate(zip(got, values, strict=True)):
        assert_allclose(attended, by_hand(head, value, b) @ v, atol=1e-5)


def test_padding_counts_neither_as_a_place_nor_as_a_token():
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    batch = dict.fromkeys(["query", "key", "value"], x) | {"key_padding_mask": torch.arange(5).expand(2, 5) < 2}
    found = attsvm.torch.read(model, [batch])
    with substitute(model, {found[0]: "first token", found[1]: "uniform"}):
        weights = model(**batch, average_attn_weights=False)[1]
    assert weights[:, 0].sum(1).tolist() == [[0, 0, 5, 0, 0]] * 2
    torch.testing.assert_close(weights[0, 1], torch.tensor([0, 0, 1, 1, 1.0]).expand(5, 5) / 3)


def test_a_scale_matches_the_mean_largest_attention(batches):
    model = made()
    head = attsvm.torch.read(model, batches)[1]
    W = 1e-3 * np.random.default_rng(0).standard_normal(head.W.shape)
    several, tops = head.text.stop - head.text.start > 1, []
    with substitute(model, {head: W}, scale="top"):
        assert attsvm.torch.read(model, batches)[1].module == head.module  # through the hooks of both
        for (x,) in batches:
            model(x)
            tops.append(model.seen[:, 1, 1:].amax(-1).flatten())
    assert torch.cat(tops).mean() == pytest.approx(head.choices.top[several].mean(), abs=1e-5)


class Biased(torch.nn.Module):
    """Half a logit less for every place between query and token."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.maps = torch.nn.ModuleList(torch.nn.Linear(12, 12) for _ in range(3))

    def forward(self, x):
        places = torch.arange(x.shape[1])
        q, k, v = (linear(x)[:, None] for linear in self.maps)
        bias = -0.5 * (places[:, None] - places).abs().float()
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def test_a_scale_is_that_of_the_bias_too(batches):
    """A W of the space with the bias scales it as it scales the products."""
    (head,) = attsvm.torch.read(Biased().eval(), batches)
    W = 1e-2 * np.random.default_rng(0).standard_normal(head.W.shape)
    W[-1, -1] = 3.0  # of the bias
    tops = [as_form(head, W, "top")(call).amax(-1).flatten() for call, _ in _recorded(head)]
    assert float(torch.cat(tops).mean()) == pytest.approx(head.choices.top.mean(), abs=1e-6)


def test_offsets_of_cross_attention_count_from_the_first_token_that_is_not_padding(batches):
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(8, 1, batch_first=True).eval()
    x, z = torch.randn(1, 6, 8), torch.randn(1, 3, 8)
    batch = {"query": z, "key": x, "value": x, "key_padding_mask": torch.arange(6)[None] < 2}
    (head,) = attsvm.torch.read(model, [batch])
    with substitute(model, {head: "the query itself"}):
        weights = model(**batch)[1]
    assert weights[0].tolist() == torch.eye(6)[2:5].tolist()


class Shared(torch.nn.Module):
    """Three calls of one layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x):
        for _ in range(3):
            x = x + self.part(x)
        return x

    def part(self, x):
        return self.layer(x, x, x, need_weights=False)[0]


def test_calls_that_share_weights_are_told_apart(batches):
    model = Shared().eval()
    found = attsvm.torch.read(model, batches)
    with torch.no_grad():
        (x,) = batches[0]
        first = x + model.part(x)
        with substitute(model.layer, {attsvm.torch.read(model.layer, [(first, first, first)])[1]: "none"}):
            second = first + model.part(first)
        expected = second + model.part(second)
        with substitute(model, {found[4]: "none"}):  # of the second call
            torch.testing.assert_close(model(x), expected)
        assert not torch.allclose(model(x), expected)


class Sink(torch.nn.Module):
    """One head, with a logit that no token has and a value of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key = torch.nn.Linear(12, 4), torch.nn.Linear(12, 4)

    def forward(self, x):
        logits = torch.cat([self.query(x) @ self.key(x).mT, torch.zeros(*x.shape[:2], 1)], -1)
        prob = torch.softmax(logits, -1)
        return prob[..., :-1] @ x + 5 * prob[..., -1:]


def test_a_sink_gets_the_rest(batches):
    model = Sink()
    (head,) = attsvm.torch.read(model, [(0.3 * x,) for (x,) in batches])
    x = 0.3 * batches[0][0]
    with torch.no_grad(), substitute(model, {head: head.W}):
        same = model(x)
    torch.testing.assert_close(same, model(x).detach(), atol=1e-5, rtol=1e-5)
    with substitute(model, {head: "none"}):
        assert not model(x).any()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_everything_is_undone(error, batches, monkeypatch):
    model = made()
    own, before = run(model, batches), dict(vars(model))
    (head, *_) = attsvm.torch.read(model, batches)
    with pytest.raises(error), substitute(model, {head: "none"}):
        monkeypatch.setattr(model.value, "forward", lambda x: (_ for _ in ()).throw(error()))
        run(model, batches)
    monkeypatch.undo()
    assert vars(model).keys() == before.keys() and "forward" not in vars(model)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert_equal(run(model, batches), own)


@pytest.mark.parametrize(
    "value, message",
    [
        (np.zeros((3, 3)), r"values\[L0H1\] must have shape \(dk, dz\) = \(13, 13\), got \(3, 3\)"),
        (np.full((13, 13), np.nan), r"values\[L0H1\] must be finite"),
        ("offset", r"values\[L0H1\] must be an array, 'uniform', 'none', 'offset \+1' .*, got 'offset'"),
        ("same word", "needs the tokens as text"),
        ("nearest query", "L0H1 has none that are hard"),
    ],
)
def test_values_that_do_not_fit(value, message, batches):
    model = made()
    head = attsvm.torch.read(model, [(0.1 * x,) for (x,) in batches])[1]
    with pytest.raises(ValueError, match=message), substitute(model, {head: value}):
        raise AssertionError("not reached")


def test_what_cannot_be_substituted_is_told(batches):
    model, shared = made(), Shared().eval()
    found, again, others = (attsvm.torch.read(one, batches) for one in (model, model, shared))

    def refused(message, model, values, run=run, **options):
        with pytest.raises((TypeError, ValueError), match=message), substitute(model, values, **options):
            run(model, batches)

    refused("model must be a torch.nn.Module", len, {})
    refused("values must be a dict", model, found)
    refused("a key of values must be a Head", model, {"L0H1": "none"})
    refused("scale must be one of 'top'", model, {}, scale="mean")
    refused("every head once, got L0H1", model, {found[1]: "none", again[1]: "none"})
    refused("it ran in , and the head was read in layer", model, {others[0]: "none"})
    refused(r"got one of layer 2: 1 attention calls ran", model, {others[7]: "none"})
    part = "the model itself must be called, got a call of its layer alone"
    refused(part, shared, {others[0]: "none"}, lambda model, batches: model.part(*batches[0]))
    model.key.weight.data += 1
    refused("L0H1 cannot be substituted, .*its keys are not what the head's weights make", model, {found[1]: "none"})


# ---------------------------------------------------------------------------------------- families of models

families = pytest.importorskip("model_families") if pytest.importorskip("transformers") else None

QUICK = [("bert", "sdpa"), ("llama", "sdpa"), ("t5", "eager"), ("gpt-oss", "eager")]
# Of the largest output: logits of these models reach 40, and what is 1e-7 of them goes through two layers.
# Largest 8e-5 (openai-gpt, whose padding sees what is hidden by -1e4, where logits are rounded to 1e-3), else 7e-6.
NEAR = 2e-4
ALL = [(name, way) for name in [*families.available(), *families.available(families.MORE)] for way in ("eager", "sdpa")]


@pytest.mark.parametrize("name, implementation", [pair if pair in QUICK else slow(*pair) for pair in ALL])
def test_own_weights_change_no_family(name, implementation):
    try:
        model = families.make(name, implementation)
    except ValueError as error:
        pytest.skip(str(error).splitlines()[0])
    text = families.ALL[name].takes in ("text", "pair")
    for padding in ("left", "right") if text else ("",):
        batches = families.batches(name, padding)
        found = attsvm.torch.read(model, batches)
        own = outputs(model, batches)
        with substitute(model, {head: head.W for head in found}):
            same = outputs(model, batches)
        with substitute(model, dict.fromkeys(found, "uniform")):
            other = outputs(model, batches)
        for x, y in zip(own, same, strict=True):
            assert_allclose(y, x, atol=NEAR * np.nanmax(np.abs(x[np.isfinite(x)])))
        assert max(np.nanmax(np.abs(x - y)) / np.nanmax(np.abs(x)) for x, y in zip(own, other, strict=True)) > 1e-3


def outputs(model, batches):
    with torch.no_grad():
        found = [x for batch in batches for x in model(**batch).values() if isinstance(x, torch.Tensor)]
    return [x.numpy() for x in found if x.is_floating_point()]


def test_keys_from_a_cache_are_refused():
    model, batches = families.make("gpt2", "sdpa"), families.batches("gpt2")
    found = attsvm.torch.read(model, batches)
    ids = batches[0]["input_ids"]
    past = model(ids[:, :4], use_cache=True).past_key_values
    with substitute(model, {found[0]: "none"}), pytest.raises(ValueError, match="use_cache=False"):
        model(ids[:, 4:5], past_key_values=past)
