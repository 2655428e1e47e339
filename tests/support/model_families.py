"""Tiny random models of many families, by their names in transformers, and the batches they take."""

from typing import Any, NamedTuple

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

V, D, L, H, T = 50, 32, 2, 4, 10  # vocabulary, width, layers, heads, tokens
CLIP = dict(hidden_size=D, num_hidden_layers=L, num_attention_heads=H, intermediate_size=48)
SIZES = dict(**CLIP, vocab_size=V)
LONGEST = dict(max_position_embeddings=64)
LONGER = SIZES | LONGEST
LIKE_GPT2 = dict(vocab_size=V, n_positions=32, n_embd=D, n_layer=L, n_head=H)
ROPE = dict(**LONGER, pad_token_id=0)
GQA = dict(**ROPE, num_key_value_heads=2)
GEMMA = dict(**GQA, head_dim=8, query_pre_attn_scalar=8, sliding_window=4)
ENDS = dict(bos_token_id=1, eos_token_id=2)
EXPERTS = dict(num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16)
VISION = dict(**CLIP, image_size=16, patch_size=4, num_channels=3)
FALCON = dict(vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=H)
DEBERTA = dict(**LONGER, relative_attention=True, pos_att_type=["c2p", "p2c"])
T5 = dict(vocab_size=V, d_model=D, d_kv=8, d_ff=48, num_layers=L, num_heads=H, decoder_start_token_id=0)
SEQ2SEQ = dict(**LONGEST, **ENDS, vocab_size=V, d_model=D, encoder_layers=L, decoder_layers=L, encoder_ffn_dim=48,
               decoder_ffn_dim=48, encoder_attention_heads=H, decoder_attention_heads=H, pad_token_id=0,
               decoder_start_token_id=1)  # fmt: skip
SOUND = dict(**SIZES, conv_dim=[16, 16], conv_kernel=[4, 4], conv_stride=[2, 2], num_feat_extract_layers=2,
             num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)  # fmt: skip


class Family(NamedTuple):
    sizes: dict[str, Any]
    takes: str = "text"
    calls: int = 2  # of attention in a forward pass


def alike(names, *family):
    return dict.fromkeys(names.split(), Family(*family))


def text(**families):
    return {name.replace("_", "-"): Family(sizes) for name, sizes in families.items()}


