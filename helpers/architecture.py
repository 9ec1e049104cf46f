"""What a model's config.json says of its layers: what each keeps in the cache, what it weighs.

The names of fields differ between families and ages: GPT-2 says n_layer, Falcon num_kv_heads or
multi_query, a model of text and images puts all of it under text_config. Read here, once, with
the tables of helpers.families. A field that is missing is an error, unless it follows from others.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from helpers import families
from helpers.errors import LabError

UNCOVERED = "No formula here covers such layers."


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


def text_part(config):
    """The part of a config that describes the model of text: most have no other."""
    if not isinstance(config, Mapping):
        raise LabError(f"This is no config: {str(config)[:60]!r}.", cause="It is not a dict.",
                       fix="Give models.config(name), or json.loads of a config.json.")
    for name in families.TEXT_PARTS:
        if isinstance(config.get(name), Mapping) and config[name]:
            return {"model_type": config.get("model_type"), **config[name]}
    return config


def value(config, name, *, default=None):
    """Field `name` under any of its names; LabError, naming it, where it is missing.

    For a model of several kinds of input, the one of its text part.
    """
    text = text_part(config)
    for alias in families.NAMES.get(name, (name,)):
        if text.get(alias) is not None:
            return text[alias]
    if default is None:
        raise _error(text, f"has no {name}", "Add the field, or take a complete config.json.")
    return default


def count(config, name, *, default=None):
    """The `value` of a field that counts something: a whole number, 1 or more, or LabError."""
    number = value(config, name, default=default)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise _error(text_part(config), f"has {name} {number!r}", "It is a whole number above 0.")
    return number


def cache_layers(config):
    """A Layer for each attention layer of the decoder."""
    text = text_part(config)
    _decoder(config, text)
    if config.get("is_encoder_decoder"):
        return _encoder_decoder(config)
    elements = _elements(text)
    return [Layer(elements, window) for window in _windows(text)]


def matrices(config):
    """(rows, columns) of the weight matrices of one layer: outputs by inputs.

    Queries, keys, values and output; gate, up and down of a gated MLP (Llama, Qwen, Mistral,
    Gemma). Raises LabError for other families, and for mixtures of experts.
    """
    cache_layers(config)  # says so if this is no decoder
    text = text_part(config)
    for field in families.EXPERTS:
        if text.get(field):
            raise _error(text, f"has {field}", "A step reads the experts that its tokens are "
                         "sent to: no config tells which.")
    family = value(text, "model_type")
    if family not in families.GATED:
        raise _error(text, f"has model_type {family!r}",
                     f"Weights are counted for {', '.join(sorted(families.GATED))}.")
    hidden, inner = count(text, "hidden_size"), count(text, "intermediate_size")
    queries = count(text, "num_attention_heads") * _head_dim(text)
    keys = _kv_heads(text) * _head_dim(text)
    return [(queries, hidden), (keys, hidden), (keys, hidden), (hidden, queries),
            (inner, hidden), (inner, hidden), (hidden, inner)]


def layer_parameters(config):
    """Weights of one layer: its `matrices`, norms and biases. Raises LabError as they do."""
    shapes, text = matrices(config), text_part(config)
    (queries, hidden), (keys, _), (inner, _) = shapes[0], shapes[1], shapes[4]
    family = text["model_type"]
    norms = hidden * (4 if family in ("gemma2", "gemma3_text") else 2)
    norms += 2 * _head_dim(text) if family in ("qwen3", "gemma3_text") else 0
    biases = 0
    if family == "qwen2" or text.get("attention_bias"):
        biases += queries + 2 * keys + (0 if family == "qwen2" else hidden)
    if text.get("mlp_bias"):
        biases += 2 * inner + hidden
    return sum(rows * columns for rows, columns in shapes) + norms + biases


def _decoder(config, text):
    """LabError if this model writes no text, or keeps its cache by a rule not known here."""
    names = config.get("architectures") or []
    if names and not any(str(name).endswith(families.DECODERS) for name in names):
        raise _error(config, f"has architectures {names}", "Only a decoder has a KV cache.")
    if config.get("model_type") in families.ENCODERS and not config.get("is_decoder"):
        raise _error(config, f"has model_type {config['model_type']!r}",
                     "Only a decoder has a KV cache.")
    for field in families.OTHER_SHAPES:
        if text.get(field):
            raise _error(text, f"has {field}", UNCOVERED)


def _elements(text):
    """What a layer keeps of one token, in numbers."""
    family, latent = text.get("model_type"), text.get("kv_lora_rank")
    if family in families.LATENT or latent and family is None:
        return count(text, "kv_lora_rank") + count(text, "qk_rope_head_dim")
    if latent:
        raise _error(text, f"has kv_lora_rank and model_type {family!r}", "What vLLM keeps of "
                     f"such a layer is known here for {', '.join(sorted(families.LATENT))}.")
    kv_heads, head_dim = _kv_heads(text), _head_dim(text)
    if (text.get("v_head_dim") or head_dim) != head_dim:
        raise _error(text, f"has v_head_dim {text['v_head_dim']}", UNCOVERED)
    return 2 * kv_heads * head_dim


def _kv_heads(text):
    """Falcon's multi_query means one; a config that names no KV heads has as many as heads."""
    heads, family = count(text, "num_attention_heads"), text.get("model_type")
    attention = text.get("attn_config") or {}  # MPT, DBRX
    one = text.get("multi_query", family in families.MULTI_QUERY)
    if one and not text.get("new_decoder_architecture"):
        return 1
    if attention.get("attn_type") == "multiquery_attention":
        return 1
    if text.get("multi_query_attention"):  # ChatGLM
        return count(text, "multi_query_group_num")
    if "kv_n_heads" in attention:
        return count(attention, "kv_n_heads")
    own = family in families.OWN_DEFAULT["num_key_value_heads"]
    found = count(text, "num_key_value_heads", default=None if own else heads)
    if heads % found:
        raise _error(text, f"has num_key_value_heads {found}, no divisor of {heads} heads",
                     "Heads share keys and values in groups of one size.")
    return found


