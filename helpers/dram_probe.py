"""What Nsight Compute looks at; `helpers.dram` starts it under `ncu`. Written for vLLM 0.26.

    python -m helpers.dram_probe control FILE                  # two kernels whose bytes are known
    python -m helpers.dram_probe decode FOLDER CACHE FILE      # decode steps of a model

Only what runs between profiler.start() and profiler.stop() is counted. FILE gets one JSON line for
each such stretch: what was going on in it. The other half, the bytes, is in ncu's own file.
"""

import json
import os
import random
import sys
from pathlib import Path

from helpers import memory, models

CONTROL_BYTES = 2**30
CONTEXT = 535  # tokens a sequence; which one the study's figures belong to is found in lab 03
POINTS = ((1, CONTEXT), (2, CONTEXT), (4, CONTEXT), (8, CONTEXT), (16, CONTEXT), (32, CONTEXT),
          (64, CONTEXT), (16, 128), (16, 1024))  # batch, tokens
KERNELS = (16, CONTEXT)  # the point of which single kernels are counted, one step
REPEATS = 3  # steps of each point, one token further each
UNSEEN = 8  # steps before them, so that all prompts are through


def control(file):
    """A sum that reads CONTROL_BYTES, and a fill that writes as many and reads none."""
    import torch

    values = torch.zeros(CONTROL_BYTES // 4, device="cuda")
    for what, work in (("read", values.sum), ("write", lambda: values.fill_(1.5))):
        work()  # once before: the first call loads the kernel
        _watched(torch, work)
        _say(file, what=what, bytes=CONTROL_BYTES)


def kernels(folder, cache, file):
    """One decode step of KERNELS, for counting every kernel by itself."""
    decode(folder, cache, file, points=[KERNELS], repeats=1)


def decode(folder, cache, file, points=POINTS, repeats=REPEATS):
    """`repeats` decode steps at every point, with a cache of type `cache` ('auto' or 'fp8')."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the model in this process
    import torch
    from vllm import LLM

    config = models.config(folder)
    widest, longest = (max(column) for column in zip(*points, strict=True))
    room = max(batch * (tokens + 32) for batch, tokens in points)  # and for one of the longest
    llm = LLM(folder, dtype="bfloat16", kv_cache_dtype=cache, enable_prefix_caching=False,
              async_scheduling=False, max_num_seqs=widest, max_num_batched_tokens=8192,
              max_model_len=longest + 32, gpu_memory_utilization=0.05,
              kv_cache_memory_bytes=memory.kv_bytes(config, tokens=room + longest + 64),
              **models.engine_flags(folder))
    for batch, tokens in points:
        _decode_one(torch, llm.llm_engine, batch, tokens, file, repeats)


def _decode_one(torch, engine, batch, tokens, file, repeats=REPEATS):
    """Let `batch` sequences grow to about `tokens` tokens each, and show `repeats` of their steps.

    A step works on the token made last: it reads the cache of prompt and answer so far. That is
    `context`, the mean of the batch (prompts that need several steps start a few tokens apart).
    """
    from vllm import SamplingParams

    prompt = tokens - UNSEEN - 1
    limits = SamplingParams(temperature=0, max_tokens=UNSEEN + repeats + 8, ignore_eos=True,
                            detokenize=False)
    for n in range(batch):
        ids = random.Random(f"{tokens} {n}").choices(range(1000, 20_000), k=prompt)
        engine.add_request(f"{batch}-{tokens}-{n}", {"prompt_token_ids": ids}, limits)
    made = {}

    def step():
        for output in engine.step():
            made[output.request_id] = len(output.outputs[0].token_ids)

    while len(made) < batch or min(made.values()) < UNSEEN:
        step()
    for repeat in range(repeats):
        if len(made) != batch or not engine.has_unfinished_requests():
            raise RuntimeError(f"{len(made)} of {batch} sequences are still decoding")
        context = prompt + sum(made.values()) / batch
        _watched(torch, step)
        _say(file, batch=batch, tokens=tokens, context=context, repeat=repeat)
    while engine.has_unfinished_requests():
        step()


def _watched(torch, work):
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    work()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def _say(file, **what):
    with Path(file).open("a") as lines:
        lines.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    {"control": control, "decode": decode, "kernels": kernels}[sys.argv[1]](*sys.argv[2:])
