"""Scales of an FP8 KV cache: calibrated, left at 1, and how to tell which an engine has.

    calibrated = kv_scales.folder("smollm2-135m", kv_scales.scales("smollm2-135m"))
    plain = kv_scales.folder("smollm2-135m", {})       # asks for scales, but has none
    kv_scales.require(log, calibrated, layers=30)      # LabError where they are left at 1

A number x is kept as the FP8 number nearest to x / scale, and read back times scale; FP8 E4M3 ends
at 448. The folder has links to the model's files, and one small file of scales beside them.
"""

import json
import os
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import yaml
from safetensors.numpy import save_file

from helpers import checkpoint, compress, models
from helpers.errors import LabError

WORKER = Path(__file__).with_name("calibrate_worker.py")
DATA = Path(__file__).parent.parent / "data"
SHIPPED = DATA / "kv_scales.json"
SAMPLES = 16
# What vLLM writes where a checkpoint asks for scales and has none, or all are 1
# (vllm/model_executor/layers/quantization/kv_cache.py, read in 0.30).
BETRAYAL = "Using KV cache scaling factor 1.0"
SCHEME = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False,
          "symmetric": True}
LARGEST = {"observer": "static_minmax"}  # of all samples; by itself it is that of the last
QUANTIZATION = {"quant_method": "compressed-tensors", "format": "dense", "config_groups": {},
                "ignore": [], "kv_cache_scheme": SCHEME, "quantization_status": "compressed"}


def texts():
    """The last passages, to calibrate on. The lab scores the prose, and asks about the other
    passages (the task course_first_passages)."""
    paths = sorted((DATA / "passages").glob("*.yaml"))[-SAMPLES:]
    return [yaml.safe_load(path.read_text(encoding="utf-8"))["passage"] for path in paths]


def scales(model):
    """{tensor name: scale} of a model: those that ship, else calibrated now (`calibrate`)."""
    shipped = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return shipped[model]["scales"] if model in shipped else calibrate(model)


def calibrate(model):
    """{tensor name: scale} by llmcompressor on `texts`, about a minute. Raises LabError."""
    python = compress.environment()
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "asked.json"
        file.write_text(json.dumps({"texts": texts(), "scheme": SCHEME | LARGEST}),
                        encoding="utf-8")
        command = [str(python), "-P", str(WORKER), str(models.prepare(model)), made, str(file)]
        compress.run(command, f"Scales of {model}", "Read the last log lines.")
        return read(made)


def read(folder):
    """{tensor name: scale} of a checkpoint folder: its k_scale and v_scale, BF16 or F32."""
    found = {}
    for name, (file, start, end, (kind, _)) in checkpoint.tensors(folder).items():
        if name.endswith((".k_scale", ".v_scale")):
            raw = np.fromfile(file, np.uint8, end - start, offset=start)
            wide = raw if kind == "F32" else np.concatenate([np.zeros(2, np.uint8), raw])
            found[name] = float(wide.view(np.float32)[0])
    return found


def folder(model, values):
    """A folder that vLLM serves: the model's own files as links, and `values` in a small file.

    values: {tensor name: scale}; {} makes a checkpoint that asks for scales and has none.
    """
    source = models.prepare(model).resolve()
    if models.has_random_weights(source):
        raise LabError("Random weights have no quality to lose.", fix="Use compress.source.")
    key = sha256(json.dumps([str(source), values], sort_keys=True).encode()).hexdigest()[:12]
    kind = "calibrated" if values else "unscaled"
    return models.made_once(f"{kind}-cache-{key}", lambda target: _fill(source, target, values))


def _fill(source, target, values):
    for file in source.iterdir():
        if file.is_file() and file.name not in ("config.json", "model.safetensors.index.json"):
            if file.suffix == ".safetensors":
                os.symlink(file.resolve(), target / file.name)
            else:
                shutil.copy(file, target)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = QUANTIZATION
    (target / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    index = {name: Path(file).name for name, (file, *_) in checkpoint.tensors(source).items()}
    if values:
        tensors = {name: np.array([value], np.float32) for name, value in values.items()}
        save_file(tensors, target / "kv_scales.safetensors", metadata={"format": "pt"})
        index |= dict.fromkeys(values, "kv_scales.safetensors")
    (target / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index}), encoding="utf-8")


def betrayed(log):
    """The line of an engine's log that says its scales are 1, or ''."""
    return next((line.strip() for line in log.splitlines() if BETRAYAL in line), "")


def require(log, path, *, layers):
    """Raise LabError unless the checkpoint at `path` has the scales of all layers, not all 1, and
    the engine's log does not say that they were left at 1; returns {tensor name: scale}."""
    found = read(path)
    if len(found) != 2 * layers:
        raise LabError(f"Called calibrated, but {Path(path).name} has {len(found)} scales, not "
                       f"{2 * layers}.", fix="Calibrate again, or name the arm for what it is.")
    line = betrayed(log)
    if line or all(value == 1 for value in found.values()):
        raise LabError("Called calibrated, but the engine uses scales of 1.",
                       cause=line or "All scales in the checkpoint are 1.",
                       fix="Look at the names of the scales: the engine did not find them.")
    return found


def require_effect(calibrated, uncalibrated):
    """Raise LabError where two engines gave every token the very same NLL: scales were ignored."""
    if len(calibrated) == len(uncalibrated) and (
            np.asarray(calibrated) == np.asarray(uncalibrated)).all():
        raise LabError("Called calibrated, but it answers exactly as with scales of 1.",
                       cause="The engine did not use the scales, or keeps no FP8 cache.",
                       fix="Compare the names of the scales with those that vLLM loads.")


def ship(model=models.OFFLINE_DEFAULT):
    """Calibrate a model and write its scales into data/kv_scales.json."""
    shipped = json.loads(SHIPPED.read_text(encoding="utf-8")) if SHIPPED.exists() else {}
    shipped[model] = {"made_by": "python -m helpers.kv_scales", "with": "llmcompressor 0.13.0",
                      "samples": SAMPLES, "scales": calibrate(model)}
    SHIPPED.write_text(json.dumps(shipped, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    ship()
