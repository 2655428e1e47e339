"""Tiny random models of many families, and the batches they take."""

from __future__ import annotations

import torch
import transformers as tf
from model_sizes import CLIP, GEMMA, GQA, IMAGE, LIKE_GPT2, ROPE, SEQ2SEQ, SIZES, D, H, L, T, V
from more_model_families import MORE, PARTLY, REFUSED

# name: configuration class, its sizes, model class, what it takes, attention calls of a forward pass
FAMILIES = {
    "bert": ("BertConfig", SIZES, "BertModel", "text", 2),
    "roberta": ("RobertaConfig", {**SIZES, "max_position_embeddings": 64}, "RobertaModel", "text", 2),
    "distilbert": ("DistilBertConfig", dict(vocab_size=V, dim=D, n_layers=L, n_heads=H, hidden_dim=48),
        "DistilBertModel", "text", 2),
    "albert": ("AlbertConfig", {**SIZES, "embedding_size": 16}, "AlbertModel", "text", 2),
    "deberta-v2": ("DebertaV2Config",
        {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8,
            "max_position_embeddings": 64, "share_att_key": True}, "DebertaV2Model", "text", 2),
    "modernbert": ("ModernBertConfig",
        {**ROPE, "local_attention": 4, "num_hidden_layers": 3, "global_attn_every_n_layers": 3, "cls_token_id": 1,
            "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2, "reference_compile": False}, "ModernBertModel",
        "text", 3),
    "gpt2": ("GPT2Config", LIKE_GPT2, "GPT2Model", "text", 2),
    "gpt2-inverse": ("GPT2Config", {**LIKE_GPT2, "scale_attn_by_inverse_layer_idx": True}, "GPT2Model", "text", 2),
    "gpt-neo": ("GPTNeoConfig",
        dict(vocab_size=V, hidden_size=D, num_layers=2, num_heads=H, attention_types=[[["global", "local"], 1]],
            window_size=4, max_position_embeddings=64), "GPTNeoModel", "text", 2),
    "gpt-j": ("GPTJConfig", {**LIKE_GPT2, "rotary_dim": 4}, "GPTJModel", "text", 2),
    "gpt-neox": ("GPTNeoXConfig", {**ROPE, "rotary_pct": 0.5}, "GPTNeoXModel", "text", 2),
    "opt": ("OPTConfig",
        dict(vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=H, ffn_dim=48,
            max_position_embeddings=64, word_embed_proj_dim=D, pad_token_id=0), "OPTModel", "text", 2),
    "bloom": ("BloomConfig", dict(vocab_size=V, hidden_size=D, n_layer=L, n_head=H), "BloomModel", "text", 2),
    "falcon": ("FalconConfig", dict(vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=H),
        "FalconModel", "text", 2),
    "falcon-alibi": ("FalconConfig",
        dict(vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=H, alibi=True), "FalconModel",
        "text", 2),
    "mpt": ("MptConfig", dict(vocab_size=V, d_model=D, n_layers=L, n_heads=H, expansion_ratio=2, max_seq_len=64),
        "MptModel", "text", 2),
    "llama": ("LlamaConfig", GQA, "LlamaModel", "text", 2),
    "mistral": ("MistralConfig", {**GQA, "sliding_window": 4}, "MistralModel", "text", 2),
    "qwen2": ("Qwen2Config", GQA, "Qwen2Model", "text", 2),
    "qwen3": ("Qwen3Config", {**GQA, "head_dim": 8}, "Qwen3Model", "text", 2),
    "gemma2": ("Gemma2Config", {**GEMMA, "attn_logit_softcapping": 2.0}, "Gemma2Model", "text", 2),
    "gemma3": ("Gemma3TextConfig", GEMMA, "Gemma3TextModel", "text", 2),
    "phi": ("PhiConfig", ROPE, "PhiModel", "text", 2),
    "olmo2": ("Olmo2Config", GQA, "Olmo2Model", "text", 2),
    "gpt-oss": ("GptOssConfig",
        {**GQA, "head_dim": 8, "sliding_window": 4, "num_local_experts": 4, "num_experts_per_tok": 2}, "GptOssModel",
        "text", 2),
    "vit": ("ViTConfig", {**CLIP, **IMAGE}, "ViTModel", "image", 2),
    "dinov2": ("Dinov2Config", {**CLIP, **IMAGE}, "Dinov2Model", "image", 2),
    "clip-vision": ("CLIPVisionConfig", {**CLIP, **IMAGE}, "CLIPVisionModel", "image", 2),
    "clip-text": ("CLIPTextConfig", {**CLIP, "vocab_size": V, "max_position_embeddings": 32, "eos_token_id": 2},
        "CLIPTextModel", "text", 2),
    "swin": ("SwinConfig",
        dict(image_size=32, patch_size=2, num_channels=3, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
        "SwinModel", "wide image", 4),
    "t5": ("T5Config",
        dict(vocab_size=V, d_model=D, d_kv=8, d_ff=48, num_layers=L, num_heads=H, decoder_start_token_id=0), "T5Model",
        "pair", 6),
    "bart": ("BartConfig", SEQ2SEQ, "BartModel", "pair", 6),
    "whisper": ("WhisperConfig", {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 32},
        "WhisperModel", "sound", 6),
}  # fmt: skip


ALL = FAMILIES | MORE | REFUSED | PARTLY

# Factors on the matrices at birth, so that attention is hard here and there.
SCALES = dict.fromkeys("bert roberta distilbert albert deberta-v2 modernbert vit dinov2 swin".split(), 20.0)
SCALES |= {"t5": 1.0, "clip-vision": 3.0, "clip-text": 3.0}
SCALE = 6.0


def available(families: dict = FAMILIES) -> list[str]:
    return [name for name, (config, _, model, _, _) in families.items() if hasattr(tf, config) and hasattr(tf, model)]


def make(name: str, implementation: str, seed: int = 0) -> torch.nn.Module:
    """The model, its matrices larger than at birth."""
    config, sizes, model, _, _ = ALL[name]
    torch.manual_seed(seed)
    made = getattr(tf, model)._from_config(getattr(tf, config)(**sizes), attn_implementation=implementation)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(SCALES.get(name, SCALE))
    return made.eval()


def batches(name: str, padding: str = "") -> list[dict]:
    """Two batches of two; with ``padding`` ("left", "right") the second entry is shorter."""
    kind = ALL[name][3]
    generator = torch.Generator().manual_seed(1)
    found = []
    for length in (T, T - 2):
        if kind == "wave":
            found.append({"input_values": torch.randn(2, 64, generator=generator)})
            continue
        if kind.endswith("image"):
            size = 32 if kind == "wide image" else 16
            found.append({"pixel_values": torch.randn(2, 3, size, size, generator=generator)})
            continue
        ids = torch.randint(3, V, (2, length), generator=generator)
        mask = torch.ones_like(ids)
        if padding == "left":
            mask[1, :3] = 0
        elif padding == "right":
            mask[1, -3:] = 0
        batch = {"input_ids": ids, "attention_mask": mask}
        if kind == "pair":
            batch["decoder_input_ids"] = torch.randint(3, V, (2, 6), generator=generator)
        elif kind == "sound":
            sound = torch.randn(2, 8, 20, generator=generator)
            batch = {"input_features": sound, "decoder_input_ids": torch.randint(3, V, (2, 6), generator=generator)}
        found.append(batch)
    return found


def attentions(model: torch.nn.Module, batch: dict) -> list[torch.Tensor]:
    """What the model itself says, in the order of its attention calls; (B, H, S, T) each."""
    with torch.no_grad():
        out = model(**batch, output_attentions=True)
    if getattr(out, "encoder_attentions", None) is None:
        return list(out.attentions)
    pairs = zip(out.decoder_attentions, out.cross_attentions, strict=True)
    return [*out.encoder_attentions, *(one for pair in pairs for one in pair)]
