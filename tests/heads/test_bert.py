"""BERT read in NumPy: file format, tokenizer, forward pass, and what a head is given."""

from __future__ import annotations

import json
import math

import attsvm
import numpy as np
import pytest
from attsvm import heads
from attsvm.heads.bert import gelu
from bert import (
    CONFIG,
    SPECIAL,
    WORDS,
    packaged_model,
    tiny_sentences,
    tiny_weights,
    torch_forward,
    write_folder,
    write_safetensors,
)


@pytest.fixture
def folder(tmp_path, rng):
    return write_folder(tmp_path, tiny_weights(rng))


@pytest.fixture
def sentences(rng):
    return tiny_sentences(rng, 40)


# Accents, Chinese, control and zero-width characters, long and unknown words, every kind of space and dash.
STRANGE = [
    "Crème brûlée, naïve café - ÀÉÎÕÜ ß ø İstanbul",
    "中文和English混合。日本語テキスト",
    "tabs\tand\nnew lines\u00a0and\u2003wide\u200bzero width\u00adsoft\ufeff marks",
    "x" * 101 + " " + "y" * 100 + " antidisestablishmentarianism",
    "don't stop-believing (really?) ... $100 = €90 + 5% ^_^ `code` ~tilde| \u2014 \u2018quoted\u2019",
    "",
    "   ",
    "E=mc²; H₂O; ½ cup; 10⁻⁹ \U0001f600 ok",
    "\x00null \ufffd replacement \x7f delete",
    "Ａｆｕｌｌ width, ﬁ ligature, Ω ohm, ǅ titlecase",
]


@pytest.mark.peer
def test_tokenizer_agrees_with_tokenizers():
    tokenizers = pytest.importorskip("tokenizers")
    folder = packaged_model()
    peer = tokenizers.Tokenizer.from_file(folder + "/tokenizer.json")
    peer.no_padding()
    peer.no_truncation()
    ours = heads.read_bert(folder).tokenizer
    for sentence in [*STRANGE, *heads.example_sentences()]:
        assert ours.encode(sentence) == peer.encode(sentence).ids, sentence


def test_words_are_cut_into_the_longest_pieces(folder):
    tokenizer = heads.read_bert(folder).tokenizer
    assert [tokenizer.tokens[i] for i in tokenizer.encode("The CATS, never-ceasing dogsed!")] == (
        ["[CLS]", "the", "cat", "##s", ",", "never", "[UNK]", "[UNK]", "dog", "##s", "##ed", "!", "[SEP]"]
    )


def test_accents_and_case_stay_where_the_model_has_them(folder):
    assert heads.read_bert(folder).tokenizer.words("É A") == ["e", "a"]
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert heads.read_bert(folder).tokenizer.words("É A") == ["É", "A"]


