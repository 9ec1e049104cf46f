"""The memory arithmetic of a model: what a step should need, before it is measured. Pure.

`config` is a model's config.json as a dict. Lengths are tokens, sizes bytes; GB is 1e9 bytes and
GiB 2**30. What a config says of its layers is read in helpers.architecture, which raises LabError,
naming the field, for a config that lacks one, is not a decoder, or has a shape that no formula
here covers.
"""

import math
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from helpers.architecture import cache_layers, count, layer_parameters
from helpers.errors import LabError
from helpers.weights import checkpoint_bytes as checkpoint_bytes  # they belong to this arithmetic
from helpers.weights import checkpoint_parts as checkpoint_parts
from helpers.weights import parameters as parameters

SCALARS = "Give plain numbers: counts that are not negative; bits, bytes and batches above 0."


def weight_bytes(parameters, *, bits):
    """Bytes of `parameters` weights stored at `bits` bits each: parameters * bits / 8.

    Raises LabError for a negative count or a width that is not positive. A real checkpoint has
    scales, and layers kept at 16 bits, on top: `models.tensor_bytes` counts those.
    """
    if not _is_number(parameters, bits) or parameters < 0 or bits <= 0:
        raise LabError(f"{parameters} parameters at {bits} bits is not a model.", fix=SCALARS)
    return parameters * bits / 8


def kv_bytes_per_token(config, *, dtype_bytes=2):
    """Bytes by which one more token of a long sequence grows the KV cache, over all layers.

    Layers * 2 * KV heads * head_dim * dtype_bytes (a key and a value a head): MHA has as many KV
    heads as heads, GQA fewer, MQA one (Shazeer, arXiv:1911.02150; Ainslie et al., 2305.13245).
    MLA: layers * (kv_lora_rank + qk_rope_head_dim) * dtype_bytes, one latent and one rope key
    (DeepSeek-V2, 2405.04434, section 2.1). Layers with a sliding window stop growing at their
    window and are left out; see `kv_bytes`. 0 if all layers have one. Raises LabError.
    """
    _positive(dtype_bytes=dtype_bytes)
    return dtype_bytes * sum(layer.elements for layer in cache_layers(config) if layer.grows)


def kv_bytes(config, *, tokens, dtype_bytes=2):
    """Bytes of KV cache that a sequence of so many tokens needs.

    A full layer keeps all tokens, a sliding-window layer the last `window` of them (Beltagy et
    al., arXiv:2004.05150), and a cross-attention layer the encoder's positions, whatever the text
    (Whisper: max_source_positions, padded to that in each request). Raises LabError.
    """
    _positive(dtype_bytes=dtype_bytes)
    _not_negative(tokens=tokens)
    return dtype_bytes * sum(layer.elements * layer.kept(tokens) for layer in cache_layers(config))


