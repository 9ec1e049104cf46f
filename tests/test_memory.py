"""The memory arithmetic against published figures, the study's, and sums written out here."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from helpers import memory, models, study
from helpers.errors import LabError

# Bytes of cache by which a token grows a long sequence, at 2 bytes an element.
A_TOKEN = {
    # layers * 2 * KV heads * head size * 2
    "Qwen3-0.6B": 28 * 2 * 8 * 128 * 2,  # head_dim 128, not 1024 / 16
    "Qwen2.5-1.5B-Instruct": 28 * 2 * 2 * (1536 // 12) * 2,
    "gpt2": 12 * 2 * 12 * (768 // 12) * 2,  # MHA
    "opt-13b": 800 * 1024,  # "800 KB of space": PagedAttention, arXiv:2309.06180, section 3
    "falcon-7b": 32 * 2 * 1 * (4544 // 71) * 2,  # MQA: one KV head, whatever num_kv_heads says
    "Llama-3.1-8B": 128 * 1024,  # the tutorial's worked example has this shape
    "Llama-3.1-70B": 320 * 1024,  # 80 * 2 * 8 * 128 * 2
    "Llama-3.1-405B": 516_096,  # 516.096 KB: DeepSeek-V3, arXiv:2505.09343, table 1
    "Qwen2.5-72B-Instruct": 327_680,  # 327.680 KB, the same table
    "DeepSeek-V3": 70_272,  # 70.272 KB, the same table: 61 * (512 + 64) * 2
    "gemma-2-9b": 21 * 2 * 8 * 256 * 2,  # 21 of 42 layers see the whole text
    "gemma-3-1b-it": 4 * 2 * 1 * 256 * 2,  # layers 6, 12, 18 and 24 of 26
    "gpt-oss-20b": 12 * 2 * 8 * 64 * 2,  # 12 of 24
    "Mistral-7B-v0.1": 0,  # a window everywhere
    "whisper-small": 12 * 2 * 12 * (768 // 12) * 2,
    "whisper-tiny": 4 * 2 * 384 * 2,
}
# What else a sequence holds once it is long: layers with a window, cross-attention.
CONSTANT = {
    "gemma-2-9b": 21 * 2 * 8 * 256 * 2 * 4096,
    "gemma-3-1b-it": 22 * 2 * 1 * 256 * 2 * 512,
    "gpt-oss-20b": 12 * 2 * 8 * 64 * 2 * 128,
    "Mistral-7B-v0.1": 32 * 2 * 8 * 128 * 2 * 4096,
    "whisper-small": 12 * 2 * 12 * 64 * 2 * 1500,  # 30 s of sound are 1500 positions
    "whisper-tiny": 4 * 2 * 384 * 2 * 1500,
}
# Weights as the models' pages on the hub count them.
WEIGHTS = {
    "Qwen3-0.6B": 596_049_920,
    "Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Qwen2.5-72B-Instruct": 72_706_203_648,
    "Mistral-7B-v0.1": 7_241_732_096,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b-it": 999_885_952,
}
LLAMA = {"model_type": "llama", "num_hidden_layers": 10, "hidden_size": 256,
         "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1024,
         "vocab_size": 1000, "tie_word_embeddings": True}
OLD = {"n_layer": 10, "n_head": 8, "n_embd": 256}
MISTRAL = LLAMA | {"model_type": "mistral", "sliding_window": 16}
QWEN = LLAMA | {"model_type": "qwen2", "sliding_window": 16, "max_window_layers": 7}
A_HEAD = 10 * 2 * 32 * 2  # bytes a token for each KV head of these
MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}


def shape(name):
    return models.config(f"shape:{name}")


def without(config, name):
    return {key: value for key, value in config.items() if key != name}


@pytest.mark.parametrize(("bits", "gigabytes"), [(16, 140), (8, 70), (4, 35)])
def test_weights_of_70_billion_parameters(bits, gigabytes):
    assert memory.weight_bytes(70e9, bits=bits) == gigabytes * 1e9


def test_every_shape_that_ships_is_tested():
    assert sorted(A_TOKEN) == models.shapes()


@pytest.mark.parametrize("name", A_TOKEN)
def test_cache_of_shapes_that_ship(name):
    config, a_token, constant = shape(name), A_TOKEN[name], CONSTANT.get(name, 0)
    assert memory.kv_bytes_per_token(config) == a_token
    assert memory.kv_bytes_per_token(config, dtype_bytes=1) == a_token / 2
    assert memory.kv_bytes(config, tokens=10_000) == constant + 10_000 * a_token
    assert memory.kv_bytes(config, tokens=10_001, dtype_bytes=1) == (
        constant + 10_001 * a_token) / 2


def test_the_tutorials_worked_example():
    config = shape("Llama-3.1-8B")
    assert memory.kv_bytes_per_token(config) == study.value("tutorial_kv_bytes_per_token") * 1024
    a_request = memory.kv_bytes(config, tokens=study.value("tutorial_kv_request_tokens"))
    assert a_request == study.value("tutorial_kv_request") * 2**20
    assert a_request * study.value("tutorial_kv_requests") == 10 * 2**30


def test_what_grows_and_what_is_constant_around_a_window():
    config, grows, window = shape("gemma-2-9b"), A_TOKEN["gemma-2-9b"], 4096
    half = grows  # the layers with a window are as many, and keep as much of a token
    for tokens in (0, 1, window - 1, window):  # below it, all layers keep all
        assert memory.kv_bytes(config, tokens=tokens) == tokens * (grows + half)
    for tokens in (window + 1, 2 * window):
        assert memory.kv_bytes(config, tokens=tokens) == tokens * grows + window * half


def test_a_window_everywhere_is_a_ceiling():
    sizes = [memory.kv_bytes(shape("Mistral-7B-v0.1"), tokens=n) for n in (4095, 4096, 4097, 10**6)]
    assert sizes[0] < sizes[1] == sizes[2] == sizes[3]


def test_whisper_keeps_the_sound_before_any_text():
    assert memory.kv_bytes(shape("whisper-small"), tokens=0) == CONSTANT["whisper-small"]


@pytest.mark.parametrize(("config", "kv_heads"), [
    (OLD | {"model_type": "gpt2"}, 8),
    (OLD | {"model_type": "gpt_bigcode", "multi_query": True}, 1),
    (OLD | {"model_type": "gpt_bigcode", "multi_query": False}, 8),
    (OLD | {"model_type": "gpt_bigcode"}, 1),  # as its class has it
    (OLD | {"model_type": "RefinedWebModel", "multi_query": True}, 1),
    (OLD | {"model_type": "RefinedWeb", "n_head_kv": 4}, 4),
    (without(OLD, "n_embd") | {"model_type": "bloom", "n_embed": 256}, 8),
    (without(LLAMA, "num_key_value_heads"), 8),
    (LLAMA | {"model_type": "falcon", "num_kv_heads": 8, "multi_query": True,
              "new_decoder_architecture": False}, 1),
    (without(LLAMA, "num_key_value_heads") | {
        "model_type": "falcon", "num_kv_heads": 4, "multi_query": True,
        "new_decoder_architecture": True}, 4),
    ({"model_type": "mpt", "n_layers": 10, "n_heads": 8, "d_model": 256}, 8),
    ({"model_type": "mpt", "n_layers": 10, "n_heads": 8, "d_model": 256,
      "attn_config": {"attn_type": "multiquery_attention"}}, 1),
    ({"model_type": "dbrx", "n_layers": 10, "n_heads": 8, "d_model": 256,
      "attn_config": {"kv_n_heads": 2}}, 2),
    ({"model_type": "chatglm", "architectures": ["ChatGLMModel"], "num_layers": 10,
      "num_attention_heads": 8, "hidden_size": 256, "kv_channels": 32,
      "multi_query_attention": True, "multi_query_group_num": 2}, 2),
    ({"dim": 256, "n_layers": 10, "n_heads": 8, "n_kv_heads": 2, "head_dim": 32}, 2),  # Mistral's
    (LLAMA | {"model_type": "mixtral", "sliding_window": None, "num_local_experts": 8}, 2),
    (LLAMA | {"model_type": "qwen3_moe", "num_experts": 128, "head_dim": 32}, 2),
    (LLAMA | {"model_type": "cohere", "num_key_value_heads": 8}, 8),
    (LLAMA | {"head_dim": 64}, 4),  # explicit: twice as much as 256 / 8
    (LLAMA | {"head_dim": None}, 2),
    (LLAMA | {"hidden_size": 250, "head_dim": 32}, 2),  # no multiple, and none is needed
    (LLAMA | {"architectures": ["LlamaForCausalLM"]}, 2),
    ({"architectures": ["LlavaForConditionalGeneration"], "text_config": LLAMA,
      "vision_config": {"num_hidden_layers": 3}}, 2),
    ({"model_type": "deepseek_vl_v2", "language_config": LLAMA}, 2),
])
def test_names_of_older_and_other_families(config, kv_heads):
    assert memory.kv_bytes_per_token(config) == A_HEAD * kv_heads


@pytest.mark.parametrize(("config", "windows"), [
    (MISTRAL, 10),
    (MISTRAL | {"sliding_window": None}, 0),
    (MISTRAL | {"model_type": "phi3"}, 10),  # vLLM: all layers, where no layer_types are named
    (MISTRAL | {"model_type": "starcoder2"}, 10),
    (QWEN, 0),  # the classes of Qwen have the window off
    (QWEN | {"use_sliding_window": False}, 0),
    (QWEN | {"use_sliding_window": True}, 3),  # all but the first 7
    (QWEN | {"use_sliding_window": True, "max_window_layers": 10}, 0),
    (LLAMA | {"model_type": "cohere2", "sliding_window": 16, "sliding_window_pattern": 4}, 8),
    (LLAMA | {"model_type": "gemma2", "sliding_window": 16, "head_dim": 32}, 5),
    (LLAMA | {"model_type": "gpt_oss", "sliding_window": 16, "head_dim": 32}, 5),
    ({"model_type": "gemma3", "text_config": without(LLAMA, "model_type") | {
        "sliding_window": 16, "head_dim": 32}}, 9),
    (LLAMA | {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 7,
              "layer_types": ["full_attention"] * 8 + ["sliding_attention"] * 2}, 2),
    (LLAMA | {"sliding_window": 0}, 0),
])
def test_how_many_layers_have_the_window(config, windows):
    full = 2 * A_HEAD
    assert memory.kv_bytes(config, tokens=16) == 16 * full
    assert memory.kv_bytes(config, tokens=116) == 16 * full + 100 * full * (10 - windows) / 10


@pytest.mark.parametrize("family", [None, "deepseek_v2", "deepseek_v3", "kimi_k2"])
def test_a_latent_is_kept_once_for_all_heads(family):
    config = LLAMA | MLA | {"model_type": family, "v_head_dim": 128}
    assert memory.kv_bytes_per_token(config) == 10 * 576 * 2


@pytest.mark.parametrize("field", ["num_hidden_layers", "num_attention_heads", "hidden_size"])
def test_a_missing_field_is_named(field):
    for config in (without(LLAMA, field), {"text_config": without(LLAMA, field)},
                   LLAMA | {field: None}):
        refused(memory.kv_bytes_per_token, config, names=field)
        refused(memory.kv_bytes, config, names=field, tokens=1)
        refused(memory.kv_cache_tokens, config, names=field, cache_bytes=1e9, block_size=16)


@pytest.mark.parametrize("field", ["intermediate_size", "model_type", "vocab_size",
                                   "tie_word_embeddings"])
def test_a_field_that_weights_need_is_named(field):
    refused(memory.parameters, without(LLAMA, field), names=field)


@pytest.mark.parametrize("field", ["kv_lora_rank", "qk_rope_head_dim"])
def test_a_field_of_the_latent_is_named(field):
    refused(memory.kv_bytes_per_token, without(LLAMA | MLA, field) | {"model_type": "deepseek_v3"},
            names=field)


@pytest.mark.parametrize(("config", "names"), [
    # what the classes of these families would fill in does not follow from the other fields
    ({"model_type": "gemma3", "text_config": {  # Gemma 3 4B, as published
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
        "num_hidden_layers": 34, "sliding_window": 1024}}, "num_attention_heads"),
    (LLAMA | {"model_type": "gemma2", "sliding_window": 16}, "head_dim"),
    (without(MISTRAL, "num_key_value_heads"), "num_key_value_heads"),
    (without(MISTRAL, "sliding_window"), "sliding_window"),
    (without(QWEN, "max_window_layers") | {"use_sliding_window": True}, "max_window_layers"),
    (LLAMA | {"layer_types": ["sliding_attention"] * 10}, "sliding_window"),
    # no decoder
    (LLAMA | {"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM"),
    (LLAMA | {"model_type": "bert"}, "bert"),
    ({"model_type": "clip", "text_config": LLAMA}, "clip"),
    ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 512,
      "num_layers": 6, "num_heads": 8, "d_kv": 64, "is_encoder_decoder": True}, "t5"),
    (without(shape("whisper-small"), "max_source_positions"), "max_source_positions"),
    # layers with a state, or a rule of their own
    ({"model_type": "mamba", "state_size": 16, "hidden_size": 256, "num_hidden_layers": 10},
     "state_size"),
    (LLAMA | {"model_type": "jamba", "attn_layer_period": 8}, "attn_layer_period"),
    (LLAMA | {"model_type": "bamba", "mamba_d_state": 128}, "mamba_d_state"),
    (LLAMA | {"model_type": "qwen3_next", "linear_num_value_heads": 32}, "linear_num_value_heads"),
    (LLAMA | {"layer_types": ["linear_attention"] * 9 + ["full_attention"]}, "linear_attention"),
    (LLAMA | {"layer_types": ["full_attention"] * 9}, "layer_types"),
    (LLAMA | {"model_type": "minimax_m1", "attn_type_list": [0] * 9 + [1]}, "attn_type_list"),
    ({"model_type": "llama4", "text_config": LLAMA | {"attention_chunk_size": 8192}},
     "attention_chunk_size"),
    ({"model_type": "mllama", "text_config": LLAMA | {"cross_attention_layers": [3, 8]}},
     "cross_attention_layers"),
    (LLAMA | {"model_type": "gemma4_text", "global_head_dim": 512}, "global_head_dim"),
    (LLAMA | MLA | {"model_type": "deepseek_v32", "index_topk": 2048}, "index_topk"),
    (LLAMA | MLA | {"model_type": "minicpm3"}, "minicpm3"),  # vLLM unfolds its latent
    (LLAMA | {"v_head_dim": 16}, "v_head_dim"),
    (LLAMA | {"sliding_window": 16}, "layer_types"),  # which layers?
    (LLAMA | {"model_type": "exaone4", "sliding_window": 16, "sliding_window_pattern": "LLLG"},
     "sliding_window_pattern"),
    # no numbers that fit together
    (LLAMA | {"hidden_size": 250}, "hidden_size"),
    (LLAMA | {"num_attention_heads": 0}, "num_attention_heads"),
    (LLAMA | {"num_hidden_layers": "10"}, "num_hidden_layers"),
    (LLAMA | {"num_key_value_heads": [2] * 10}, "num_key_value_heads"),
    (LLAMA | {"num_key_value_heads": 3}, "num_key_value_heads"),
    (LLAMA | {"head_dim": -1}, "head_dim"),
    ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
    (None, "None"),
])
def test_a_config_with_no_formula_is_refused_by_name(config, names):
    refused(memory.kv_bytes_per_token, config, names=names)
    refused(memory.kv_bytes, config, names=names, tokens=100)
    refused(memory.decode_bytes_per_token, config, names=names, batch=1, context=1)


@pytest.mark.parametrize("name", ["gemma-2-9b", "gpt-oss-20b", "Mistral-7B-v0.1", "whisper-small"])
def test_no_single_number_of_tokens_fills_a_cache_with_windows(name):
    error = refused(memory.kv_cache_tokens, shape(name), cache_bytes=1e9, block_size=16,
                    names="No single number")
    assert "window" in error.cause and "kv_bytes" in error.fix


def refused(function, *values, names="", **named):
    with pytest.raises(LabError) as caught:
        function(*values, **named)
    assert names in caught.value.what and caught.value.fix
    return caught.value


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "2", None, True, [1]])
@pytest.mark.parametrize(("function", "values"), [
    (memory.kv_bytes_per_token, dict(dtype_bytes=2)),
    (memory.kv_bytes, dict(tokens=1, dtype_bytes=2)),
    (memory.kv_cache_tokens, dict(cache_bytes=1e9, block_size=16, dtype_bytes=2)),
    (memory.decode_bytes_per_token, dict(batch=1, context=1, weight_bits=16, kv_bytes=2)),
], ids=lambda value: getattr(value, "__name__", ""))
def test_arguments_that_are_no_numbers(function, values, bad):
    for name in values:
        refused(function, LLAMA, **values | {name: bad})
    refused(memory.weight_bytes, bad, bits=16)
    refused(memory.weight_bytes, 1, bits=bad)


def test_what_may_be_zero_and_what_not():
    assert memory.weight_bytes(0, bits=4) == memory.kv_bytes(LLAMA, tokens=0) == 0
    assert memory.kv_cache_tokens(LLAMA, cache_bytes=0, block_size=16) == 0
    assert memory.kv_bytes(LLAMA, tokens=np.int64(3)) == 3 * 2 * A_HEAD
    refused(memory.weight_bytes, 1, bits=0)
    refused(memory.kv_bytes_per_token, LLAMA, dtype_bytes=0)
    refused(memory.kv_cache_tokens, LLAMA, cache_bytes=1, block_size=0)
    refused(memory.kv_cache_tokens, LLAMA, cache_bytes=1e9, block_size=16.5)
    refused(memory.decode_bytes_per_token, LLAMA, batch=0, context=1)


def test_cache_of_a_size_holds_whole_blocks():
    a_block = 16 * 114_688  # Qwen3-0.6B
    for spare in (0, 1, a_block - 1):
        assert memory.kv_cache_tokens(shape("Qwen3-0.6B"), cache_bytes=5 * a_block + spare,
                                      block_size=16) == 80
    assert memory.kv_cache_tokens(shape("Qwen3-0.6B"), cache_bytes=a_block - 1, block_size=16) == 0


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_published_models(name):
    assert memory.parameters(shape(name)) == WEIGHTS[name]


def test_weights_are_those_of_the_checkpoint():
    sizes = models.tensor_bytes(models.prepare("smollm2-135m"))
    count = memory.parameters(models.config("smollm2-135m"))
    assert count == 134_515_008
    assert memory.weight_bytes(count, bits=16) == sum(sizes.values())


def test_weights_of_a_layer_with_biases():
    plain = memory.parameters(LLAMA)
    attention, mlp = (8 + 2 * 2) * 32 + 256, 2 * 1024 + 256  # q, k, v and o; gate, up and down
    assert memory.parameters(LLAMA | {"attention_bias": True}) == plain + 10 * attention
    assert memory.parameters(LLAMA | {"mlp_bias": True}) == plain + 10 * mlp
    assert memory.parameters(LLAMA | {"model_type": "qwen2"}) == plain + 10 * (attention - 256)


@pytest.mark.parametrize(("config", "names"), [
    (shape("DeepSeek-V3"), "n_routed_experts"), (shape("gpt-oss-20b"), "num_local_experts"),
    (LLAMA | {"model_type": "qwen3_moe", "num_experts": 128}, "num_experts"),
    (shape("gpt2"), "gpt2"), (shape("whisper-small"), "whisper"),
])
def test_weights_that_no_formula_counts(config, names):
    refused(memory.parameters, config, names=names)
    refused(memory.decode_bytes_per_token, config, names=names, batch=16, context=535)


def test_weights_beside_the_text_are_not_left_out():
    pictures = {"text_config": LLAMA, "vision_config": {"hidden_size": 64}}
    refused(memory.parameters, pictures, names="text part")
    assert memory.decode_bytes_per_token(pictures, batch=1, context=9) == (
        memory.decode_bytes_per_token(LLAMA, batch=1, context=9))


def test_bytes_of_a_quantized_checkpoint_are_exact(tmp_path):
    tensors = {
        "packed": torch.zeros(64, 16, dtype=torch.int32),  # 64 x 128 weights of 4 bits
        "packed_scale": torch.zeros(64, 1, dtype=torch.bfloat16),
        "int8": torch.zeros(64, 100, dtype=torch.int8),
        "int8_scale": torch.zeros(64, 1, dtype=torch.bfloat16),
        "fp8": torch.zeros(3, 7, dtype=torch.float8_e4m3fn),
        "norm": torch.zeros(5, dtype=torch.bfloat16),
        "shape": torch.zeros(2, dtype=torch.int64),
        "none": torch.zeros(0),
    }
    first = dict(list(tensors.items())[:3])
    save_file(first, tmp_path / "model-00001-of-00002.safetensors", metadata={"format": "pt"})
    save_file({name: tensor for name, tensor in tensors.items() if name not in first},
              tmp_path / "model-00002-of-00002.safetensors")
    sizes = models.tensor_bytes(tmp_path)
    assert sizes == {name: tensor.nbytes for name, tensor in tensors.items()}
    assert sizes["packed"] == memory.weight_bytes(64 * 128, bits=4)


@pytest.mark.parametrize(("key", "batch", "kv_bytes"), [
    ("study_dram_batch_16", "study_dram_batch_small", 2),
    ("study_dram_batch_32", "study_dram_batch_large", 2),
    ("study_dram_kv_bf16", "study_dram_batch_small", 2),
    ("study_dram_kv_fp8", "study_dram_batch_small", 1),
])
def test_the_studys_bytes_per_token_at_one_context(key, batch, kv_bytes):
    predicted = memory.decode_bytes_per_token(shape("Qwen3-0.6B"), batch=study.value(batch),
                                              context=535, kv_bytes=kv_bytes)
    assert predicted / 1e6 == pytest.approx(study.value(key), rel=0.01)


def test_the_output_projection_is_read_once_a_step():
    config, same = shape("Qwen3-0.6B"), dict(batch=16, context=535)
    more = memory.decode_bytes_per_token(config, include_lm_head=True, **same)
    assert more - memory.decode_bytes_per_token(config, **same) == 151_936 * 1024 * 2 / 16
    eight = memory.decode_bytes_per_token(config, weight_bits=8, include_lm_head=True, **same)
    less = memory.decode_bytes_per_token(config, weight_bits=8, **same)
    assert eight - less == 151_936 * 1024 * 2 / 16  # at 16 bits still


GRID = np.array([(batch, batch * context * 1e5) for batch in (1, 4, 16) for context in (50, 900)])


@pytest.mark.parametrize("known", [
    memory.StepTime(5e-3, 2e-4, 3e10), memory.StepTime(5e-3, 0.0, 3e10),
    memory.StepTime(0.0, 2e-4, 3e10), memory.StepTime(5e-3, 2e-4, math.inf)])
def test_the_fit_finds_what_made_the_points(known):
    batch, cache_bytes = GRID.T
    seconds = memory.step_time(known, batch=batch, cache_bytes=cache_bytes)
    fit = memory.fit_step_time(batch, cache_bytes, seconds)
    assert fit.fixed_s == pytest.approx(known.fixed_s, abs=1e-9)
    assert fit.sequence_s == pytest.approx(known.sequence_s, abs=1e-9)
    assert 1 / fit.bandwidth == pytest.approx(1 / known.bandwidth, abs=1e-15)
    assert memory.step_time(fit, batch=2, cache_bytes=1e8) == pytest.approx(
        memory.step_time(known, batch=2, cache_bytes=1e8))


def test_no_term_of_a_fit_is_negative():
    batch, cache_bytes = GRID.T
    falling = 1e-2 - 1e-4 * batch - 1e-13 * cache_bytes  # no step is like this
    fit = memory.fit_step_time(batch, cache_bytes, falling)
    assert fit.fixed_s > 0 and fit.sequence_s == 0 and fit.bandwidth == math.inf


@pytest.mark.parametrize("points", [
    [], [(1, 1e8)], [(1, 1e8), (2, 2e8)],  # too few
    [(1, 1e8), (2, 2e8), (4, 4e8), (8, 8e8)],  # one context: cache goes with the batch
    [(4, 1e8), (4, 2e8), (4, 3e8)], [(1, 1e8), (2, 1e8), (3, 1e8)], [(1, 0), (2, 0), (4, 0)],
])
def test_points_that_cannot_tell_the_terms_apart(points):
    batch, cache_bytes = np.array(points).reshape(-1, 2).T
    refused(memory.fit_step_time, batch, cache_bytes, np.full(len(points), 0.01), names="apart")


@pytest.mark.parametrize("broken", [
    ([1, 4], [1e8, 1e8, 2e8], [1, 1, 1]), ([1, 4, 4], [1e8, 1e8, 2e8], [1, 0, 1]),
    ([1, 4, 4], [1e8, 1e8, 2e8], [1, math.nan, 1]), ([1, 4, -4], [1e8, 1e8, 2e8], [1, 1, 1]),
    ([1, 4, "x"], [1e8, 1e8, 2e8], [1, 1, 1]), ([1, 4, None], [1e8, 1e8, 2e8], [1, 1, 1]),
])
def test_points_that_are_no_steps(broken):
    refused(memory.fit_step_time, *broken)


@pytest.mark.parametrize("bad", [-1, math.nan, "a", None])
def test_a_step_of_what_is_no_number(bad):
    fit = memory.StepTime(1e-3, 1e-4, 1e10)
    refused(memory.step_time, fit, batch=bad, cache_bytes=1)
    refused(memory.step_time, fit, batch=1, cache_bytes=bad)


ANY = st.sampled_from([shape(name) for name in A_TOKEN])
FULL = st.sampled_from([shape(name) for name in A_TOKEN if name not in CONSTANT])
DENSE = st.sampled_from([shape(name) for name in WEIGHTS])
TOKENS, BATCH = st.integers(0, 10**6), st.integers(1, 512)
QUICK = settings(max_examples=50, deadline=None)  # the machine may be busy
BLOCK, CACHE = st.integers(1, 4096), st.integers(0, 10**13) | st.floats(0, 1e13)


@QUICK
@given(ANY, TOKENS, TOKENS)
def test_more_tokens_never_cost_less(config, few, more):
    few, more = sorted((few, more))
    assert memory.kv_bytes(config, tokens=few) <= memory.kv_bytes(config, tokens=more)


@QUICK
@given(ANY, st.integers(4096, 10**9), st.integers(0, 10**6), st.sampled_from([1, 2, 4]))
def test_long_sequences_grow_by_the_bytes_of_a_token(config, tokens, more, size):
    grown = memory.kv_bytes(config, tokens=tokens + more, dtype_bytes=size)
    grown -= memory.kv_bytes(config, tokens=tokens, dtype_bytes=size)
    assert grown == more * memory.kv_bytes_per_token(config, dtype_bytes=size)


@QUICK
@given(FULL, CACHE, BLOCK)
def test_an_fp8_cache_holds_twice_the_tokens_or_one_block_more(config, cache_bytes, block):
    bf16, fp8 = (memory.kv_cache_tokens(config, cache_bytes=cache_bytes, block_size=block,
                                        dtype_bytes=size) for size in (2, 1))
    assert fp8 - 2 * bf16 in (0, block)


@QUICK
@given(FULL, CACHE, BLOCK, st.sampled_from([1, 2]))
def test_as_many_whole_blocks_as_fit_and_no_more(config, cache_bytes, block, size):
    tokens = memory.kv_cache_tokens(config, cache_bytes=cache_bytes, block_size=block,
                                    dtype_bytes=size)
    assert isinstance(tokens, int) and tokens % block == 0
    assert memory.kv_bytes(config, tokens=tokens, dtype_bytes=size) <= cache_bytes
    assert memory.kv_bytes(config, tokens=tokens + block, dtype_bytes=size) > cache_bytes


@QUICK
@given(DENSE, BATCH, BATCH, TOKENS, TOKENS)
def test_bytes_a_token_fall_with_batch_and_rise_with_context(config, a, b, short, long):
    (few, many), (short, long) = sorted((a, b)), sorted((short, long))

    def need(batch, context):
        return memory.decode_bytes_per_token(config, batch=batch, context=context)

    assert need(many, short) <= need(few, short) <= need(few, long)
    assert few == many or need(many, short) < need(few, short)


def test_a_step_time_takes_lists():
    fit = memory.StepTime(0.01, 0.001, 1e9)
    assert list(memory.step_time(fit, batch=[1, 2], cache_bytes=[1e6, 2e6])) == pytest.approx(
        [0.012, 0.014])
