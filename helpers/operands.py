"""Which numbers an engine's attention multiplies: read from its flags and its own log.

`--kv-cache-dtype fp8` says how keys and values are kept. What is multiplied follows from the
backend: one rounds the queries to FP8 as well, so that both operands have 8 bits; another turns
the cached numbers back to 16 bits first. vLLM has no flag for that: it belongs to the backend.
"""

import re

import pandas as pd

from helpers import experiment

# Backends that round the queries to FP8 where the cache is FP8, on an NVIDIA GPU
# (supports_quant_query_input; vllm/v1/attention/backends/{flash_attn,triton_attn}.py, 0.26).
ROUND_QUERIES = ("FLASH_ATTN", "TRITON_ATTN")
WIDEN_CACHE = ("CPU_ATTN",)  # vllm/v1/attention/backends/cpu_attn.py, 0.30
BOTH_8, BOTH_16, UNKNOWN = "FP8 by FP8", "16 by 16 bits", "not known: read the backend's source"


def chosen(server):
    """{cache, backend, products}: how an engine keeps keys and values, and what it multiplies.

    cache: 'FP8' or '16 bits'.  backend: as its log names it; a CPU build has CPU_ATTN alone, and
    names none.  products: BOTH_8, BOTH_16, UNKNOWN, or that the cache is widened first.
    """
    log = server.log()
    fp8 = experiment.element_bytes(server) == 1
    found = re.search(r"Using (?:AttentionBackendEnum\.)?([A-Z_]+) (?:attention )?backend\b", log)
    backend = found[1] if found else "CPU_ATTN" if "device_config=cpu" in log else "not named"
    version = re.search(r"Using FlashAttention version (\d)", log)
    return {"cache": "FP8" if fp8 else "16 bits",
            "backend": f"{backend} {version[1]}" if version else backend,
            "products": _products(backend) if fp8 else BOTH_16}


def _products(backend):
    if backend in ROUND_QUERIES:
        return BOTH_8
    return f"{BOTH_16}, the cache widened first" if backend in WIDEN_CACHE else UNKNOWN


def table(fleet):
    """`chosen` of the first engine of each arm; engines of one arm have the same flags."""
    return pd.DataFrame({arm: chosen(next(iter(engines.values())))
                         for arm, engines in fleet.items()}).T
