"""What a deployment needs beside what its card has: weights, cache, and the rest. Pure."""

from dataclasses import dataclass

from helpers import memory
from helpers.architecture import cache_layers, text_part, value
from helpers.errors import LabError

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Need:
    """What so many users need of a card, made by `need`. Sizes are bytes."""

    card: float
    weights: float
    rest: float
    user: float  # the cache of one user
    users: int
    tokens: int  # that each user's cache holds

    @property
    def cache(self):
        return self.users * self.user

    @property
    def over(self):
        """Bytes that are missing; negative where some are left."""
        return self.weights + self.rest + self.cache - self.card

    @property
    def fitting(self):
        """Users that fit at once: floor((card - weights - rest) / cache of one), 0 at least."""
        return max(0, int((self.card - self.weights - self.rest) // self.user))

    @property
    def verdict(self):
        """One line that names the first number which does not fit: weights, rest, then cache."""
        beside = self.weights + self.rest
        if self.weights > self.card:
            return f"weights do not fit: {(self.weights - self.card) / GIB:.1f} GiB over"
        if beside > self.card:
            return f"the rest beside the weights does not fit: {(beside - self.card) / GIB:.1f} " \
                   "GiB over"
        what = f"{self.users} user{'s' * (self.users != 1)} at {self.tokens:,} tokens"
        if self.over > 0:
            return (f"cache for {what} does not fit: {self.over / GIB:.1f} GiB over\n"
                    f"{self.fitting} of {self.users} users fit")
        return f"cache for {what} fits: {-self.over / GIB:.1f} GiB left\n" \
               f"{self.fitting} users would fit"


def need(config, *, card_bytes, weight_bits, cache_bits, tokens, users, rest_bytes):
    """The Need of `users` sequences of `tokens` tokens each that share nothing.

    weights = parameters * weight_bits / 8 (no scales; `memory.weight_bytes`); cache =
    users * `memory.kv_bytes`, before block overhead, windows and cross-attention included.
    rest_bytes: working memory, libraries, the driver; an assumption until it was measured.
    Raises LabError for numbers that are not positive and for shapes with no formula.
    """
    if min(card_bytes, tokens, users) <= 0 or rest_bytes < 0:
        raise LabError("A card, its users and their tokens are positive numbers.",
                       fix="Give at least one user, one token and a card with memory.")
    weights = memory.weight_bytes(memory.parameters(config), bits=weight_bits)
    user = memory.kv_bytes(config, tokens=tokens, dtype_bytes=cache_bits / 8)
    return Need(card_bytes, weights, rest_bytes, user, users, tokens)


def countable(configs):
    """The names in {name: config} whose weights `memory.parameters` can count."""
    def counts(config):
        try:
            return memory.parameters(config) > 0
        except LabError:
            return False

    return [name for name, config in configs.items() if counts(config)]


def attention(config):
    """What the heads of a layer share: 'MHA', 'GQA', 'MQA' or 'MLA', and which layers do not grow.

    MHA: each head has its own keys and values. GQA: a group of heads shares one. MQA: all share
    one. MLA: one latent for all. '+ windows', '+ encoder': see `memory.kv_bytes`.
    """
    layers, text = cache_layers(config), text_part(config)
    extra = " + windows" if any(layer.window for layer in layers) else ""
    extra += " + encoder" if any(layer.always for layer in layers) else ""
    if text.get("kv_lora_rank"):
        return "MLA" + extra
    heads = text.get("decoder_attention_heads") or value(config, "num_attention_heads")
    width = text.get("head_dim") or value(config, "hidden_size") // heads
    kv_heads = layers[0].elements // (2 * width)
    return {heads: "MHA", 1: "MQA"}.get(kv_heads, "GQA") + extra
