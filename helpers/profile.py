"""Which machine this is, decided once: model, engine flags and load sizes that fit it.

LAB_PROFILE=cpu or gpu and LAB_MODEL=NAME override the choice (see `models.prepare` for names).
LAB_QUICK=1 takes the smallest loads: every cell runs, but one repeat is a lead and no result.
"""

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from helpers.errors import LabError


@dataclass(frozen=True, slots=True)
class Profile:
    """What a notebook needs to know of the machine. Lengths are tokens."""

    name: str  # 'cpu' or 'gpu'
    reason: str  # why it was chosen
    model: str  # a name for models.prepare
    engine_flags: dict  # vLLM's flags, defaults that the caller's flags override
    engine_env: dict  # environment variables of the engine, likewise
    input_len: int  # tokens in each benchmark prompt
    output_len: int  # tokens in each benchmark answer
    concurrency: int  # requests in flight
    concurrencies: tuple  # the sweep
    shared_concurrencies: tuple  # in flight over all engines of a lab's arm
    shared_repeats: int  # of a lab's point
    shared_rounds: int  # requests there for each that is in flight
    num_prompts: int  # requests in one benchmark point
    warmups: int  # requests before measuring
    rates: tuple  # arrivals in requests per second: on a CPU below and above what it can do
    load_seconds: int  # of one run at such a rate
    repeats: int = 3  # of each point; fewer than three are no result


def _cpu_env():
    """Chosen by measurement: `make bench ARGS=settings` holds it against the engine's defaults.

    Every core, where the engine by itself leaves one idle; and Intel's OpenMP, whose threads
    sleep soon when they have nothing to do, where the other kind spins beside the client.
    """
    openmp = Path(sys.prefix, "lib", "libiomp5.so")  # of the package intel-openmp, for x86
    preload = {"LD_PRELOAD": str(openmp)} if openmp.exists() else {}
    return {"VLLM_CPU_NUM_OF_RESERVED_CPU": "0", **preload}


CPU = Profile(
    name="cpu",
    reason="",
    model="smollm2-135m",
    engine_flags={
        "dtype": "bfloat16",
        "max_model_len": 2048,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 2048,
        "kv_cache_memory_bytes": "1G",
        "block_size": 32,  # the smallest there is: the class's short passage fills three
        "enforce_eager": True,  # without it a start takes three times as long
    },
    engine_env=_cpu_env(),
    input_len=128,
    output_len=32,
    concurrency=8,
    concurrencies=(1, 2, 4, 8, 16),
    shared_concurrencies=(4, 16),
    shared_repeats=3,
    shared_rounds=4,
    num_prompts=16,
    warmups=8,
    rates=(2, 20),
    load_seconds=20,
)

GPU = Profile(
    name="gpu",
    reason="",
    model="Qwen/Qwen3-0.6B",
    engine_flags={
        "dtype": "bfloat16",
        "max_model_len": 2048,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
        "gpu_memory_utilization": 0.65,
    },
    engine_env={},
    input_len=512,
    output_len=128,
    concurrency=8,
    concurrencies=(1, 2, 4, 8, 16, 32, 64),
    shared_concurrencies=(8, 32, 64, 128),
    shared_repeats=6,  # one engine differs from itself by a fifth there, from turn to turn
    shared_rounds=3,
    num_prompts=128,
    warmups=8,
    rates=(1, 4),  # the classroom tutorial's
    load_seconds=60,
)


@functools.cache
def current():
    """The profile of this machine; the first call prints what was chosen and why."""
    base, reason = _choose()
    profile = replace(base, reason=reason, model=os.environ.get("LAB_MODEL") or base.model)
    print(f"Profile {profile.name}, model {profile.model}: {profile.reason}")
    if os.environ.get("LAB_QUICK"):
        profile = replace(profile, num_prompts=8, repeats=1, rates=profile.rates[:1],
                          load_seconds=15, concurrencies=(1, profile.concurrency),
                          shared_concurrencies=(profile.concurrency,), shared_repeats=1,
                          shared_rounds=1)
        print("LAB_QUICK: the smallest loads, and one repeat only. These are not results.")
    if profile.model.startswith("shape:"):
        print("Random weights: speed and memory are the real model's, the text means nothing.")
    return profile


def _choose():
    asked = os.environ.get("LAB_PROFILE")
    if asked:
        if asked not in ("cpu", "gpu"):
            raise LabError(f"LAB_PROFILE is {asked!r}.", cause="There are two profiles.",
                           fix="Set it to cpu or gpu, or leave it unset.")
        return {"cpu": CPU, "gpu": GPU}[asked], f"LAB_PROFILE={asked} asks for it."
    gpu = gpu_name()
    if gpu is None:
        return CPU, "no NVIDIA driver answers on this machine."
    if _cpu_build():
        return CPU, f"there is a GPU ({gpu}), but this environment holds vLLM's CPU build."
    return GPU, f"an NVIDIA driver answers: {gpu}."


def gpu_name():
    """The first GPU's name as nvidia-smi gives it, or None."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    names = answer.stdout.strip().splitlines()
    return names[0] if answer.returncode == 0 and names else None


def _cpu_build():
    try:
        return metadata.version("vllm").endswith("+cpu")
    except metadata.PackageNotFoundError:
        return False