def _head_dim(text):
    if value(text, "head_dim", default=0):
        return count(text, "head_dim")
    if text.get("model_type") in families.OWN_DEFAULT["head_dim"]:
        raise _error(text, "has no head_dim", "Add it: it does not follow from other fields.")
    width, heads = count(text, "hidden_size"), count(text, "num_attention_heads")
    if width % heads:
        raise _error(text, f"has hidden_size {width}, no multiple of num_attention_heads {heads}",
                     "Such a model names its head_dim.")
    return width // heads


def _windows(text):
    """The window of each layer, None where it keeps all."""
    layers, kinds = count(text, "num_hidden_layers"), text.get("layer_types")
    family, uses = text.get("model_type"), text.get("use_sliding_window")
    if kinds is not None:
        other = set(kinds) - {"full_attention", "sliding_attention"}
        if other or len(kinds) != layers:
            raise _error(text, f"has layer_types {sorted(other) or len(kinds)} for {layers} layers",
                         UNCOVERED)
        window = count(text, "sliding_window") if "sliding_attention" in kinds else None
        return [window if kind == "sliding_attention" else None for kind in kinds]
    if "sliding_window" not in text and family in families.OWN_DEFAULT["sliding_window"]:
        raise _error(text, "has no sliding_window", "Add it; null if no layer has a window.")
    if not text.get("sliding_window") or uses is False or not uses and _is_qwen(family):
        return [None] * layers
    window = count(text, "sliding_window")
    if uses:  # Qwen: the first layers keep all
        first = value(text, "max_window_layers")
        return [None if n < first else window for n in range(layers)]
    if text.get("sliding_window_pattern") or family in families.GLOBAL_EVERY:
        every = count(text, "sliding_window_pattern", default=families.GLOBAL_EVERY.get(family))
        return [None if (n + 1) % every == 0 else window for n in range(layers)]
    if family not in families.WINDOW_EVERYWHERE:
        raise _error(text, f"has sliding_window and no layer_types, and model_type {family!r}",
                     "Add layer_types: which of its layers have the window is not known here.")
    return [window] * layers


def _is_qwen(family):
    """Qwen's classes use their window only where use_sliding_window says so."""
    return str(family).startswith("qwen")


def _encoder_decoder(config):
    """Whisper: each decoder layer keeps its own text, and the encoder's output for all of it."""
    if config.get("model_type") not in (None, "whisper"):
        raise _error(config, f"has model_type {config['model_type']!r} and is_encoder_decoder",
                     "Of the encoder-decoders, Whisper's shape is covered.")
    heads, width = count(config, "decoder_attention_heads"), count(config, "d_model")
    elements = 2 * heads * (width // heads)
    own, cross = Layer(elements), Layer(elements, always=count(config, "max_source_positions"))
    return [layer for _ in range(count(config, "decoder_layers")) for layer in (own, cross)]


def _error(config, what, fix):
    name = config.get("_name_or_path") or config.get("model_type") or "this config"
    return LabError(f"{name} {what}.", cause="The formula needs a decoder of a known shape.",
                    fix=fix)
