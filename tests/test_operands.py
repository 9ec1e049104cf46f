"""Which numbers attention multiplies, from logs as vLLM 0.26 (GPU) and 0.30 (CPU) write them."""

from types import SimpleNamespace

import pytest

from helpers import operands

HOPPER = ("INFO [cuda.py:482] Using FLASH_ATTN attention backend out of potential backends: "
          "['FLASH_ATTN', 'FLASHINFER', 'TRITON_ATTN', 'FLEX_ATTENTION'].\n"
          "INFO [flash_attn.py:776] Using FlashAttention version 3\n")
ASKED_FOR = "INFO [cuda.py:422] Using AttentionBackendEnum.TRITON_ATTN backend.\n"
CPU = ("INFO Initializing a V1 LLM engine with config: kv_cache_dtype=fp8, device_config=cpu\n"
       "INFO [utils.py:320] Using LBHNC KV cache layout.\n")


def engine(log, **flags):
    return SimpleNamespace(log=lambda: log, settings=("folder", None, {}, flags))


@pytest.mark.parametrize(("log", "flags", "expected"), [
    (HOPPER, {"kv_cache_dtype": "fp8"}, ("FP8", "FLASH_ATTN 3", "FP8 by FP8")),
    (HOPPER, {}, ("16 bits", "FLASH_ATTN 3", "16 by 16 bits")),
    (ASKED_FOR, {"kv_cache_dtype": "fp8_e4m3"}, ("FP8", "TRITON_ATTN", "FP8 by FP8")),
    (CPU, {"kv_cache_dtype": "fp8"}, ("FP8", "CPU_ATTN",
                                      "16 by 16 bits, the cache widened first")),
    (CPU, {"kv_cache_dtype": "auto"}, ("16 bits", "CPU_ATTN", "16 by 16 bits")),
    ("nothing of it", {"kv_cache_dtype": "fp8"}, ("FP8", "not named", operands.UNKNOWN)),
])
def test_chosen(log, flags, expected):
    assert tuple(operands.chosen(engine(log, **flags)).values()) == expected


def test_table_has_a_row_an_arm():
    fleet = {"one": {"a": engine(HOPPER)}, "two FP8": {name: engine(HOPPER, kv_cache_dtype="fp8")
                                                       for name in "ab"}}
    table = operands.table(fleet)
    assert list(table.index) == ["one", "two FP8"]
    assert list(table.cache) == ["16 bits", "FP8"]