def test_safetensors_of_every_type(tmp_path, rng):
    arrays = {
        "a": rng.standard_normal((3, 4)).astype(np.float32),
        "b": rng.standard_normal(5),
        "c": rng.standard_normal((2, 1, 2)).astype(np.float16),
        "d": np.arange(3),
    }
    write_safetensors(tmp_path / "x.safetensors", arrays)
    found = heads.read_safetensors(tmp_path / "x.safetensors")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_bfloat16_is_widened(tmp_path):
    header = json.dumps({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    body = (np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + body)
    assert heads.read_safetensors(tmp_path / "x")["x"].tolist() == [1.5, -2.0]


@pytest.mark.peer
def test_safetensors_agrees_with_the_package():
    peer = pytest.importorskip("safetensors.numpy")
    path = packaged_model() + "/model.safetensors"
    found, expected = heads.read_safetensors(path), peer.load_file(path)
    assert set(found) == set(expected)
    assert all(np.array_equal(found[name], array) for name, array in expected.items())


def test_gelu_is_exact():
    x = np.concatenate([np.linspace(-12, 12, 20_001), [0.0, -40.0, 40.0]])
    expected = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x]
    np.testing.assert_allclose(gelu(x), expected, rtol=0, atol=3e-13)  # erf to 3e-14, times x up to 12


def test_forward_agrees_with_torch(folder, sentences):
    pytest.importorskip("torch")
    _compare_with_torch(folder, sentences, CONFIG, np.float64, 1e-11)  # rounding, with logits of about 30


@pytest.mark.peer
def test_forward_of_the_real_model_agrees_with_torch():
    pytest.importorskip("torch")
    folder = packaged_model()
    with open(folder + "/config.json") as file:
        _compare_with_torch(folder, heads.example_sentences()[:20], json.load(file), np.float32, 1e-5)


def _compare_with_torch(folder, sentences, config, dtype, tolerance):
    """Layer inputs and output, of order 1 to 10, to the tolerance; attention to 1e-5, since keys are kept in single
    precision."""
    model = heads.read_bert(folder)
    weights = heads.read_safetensors(f"{folder}/model.safetensors")
    ids = [model.tokenizer.encode(sentence) for sentence in sentences]
    ours = list(model.inputs(ids, model.layers + 1))
    found = model.read(sentences)
    for i, some in enumerate(ids):
        states, attention = torch_forward(weights, config, some, dtype)
        for layer, expected in enumerate(states):
            np.testing.assert_allclose(ours[layer][i], expected, rtol=0, atol=tolerance)
        for head in found:
            np.testing.assert_allclose(head.attention(i), attention[head.layer][head.number], rtol=0, atol=1e-5)


def test_heads_are_given_the_inputs_of_their_layer(folder, sentences):
    model = heads.read_bert(folder)
    found = model.read(sentences)
    assert [(head.layer, head.number) for head in found] == [(layer, h) for layer in range(2) for h in range(3)]
    ids = [model.tokenizer.encode(sentence) for sentence in sentences]
    inputs = list(model.inputs(ids, 2))
    for head in found:
        keys = np.concatenate(inputs[head.layer])
        np.testing.assert_array_equal(head.text.keys[:, :-1], keys.astype(np.float32))
        assert (head.text.keys[:, -1] == 1).all() and head.text.lengths.tolist() == list(map(len, ids))
        assert head.K.shape == head.Q.shape == (13, 4)
    (one,) = {id(head.text) for head in found[:3]}
    assert one != id(found[3].text)
    only = model.read(sentences, layers=[1])
    assert [head.layer for head in only] == [1, 1, 1]
    np.testing.assert_array_equal(only[0].text.keys, found[3].text.keys)


@pytest.mark.parametrize("causal", [False, True])
def test_from_arrays_is_attention(causal, rng):
    """Against the definition, head by head, biases and all."""
    X = [rng.standard_normal((T, 6)) for T in (3, 1, 5)]
    Wq, Wk = rng.standard_normal((2, 8, 6))
    bq, bk = rng.standard_normal((2, 8))
    found = heads.from_arrays(X, Wq, bq, Wk, bk, heads=4, causal=causal)
    for h, head in enumerate(found):
        part = slice(2 * h, 2 * h + 2)
        for i, x in enumerate(X):
            logits = (x @ Wq[part].T + bq[part]) @ (x @ Wk[part].T + bk[part]).T / math.sqrt(2)
            if causal:
                logits[np.triu_indices(len(x), 1)] = -np.inf
            np.testing.assert_allclose(head.logits(i), logits, atol=1e-13)
            prob = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            np.testing.assert_allclose(head.attention(i), prob, atol=1e-13)
            ones = np.append(x, np.ones((len(x), 1)), axis=1)
            if not causal:
                np.testing.assert_allclose(ones @ head.W @ ones.T, logits.T, atol=1e-12)


def test_missing_biases_are_zero_and_scale_is_ours(rng):
    X, (Wq, Wk) = rng.standard_normal((2, 3, 6)), rng.standard_normal((2, 4, 6))
    (head,) = heads.from_arrays(X, Wq, None, Wk, None, scale=2.0)
    np.testing.assert_allclose(head.logits(1), 2 * X[1] @ Wq.T @ Wk @ X[1].T, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Wq": np.ones((4, 5))}, r"Wq must have shape \(heads \* m, d\) = \(heads \* m, 6\), got \(4, 5\)"),
        ({"Wk": np.ones((3, 6))}, "Wk must have 4 rows, or 4 for each key head that query heads share, got 3"),
        ({"bq": np.ones(3)}, r"bq must have shape .* = \(4,\), got \(3,\)"),
        ({"bk": [np.nan] * 4}, "bk must be finite"),
        ({"heads": 3}, "Wq must have a multiple of heads = 3 rows, got 4"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"inputs": np.ones((2, 3))}, r"inputs must have shape \(n, T, d\), got \(2, 3\)"),
        ({"tokens": [["a", "b", "c"]]}, "tokens must name every token of the 2 sentences"),
        ({"scale": np.inf}, "scale must be a finite number"),
    ],
)
def test_from_arrays_names_what_does_not_fit(change, message):
    good = {"inputs": np.ones((2, 3, 6)), "Wq": np.ones((4, 6)), "bq": None, "Wk": np.ones((4, 6)), "bk": None}
    with pytest.raises(ValueError, match=message):
        heads.from_arrays(**{**good, **change})


