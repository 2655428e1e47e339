"""Sizes of tiny models, by the names that families of models have for them."""

from __future__ import annotations

V, D, L, H, T = 50, 32, 2, 4, 10  # vocabulary, width, layers, heads, tokens
SIZES = dict(hidden_size=D, num_hidden_layers=L, num_attention_heads=H, intermediate_size=48, vocab_size=V)
LIKE_GPT2 = dict(vocab_size=V, n_positions=32, n_embd=D, n_layer=L, n_head=H)
ROPE = dict(**SIZES, max_position_embeddings=64, pad_token_id=0)
GQA = dict(**ROPE, num_key_value_heads=2)
GEMMA = dict(**GQA, head_dim=8, query_pre_attn_scalar=8, sliding_window=4)
IMAGE = dict(image_size=16, patch_size=4, num_channels=3)
CLIP = dict(hidden_size=D, num_hidden_layers=L, num_attention_heads=H, intermediate_size=48)
SEQ2SEQ = dict(vocab_size=V, d_model=D, encoder_layers=L, decoder_layers=L, encoder_attention_heads=H,
               decoder_attention_heads=H, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64,
               pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)  # fmt: skip