# fmt: off
FAMILIES = {
    **alike("bert", SIZES), **alike("roberta", LONGER), **alike("gpt2", LIKE_GPT2), **alike("phi", ROPE),
    **alike("llama qwen2 olmo2", GQA), **alike("vit dinov2 clip-vision", VISION, "image"),
    **text(
        distilbert=dict(vocab_size=V, dim=D, n_layers=L, n_heads=H, hidden_dim=48),
        albert=dict(**SIZES, embedding_size=16),
        deberta_v2=dict(**DEBERTA, position_buckets=8, share_att_key=True),
        gpt2_inverse=dict(**LIKE_GPT2, scale_attn_by_inverse_layer_idx=True),
        gpt_neo=dict(**LONGEST, vocab_size=V, hidden_size=D, num_layers=2, num_heads=H, window_size=4,
                     attention_types=[[["global", "local"], 1]]),
        gpt_j=dict(**LIKE_GPT2, rotary_dim=4),
        gpt_neox=dict(**ROPE, rotary_pct=0.5),
        opt=dict(**FALCON, **LONGEST, ffn_dim=48, word_embed_proj_dim=D, pad_token_id=0),
        bloom=dict(vocab_size=V, hidden_size=D, n_layer=L, n_head=H),
        falcon=FALCON,
        falcon_alibi=dict(**FALCON, alibi=True),
        mpt=dict(vocab_size=V, d_model=D, n_layers=L, n_heads=H, expansion_ratio=2, max_seq_len=64),
        mistral=dict(**GQA, sliding_window=4),
        qwen3=dict(**GQA, head_dim=8),
        gemma2=dict(**GEMMA, attn_logit_softcapping=2.0),
        gemma3=GEMMA,
        gpt_oss=dict(**GQA, head_dim=8, sliding_window=4, num_local_experts=4, num_experts_per_tok=2),
        clip_text=dict(**CLIP, vocab_size=V, max_position_embeddings=32, eos_token_id=2),
    ),
    "modernbert": Family(
        {**ROPE, **ENDS, "local_attention": 4, "num_hidden_layers": 3, "global_attn_every_n_layers": 3,
         "cls_token_id": 1, "sep_token_id": 2, "reference_compile": False}, "text", 3),
    "swin": Family(dict(image_size=32, patch_size=2, num_channels=3, embed_dim=16, depths=[2, 2], num_heads=[2, 4],
                        window_size=4), "wide image", 4),
    "t5": Family(T5, "pair", 6),
    "bart": Family(SEQ2SEQ, "pair", 6),
    "whisper": Family(dict(**SEQ2SEQ, num_mel_bins=8, max_source_positions=10, max_target_positions=32), "sound", 6),
}
# Beyond these, what people will try: read in the space of tokens, or of heads.
RESIDUAL = {
    **alike("openai-gpt gpt-bigcode", LIKE_GPT2), **alike("xlm-r mpnet", LONGER), **alike("biogpt", SIZES),
    **alike("deit dinov2-registers", VISION, "image"), **alike("wav2vec2 hubert", SOUND, "wave"),
    **alike("mbart pegasus m2m100 blenderbot", SEQ2SEQ, "pair", 6),
    **text(
        xglm=dict(**LONGEST, vocab_size=V, d_model=D, num_layers=L, attention_heads=H, ffn_dim=48, pad_token_id=0),
        electra=dict(**SIZES, embedding_size=16),
        bigbird=dict(**LONGER, attention_type="original_full"),
        deberta=DEBERTA,
    ),
    "beit": Family(dict(**VISION, use_relative_position_bias=True), "image"),
    "segformer": Family(
        dict(hidden_sizes=[8, 16], depths=[1, 1], num_encoder_blocks=2, sr_ratios=[2, 1], num_attention_heads=[1, 2],
             patch_sizes=[3, 3], strides=[2, 2], mlp_ratios=[2, 2]), "wide image"),
    "marian": Family(dict(**SEQ2SEQ, decoder_vocab_size=V), "pair", 6),
}
ROTARY = {
    **alike("phi3 cohere starcoder2 nemotron", GQA | ENDS), **alike("olmo granite", GQA),
    **alike("roformer", LONGER), **alike("persimmon", ROPE | ENDS), **alike("dinov3", VISION, "image"),
    **text(
        stablelm=dict(**GQA, partial_rotary_factor=0.5),
        cohere2=dict(**GQA, **ENDS, sliding_window=4),
        mixtral=dict(**GQA, num_local_experts=2, num_experts_per_tok=1),
        gemma=dict(**GQA, head_dim=8),
        glm=dict(**GQA, **ENDS, head_dim=8),
        qwen2_moe=dict(**GQA, **EXPERTS, shared_expert_intermediate_size=16),
        qwen3_moe=dict(**GQA, **EXPERTS, head_dim=8),
        deepseek_v3=dict(**ROPE, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8,
                         qk_rope_head_dim=8, v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_group=2,
                         topk_group=1, first_k_dense_replace=1, moe_intermediate_size=16, n_shared_experts=1),
        llama4=dict(**GQA, **ENDS, head_dim=8, intermediate_size_mlp=48, num_local_experts=2),
        codegen=dict(**LIKE_GPT2, rotary_dim=4),
        esm=dict(**LONGER, position_embedding_type="rotary", pad_token_id=0, mask_token_id=3),
        xlnet=dict(vocab_size=V, d_model=D, n_head=H, n_layer=L, d_inner=48),
    ),
}
MORE = RESIDUAL | ROTARY
# No softmax over q.k of tokens side by side: refused, with the reason.
REFUSED = text(
    nystromformer=dict(**LONGER, num_landmarks=2, segment_means_seq_len=10),
    longformer=dict(**LONGER, attention_window=4),
    mamba=dict(vocab_size=V, hidden_size=D, num_hidden_layers=L),
    fnet={k: v for k, v in SIZES.items() if k != "num_attention_heads"},
)
# The decoder alone is read: the encoder attends in chunks cut out of the sequence, as Longformer does.
LED = {k: v for k, v in SEQ2SEQ.items() if k != "max_position_embeddings"}
PARTLY = {
    "led": Family(dict(**LED, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64,
                       attention_window=4), "pair", 4),
    "long-t5": Family(dict(**T5, local_radius=3), "pair", 4),
    "long-t5-global": Family(dict(**T5, local_radius=3, encoder_attention_type="transient-global",
                                  global_block_size=4), "pair", 4),
}
# fmt: on
ALL = FAMILIES | MORE | REFUSED | PARTLY
# What transformers calls them, where that is another name.
CALLED = {"gpt2-inverse": "gpt2", "gpt-j": "gptj", "falcon-alibi": "falcon", "gemma3": "gemma3_text"}
CALLED |= {"clip-vision": "clip_vision_model", "clip-text": "clip_text_model", "xlm-r": "xlm-roberta"}
CALLED |= {"bigbird": "big_bird", "dinov2-registers": "dinov2_with_registers", "m2m100": "m2m_100"}
CALLED |= {"llama4": "llama4_text", "dinov3": "dinov3_vit", "long-t5": "longt5", "long-t5-global": "longt5"}

