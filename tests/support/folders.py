"""Small models in folders that transformers loads, trained for some seconds on the example sentences."""

import math

import tokenizers
import torch
import transformers
from attsvm import heads

END = "<|endoftext|>"
WIDTH, LAYERS, HEADS, LONGEST = 64, 2, 4, 64
CONFIGS = {
    "gpt2": lambda n: transformers.GPT2Config(
        vocab_size=n, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=LONGEST, attn_pdrop=0, resid_pdrop=0
    ),
    "llama": lambda n: transformers.LlamaConfig(
        vocab_size=n, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS // 2, max_position_embeddings=LONGEST,
    ),
}  # fmt: skip


def write_tokenizer(folder):
    """Byte pairs of the example sentences."""
    pairs = tokenizers.Tokenizer(tokenizers.models.BPE())
    pairs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=1000, special_tokens=[END], show_progress=False)
    pairs.train_from_iterator(heads.example_sentences(), trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=pairs, eos_token=END, pad_token=END)
    tokenizer.save_pretrained(folder)
    return tokenizer


def write_language_model(folder, kind):
    """A causal model that predicts the next token of the example sentences.

    Plain steps of AdamW at a large rate: in so few, heads that select something appear only then.
    """
    tokenizer = write_tokenizer(folder)
    torch.manual_seed(0)
    config = CONFIGS[kind](len(tokenizer))
    config.bos_token_id = config.eos_token_id = config.pad_token_id = tokenizer.eos_token_id
    model = transformers.AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = [tokenizer(sentence)["input_ids"][:32] for sentence in heads.example_sentences()]
    rows = [row for row in rows if len(row) == 32]
    order = torch.Generator().manual_seed(0)
    for step in range(150):
        optimizer.param_groups[0]["lr"] = 1e-2 * math.cos(0.5 * math.pi * step / 150)
        chosen = torch.randint(len(rows), (32,), generator=order)
        ids = torch.tensor([rows[i] for i in chosen])
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder
