"""Bytes of compressed checkpoints: sums written out here, and llmcompressor's own files."""

import pytest

from helpers import compress, memory, models, weights
from helpers.errors import LabError

# hidden 256, 8 heads and 2 KV heads of 32, MLP 1024: 10 layers
LLAMA = {"model_type": "llama", "num_hidden_layers": 10, "hidden_size": 256,
         "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1024,
         "vocab_size": 1000, "tie_word_embeddings": True}
MATRICES = 10 * (256 * 256 * 2 + 64 * 256 * 2 + 1024 * 256 * 3)
ROWS = 10 * (256 + 64 + 64 + 256 + 1024 + 1024 + 256)
KEPT = 2 * (1000 * 256 + 256 + 10 * 2 * 256)  # embedding, final norm, norms


def test_by_hand():
    assert weights.checkpoint_bytes(LLAMA, scheme="BF16") == 2 * MATRICES + KEPT
    for scheme in ("INT8", "FP8"):
        assert weights.checkpoint_bytes(LLAMA, scheme=scheme) == MATRICES + 2 * ROWS + KEPT
    four = MATRICES // 2 + 2 * MATRICES // 128 + 10 * 7 * 16 + KEPT
    assert weights.checkpoint_bytes(LLAMA, scheme="4-bit") == four
    assert weights.checkpoint_bytes(LLAMA, scheme="4-bit", group=64) == four + 2 * MATRICES // 128


def test_an_output_projection_of_its_own_stays_at_16_bits():
    both = LLAMA | {"tie_word_embeddings": False}
    for scheme in weights.BITS:
        more = (weights.checkpoint_bytes(both, scheme=scheme)
                - weights.checkpoint_bytes(LLAMA, scheme=scheme))
        assert more == 2 * 1000 * 256


@pytest.mark.parametrize("shape", ["Qwen3-0.6B", "Qwen2.5-1.5B-Instruct", "Llama-3.1-8B",
                                   "gemma-2-9b"])
def test_the_original_is_two_bytes_a_weight_and_parts_add_up(shape):
    config = models.config(f"shape:{shape}")
    assert weights.checkpoint_bytes(config, scheme="BF16") == 2 * memory.parameters(config)
    for scheme in weights.BITS:
        parts = memory.checkpoint_parts(config, scheme=scheme)
        assert sum(parts.values()) == memory.checkpoint_bytes(config, scheme=scheme)


@pytest.mark.parametrize("scheme", ["FP8", "INT8", "4-bit"])
def test_to_the_byte_what_llmcompressor_wrote(scheme):
    made = compress.make("smollm2-135m", scheme=scheme)
    on_disk = sum(models.tensor_bytes(made).values())
    assert weights.checkpoint_bytes(models.config("smollm2-135m"), scheme=scheme) == on_disk


def test_groups_fit_the_widths():
    assert weights.group_size(LLAMA) == 128
    assert weights.group_size(models.config("smollm2-135m")) == 64
    with pytest.raises(LabError, match="No group of weights fits widths of \\[96, 256"):
        weights.group_size(LLAMA | {"hidden_size": 96, "head_dim": 32})


def test_what_is_refused():
    with pytest.raises(LabError, match="no scheme 'INT4'"):
        weights.checkpoint_bytes(LLAMA, scheme="INT4")
    with pytest.raises(LabError, match="experts"):
        weights.checkpoint_bytes(LLAMA | {"num_local_experts": 8}, scheme="INT8")
