"""Smaller checkpoints of a model, made once by llmcompressor in an environment of its own.

    small = compress.make("smollm2-135m", scheme="INT8")   # a folder that server.serve takes

llmcompressor and vLLM want different versions of the same package, so it lives in .venv-compress,
which is built when it is first needed. A checkpoint is named for the tensors that it was made
from and for its recipe: the same again, on any machine, is the same folder.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

import numpy as np

from helpers import checkpoint, machine, models, profile, supervisor
from helpers import server as servers
from helpers.engine import LOGS
from helpers.errors import LabError
from helpers.make import install
from helpers.progress import Line
from helpers.weights import group_size

WORKER = Path(__file__).with_name("compress_worker.py")
ALL_LINEAR = {"targets": ["Linear"], "ignore": ["lm_head"]}
QUIET = {"LLM_COMPRESSOR_LOG_LEVEL": "ERROR", "TOKENIZERS_PARALLELISM": "false",
         "HF_HUB_OFFLINE": "1"}


def make(model, *, scheme):
    """The folder of `model` compressed by `scheme`; made on first use, which takes seconds.

    model: a name for models.prepare, or a folder.  scheme: 'FP8', 'INT8' or '4-bit'.
    The first use of all builds .venv-compress. Raises LabError for a model of random weights, and
    when the environment cannot be built or llmcompressor fails.
    """
    source = models.prepare(model)
    if models.has_random_weights(source):
        raise LabError(f"{model} has no weights to compress.", cause="It is a shape: vLLM makes "
                       "random weights for it.", fix="Compress compress.source(model) instead.")
    rule = json.dumps(recipe(models.config(str(source)), scheme=scheme), sort_keys=True)
    folder = f"{scheme.lower()}-{_content(source, rule)[:16]}"
    return models.made_once(folder, lambda target: _compress(source, target, rule, scheme))


def source(model):
    """The model whose weights are compressed: this one, or the course's own for a shape."""
    shape = models.has_random_weights(models.prepare(model))
    return models.OFFLINE_DEFAULT if shape else model


def pair(model):
    """{arm: (folder, flags)} of the model and of the smaller deployment that this machine is for.

    With FP8 arithmetic (`machine.fp8_cache` on a GPU) that is FP8; a shape has no weights to
    compress, so the engine rounds its random ones as it loads: 'FP8 online'. Elsewhere it is INT8,
    of the `source`. Raises as `make`.
    """
    if profile.current().name == "gpu" and machine.fp8_cache():
        folder = models.prepare(model)
        if models.has_random_weights(folder):
            return {"BF16": (folder, {}), "FP8 online": (folder, {"quantization": "fp8"})}
        return {"BF16": (folder, {}), "FP8": (make(model, scheme="FP8"), {})}
    base = source(model)
    return {"BF16": (models.prepare(base), {}), "INT8": (make(base, scheme="INT8"), {})}


def recipe(config, *, scheme):
    """What llmcompressor's QuantizationModifier is asked for; config: the model's config.json.

    FP8_DYNAMIC and W8A8 are its own names: 8 bits a weight with one scale a row, and activations
    rounded as they come, with one scale a token. 4-bit rounds weights only, one scale a group.
    None needs calibration data: each weight is rounded to the nearest number that there is.
    """
    if scheme == "4-bit":
        weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
                   "group_size": group_size(config), "dynamic": False}
        return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
                "ignore": ALL_LINEAR["ignore"]}
    names = {"FP8": "FP8_DYNAMIC", "INT8": "W8A8"}
    if scheme not in names:
        raise LabError(f"There is no scheme {scheme!r}.", fix="Use 'FP8', 'INT8' or '4-bit'.")
    return {"scheme": names[scheme], **ALL_LINEAR}


def _content(folder, recipe):
    """SHA-256 over the tensors in a folder, by name, and the recipe.

    Over what the tensors are, not over the files: their headers, and how many files there are,
    may differ between versions of the library that wrote them.
    """
    digest = hashlib.sha256(recipe.encode())
    for name, (file, start, end, kind) in sorted(checkpoint.tensors(folder).items()):
        digest.update(f"\0{name} {kind}\0".encode())
        digest.update(np.memmap(file, np.uint8, "r", start, end - start))
    return digest.hexdigest()


def _compress(source, target, rule, scheme):
    python = environment()
    for file in source.iterdir():  # the tokenizer as it is, to the byte
        if file.is_file() and not file.name.startswith(("model", "config.json")):
            shutil.copy(file, target)
    title = f"{scheme} of {models.served_name(source)}"
    # -P: not the modules beside the worker, of which one is called profile
    command = [str(python), "-P", str(WORKER), str(source), str(target), rule]
    run(command, title, "Read the last log lines; a large model needs as much memory, twice.")
    if bad := checkpoint.damage(target):
        raise LabError(f"llmcompressor left {title} incomplete: {bad}.",
                       fix="Free some space on the disk, and run this cell again.")


def environment():
    """The Python of .venv-compress, which is built or brought up to date if it must be."""
    job = install.Job("compress", os.environ)
    if job.todo():
        run([sys.executable, install.__file__, "compress"], ".venv-compress",
            "It is needed only to make checkpoints. With a network, run this cell again: it goes "
            "on from here. Without one, copy checkpoints that were made elsewhere into "
            f"{models.cache_folder()}.")
    return job.venv / "bin" / "python"


def run(command, title, fix):
    """Run a command that ends with this process, its last line of output shown as it goes."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"compress-{os.getpid()}.log"
    log.write_bytes(b"")
    line = Line(f"{title}: starting")
    process = supervisor.start(command, env=os.environ | QUIET, log_path=log)
    try:
        while (code := supervisor.exit_code(process)) is None:
            line.update(f"{title}, {line.elapsed_s:.0f} s: {_last(log)[-1][:80]}")
            time.sleep(0.2)
    finally:
        supervisor.stop(process)
    line.done(f"{title}: {'failed' if code else 'done'} after {line.elapsed_s:.0f} s")
    if code:
        raise LabError(f"Making {title} failed.", cause="The log lines below say it.", fix=fix,
                       log="\n".join(_last(log)[-12:]))


def _last(log):
    """The lines of a log, of which progress bars have many, the empty ones left out."""
    text = log.read_text(errors="replace").replace("\r", "\n")
    return [each for each in text.splitlines() if each.strip()] or [""]


def kernel(server):
    """What its log says of the kernel that computes the compressed matrices; '' if nothing."""
    found = re.search(r"(?:Selected|Using) (\w+) for (?:Compressed|Fp8|FP8)\w+", server.log())
    return found[1] if found else ""


def loaded_bytes(server, *, pool_bytes):
    """Bytes that the engine holds without its cache pool.

    On a GPU what its log says that loading the model took; else all that its processes hold
    (machine.engine_memory), less the pool: libraries and working memory are in it.
    """
    said = re.search(r"Model loading took ([\d.]+) GiB", server.log())
    return float(said[1]) * 2**30 if said else machine.engine_memory(server) - pool_bytes


def online(model, **flags):
    """{arm: Server}: 'FP8 online' is `model` with --quantization fp8, which rounds as it loads.

    Beside it a baseline 'BF16' of the same model, where a GPU is used: elsewhere no build of vLLM
    has the FP8 kernels, and the engine ends as it starts. flags: vLLM's own, of both.
    """
    folder, arms = models.prepare(model), {"FP8 online": {"quantization": "fp8"}}
    if profile.current().name == "gpu":
        arms["BF16"] = {}
    return {arm: servers.serve(folder, name=f"{arm}, {model}", **flags, **more)
            for arm, more in arms.items()}