def test_read_names_what_does_not_fit(folder):
    model = heads.read_bert(folder)
    assert repr(model) == "<attsvm Bert: 2 layers of 3 heads, d=12>"
    with pytest.raises(TypeError, match="sentences must be a list of str"):
        model.read("the cat")
    with pytest.raises(TypeError, match="sentences must be a list of str"):
        model.read([1])
    with pytest.raises(ValueError, match="sentences and layers must not be empty"):
        model.read([])
    with pytest.raises(ValueError, match=r"layers must lie in 0 .. 1, got \[2\]"):
        model.read(["the cat"], layers=[2])
    with pytest.raises(ValueError, match=r"sentences\[1\] has 22 tokens, the model takes 16"):
        model.read(["the cat", "a " * 20])


@pytest.mark.parametrize("missing", ["config.json", "vocab.txt", "model.safetensors"])
def test_a_missing_file_is_named(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(FileNotFoundError, match=missing):
        heads.read_bert(folder)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", json.dumps({**CONFIG, "model_type": "gpt2"}), "must have model_type 'bert', got 'gpt2'"),
        ("config.json", json.dumps({**CONFIG, "hidden_act": "relu"}), "must have hidden_act 'gelu', got 'relu'"),
        ("config.json", json.dumps({"model_type": "bert"}), "config.json has no num_hidden_layers"),
        ("config.json", "[", "config.json is not JSON"),
        ("vocab.txt", "\n".join(WORDS), r"has no \[CLS\]"),
        ("model.safetensors", "short", "is not a safetensors file"),
        ("model.safetensors", "", "is not a safetensors file"),
    ],
)
def test_a_folder_that_is_no_bert_is_refused(folder, name, text, message):
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        heads.read_bert(folder)


def test_a_missing_weight_is_named(folder, rng):
    weights = tiny_weights(rng)
    del weights["encoder.layer.1.output.dense.bias"]
    write_safetensors(folder / "model.safetensors", weights)
    with pytest.raises(ValueError, match=r"has no encoder.layer.1.output.dense.bias"):
        heads.read_bert(folder)


def test_prefixed_weights_are_found(folder, rng, sentences):
    plain = heads.read_bert(folder).read(sentences)[0].text.keys
    weights = heads.read_safetensors(folder / "model.safetensors")
    renamed = {"bert." + name: np.array(array) for name, array in weights.items()}
    write_safetensors(folder / "model.safetensors", renamed)
    np.testing.assert_array_equal(heads.read_bert(folder).read(sentences)[0].text.keys, plain)
    assert len(SPECIAL) == 5 and attsvm.heads is heads
