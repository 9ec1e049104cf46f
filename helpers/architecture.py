"""What a model's config.json says of its layers: what each keeps in the cache, what it weighs.

The names of fields differ between families and ages: GPT-2 says n_layer, Falcon num_kv_heads or
multi_query, a model of text and images puts all of it under text_config. Read here, once.
"""

from dataclasses import dataclass

from helpers.errors import LabError

NAMES = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
}
DECODERS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
ENCODERS = {"bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta-v2", "modernbert",
            "vit", "clip", "siglip", "wav2vec2"}
# Layers that keep a state and no cache of keys and values, or keep it by a rule of their own.
OTHER_SHAPES = ("mamba_d_state", "mamba_d_ssm", "ssm_cfg", "state_size", "d_state",
                "attn_layer_period", "hybrid_override_pattern", "linear_num_value_heads",
                "_block_types", "attention_chunk_size", "num_kv_shared_layers", "index_topk",
                "compress_ratios")
# One layer in so many sees the whole text, in families whose config does not say which.
GLOBAL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6}
# Families with the layer that `layer_parameters` counts.
GATED = {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"}
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True)
class Layer:
    """What one attention layer keeps of a sequence."""

    elements: int  # for one token: keys and values of all KV heads, or one latent
    window: int | None = None  # tokens it keeps at most; None keeps all
    always: int | None = None  # tokens it keeps whatever the text is: the encoder's

    @property
    def grows(self):
        return self.window is None and self.always is None

    def kept(self, tokens):
        """Of a sequence of so many tokens, those in its cache."""
        return self.always or min(tokens, self.window or tokens)


def value(config, name, *, default=None):
    """Field `name` under any of its names; LabError, naming it, where it is missing.

    For a model of several kinds of input, the one of its text part.
    """
    config = config.get("text_config") or config
    for alias in NAMES.get(name, (name,)):
        if config.get(alias) is not None:
            return config[alias]
    if default is None:
        raise _error(config, f"has no {name}", "Add the field, or take a complete config.json.")
    return default


def cache_layers(config):
    """A Layer for each attention layer of the decoder."""
    _decoder(config)
    if config.get("is_encoder_decoder"):
        return _encoder_decoder(config)
    text = config.get("text_config") or config
    count, windows = value(config, "num_hidden_layers"), _windows(text)
    elements = _elements(text)
    return [Layer(elements, window) for window in windows or [None] * count]


def layer_parameters(config):
    """Weights of one layer: attention, gated MLP and norms (Llama, Qwen, Mistral, Gemma).

    hidden * head_dim * (2 * heads + 2 * KV heads) for the projections of queries, output, keys and
    values; 3 * hidden * intermediate_size for gate, up and down; norms and biases. Raises LabError
    for other families, and for mixtures of experts.
    """
    cache_layers(config)  # says so if this is no decoder
    text = config.get("text_config") or config
    for field in EXPERTS:
        if text.get(field):
            raise _error(text, f"has {field}", "A step reads the experts that its tokens are "
                         "sent to: no config tells which.")
    family = value(config, "model_type")
    if family not in GATED:
        raise _error(text, f"has model_type {family!r}",
                     f"Weights are counted for {', '.join(sorted(GATED))}.")
    hidden, heads = value(config, "hidden_size"), value(config, "num_attention_heads")
    kv_heads, head_dim = _kv_heads(text), _head_dim(text)
    projections = hidden * head_dim * (2 * heads + 2 * kv_heads)
    mlp = 3 * hidden * value(config, "intermediate_size")
    norms = hidden * (4 if family in ("gemma2", "gemma3_text") else 2)
    norms += 2 * head_dim if family in ("qwen3", "gemma3_text") else 0
    biased = family == "qwen2" or text.get("attention_bias")
    biases = head_dim * (heads + 2 * kv_heads) if biased else 0
    biases += hidden if text.get("attention_bias") else 0  # of the output projection
    return projections + mlp + norms + biases


def _decoder(config):
    """LabError if this model writes no text, or keeps no cache of keys and values."""
    names = config.get("architectures") or []
    if names and not any(name.endswith(DECODERS) for name in names):
        raise _error(config, f"has architectures {names}", "Only a decoder has a KV cache.")
    if config.get("model_type") in ENCODERS and not config.get("is_decoder"):
        raise _error(config, f"has model_type {config['model_type']!r}",
                     "Only a decoder has a KV cache.")
    text = config.get("text_config") or config
    for field in OTHER_SHAPES:
        if text.get(field) is not None:
            raise _error(text, f"has {field}", "No formula here covers such layers.")


def _elements(text):
    if text.get("kv_lora_rank"):
        return text["kv_lora_rank"] + value(text, "qk_rope_head_dim")
    return 2 * _kv_heads(text) * _head_dim(text)


def _kv_heads(text):
    """Falcon's multi_query means one; a config that names no KV heads has as many as heads."""
    if text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    return value(text, "num_key_value_heads", default=value(text, "num_attention_heads"))


def _head_dim(text):
    if text.get("head_dim"):
        return text["head_dim"]
    width, heads = value(text, "hidden_size"), value(text, "num_attention_heads")
    if width % heads:
        raise _error(text, f"has hidden_size {width}, no multiple of num_attention_heads {heads}",
                     "Such a model names its head_dim.")
    return width // heads


def _windows(text):
    """The window of each layer, None where it keeps all; None if no layer has one."""
    window, count = text.get("sliding_window"), value(text, "num_hidden_layers")
    kinds = text.get("layer_types")
    if kinds is None:
        if not window or text.get("use_sliding_window") is False:
            return None
        every = text.get("sliding_window_pattern") or GLOBAL_EVERY.get(text.get("model_type"))
        return [None if every and (n + 1) % every == 0 else window for n in range(count)]
    other = set(kinds) - {"full_attention", "sliding_attention"}
    if other or len(kinds) != count:
        raise _error(text, f"has layer_types {sorted(other) or len(kinds)} for {count} layers",
                     "No formula here covers such layers.")
    if "sliding_attention" in kinds:
        window = value(text, "sliding_window")
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _encoder_decoder(config):
    """Whisper: each decoder layer keeps its own text, and the encoder's output for all of it."""
    if config.get("model_type") not in (None, "whisper"):
        raise _error(config, f"has model_type {config['model_type']!r} and is_encoder_decoder",
                     "Of the encoder-decoders, Whisper's shape is covered.")
    heads, width = value(config, "decoder_attention_heads"), value(config, "d_model")
    elements = 2 * heads * (width // heads)
    own, cross = Layer(elements), Layer(elements, always=value(config, "max_source_positions"))
    return [layer for _ in range(value(config, "decoder_layers")) for layer in (own, cross)]


def _error(config, what, fix):
    name = config.get("_name_or_path") or config.get("model_type") or "this config"
    return LabError(f"{name} {what}.", cause="The formula needs a decoder of a known shape.",
                    fix=fix)