# Factors on the matrices at birth, so that attention is hard here and there.
SCALES = dict.fromkeys("bert roberta distilbert albert deberta-v2 modernbert vit dinov2 swin".split(), 20.0)
SCALES |= {"t5": 1.0, "clip-vision": 3.0, "clip-text": 3.0}
SCALE = 6.0


def called(name):
    name = CALLED.get(name, name)
    return name if name in CONFIG_MAPPING else name.replace("-", "_")


def available(families=FAMILIES):
    return [name for name in families if called(name) in CONFIG_MAPPING]


def make(name, implementation, seed=0):
    """The model, its matrices larger than at birth."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(called(name), **ALL[name].sizes)
    made = transformers.AutoModel.from_config(config, attn_implementation=implementation)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(SCALES.get(name, SCALE))
    return made.eval()


def batches(name, padding=""):
    """Two batches of two; with ``padding`` ("left", "right") the second entry is shorter."""
    kind, generator, found = ALL[name].takes, torch.Generator().manual_seed(1), []

    def words(length):
        return torch.randint(3, V, (2, length), generator=generator)

    def normal(*shape):
        return torch.randn(2, *shape, generator=generator)

    for length in (T, T - 2):
        if kind == "wave":
            found.append({"input_values": normal(64)})
            continue
        if kind.endswith("image"):
            size = 32 if kind == "wide image" else 16
            found.append({"pixel_values": normal(3, size, size)})
            continue
        ids = words(length)
        mask = torch.ones_like(ids)
        if padding:
            mask[1, :3] = 0
        batch = {"input_ids": ids, "attention_mask": mask.flip(1) if padding == "right" else mask}
        if kind == "sound":
            batch = {"input_features": normal(8, 20)}
        if kind in ("pair", "sound"):
            batch["decoder_input_ids"] = words(6)
        found.append(batch)
    return found


def attentions(model, batch):
    """What the model itself says, in the order of its attention calls; (B, H, S, T) each."""
    with torch.no_grad():
        out = model(**batch, output_attentions=True)
    if getattr(out, "encoder_attentions", None) is None:
        return list(out.attentions)
    pairs = zip(out.decoder_attentions, out.cross_attentions, strict=True)
    return [*out.encoder_attentions, *(one for pair in pairs for one in pair)]
