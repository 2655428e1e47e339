"""Further families of models, beyond those of ``model_families``: what people will try."""

from __future__ import annotations

from model_sizes import CLIP, GQA, IMAGE, LIKE_GPT2, ROPE, SEQ2SEQ, SIZES, D, H, L, V

VISION = {**CLIP, **IMAGE}
ENDS = {"bos_token_id": 1, "eos_token_id": 2}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
SOUND = dict(hidden_size=D, num_hidden_layers=L, num_attention_heads=H, intermediate_size=48, vocab_size=V,
             conv_dim=[16, 16], conv_kernel=[4, 4], conv_stride=[2, 2], num_feat_extract_layers=2,
             num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)  # fmt: skip

# As in model_families: configuration class, its sizes, model class, what it takes, attention calls of a forward pass.
RESIDUAL = {
    "openai-gpt": ("OpenAIGPTConfig", LIKE_GPT2, "OpenAIGPTModel", "text", 2),
    "gpt-bigcode": ("GPTBigCodeConfig", LIKE_GPT2, "GPTBigCodeModel", "text", 2),
    "biogpt": ("BioGptConfig", SIZES, "BioGptModel", "text", 2),
    "xglm": (
        "XGLMConfig",
        dict(vocab_size=V, d_model=D, num_layers=L, attention_heads=H, ffn_dim=48, max_position_embeddings=64,
             pad_token_id=0),
        "XGLMModel", "text", 2,
    ),
    "xlm-r": ("XLMRobertaConfig", {**SIZES, "max_position_embeddings": 64}, "XLMRobertaModel", "text", 2),
    "electra": ("ElectraConfig", {**SIZES, "embedding_size": 16}, "ElectraModel", "text", 2),
    "mpnet": ("MPNetConfig", {**SIZES, "max_position_embeddings": 64}, "MPNetModel", "text", 2),
    "bigbird": (
        "BigBirdConfig", {**SIZES, "max_position_embeddings": 64, "attention_type": "original_full"}, "BigBirdModel",
        "text", 2,
    ),
    "deberta": (
        "DebertaConfig",
        {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_position_embeddings": 64},
        "DebertaModel", "text", 2,
    ),
    "deit": ("DeiTConfig", VISION, "DeiTModel", "image", 2),
    "beit": ("BeitConfig", {**VISION, "use_relative_position_bias": True}, "BeitModel", "image", 2),
    "dinov2-registers": ("Dinov2WithRegistersConfig", VISION, "Dinov2WithRegistersModel", "image", 2),
    "segformer": (
        "SegformerConfig",
        dict(hidden_sizes=[8, 16], depths=[1, 1], num_encoder_blocks=2, sr_ratios=[2, 1], num_attention_heads=[1, 2],
             patch_sizes=[3, 3], strides=[2, 2], mlp_ratios=[2, 2]),
        "SegformerModel", "wide image", 2,
    ),
    "wav2vec2": ("Wav2Vec2Config", SOUND, "Wav2Vec2Model", "wave", 2),
    "hubert": ("HubertConfig", SOUND, "HubertModel", "wave", 2),
    "mbart": ("MBartConfig", SEQ2SEQ, "MBartModel", "pair", 6),
    "pegasus": ("PegasusConfig", SEQ2SEQ, "PegasusModel", "pair", 6),
    "marian": ("MarianConfig", {**SEQ2SEQ, "decoder_vocab_size": V}, "MarianModel", "pair", 6),
    "m2m100": ("M2M100Config", SEQ2SEQ, "M2M100Model", "pair", 6),
    "blenderbot": ("BlenderbotConfig", SEQ2SEQ, "BlenderbotModel", "pair", 6),
}  # fmt: skip
ROTARY = {
    "phi3": ("Phi3Config", {**GQA, **ENDS}, "Phi3Model", "text", 2),
    "stablelm": ("StableLmConfig", {**GQA, "partial_rotary_factor": 0.5}, "StableLmModel", "text", 2),
    "olmo": ("OlmoConfig", GQA, "OlmoModel", "text", 2),
    "cohere": ("CohereConfig", {**GQA, **ENDS}, "CohereModel", "text", 2),
    "cohere2": ("Cohere2Config", {**GQA, **ENDS, "sliding_window": 4}, "Cohere2Model", "text", 2),
    "mixtral": ("MixtralConfig", {**GQA, "num_local_experts": 2, "num_experts_per_tok": 1}, "MixtralModel", "text", 2),
    "starcoder2": ("Starcoder2Config", {**GQA, **ENDS}, "Starcoder2Model", "text", 2),
    "gemma": ("GemmaConfig", {**GQA, "head_dim": 8}, "GemmaModel", "text", 2),
    "granite": ("GraniteConfig", GQA, "GraniteModel", "text", 2),
    "glm": ("GlmConfig", {**GQA, **ENDS, "head_dim": 8}, "GlmModel", "text", 2),
    "nemotron": ("NemotronConfig", {**GQA, **ENDS}, "NemotronModel", "text", 2),
    "qwen2-moe": ("Qwen2MoeConfig", {**GQA, **EXPERTS, "shared_expert_intermediate_size": 16}, "Qwen2MoeModel", "text",
                  2),
    "qwen3-moe": ("Qwen3MoeConfig", {**GQA, **EXPERTS, "head_dim": 8}, "Qwen3MoeModel", "text", 2),
    "deepseek-v3": (
        "DeepseekV3Config",
        {**ROPE, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
         "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
         "topk_group": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 16, "n_shared_experts": 1},
        "DeepseekV3Model", "text", 2,
    ),
    "llama4": (
        "Llama4TextConfig", {**GQA, **ENDS, "head_dim": 8, "intermediate_size_mlp": 48, "num_local_experts": 2},
        "Llama4TextModel", "text", 2,
    ),
    "persimmon": ("PersimmonConfig", {**ROPE, **ENDS}, "PersimmonModel", "text", 2),
    "codegen": ("CodeGenConfig", {**LIKE_GPT2, "rotary_dim": 4}, "CodeGenModel", "text", 2),
    "esm": (
        "EsmConfig",
        {**SIZES, "max_position_embeddings": 64, "position_embedding_type": "rotary", "pad_token_id": 0,
         "mask_token_id": 3},
        "EsmModel", "text", 2,
    ),
    "roformer": ("RoFormerConfig", {**SIZES, "max_position_embeddings": 64}, "RoFormerModel", "text", 2),
    "xlnet": ("XLNetConfig", dict(vocab_size=V, d_model=D, n_head=H, n_layer=L, d_inner=48), "XLNetModel", "text", 2),
    "dinov3": ("DINOv3ViTConfig", VISION, "DINOv3ViTModel", "image", 2),
}  # fmt: skip
MORE = RESIDUAL | ROTARY
# No softmax over q.k of tokens side by side: refused, with the reason.
REFUSED = {
    "nystromformer": (
        "NystromformerConfig",
        {**SIZES, "max_position_embeddings": 64, "num_landmarks": 2, "segment_means_seq_len": 10}, "NystromformerModel",
        "text", 0,
    ),
    "longformer": (
        "LongformerConfig", {**SIZES, "max_position_embeddings": 64, "attention_window": 4}, "LongformerModel", "text",
        0,
    ),
    "mamba": ("MambaConfig", dict(vocab_size=V, hidden_size=D, num_hidden_layers=L), "MambaModel", "text", 0),
    "fnet": ("FNetConfig", {k: v for k, v in SIZES.items() if k != "num_attention_heads"}, "FNetModel", "text", 0),
}  # fmt: skip
# The decoder alone is read: the encoder attends in chunks cut out of the sequence, as Longformer does.
SHORT = {k: v for k, v in SEQ2SEQ.items() if k != "max_position_embeddings"}
LONG_T5 = dict(vocab_size=V, d_model=D, d_kv=8, d_ff=48, num_layers=L, num_heads=H, decoder_start_token_id=0,
               local_radius=3)  # fmt: skip
PARTLY = {
    "led": (
        "LEDConfig",
        {**SHORT, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64, "attention_window": 4},
        "LEDModel", "pair", 4,
    ),
    "long-t5": ("LongT5Config", LONG_T5, "LongT5Model", "pair", 4),
    "long-t5-global": (
        "LongT5Config", {**LONG_T5, "encoder_attention_type": "transient-global", "global_block_size": 4},
        "LongT5Model", "pair", 4,
    ),
}  # fmt: skip
