"""What families of models call the fields of their config.json, and which shape each has: tables.

What a config leaves out, the family's code fills in (transformers' configuration classes, which
vLLM uses). helpers.architecture reads configs with these tables.
"""

TEXT_PARTS = ("text_config", "language_config", "llm_config")
NAMES = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "hidden_size": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads",
                            "num_query_groups", "num_attention_groups"),
    "head_dim": ("head_dim", "kv_channels"),
}
DECODERS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ChatGLMModel")
ENCODERS = {"bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta-v2", "modernbert",
            "vit", "clip", "siglip", "wav2vec2"}
# Layers that keep a state and no cache of keys and values, or keep it by a rule of their own.
OTHER_SHAPES = (
    "mamba_d_state", "mamba_d_ssm", "ssm_cfg", "state_size", "d_state", "attn_layer_period",
    "hybrid_override_pattern", "hybrid_layer_pattern", "layers_block_type", "block_types",
    "_block_types", "block_configs", "linear_num_value_heads", "linear_attn_config",
    "attn_type_list", "layer_group_size", "full_attn_idxs", "attention_chunk_size",
    "num_kv_shared_layers", "use_cla", "cross_attention_layers", "add_cross_attention",
    "global_head_dim", "swa_num_key_value_heads", "attention_other_setting",
    "num_key_value_heads_per_layer", "index_topk", "compress_ratios")
# Families whose code fills in a number of its own where the field is missing.
OWN_DEFAULT = {
    "num_key_value_heads": {
        "exaone4", "gemma", "gemma2", "gemma3", "gemma3_text", "glm", "glm4", "glm4_moe",
        "gpt_oss", "ministral", "mistral", "mixtral", "phimoe", "qwen2", "qwen2_5_vl", "qwen2_moe",
        "qwen2_vl", "qwen3", "qwen3_moe", "qwen3_vl", "seed_oss", "smollm3", "starcoder2"},
    "head_dim": {"gemma", "gemma2", "gemma3", "gemma3_text", "glm", "glm4", "gpt_oss", "qwen3",
                 "qwen3_vl", "seed_oss"},
    "sliding_window": {"cohere2", "exaone4", "gemma2", "gemma3", "gemma3_text", "gpt_oss",
                       "ministral", "mistral", "olmo3"},
}
MULTI_QUERY = {"falcon", "gpt_bigcode"}  # one KV head, unless the config says otherwise
LATENT = {"deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"}  # vLLM keeps MLA's latent
# One layer in so many sees the whole text, in families whose config does not say which.
GLOBAL_EVERY = {"cohere2": 4, "gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gpt_oss": 2}
# Where a window is one of all layers; None: the config names no family.
WINDOW_EVERYWHERE = {None, "mistral", "mixtral", "phi3", "phi3_v", "phimoe", "starcoder2"}
# Families with the layer that `layer_parameters` counts.
GATED = {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"}
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
