"""memory.kv_cache_tokens against the line that the engine itself logs, to the token."""

import itertools
import json
import os
import re
import subprocess
import sys

import pytest

from helpers import machine, memory, models, results

COMBINATIONS = list(itertools.product((32, 128), ("auto", "fp8"), (300_000_000, 700_000_001)))
# All engines in one process, one after the other: vLLM is imported once. They differ in every
# way that the formula knows; the log says each size once, so the sizes must differ too.
ENGINES = """
import gc, json, sys
from vllm import LLM
from vllm.distributed import cleanup_dist_env_and_memory
for block_size, cache_dtype, cache_bytes in json.loads(sys.argv[2]):
    print("ENGINE", block_size, cache_dtype, cache_bytes, flush=True)
    llm = LLM(sys.argv[1], dtype="bfloat16", enforce_eager=True, max_model_len=512,
              max_num_seqs=4, block_size=block_size, kv_cache_dtype=cache_dtype,
              kv_cache_memory_bytes=cache_bytes)
    llm.llm_engine.engine_core.shutdown()
    del llm
    cleanup_dist_env_and_memory()
    gc.collect()
"""
ENV = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
       "TORCH_COMPILE_DISABLE": "1", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}


def test_predicted_tokens_equal_the_engines_line():
    path = models.prepare("smollm2-135m")
    possible = [one for one in COMBINATIONS if one[1] != "fp8" or machine.fp8_cache()]
    answer = subprocess.run(
        [sys.executable, "-c", ENGINES, str(path), json.dumps(possible)],
        env=os.environ | ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=400)
    assert answer.returncode == 0, answer.stdout[-4000:]
    said = re.findall(r"ENGINE (\d+) (\w+) (\d+)$|KV cache size: ([\d,]+) tokens", answer.stdout,
                      re.M)
    config, checked = models.config("smollm2-135m"), 0
    for (block_size, cache_dtype, cache_bytes, _), (*_, tokens) in zip(
            said[::2], said[1::2], strict=True):
        predicted = memory.kv_cache_tokens(
            config, cache_bytes=int(cache_bytes), block_size=int(block_size),
            dtype_bytes=1 if cache_dtype == "fp8" else 2)
        assert predicted == int(tokens.replace(",", "")), (block_size, cache_dtype, cache_bytes)
        checked += 1
    assert checked == len(possible) >= 4
    if possible != COMBINATIONS:
        pytest.skip("16 bits were right; this processor cannot keep an FP8 cache")


def test_the_server_says_the_same(engine):
    predicted = memory.kv_cache_tokens(models.config("smollm2-135m"), cache_bytes=2**30,
                                       block_size=engine.block_size)
    assert engine.kv_cache_tokens == predicted


def test_recorded_gpu_engines_said_the_same():
    """What engines on a GPU logged, from the headers of the runs that ship with the course."""
    checked = set()
    for experiment in ("03_memory", "04_paged_and_prefix", "05_sweep"):
        for header in results.load(experiment, machine="gpu").attrs["headers"].values():
            for engine in header["engines"]:
                flags = engine["flags"]
                size, block = flags["kv_cache_memory_bytes"], flags.get("block_size", 16)
                said = re.match(r"GPU KV cache size: ([\d,]+) tokens", engine["cache_line"])[1]
                predicted = memory.kv_cache_tokens(
                    models.config(f"shape:{engine['model']}"), block_size=block,
                    cache_bytes=2**30 if size == "1G" else size,
                    dtype_bytes=1 if flags.get("kv_cache_dtype") == "fp8" else 2)
                assert predicted == int(said.replace(",", "")), engine
                checked.add((block, flags.get("kv_cache_dtype"), predicted))
    assert len(checked) >= 5 and {block for block, *_ in checked} == {16, 32}