def kv_cache_tokens(config, *, cache_bytes, block_size, dtype_bytes=2):
    """Tokens that vLLM's cache of `cache_bytes` holds: whole blocks, as its log line says.

    blocks = floor(cache_bytes / (block_size * bytes a token)); tokens = blocks * block_size
    (vllm/v1/core/kv_cache_utils.py). Raises LabError for models with sliding-window or
    cross-attention layers: there, how many tokens fit depends on how long each sequence is.
    """
    _positive(dtype_bytes=dtype_bytes, block_size=block_size)
    _not_negative(cache_bytes=cache_bytes)
    if not isinstance(block_size, Integral):
        raise LabError(f"block_size is {block_size}.", fix="Give a whole number of tokens.")
    if any(not layer.grows for layer in cache_layers(config)):
        raise LabError(
            "No single number of tokens fills this model's cache.",
            cause="Some layers keep a window or the encoder's output, the same for a long "
            "sequence as for a longer one: what fits depends on each sequence's length.",
            fix="Use kv_bytes(config, tokens=...) for each sequence, and add them up.")
    block_bytes = block_size * kv_bytes_per_token(config, dtype_bytes=dtype_bytes)
    return int(cache_bytes // block_bytes) * block_size


def decode_bytes_per_token(config, *, batch, context, weight_bits=16, kv_bytes=2,
                           include_lm_head=False):
    """Bytes read from memory for each token decoded by a batch of `batch` sequences.

    weights of the layers / batch + context * cache bytes a token: a step reads the weights once
    for all, and each sequence its own cache of `context` tokens. kv_bytes: bytes an element.

    Left out: the output projection (vocab_size * hidden_size * 2 / batch more; vLLM runs it
    outside the decode graph, so a probe of the graph does not see it; include_lm_head=True adds
    it, at 16 bits), the embedding's one row, activations, what is written, and what the L2 cache
    catches. Raises LabError, also for mixtures of experts: their reads depend on the routing.
    """
    _positive(batch=batch, weight_bits=weight_bits, kv_bytes=kv_bytes)
    _not_negative(context=context)
    layers = count(config, "num_hidden_layers") * layer_parameters(config)
    weights = weight_bytes(layers, bits=weight_bits)
    if include_lm_head:
        weights += 2 * count(config, "vocab_size") * count(config, "hidden_size")
    return weights / batch + _kv_bytes(config, tokens=context, dtype_bytes=kv_bytes)


_kv_bytes = kv_bytes  # where an argument has that name


@dataclass(frozen=True, slots=True)
class StepTime:
    """What one decode step costs; see `step_time`. Made by `fit_step_time`."""

    fixed_s: float  # seconds whatever the batch: the weights' read, and all that is done once
    sequence_s: float  # seconds for each sequence: arithmetic, sampling, sending
    bandwidth: float  # bytes a second at which the cache goes through; inf if it costs nothing


def step_time(fit, *, batch, cache_bytes):
    """Seconds of one decode step: fixed_s + batch * sequence_s + cache_bytes / bandwidth.

    cache_bytes: of all sequences of the batch together. Works on arrays too. Raises LabError for
    what is no number, or negative.
    """
    _columns(batch=batch, cache_bytes=cache_bytes)
    batch, cache_bytes = np.asarray(batch), np.asarray(cache_bytes)
    return fit.fixed_s + batch * fit.sequence_s + cache_bytes / fit.bandwidth


def fit_step_time(batch, cache_bytes, seconds):
    """The StepTime with the least relative errors (nnls: no term is negative).

    batch, cache_bytes, seconds: one value a measured step, of at least three steps whose batch
    and context were varied separately. Raises LabError when they were not: then the terms cannot
    be told apart. Also for what is no number, negative, or no time.
    """
    batch, cache_bytes, seconds = _columns(batch=batch, cache_bytes=cache_bytes, seconds=seconds)
    if not len(batch) == len(cache_bytes) == len(seconds) or not np.all(seconds > 0):
        raise LabError("These are not measured steps.", cause="Columns of different lengths, or "
                       "a step that took no time.", fix="Give one value of each for every step.")
    terms = np.column_stack([np.ones_like(batch), batch, cache_bytes])
    largest = terms.max(axis=0, initial=1e-300)  # not 0, which would divide
    scaled = terms / largest
    if len(scaled) < 3 or np.linalg.matrix_rank(scaled, tol=1e-3) < 3:
        raise LabError("These points cannot tell the three terms of a step apart.",
                       cause="Batch and context were not varied separately.",
                       fix="Give points at two batch sizes, and at two contexts for one of them.")
    from scipy.optimize import nnls  # takes a moment to import

    costs, _ = nnls(scaled / seconds[:, None], np.ones_like(seconds))
    fixed_s, sequence_s, per_byte = costs / largest
    return StepTime(float(fixed_s), float(sequence_s),
                    float(1 / per_byte) if per_byte else float("inf"))


def _positive(**values):
    for name, number in values.items():
        if not _is_number(number) or number <= 0:
            raise LabError(f"{name} is {number!r}.", fix=SCALARS)


def _not_negative(**values):
    for name, number in values.items():
        if not _is_number(number) or number < 0:
            raise LabError(f"{name} is {number!r}.", fix=SCALARS)


def _is_number(*things):
    return all(isinstance(thing, Real) and not isinstance(thing, bool) and math.isfinite(thing)
               for thing in things)


def _columns(**values):
    """Each of the values as an array of floats of one dimension."""
    columns = []
    for name, numbers in values.items():
        try:
            column = np.ravel(np.asarray(numbers, float))
        except (TypeError, ValueError):
            column = np.array([np.nan])
        if not np.all(np.isfinite(column)) or np.any(column < 0):
            raise LabError(f"{name} holds what is no number, or negative.", fix=SCALARS)
        columns.append(column)
    return columns
